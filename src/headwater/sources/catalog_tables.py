"""Tables in PostgreSQL that hold sources, and the statements that keep them."""

from __future__ import annotations

#: The name under which the version of these tables is kept.
COMPONENT = "sources"

#: What leads from each version of the tables to the next.
VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE headwater.source (
            lake_id uuid NOT NULL, id uuid NOT NULL, name text NOT NULL, dsn text NOT NULL,
            shown text NOT NULL, capture text NOT NULL, reason text NOT NULL, status text NOT NULL,
            generation bigint NOT NULL DEFAULT 0, failures int NOT NULL DEFAULT 0, last_error jsonb,
            captured_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (lake_id, id))""",
        "CREATE UNIQUE INDEX source_name ON headwater.source (lake_id, lower(name))",
        """CREATE TABLE headwater.source_table (
            lake_id uuid NOT NULL, source_id uuid NOT NULL, number int NOT NULL,
            schema_name text NOT NULL, name text NOT NULL, lake_schema text NOT NULL, lake_name text NOT NULL,
            chosen jsonb, condition text, status text NOT NULL, layout jsonb, position text, error jsonb,
            PRIMARY KEY (lake_id, source_id, number),
            FOREIGN KEY (lake_id, source_id) REFERENCES headwater.source (lake_id, id) ON DELETE CASCADE)""",
        """CREATE UNIQUE INDEX source_table_mirror
            ON headwater.source_table (lake_id, lower(lake_schema), lower(lake_name))""",
        # Captures outlive their source: the snapshots that they speak of do, too.
        """CREATE TABLE headwater.capture (
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            lake_id uuid NOT NULL, source_id uuid NOT NULL, source text NOT NULL, batch_id uuid NOT NULL,
            snapshot_id bigint NOT NULL, kind text NOT NULL, position_before text, position_after text,
            lsn text, transactions int NOT NULL, xids jsonb NOT NULL, changes bigint NOT NULL,
            rows_inserted bigint NOT NULL, rows_updated bigint NOT NULL, rows_deleted bigint NOT NULL,
            tables jsonb NOT NULL, committed_at timestamptz NOT NULL DEFAULT now())""",
        "CREATE INDEX capture_snapshot ON headwater.capture (lake_id, snapshot_id)",
    ),
)

SOURCES = """
    SELECT s.id::text, s.name, s.dsn, s.shown, s.capture, s.reason, s.status, s.generation, s.failures,
           s.last_error, s.captured_at, s.created_at,
           coalesce((SELECT jsonb_agg(jsonb_build_object(
               'number', t.number, 'schema', t.schema_name, 'name', t.name, 'lake_schema', t.lake_schema,
               'lake_name', t.lake_name, 'chosen', t.chosen, 'where', t.condition, 'status', t.status,
               'layout', t.layout, 'position', t.position, 'error', t.error) ORDER BY t.number)
            FROM headwater.source_table t WHERE t.lake_id = s.lake_id AND t.source_id = s.id), '[]')
    FROM headwater.source s
    WHERE s.lake_id = %(lake)s AND (%(name)s::text IS NULL OR lower(s.name) = lower(%(name)s::text))
    ORDER BY lower(s.name)"""

INSERT_SOURCE = """
    INSERT INTO headwater.source (lake_id, id, name, dsn, shown, capture, reason, status)
    VALUES (%(lake)s, %(id)s, %(name)s, %(dsn)s, %(shown)s, %(capture)s, %(reason)s, %(status)s)
    ON CONFLICT DO NOTHING"""

INSERT_TABLE = """
    INSERT INTO headwater.source_table
        (lake_id, source_id, number, schema_name, name, lake_schema, lake_name, chosen, condition, status)
    VALUES (%(lake)s, %(id)s, %(number)s, %(schema)s, %(name)s, %(lake_schema)s, %(lake_name)s,
            %(chosen)s::jsonb, %(where)s, %(status)s)
    ON CONFLICT DO NOTHING"""

#: Only who still sees the newest generation may move a source on.
ADVANCE = """
    UPDATE headwater.source SET generation = generation + 1, failures = 0, last_error = NULL,
        captured_at = now()
    WHERE lake_id = %(lake)s AND id = %(id)s AND generation = %(generation)s"""

MOVE_TABLES = """
    UPDATE headwater.source_table t
    SET status = n.status, layout = n.layout, position = n.position, error = n.error
    FROM jsonb_to_recordset(%(tables)s::jsonb)
        AS n(number int, status text, layout jsonb, position text, error jsonb)
    WHERE t.lake_id = %(lake)s AND t.source_id = %(id)s AND t.number = n.number"""

INSERT_CAPTURE = """
    INSERT INTO headwater.capture (lake_id, source_id, source, batch_id, snapshot_id, kind, position_before,
        position_after, lsn, transactions, xids, changes, rows_inserted, rows_updated, rows_deleted, tables)
    VALUES (%(lake)s, %(id)s, %(name)s, %(batch)s, %(snapshot)s, %(kind)s, %(before)s, %(after)s, %(lsn)s,
        %(transactions)s, %(xids)s::jsonb, %(changes)s, %(inserted)s, %(updated)s, %(deleted)s,
        %(tables)s::jsonb)"""

CAPTURES = """
    SELECT source, batch_id::text, snapshot_id, kind, position_before, position_after, lsn, transactions,
           xids, changes, rows_inserted, rows_updated, rows_deleted, tables, committed_at
    FROM headwater.capture
    WHERE lake_id = %(lake)s AND (%(name)s::text IS NULL OR lower(source) = lower(%(name)s::text))
      AND snapshot_id >= coalesce(%(first)s::bigint, snapshot_id)
      AND snapshot_id <= coalesce(%(last)s::bigint, snapshot_id)
    ORDER BY number DESC LIMIT %(limit)s"""

SET_STATUS = """
    UPDATE headwater.source SET status = %(status)s, generation = generation + 1
    WHERE lake_id = %(lake)s AND id = %(id)s"""

FAILED = """
    UPDATE headwater.source SET failures = failures + 1, last_error = %(error)s::jsonb
    WHERE lake_id = %(lake)s AND id = %(id)s"""

DELETE = "DELETE FROM headwater.source WHERE lake_id = %(lake)s AND id = %(id)s"
