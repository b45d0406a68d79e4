"""Which files of a table are worth moving, and together with which others.

| file | what becomes of it |
|---|---|
| small, all its deletes older than any live snapshot | merged with others of its columns and partition |
| many deletes, all as old | the same, alone if need be: nobody sees what is left out |
| many deletes, younger ones among them | written again: the old file ends, and serves older snapshots |
| anything else | stays |

Files are of the same columns if the table had the same schema version when they were written: a column that
was dropped since is still read by older snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from psycopg import sql

from headwater.errors import InvalidInputError
from headwater.lake.catalog import CatalogState, nested_columns
from headwater.lake.connection import Connection, Database
from headwater.lake.format.layout import parse_sort_by
from headwater.lake.format.texts import FLOATS
from headwater.lake.model import Table
from headwater.lake.reading.scan import FileScan, ScanPlan, plan_scan
from headwater.typedefs import ColumnId, FileId, SnapshotId

#: Files of less than this part of the target size are small.
SMALL = 0.5
#: A file of more of its rows deleted is worth writing again.
DELETE_RATIO = 0.3


@dataclass(frozen=True, slots=True)
class Wishes:
    """What compaction is asked for."""

    merge: bool = True
    """Put small files together."""
    rewrite: bool = True
    """Leave deleted rows behind."""
    target_size: int | None = None
    """Bytes of a good file; the table's own option if None."""
    delete_ratio: float | None = None
    """Of its rows; the table's own option (`rewrite_delete_threshold`) if None, else `DELETE_RATIO`."""
    sort_by: tuple[str, ...] | None = None
    """Sort the rows of each new file; the table's own order if None. Given, every file is written again."""
    min_files: int = 2
    """Fewer files are not worth a new one."""

    def __post_init__(self) -> None:
        if self.delete_ratio is not None and not 0 <= self.delete_ratio <= 1:
            raise InvalidInputError("The ratio of deleted rows is a number from 0 to 1.")
        if self.target_size is not None and self.target_size < 1:
            raise InvalidInputError("The target size is a number of bytes.")
        if self.min_files < 1:
            raise InvalidInputError("min_files is 1 or more.")


@dataclass(frozen=True)
class Move:
    """Rows on their way from some files into one other."""

    plan: ScanPlan
    """The table with the columns that the new file gets, and the snapshot; without files."""
    sources: tuple[FileScan, ...]
    keeps_history: bool
    partition_id: int | None = None
    partition_values: tuple[str | None, ...] = ()
    maybe_nan: frozenset[ColumnId] = frozenset()
    """Float columns of which not every source is known to be free of NaN."""
    sorted: bool = False

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return sum(scan.file.file_size_bytes for scan in self.sources)

    @property
    def snapshots(self) -> tuple[SnapshotId, SnapshotId] | None:
        """The first and the last snapshot that rows of it began at; None if it begins anew."""
        if not self.keeps_history:
            return None
        files = [scan.file for scan in self.sources]
        last = max(f.begin_snapshot if f.partial_max is None else f.partial_max for f in files)
        return min(f.begin_snapshot for f in files), max(last, min(f.begin_snapshot for f in files))


class _Layout(NamedTuple):
    since: SnapshotId
    table: Table


@dataclass
class TableFiles:
    """The live files of a table, and what decides which of them can be moved together."""

    plan: ScanPlan
    layouts: tuple[_Layout, ...]
    """The columns of the table's schema versions, oldest first."""
    oldest: tuple[SnapshotId, FileId]
    """The oldest live snapshot, and the file id that was free after it."""
    unsettled: frozenset[FileId]
    """Files with deletes in the catalog that are younger than the oldest snapshot."""
    without_nan: Mapping[ColumnId, frozenset[FileId]]

    def layout(self, file_begin: SnapshotId) -> _Layout:
        """The columns that a file was written with."""
        found = [layout for layout in self.layouts if layout.since <= file_begin]
        return found[-1] if found else self.layouts[0]

    def is_settled(self, scan: FileScan) -> bool:
        """Whether every live snapshot agrees about the deletes of a file."""
        return scan.file.id not in self.unsettled and all(d.id < self.oldest[1] for d in scan.deletes)


