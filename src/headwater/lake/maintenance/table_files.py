"""The live files of a table, and what decides which of them can be moved together.

Files are of the same columns if the table had the same schema version when they were written: a column that
was dropped since is still read by older snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from psycopg import sql

from headwater.lake.catalog import CatalogState, nested_columns
from headwater.lake.connection import Connection, Database
from headwater.lake.format.texts import FLOATS
from headwater.lake.maintenance.ordering import KeyStats, key_stats
from headwater.lake.model import Table
from headwater.lake.reading.scan import FileScan, ScanPlan, plan_scan
from headwater.typedefs import ColumnId, FileId, SnapshotId


class Layout(NamedTuple):
    """The columns of a table, from a snapshot on."""

    since: SnapshotId
    table: Table


@dataclass
class TableFiles:
    """The live files of a table, and what decides which of them can be moved together."""

    plan: ScanPlan
    layouts: tuple[Layout, ...]
    """The columns of the table's schema versions, oldest first."""
    oldest: tuple[SnapshotId, FileId]
    """The oldest live snapshot, and the file id that was free after it."""
    unsettled: frozenset[FileId]
    """Files with deletes in the catalog that are younger than the oldest snapshot."""
    without_nan: Mapping[ColumnId, frozenset[FileId]]
    key_stats: Mapping[tuple[FileId, ColumnId], KeyStats]
    """Statistics of the columns that the table is sorted by."""

    def layout(self, file_begin: SnapshotId) -> Layout:
        """The columns that a file was written with."""
        found = [layout for layout in self.layouts if layout.since <= file_begin]
        return found[-1] if found else self.layouts[0]

    def is_settled(self, scan: FileScan) -> bool:
        """Whether every live snapshot agrees about the deletes of a file."""
        return scan.file.id not in self.unsettled and all(d.id < self.oldest[1] for d in scan.deletes)


def table_files(db: Database, state: CatalogState, table: Table) -> TableFiles:
    """Look at a table, with the order its rows are wanted in, in one transaction."""

    def work(connection: Connection) -> TableFiles:
        plan = plan_scan(db, state, table, connection=connection)
        given = {"table": table.id}
        oldest = connection.execute(
            db.text("SELECT snapshot_id, next_file_id FROM {ducklake_snapshot} ORDER BY snapshot_id LIMIT 1")
        ).fetchall()[0]
        floats = [c.id for top in table.columns for c in top.walk() if c.type in FLOATS]
        free: dict[ColumnId, set[FileId]] = {}
        if floats:
            rows = connection.execute(
                db.text(
                    "SELECT column_id, data_file_id FROM {ducklake_file_column_stats} "
                    "WHERE table_id = %(table)s AND column_id = ANY(%(floats)s) AND contains_nan IS FALSE"
                ),
                {**given, "floats": floats},
            ).fetchall()
            for column_id, file_id in rows:
                free.setdefault(column_id, set()).add(file_id)
        return TableFiles(
            plan=plan,
            layouts=_layouts(db, connection, table),
            oldest=oldest,
            unsettled=_unsettled(db, connection, plan, oldest[0]),
            without_nan={column_id: frozenset(files) for column_id, files in free.items()},
            key_stats=key_stats(db, connection, table),
        )

    return db.read(work)


def _unsettled(db: Database, connection: Connection, plan: ScanPlan, oldest: SnapshotId) -> frozenset[FileId]:
    if not any(scan.inlined_deletes for scan in plan.files):
        return frozenset()
    rows = connection.execute(
        sql.SQL("SELECT DISTINCT file_id FROM {} WHERE begin_snapshot > %s").format(
            db.name(f"ducklake_inlined_delete_{plan.table.id}")
        ),
        (oldest,),
    ).fetchall()
    return frozenset(row[0] for row in rows)


def _layouts(db: Database, connection: Connection, table: Table) -> tuple[Layout, ...]:
    begins = connection.execute(
        db.text(
            "SELECT DISTINCT begin_snapshot FROM {ducklake_schema_versions} WHERE table_id = %s ORDER BY 1"
        ),
        (table.id,),
    ).fetchall()
    rows = connection.execute(
        db.text(
            "SELECT begin_snapshot, end_snapshot, table_id, column_id, column_name, column_type, "
            "nulls_allowed, initial_default, default_value, default_value_type, parent_column "
            "FROM {ducklake_column} WHERE table_id = %s ORDER BY column_order"
        ),
        (table.id,),
    ).fetchall()
    found = []
    for (since,) in begins:
        found.append(Layout(since, replace(table, columns=_columns_at(rows, since, table))))
    return tuple(found) or (Layout(table.begin_snapshot, table),)


def _columns_at(rows: Iterable[tuple[Any, ...]], at: SnapshotId, table: Table) -> Any:
    live = [row[2:] for row in rows if row[0] <= at and (row[1] is None or at < row[1])]
    columns = nested_columns(live, []).get(table.id, ())
    # Names of columns that were dropped since can clash in nothing: files are read by field id.
    return table.columns if columns == table.columns else columns
