"""Which tables need compaction, told by the catalog alone."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from headwater.lake.connection import Connection
from headwater.lake.lake import Lake
from headwater.lake.maintenance.clustering import SMALL
from headwater.lake.options import DEFAULT_TARGET_FILE_SIZE
from headwater.typedefs import TableId, TableName

_FILES = (
    "SELECT f.table_id, count(*), count(*) FILTER (WHERE f.file_size_bytes < %(small)s), "
    "coalesce(sum(f.record_count), 0)::bigint, coalesce(sum(d.deleted), 0)::bigint "
    "FROM {ducklake_data_file} f LEFT JOIN (SELECT data_file_id, sum(delete_count) AS deleted "
    "FROM {ducklake_delete_file} WHERE end_snapshot IS NULL GROUP BY 1) d USING (data_file_id) "
    "WHERE f.end_snapshot IS NULL GROUP BY 1"
)


@dataclass(frozen=True, slots=True)
class TableShape:
    """How the rows of a table are stored."""

    name: TableName
    files: int = 0
    small_files: int = 0
    rows: int = 0
    """In files, deleted ones too."""
    deleted_rows: int = 0
    inlined_rows: int = 0

    @property
    def small_share(self) -> float:
        """Which part of its files is small."""
        return self.small_files / self.files if self.files else 0.0

    @property
    def deleted_share(self) -> float:
        """Which part of the rows in its files is deleted."""
        return self.deleted_rows / self.rows if self.rows else 0.0


def table_shapes(lake: Lake, target_size: int | None = None) -> list[TableShape]:
    """All tables that may be compacted without being asked for (DuckDB's option `auto_compact`), by name."""
    state, options = lake.state(), lake.options()
    small = SMALL * (target_size or options.number("target_file_size", DEFAULT_TARGET_FILE_SIZE))

    def work(connection: Connection) -> tuple[list[tuple[int, ...]], dict[TableId, int]]:
        files = connection.execute(lake.db.text(_FILES), {"small": small}).fetchall()
        registered = connection.execute(
            lake.db.text(
                "SELECT table_id, table_name FROM {ducklake_inlined_data_tables} "
                "WHERE to_regclass(format('%%I.%%I', %s::text, table_name)) IS NOT NULL"
            ),
            (lake.db.schema,),
        ).fetchall()
        with connection.pipeline():
            counts = [
                (
                    table_id,
                    connection.execute(sql.SQL("SELECT count(*) FROM {}").format(lake.db.name(name))),
                )
                for table_id, name in registered
            ]
        inlined: dict[TableId, int] = {}
        for table_id, cursor in counts:
            inlined[table_id] = inlined.get(table_id, 0) + cursor.fetchall()[0][0]
        return files, inlined

    files, inlined = lake.db.read(work)
    stored = {row[0]: row[1:] for row in files}
    shapes = []
    for table in state.tables.values():
        count, small_count, rows, deleted = stored.get(table.id, (0, 0, 0, 0))
        if not options.flag("auto_compact", True, schema_id=table.schema_id, table_id=table.id):
            continue
        shapes.append(TableShape(table.name, count, small_count, rows, deleted, inlined.get(table.id, 0)))
    return sorted(shapes, key=lambda shape: shape.name)
