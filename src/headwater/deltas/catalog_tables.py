"""The delta store's own tables in PostgreSQL, and what is asked of them.

Rows about deltas, tombstones and compactions are never deleted, so that who erased what, and why, can be
told after the dataset itself is gone. Of personal data they hold the keys of tombstones, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

COMPONENT = "deltas"
VERSIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE headwater.delta_dataset (
            lake_id uuid NOT NULL, id uuid NOT NULL, schema_name text NOT NULL, name text NOT NULL,
            base_table_id bigint NOT NULL, log_table_id bigint NOT NULL, key_columns bigint[] NOT NULL,
            columns jsonb NOT NULL, created_snapshot bigint NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(), dropped_snapshot bigint, dropped_at timestamptz,
            PRIMARY KEY (lake_id, id))""",
        """CREATE UNIQUE INDEX delta_dataset_name ON headwater.delta_dataset
            (lake_id, lower(schema_name), lower(name)) WHERE dropped_snapshot IS NULL""",
        """CREATE TABLE headwater.delta (
            lake_id uuid NOT NULL, id uuid NOT NULL, dataset_id uuid NOT NULL, kind text NOT NULL,
            row_count bigint NOT NULL, actor text, reason text, operation_id text,
            snapshot_id bigint NOT NULL, written_at timestamptz NOT NULL DEFAULT now(),
            folded_snapshot bigint, PRIMARY KEY (lake_id, id))""",
        "CREATE INDEX delta_of_dataset ON headwater.delta (lake_id, dataset_id, snapshot_id)",
        """CREATE TABLE headwater.delta_audit (
            lake_id uuid NOT NULL, delta_id uuid NOT NULL, place bigint NOT NULL, dataset_id uuid NOT NULL,
            key_hash text NOT NULL, key jsonb NOT NULL, actor text, reason text,
            at timestamptz NOT NULL DEFAULT now(), snapshot_id bigint NOT NULL,
            matched boolean, folded_snapshot bigint, verified_at timestamptz,
            PRIMARY KEY (lake_id, delta_id, place))""",
        "CREATE INDEX delta_audit_key ON headwater.delta_audit (lake_id, dataset_id, key_hash)",
        """CREATE TABLE headwater.delta_compaction (
            lake_id uuid NOT NULL, id uuid NOT NULL, dataset_id uuid NOT NULL, operation_id text,
            read_snapshot_id bigint NOT NULL, snapshot_id bigint NOT NULL, result jsonb NOT NULL,
            at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lake_id, id))""",
        "CREATE INDEX delta_compaction_of ON headwater.delta_compaction (lake_id, dataset_id, snapshot_id)",
    ),
)

_DATASET = (
    "SELECT id::text, schema_name, name, base_table_id, log_table_id, key_columns, columns, created_snapshot "
    "FROM headwater.delta_dataset WHERE lake_id = %(lake)s AND dropped_snapshot IS NULL"
)
DATASETS = _DATASET + " ORDER BY schema_name, name"
DATASET = _DATASET + " AND lower(schema_name) = lower(%(schema)s) AND lower(name) = lower(%(name)s)"

TABLE_IDS = """
    SELECT t.table_name, t.table_id FROM {ducklake_table} t JOIN {ducklake_schema} s USING (schema_id)
    WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL AND s.schema_name = %(schema)s
        AND t.table_name = %(name)s"""

CHANGES_SINCE = """
    SELECT changes_made FROM {ducklake_snapshot_changes}
    WHERE snapshot_id > %(since)s AND snapshot_id < %(snapshot)s AND changes_made IS NOT NULL"""

ADD_DATASET = """
    INSERT INTO headwater.delta_dataset (lake_id, id, schema_name, name, base_table_id, log_table_id,
        key_columns, columns, created_snapshot)
    VALUES (%(lake)s, %(id)s, %(schema)s, %(name)s, %(base)s, %(log)s, %(key)s, %(columns)s::jsonb,
        %(snapshot)s)"""

SET_COLUMNS = """
    UPDATE headwater.delta_dataset SET columns = %(columns)s::jsonb
    WHERE lake_id = %(lake)s AND id = %(id)s AND dropped_snapshot IS NULL"""

DROP_DATASET = """
    UPDATE headwater.delta_dataset SET dropped_snapshot = %(snapshot)s, dropped_at = now()
    WHERE lake_id = %(lake)s AND id = %(id)s AND dropped_snapshot IS NULL"""

# Only for a dataset that is still there: a delta for one that was dropped meanwhile would be lost unnoticed.
ADD_DELTA = """
    INSERT INTO headwater.delta (lake_id, id, dataset_id, kind, row_count, actor, reason, operation_id,
        snapshot_id)
    SELECT d.lake_id, %(delta)s, d.id, %(kind)s, %(rows)s, %(actor)s, %(reason)s, %(operation)s, %(snapshot)s
    FROM headwater.delta_dataset d
    WHERE d.lake_id = %(lake)s AND d.id = %(id)s AND d.dropped_snapshot IS NULL"""

