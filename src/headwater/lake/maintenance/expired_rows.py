"""Rows of the catalog that no live snapshot sees: found and removed as DuckDB's own expiry does it.

Columns of tables that live on stay, with all their past: new columns take the next id after the largest
that ever was, and files of any age are read by the columns of their time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import sql

from headwater.lake.connection import Connection, Database
from headwater.lake.writing.compaction_rows import OF_FILES
from headwater.lake.writing.file_rows import schedule_files
from headwater.typedefs import SnapshotId, TableId

#: Rows of these name a table by `table_id` and go with it.
_OF_TABLES = (
    "ducklake_table",
    "ducklake_table_stats",
    "ducklake_table_column_stats",
    "ducklake_partition_info",
    "ducklake_partition_column",
    "ducklake_column",
    "ducklake_column_tag",
    "ducklake_sort_info",
    "ducklake_sort_expression",
    "ducklake_schema_versions",
    "ducklake_column_mapping",
    "ducklake_inlined_data_tables",
)
#: Objects with a life of their own.
_WITH_A_LIFE = ("ducklake_schema", "ducklake_view", "ducklake_tag", "ducklake_macro")
_UNSEEN = (
    "{0}.end_snapshot IS NOT NULL AND NOT EXISTS (SELECT FROM {{ducklake_snapshot}} s "
    "WHERE s.snapshot_id >= {0}.begin_snapshot AND s.snapshot_id < {0}.end_snapshot)"
)


@dataclass
class Gone:
    """How much went."""

    tables: int = 0
    files: int = 0
    bytes: int = 0
    inlined_rows: int = 0


class ExpiredRows:
    """Removes snapshots and what only they saw, inside a transaction that is open."""

    def __init__(self, db: Database, connection: Connection):
        self._db = db
        self._connection = connection
        self._gone = Gone()

    def remove(self, snapshots: Sequence[SnapshotId]) -> Gone:
        """Remove those snapshots."""
        for table in ("ducklake_snapshot", "ducklake_snapshot_changes"):
            self._run(f"DELETE FROM {{{table}}} WHERE snapshot_id = ANY(%(ids)s)", ids=list(snapshots))
        tables = self._dead_tables()
        self._remove_files(tables)
        self._remove_inlined(tables)
        self._remove_tables(tables)
        for name in _WITH_A_LIFE:
            self._run(f"DELETE FROM {{{name}}} x WHERE {_UNSEEN.format('x')}")
        for name in ("ducklake_macro_impl", "ducklake_macro_parameters"):
            self._run(
                f"DELETE FROM {{{name}}} WHERE macro_id NOT IN (SELECT macro_id FROM {{ducklake_macro}})"
            )
        self._gone.tables = len(tables)
        return self._gone

    def _run(self, text: str, **given: object) -> int:
        return self._connection.execute(self._db.text(text), given).rowcount

    def _ids(self, text: str, **given: object) -> list[int]:
        return [row[0] for row in self._connection.execute(self._db.text(text), given).fetchall()]

    def _dead_tables(self) -> list[TableId]:
        """Tables that no snapshot has; one that was renamed has several rows, and lives while any does."""
        return self._ids(
            "SELECT table_id FROM {ducklake_table} x GROUP BY table_id "
            f"HAVING bool_and({_UNSEEN.format('x')})"
        )

    def _remove_files(self, tables: list[TableId]) -> None:
        files = self._ids(
            "SELECT data_file_id FROM {ducklake_data_file} x "
            f"WHERE table_id = ANY(%(tables)s) OR ({_UNSEEN.format('x')})",
            tables=tables,
        )
        deletes = self._ids(
            "SELECT delete_file_id FROM {ducklake_delete_file} x "
            "WHERE table_id = ANY(%(tables)s) OR data_file_id = ANY(%(files)s) "
            f"OR ({_UNSEEN.format('x')})",
            tables=tables,
            files=files,
        )
        self._count("ducklake_data_file", "data_file_id", files)
        self._count("ducklake_delete_file", "delete_file_id", deletes)
        for statement in (
            *schedule_files(self._db, "ducklake_data_file", files),
            *schedule_files(self._db, "ducklake_delete_file", deletes),
        ):
            self._connection.execute(statement.text, statement.rows[0])
        for name in OF_FILES:
            self._run(f"DELETE FROM {{{name}}} WHERE data_file_id = ANY(%(ids)s)", ids=files)
        self._remove_inlined_deletes(files)
        self._run("DELETE FROM {ducklake_data_file} WHERE data_file_id = ANY(%(ids)s)", ids=files)
        self._run("DELETE FROM {ducklake_delete_file} WHERE delete_file_id = ANY(%(ids)s)", ids=deletes)

    def _count(self, table: str, key: str, ids: list[int]) -> None:
        total = "count(*), coalesce(sum(file_size_bytes), 0)::bigint"
        text = f"SELECT {total} FROM {{{table}}} WHERE {key} = ANY(%s)"
        files, size = self._connection.execute(self._db.text(text), (ids,)).fetchall()[0]
        self._gone.files += files
        self._gone.bytes += size

    def _remove_inlined_deletes(self, files: list[int]) -> None:
        tables = self._ids(
            "SELECT DISTINCT table_id FROM {ducklake_data_file} WHERE data_file_id = ANY(%(ids)s)", ids=files
        )
        for name in self._existing(f"ducklake_inlined_delete_{table_id}" for table_id in tables):
            self._connection.execute(
                sql.SQL("DELETE FROM {} WHERE file_id = ANY(%s)").format(self._db.name(name)), (files,)
            )

    def _existing(self, names: Iterable[str]) -> list[str]:
        rows = self._connection.execute(
            "SELECT n FROM unnest(%s::text[]) n "
            "WHERE to_regclass(format('%%I.%%I', %s::text, n)) IS NOT NULL",
            (list(names), self._db.schema),
        ).fetchall()
        return [row[0] for row in rows]

    def _remove_inlined(self, tables: list[TableId]) -> None:
        rows = self._connection.execute(
            self._db.text("SELECT table_id, table_name FROM {ducklake_inlined_data_tables}")
        ).fetchall()
        dead = [name for table_id, name in rows if table_id in set(tables)]
        dead += [f"ducklake_inlined_delete_{table_id}" for table_id in tables]
        for name in self._existing(dead):
            self._connection.execute(sql.SQL("DROP TABLE {}").format(self._db.name(name)))
        unseen = self._db.text(_UNSEEN.format("x")).decode()
        for name in self._existing(name for table_id, name in rows if table_id not in set(tables)):
            query = sql.SQL("DELETE FROM {} x WHERE {}").format(self._db.name(name), sql.SQL(unseen))
            self._gone.inlined_rows += self._connection.execute(query).rowcount

    def _remove_tables(self, tables: list[TableId]) -> None:
        if not tables:
            return
        for name in _OF_TABLES:
            self._run(f"DELETE FROM {{{name}}} WHERE table_id = ANY(%(ids)s)", ids=tables)
        self._run(
            "DELETE FROM {ducklake_name_mapping} "
            "WHERE mapping_id NOT IN (SELECT mapping_id FROM {ducklake_column_mapping})"
        )
