"""Catalog rows of single data files and delete files."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from headwater.lake.connection import Database
from headwater.lake.format.name_mappings import mapping_rows
from headwater.lake.model import NameMapping, StagedDeletes, StagedFile
from headwater.lake.writing.draft import FileDeletes
from headwater.lake.writing.schema_rows import Numbers
from headwater.lake.writing.statements import Statement, insert, statement

_DATA_FILE_FIELDS = (
    "data_file_id",
    "table_id",
    "begin_snapshot",
    "path",
    "path_is_relative",
    "file_format",
    "record_count",
    "file_size_bytes",
    "footer_size",
    "row_id_start",
    "partition_id",
    "encryption_key",
    "mapping_id",
    "partial_max",
)
_DELETE_FILE_FIELDS = (
    "delete_file_id",
    "table_id",
    "begin_snapshot",
    "data_file_id",
    "path",
    "path_is_relative",
    "format",
    "delete_count",
    "file_size_bytes",
    "footer_size",
    "encryption_key",
    "partial_max",
)
_FILE_STATS_FIELDS = (
    "data_file_id",
    "table_id",
    "column_id",
    "column_size_bytes",
    "value_count",
    "null_count",
    "min_value",
    "max_value",
    "contains_nan",
    "extra_stats",
)


def data_file(
    db: Database,
    numbers: Numbers,
    file_id: int,
    table_id: int,
    staged: StagedFile,
    begin_snapshot: int,
    partial_max: int | None,
    row_id_start: int | None = None,
    mapping_id: int | None = None,
) -> list[Statement]:
    """Rows for one data file: itself, its statistics, its partition values."""
    partition = numbers.real(staged.partition_id) if staged.partition_id is not None else None
    row = (
        file_id,
        table_id,
        begin_snapshot,
        staged.path,
        staged.path_is_relative,
        "parquet",
        staged.record_count,
        staged.file_size_bytes,
        staged.footer_size,
        row_id_start,
        partition,
        staged.encryption_key,
        mapping_id,
        partial_max,
    )
    stats = [
        (
            file_id,
            table_id,
            s.column_id,
            s.size_bytes,
            s.value_count,
            s.null_count,
            s.min_value,
            s.max_value,
            s.contains_nan,
            s.extra_stats,
        )
        for s in staged.column_stats
    ]
    values = enumerate(staged.partition_values) if partition is not None else ()
    return [
        *insert(db, "ducklake_data_file", _DATA_FILE_FIELDS, [row]),
        *insert(db, "ducklake_file_column_stats", _FILE_STATS_FIELDS, stats),
        *insert(
            db,
            "ducklake_file_partition_value",
            ("data_file_id", "table_id", "partition_key_index", "partition_value"),
            [(file_id, table_id, index, value) for index, value in values],
        ),
    ]


def column_mapping(
    db: Database, mapping_id: int, table_id: int, mapping: Sequence[NameMapping]
) -> list[Statement]:
    """Rows for the names by which files without field ids at every level are read."""
    return [
        *insert(
            db,
            "ducklake_column_mapping",
            ("mapping_id", "table_id", "type"),
            [(mapping_id, table_id, "map_by_name")],
        ),
        *insert(
            db,
            "ducklake_name_mapping",
            ("mapping_id", "column_id", "source_name", "target_field_id", "parent_column", "is_partition"),
            [(mapping_id, *row) for row in mapping_rows(mapping)],
        ),
    ]


def delete_file(
    db: Database, numbers: Numbers, table_id: int, data_file_id: int, staged: StagedDeletes
) -> list[Statement]:
    """The row for one delete file."""
    first = numbers.snapshot_id if staged.first_snapshot is None else staged.first_snapshot
    row = (
        numbers.file_id(),
        table_id,
        first,
        data_file_id,
        staged.path,
        True,
        "parquet",
        staged.count,
        staged.file_size_bytes,
        staged.footer_size,
        staged.encryption_key,
        staged.last_snapshot,
    )
    return insert(db, "ducklake_delete_file", _DELETE_FILE_FIELDS, [row])


def retire_delete_files(db: Database, deletes: FileDeletes) -> list[Statement]:
    """Take replaced delete files out of the catalog and schedule them for deletion."""
    ids = [d.id for d in deletes.delete_files]
    if not ids:
        return []
    return [
        *schedule_files(db, "ducklake_delete_file", ids),
        *statement(
            sql.SQL("DELETE FROM {} WHERE delete_file_id = ANY(%s)").format(db.name("ducklake_delete_file")),
            (ids,),
            expected=len(ids),
        ),
    ]


def schedule_files(db: Database, table: str, ids: Sequence[int]) -> list[Statement]:
    """Schedule files of `ducklake_data_file` or `ducklake_delete_file` for deletion, by their ids."""
    if not ids:
        return []
    key = "data_file_id" if table == "ducklake_data_file" else "delete_file_id"
    return statement(
        sql.SQL(
            "INSERT INTO {} (data_file_id, path, path_is_relative, schedule_start) "
            "SELECT d.{key}, CASE WHEN NOT d.path_is_relative THEN d.path "
            "WHEN NOT t.path_is_relative THEN t.path || d.path ELSE s.path || t.path || d.path END, "
            "d.path_is_relative AND t.path_is_relative AND s.path_is_relative, now() "
            "FROM {} d JOIN LATERAL (SELECT path, path_is_relative, schema_id FROM {} t "
            "WHERE t.table_id = d.table_id ORDER BY begin_snapshot DESC LIMIT 1) t ON true "
            "JOIN {} s ON s.schema_id = t.schema_id WHERE d.{key} = ANY(%s)"
        ).format(
            db.name("ducklake_files_scheduled_for_deletion"),
            db.name(table),
            db.name("ducklake_table"),
            db.name("ducklake_schema"),
            key=sql.Identifier(key),
        ),
        (list(ids),),
    )