ADD_AUDIT = """
    INSERT INTO headwater.delta_audit (lake_id, delta_id, place, dataset_id, key_hash, key, actor, reason,
        snapshot_id)
    SELECT %(lake)s, %(delta)s, (one->>'place')::bigint, %(id)s,
        one->>'hash', one->'key', %(actor)s, %(reason)s, %(snapshot)s
    FROM jsonb_array_elements(%(keys)s::jsonb) AS one"""

_DELTA = (
    "SELECT id::text, kind, row_count, actor, reason, operation_id, snapshot_id, written_at, folded_snapshot "
    "FROM headwater.delta WHERE lake_id = %(lake)s AND dataset_id = %(id)s"
)
DELTAS = _DELTA + " AND (%(all)s OR folded_snapshot IS NULL) ORDER BY snapshot_id, written_at, id"
DELTA_AT = _DELTA + " AND snapshot_id = %(snapshot)s"

WAITING = """
    SELECT count(*) FILTER (WHERE kind = 'upsert'),
        coalesce(sum(row_count) FILTER (WHERE kind = 'tombstone'), 0)::bigint, min(written_at),
        coalesce(extract(epoch FROM clock_timestamp() - min(written_at)), 0)::float8
    FROM headwater.delta WHERE lake_id = %(lake)s AND dataset_id = %(id)s AND folded_snapshot IS NULL"""

# What a compaction read is everything up to its snapshot that no other has folded.
FOLD = """
    UPDATE headwater.delta SET folded_snapshot = %(snapshot)s
    WHERE lake_id = %(lake)s AND dataset_id = %(id)s AND folded_snapshot IS NULL
        AND snapshot_id <= %(read)s"""

FOLD_AUDIT = """
    UPDATE headwater.delta_audit SET folded_snapshot = %(snapshot)s, matched = true
    WHERE lake_id = %(lake)s AND dataset_id = %(id)s AND folded_snapshot IS NULL
        AND snapshot_id <= %(read)s"""

UNMATCHED = """
    UPDATE headwater.delta_audit a SET matched = false
    FROM jsonb_array_elements(%(unmatched)s::jsonb) AS one
    WHERE a.lake_id = %(lake)s AND a.delta_id = (one->>0)::uuid AND a.place = (one->>1)::bigint"""

ADD_COMPACTION = """
    INSERT INTO headwater.delta_compaction (lake_id, id, dataset_id, operation_id, read_snapshot_id,
        snapshot_id, result)
    VALUES (%(lake)s, %(compaction)s, %(id)s, %(operation)s, %(read)s, %(snapshot)s, %(result)s::jsonb)"""

COMPACTIONS = """
    SELECT result, snapshot_id FROM headwater.delta_compaction
    WHERE lake_id = %(lake)s AND dataset_id = %(id)s ORDER BY snapshot_id DESC LIMIT %(limit)s"""

COMPACTION_AT = """
    SELECT result, snapshot_id FROM headwater.delta_compaction
    WHERE lake_id = %(lake)s AND dataset_id = %(id)s AND snapshot_id = %(snapshot)s"""

_AUDIT = (
    "SELECT key, actor, reason, at, snapshot_id, matched, folded_snapshot, verified_at "
    "FROM headwater.delta_audit WHERE lake_id = %(lake)s AND dataset_id = %(id)s"
)
AUDIT = _AUDIT + " ORDER BY snapshot_id, delta_id, place LIMIT %(limit)s"
AUDIT_OF = _AUDIT + " AND key_hash = %(hash)s ORDER BY snapshot_id, delta_id, place"

# That nothing is found now says nothing of rows that are written later: those have tombstones of their own.
VERIFIED = """
    UPDATE headwater.delta_audit SET verified_at = now()
    WHERE lake_id = %(lake)s AND dataset_id = %(id)s AND key_hash = %(hash)s
        AND folded_snapshot IS NOT NULL"""

# Every file of a table that the catalog still names, whichever snapshot sees it.
FILES = """
    SELECT f.data_file_id, CASE WHEN f.path_is_relative THEN %(folder)s::text || f.path ELSE f.path END,
        f.record_count, f.file_size_bytes, f.footer_size, f.row_id_start, f.begin_snapshot, f.end_snapshot,
        f.partition_id, f.encryption_key, f.mapping_id, f.partial_max
    FROM {ducklake_data_file} f WHERE f.table_id = %(table)s ORDER BY f.data_file_id"""

DELETE_FILES = """
    SELECT CASE WHEN d.path_is_relative THEN %(folder)s::text || d.path ELSE d.path END
    FROM {ducklake_delete_file} d WHERE d.table_id = %(table)s"""

SCHEDULED = """
    SELECT CASE WHEN path_is_relative THEN %(folder)s::text || path ELSE path END
    FROM {ducklake_files_scheduled_for_deletion}"""

MAPPINGS = """
    SELECT n.mapping_id, n.column_id, n.source_name, n.target_field_id, n.parent_column, n.is_partition
    FROM {ducklake_name_mapping} n JOIN {ducklake_column_mapping} m USING (mapping_id)
    WHERE m.table_id = %(table)s ORDER BY n.mapping_id, n.column_id"""
