"""Tables in PostgreSQL that hold stream tables, and the statements that keep them.

Many rows travel as one JSON array, so a wave of any size is one statement and one round trip.
"""

from __future__ import annotations

#: Tags of a stream table's view that change with each refresh.
REFRESHED_AT = "headwater.refreshed_at"
DATA_SNAPSHOT_ID = "headwater.data_snapshot_id"
REFRESH_ID = "headwater.refresh_id"

#: The reason of a refresh that failed since one that it reads did: it does not count as a failure of its own.
UPSTREAM_FAILED = "upstream_failed"

#: The name under which the version of these tables is kept.
COMPONENT = "stream_tables"

#: What leads from each version of the tables to the next.
VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE headwater.stream_table (
            lake_id uuid NOT NULL, id uuid NOT NULL, schema_name text NOT NULL, name text NOT NULL,
            definition jsonb NOT NULL, status text NOT NULL, stages jsonb NOT NULL, columns jsonb NOT NULL,
            upstream jsonb NOT NULL, traits jsonb NOT NULL DEFAULT '{}',
            failures int NOT NULL DEFAULT 0, last_error text,
            created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (lake_id, id))""",
        """CREATE UNIQUE INDEX stream_table_name
            ON headwater.stream_table (lake_id, lower(schema_name), lower(name))""",
        """CREATE TABLE headwater.stream_frontier (
            lake_id uuid NOT NULL, stream_id uuid NOT NULL, data_snapshot_id bigint NOT NULL,
            snapshot_id bigint NOT NULL, moment timestamptz NOT NULL, sources jsonb NOT NULL,
            PRIMARY KEY (lake_id, stream_id),
            FOREIGN KEY (lake_id, stream_id) REFERENCES headwater.stream_table (lake_id, id)
                ON DELETE CASCADE)""",
        # History and provenance outlive their stream table: the snapshots that they speak of do, too.
        """CREATE TABLE headwater.refresh (
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            lake_id uuid NOT NULL, stream_id uuid NOT NULL, table_schema text NOT NULL,
            table_name text NOT NULL, name text NOT NULL, action text NOT NULL, strategy text NOT NULL,
            reason_code text NOT NULL, reason text NOT NULL, mode text NOT NULL,
            rows_inserted bigint NOT NULL, rows_deleted bigint NOT NULL, rows_in bigint NOT NULL,
            files_read bigint NOT NULL, bytes_read bigint NOT NULL, snapshot_id bigint,
            data_snapshot_id bigint, seconds double precision NOT NULL, stages jsonb NOT NULL,
            predicted_incremental double precision, predicted_full double precision,
            refresh_id text NOT NULL, wave_id text NOT NULL, started_at timestamptz, error jsonb,
            times int NOT NULL DEFAULT 1, recorded_at timestamptz NOT NULL DEFAULT now())""",
        "CREATE INDEX refresh_of_stream ON headwater.refresh (lake_id, stream_id, number)",
        "CREATE INDEX refresh_of_lake ON headwater.refresh (lake_id, number)",
        """CREATE TABLE headwater.provenance (
            lake_id uuid NOT NULL, snapshot_id bigint NOT NULL, stream_id uuid NOT NULL,
            table_schema text NOT NULL, table_name text NOT NULL, name text NOT NULL,
            data_snapshot_id bigint NOT NULL, refresh_id text NOT NULL, wave_id text NOT NULL,
            action text NOT NULL, rows_inserted bigint NOT NULL, rows_deleted bigint NOT NULL,
            sources jsonb NOT NULL, written_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (lake_id, snapshot_id, stream_id))""",
        "CREATE INDEX provenance_of_stream ON headwater.provenance (lake_id, stream_id, snapshot_id)",
    ),
    (
        """CREATE TABLE headwater.sink (
            lake_id uuid NOT NULL, stream_id uuid NOT NULL, name text NOT NULL, storage_table_id bigint,
            snapshot_id bigint, refresh_id text, sequence bigint NOT NULL DEFAULT 0,
            behind boolean NOT NULL DEFAULT false, delivered_at timestamptz,
            failures int NOT NULL DEFAULT 0, last_error text, failing_since timestamptz,
            next_try_at timestamptz, PRIMARY KEY (lake_id, stream_id, name),
            FOREIGN KEY (lake_id, stream_id) REFERENCES headwater.stream_table (lake_id, id)
                ON DELETE CASCADE)""",
    ),
    ("ALTER TABLE headwater.stream_frontier ADD COLUMN behind boolean NOT NULL DEFAULT false",),
    # What counts the rows of a group counts other rows than before where a left join is below (`padding`).
    ("UPDATE headwater.stream_frontier SET behind = true",),
)

_REFRESH = {
    "stream_id": "uuid",
    "table_schema": "text",
    "table_name": "text",
    "name": "text",
    "action": "text",
    "strategy": "text",
    "reason_code": "text",
    "reason": "text",
    "mode": "text",
    "rows_inserted": "bigint",
    "rows_deleted": "bigint",
    "rows_in": "bigint",
    "files_read": "bigint",
    "bytes_read": "bigint",
    "snapshot_id": "bigint",
    "data_snapshot_id": "bigint",
    "seconds": "double precision",
    "stages": "jsonb",
    "predicted_incremental": "double precision",
    "predicted_full": "double precision",
    "refresh_id": "text",
    "wave_id": "text",
    "started_at": "timestamptz",
    "error": "jsonb",
}
#: Columns of a refresh, in the order of the statements here.
REFRESH_COLUMNS = tuple(_REFRESH)
_COLUMNS = ", ".join(_REFRESH)
_TYPES = ", ".join(f"{name} {kind}" for name, kind in _REFRESH.items())

STREAMS = """
    SELECT t.id, t.schema_name, t.name, t.definition, t.status, t.stages, t.columns, t.upstream, t.traits,
        t.failures, t.last_error, t.created_at, f.data_snapshot_id, f.snapshot_id, f.moment, f.sources,
        f.behind,
        (SELECT jsonb_agg(to_jsonb(s) ORDER BY s.name) FROM headwater.sink s
            WHERE s.lake_id = t.lake_id AND s.stream_id = t.id)
    FROM headwater.stream_table t
    LEFT JOIN headwater.stream_frontier f ON f.lake_id = t.lake_id AND f.stream_id = t.id
    WHERE t.lake_id = %(lake)s
        AND (%(schema)s::text IS NULL
            OR (lower(t.schema_name) = lower(%(schema)s) AND lower(t.name) = lower(%(name)s)))
    ORDER BY t.schema_name, t.name"""

HISTORY = f"""
    SELECT {_COLUMNS}, times, recorded_at FROM headwater.refresh
    WHERE lake_id = %(lake)s
        AND (%(schema)s::text IS NULL
            OR (lower(table_schema) = lower(%(schema)s) AND lower(table_name) = lower(%(name)s)))
    ORDER BY number DESC LIMIT %(limit)s"""

PROVENANCE = """
    SELECT stream_id, name, snapshot_id, data_snapshot_id, refresh_id, wave_id, action, rows_inserted,
        rows_deleted, sources, written_at
    FROM headwater.provenance
    WHERE lake_id = %(lake)s
        AND (%(schema)s::text IS NULL
            OR (lower(table_schema) = lower(%(schema)s) AND lower(table_name) = lower(%(name)s)))
    ORDER BY snapshot_id DESC, written_at DESC LIMIT %(limit)s"""

INSERT = """
    INSERT INTO headwater.stream_table (lake_id, id, schema_name, name, definition, status, stages, columns,
        upstream, traits, failures, last_error, created_at)
    VALUES (%(lake)s, %(id)s, %(schema)s, %(name)s, %(definition)s::jsonb, %(status)s, %(stages)s::jsonb,
        %(columns)s::jsonb, %(upstream)s::jsonb, %(traits)s::jsonb, %(failures)s, %(last_error)s,
        coalesce(%(created_at)s::timestamptz, now()))
    ON CONFLICT DO NOTHING"""

REPLACE = """
    UPDATE headwater.stream_table
    SET definition = %(definition)s::jsonb, status = %(status)s, stages = %(stages)s::jsonb,
        columns = %(columns)s::jsonb, upstream = %(upstream)s::jsonb, traits = %(traits)s::jsonb,
        failures = %(failures)s, last_error = %(last_error)s, updated_at = now()
    WHERE lake_id = %(lake)s AND id = %(id)s"""

DELETE = "DELETE FROM headwater.stream_table WHERE lake_id = %(lake)s AND id = %(id)s"

SET_FRONTIER = """
    INSERT INTO headwater.stream_frontier
        (lake_id, stream_id, data_snapshot_id, snapshot_id, moment, sources, behind)
    VALUES (%(lake)s, %(id)s, %(data_snapshot_id)s, %(snapshot_id)s, %(moment)s, %(sources)s::jsonb,
        %(behind)s)
    ON CONFLICT (lake_id, stream_id) DO UPDATE
    SET data_snapshot_id = excluded.data_snapshot_id, snapshot_id = excluded.snapshot_id,
        moment = excluded.moment, sources = excluded.sources, behind = excluded.behind"""

# Whoever refreshed one meanwhile has moved it himself.
MOVE_ON = """
    UPDATE headwater.stream_frontier f
    SET data_snapshot_id = g.data_snapshot_id, sources = g.sources
    FROM jsonb_to_recordset(%(rows)s::jsonb)
        AS g (stream_id uuid, snapshot_id bigint, before bigint, data_snapshot_id bigint, sources jsonb)
    WHERE f.lake_id = %(lake)s AND f.stream_id = g.stream_id AND f.snapshot_id = g.snapshot_id
        AND f.data_snapshot_id = g.before"""

DROP_FRONTIER = "DELETE FROM headwater.stream_frontier WHERE lake_id = %(lake)s AND stream_id = %(id)s"

SET_STATUS = """
    UPDATE headwater.stream_table
    SET status = %(status)s, updated_at = now(),
        failures = CASE WHEN %(resumed)s THEN 0 ELSE failures END,
        last_error = CASE WHEN %(resumed)s THEN NULL ELSE last_error END
    WHERE lake_id = %(lake)s AND id = %(id)s"""

SET_DEFINITION = """
    UPDATE headwater.stream_table SET definition = %(definition)s::jsonb, updated_at = now()
    WHERE lake_id = %(lake)s AND id = %(id)s"""

# What the tables of sinks were filled from must still be the result.
SET_SINKS = """
    UPDATE headwater.stream_table t
    SET definition = %(definition)s::jsonb, traits = %(traits)s::jsonb, updated_at = now()
    WHERE lake_id = %(lake)s AND id = %(id)s AND (
        SELECT f.snapshot_id FROM headwater.stream_frontier f
        WHERE f.lake_id = t.lake_id AND f.stream_id = t.id) IS NOT DISTINCT FROM %(before)s"""

_SINK = {
    "stream_id": "uuid",
    "name": "text",
    "storage_table_id": "bigint",
    "snapshot_id": "bigint",
    "refresh_id": "text",
    "sequence": "bigint",
    "behind": "boolean",
    "delivered_at": "timestamptz",
    "failures": "int",
    "last_error": "text",
    "failing_since": "timestamptz",
    "next_try_at": "timestamptz",
}
_SINK_COLUMNS = ", ".join(_SINK)

# A sink that was dropped meanwhile, with its stream table, leaves no note.
NOTE_SINKS = f"""
    INSERT INTO headwater.sink (lake_id, {_SINK_COLUMNS})
    SELECT %(lake)s, {", ".join(f"g.{name}" for name in _SINK)}
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS g ({", ".join(f"{n} {k}" for n, k in _SINK.items())})
    JOIN headwater.stream_table t ON t.lake_id = %(lake)s AND t.id = g.stream_id
    ON CONFLICT (lake_id, stream_id, name) DO UPDATE
    SET {", ".join(f"{name} = excluded.{name}" for name in list(_SINK)[2:])}"""

FORGET_SINKS = """
    DELETE FROM headwater.sink WHERE lake_id = %(lake)s AND stream_id = %(id)s AND name <> ALL (%(names)s)"""

#: The refresh that wrote what a stream table shows.
REFRESH_AT = """
    SELECT refresh_id FROM headwater.provenance
    WHERE lake_id = %(lake)s AND stream_id = %(id)s AND snapshot_id <= %(snapshot)s
    ORDER BY snapshot_id DESC LIMIT 1"""

#: Ids of tables that the same commit creates.
TABLE_IDS = """
    SELECT s.schema_name, t.table_name, t.table_id
    FROM {ducklake_table} t JOIN {ducklake_schema} s USING (schema_id)
    WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL AND t.table_name = ANY(%s)"""

# The freshness of a view is changed in place, so that a refresh neither raises the schema version, which
# would make every reader load the catalog anew, nor leaves a row behind: old snapshots have provenance.
#
# A provenance row belongs to the snapshot that this very transaction writes. Where nothing of the lake
# changed there is none: the newest snapshot is somebody else's.
COMMIT = f"""
    WITH given AS (
        SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS g ({_TYPES}, frontier_data bigint,
            frontier_snapshot bigint, moment timestamptz, sources jsonb, checked boolean, before bigint,
            known jsonb, behind boolean)
    ), met AS (
        SELECT g.* FROM given g
        JOIN headwater.stream_table t ON t.lake_id = %(lake)s AND t.id = g.stream_id
        LEFT JOIN headwater.stream_frontier f ON f.lake_id = %(lake)s AND f.stream_id = g.stream_id
        WHERE (NOT g.checked OR f.snapshot_id IS NOT DISTINCT FROM g.before)
            AND (g.known IS NULL OR g.known = jsonb_build_object(
                'options', t.definition -> 'options',
                'sinks', coalesce(t.definition -> 'sinks', jsonb_build_object()),
                'published', coalesce(t.traits -> 'published', '[]')))
    ), moved AS (
        INSERT INTO headwater.stream_frontier
            (lake_id, stream_id, data_snapshot_id, snapshot_id, moment, sources, behind)
        SELECT %(lake)s, stream_id, frontier_data, frontier_snapshot, moment, sources, behind FROM met
        ON CONFLICT (lake_id, stream_id) DO UPDATE
        SET data_snapshot_id = excluded.data_snapshot_id, snapshot_id = excluded.snapshot_id,
            moment = excluded.moment, sources = excluded.sources, behind = excluded.behind
    ), healed AS (
        UPDATE headwater.stream_table t SET failures = 0, last_error = NULL FROM met
        WHERE t.lake_id = %(lake)s AND t.id = met.stream_id
            AND (t.failures <> 0 OR t.last_error IS NOT NULL)
    ), noted AS (
        INSERT INTO headwater.refresh (lake_id, {_COLUMNS}) SELECT %(lake)s, {_COLUMNS} FROM met
    ), written AS (
        INSERT INTO headwater.provenance (lake_id, snapshot_id, stream_id, table_schema, table_name, name,
            data_snapshot_id, refresh_id, wave_id, action, rows_inserted, rows_deleted, sources)
        SELECT %(lake)s, %(snapshot)s, stream_id, table_schema, table_name, name, frontier_data, refresh_id,
            wave_id, action, rows_inserted, rows_deleted, sources
        FROM met
        WHERE EXISTS (SELECT FROM {{ducklake_snapshot}}
            WHERE snapshot_id = %(snapshot)s AND xmin = pg_current_xact_id()::xid)
        ON CONFLICT DO NOTHING
    ), shown AS (
        SELECT v.view_id, tag.key, tag.value FROM met
        JOIN {{ducklake_schema}} s ON s.schema_name = met.table_schema AND s.end_snapshot IS NULL
        JOIN {{ducklake_view}} v
            ON v.schema_id = s.schema_id AND v.view_name = met.table_name AND v.end_snapshot IS NULL,
        LATERAL (VALUES
            ('{REFRESHED_AT}', to_char(met.moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
            ('{DATA_SNAPSHOT_ID}', met.frontier_data::text),
            ('{REFRESH_ID}', met.refresh_id)) AS tag (key, value)
    ), tagged AS (
        UPDATE {{ducklake_tag}} t SET value = shown.value, begin_snapshot = %(snapshot)s FROM shown
        WHERE t.object_id = shown.view_id AND t.key = shown.key AND t.end_snapshot IS NULL
    )
    SELECT stream_id FROM met"""

# A row with the same refresh id is the same refresh, sent again because the answer was lost.
RECORD = f"""
    WITH given AS (
        SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS g ({_TYPES}, last_error text)
    ), met AS (
        SELECT g.*, last.number AS last_number, last.action AS last_action
        FROM given g LEFT JOIN LATERAL (
            SELECT number, action, refresh_id FROM headwater.refresh
            WHERE lake_id = %(lake)s AND stream_id = g.stream_id ORDER BY number DESC LIMIT 1
        ) AS last ON true
        WHERE last.refresh_id IS DISTINCT FROM g.refresh_id
    ), again AS (
        UPDATE headwater.refresh r
        SET times = r.times + 1, recorded_at = now(), reason_code = met.reason_code, reason = met.reason,
            mode = met.mode, data_snapshot_id = met.data_snapshot_id, seconds = met.seconds,
            refresh_id = met.refresh_id, wave_id = met.wave_id
        FROM met
        WHERE r.number = met.last_number AND met.action = 'NO_DATA' AND met.last_action = 'NO_DATA'
    ), noted AS (
        INSERT INTO headwater.refresh (lake_id, {_COLUMNS})
        SELECT %(lake)s, {_COLUMNS} FROM met
        WHERE NOT (met.action = 'NO_DATA' AND met.last_action IS NOT DISTINCT FROM 'NO_DATA')
    )
    UPDATE headwater.stream_table t
    SET failures = CASE WHEN met.action <> 'FAILED' THEN 0
            WHEN met.reason_code = '{UPSTREAM_FAILED}' THEN t.failures ELSE t.failures + 1 END,
        last_error = met.last_error
    FROM met
    WHERE t.lake_id = %(lake)s AND t.id = met.stream_id
        AND (met.action = 'FAILED' OR t.failures <> 0 OR t.last_error IS NOT NULL)
    RETURNING t.id, t.failures"""