def table_files(db: Database, state: CatalogState, table: Table) -> TableFiles:
    """Look at a table, in one transaction."""

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


def _layouts(db: Database, connection: Connection, table: Table) -> tuple[_Layout, ...]:
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
        found.append(_Layout(since, replace(table, columns=_columns_at(rows, since, table))))
    return tuple(found) or (_Layout(table.begin_snapshot, table),)


def _columns_at(rows: Iterable[tuple[Any, ...]], at: SnapshotId, table: Table) -> Any:
    live = [row[2:] for row in rows if row[0] <= at and (row[1] is None or at < row[1])]
    columns = nested_columns(live, []).get(table.id, ())
    # Names of columns that were dropped since can clash in nothing: files are read by field id.
    return table.columns if columns == table.columns else columns


class _Bins:
    """Files put together, in their order, up to a size."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._room: dict[Any, int] = {}
        self.found: dict[Any, list[list[FileScan]]] = {}

    def add(self, key: Any, scan: FileScan, size: int) -> None:
        if key not in self.found or size > self._room[key]:
            self.found.setdefault(key, []).append([])
            self._room[key] = self._capacity
        self.found[key][-1].append(scan)
        self._room[key] -= size


def deleted_rows(scan: FileScan) -> int:
    """How many rows of a file are deleted, as its catalog rows say."""
    deleted = sum(delete.delete_count for delete in scan.deletes) + len(scan.inlined_deletes)
    return min(deleted, scan.file.record_count)


def choose_moves(files: TableFiles, wishes: Wishes, target_size: int) -> list[Move]:
    """What to move, given how large a good file is."""
    table = files.plan.table
    ratio = DELETE_RATIO if wishes.delete_ratio is None else wishes.delete_ratio
    if wishes.sort_by is not None:
        table = replace(table, sort=parse_sort_by(table, wishes.sort_by))
    merges, rewrites = _Bins(target_size), _Bins(target_size)
    for scan in sorted(files.plan.files, key=lambda scan: (scan.file.begin_snapshot, scan.file.id)):
        deleted = deleted_rows(scan)
        many = bool(deleted) and deleted >= ratio * scan.file.record_count
        live_bytes = _live_bytes(scan, deleted)
        partition = (scan.file.partition_id, scan.partition_values)
        if not deleted or files.is_settled(scan):
            small = wishes.merge and live_bytes < SMALL * target_size
            if small or (many and wishes.rewrite) or wishes.sort_by is not None:
                merges.add((files.layout(scan.file.begin_snapshot).since, *partition), scan, live_bytes)
        elif many and wishes.rewrite:
            rewrites.add(partition, scan, live_bytes)
    moves = []
    for (since, *_), groups in merges.found.items():
        layout = next(one.table for one in files.layouts if one.since == since or len(files.layouts) == 1)
        for group in groups:
            worth = any(
                deleted_rows(scan) and deleted_rows(scan) >= ratio * scan.file.record_count for scan in group
            )
            if len(group) >= wishes.min_files or (worth and wishes.rewrite) or wishes.sort_by is not None:
                moves.append(_move(files, replace(layout, sort=table.sort), group, True, wishes))
    for groups in rewrites.found.values():
        moves += [_move(files, table, group, False, wishes) for group in groups]
    return moves


def _live_bytes(scan: FileScan, deleted: int) -> int:
    rows = max(1, scan.file.record_count)
    return scan.file.file_size_bytes * (rows - deleted) // rows


def _move(
    files: TableFiles, table: Table, group: list[FileScan], keeps_history: bool, wishes: Wishes
) -> Move:
    ids = {scan.file.id for scan in group}
    floats = [c.id for top in table.columns for c in top.walk() if c.type in FLOATS]
    maybe = frozenset(c for c in floats if not ids <= files.without_nan.get(c, frozenset()))
    wanted = {scan.file.mapping_id for scan in group}
    mappings = {key: value for key, value in files.plan.mappings.items() if key in wanted}
    bare = replace(files.plan, table=table, files=(), inlined=(), mappings=mappings)
    return Move(
        plan=bare,
        sources=tuple(group),
        keeps_history=keeps_history,
        partition_id=group[0].file.partition_id,
        partition_values=group[0].partition_values,
        maybe_nan=maybe,
        sorted=bool(table.sort),
    )
