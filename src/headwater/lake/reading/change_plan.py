"""What a reader must do to see how the rows of a table changed from one snapshot to another, as data.

A row begins at a snapshot (the one embedded in its file, else the file's own) and ends at one (that of the
delete that names its position, else the file's end). Between the two it is visible. So it is an insertion at
its beginning and a deletion at its end, and a row that ends where it begins never was.

Compaction moves rows without changing them. What DuckDB merges or flushes keeps its snapshots inside the new
file. What it rewrites does not: the old file ends and the new one begins at a snapshot that changed nothing,
which is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from headwater.errors import CatalogError
from headwater.lake.catalog import CatalogState
from headwater.lake.connection import Connection, Database
from headwater.lake.format.changes import read_changes
from headwater.lake.format.conform import NameMapping
from headwater.lake.model import Column, DataFile, DeleteFile, Snapshot, Table
from headwater.lake.reading.change_range import At, Since, find_range
from headwater.lake.reading.scan import (
    DELETE_COLUMNS,
    FILE_COLUMNS,
    MAPPINGS,
    data_files,
    garbage_left,
    inlined_layouts,
    name_mappings,
)
from headwater.typedefs import FileId, SnapshotId

_ATTEMPTS = 5
#: Entries of `changes_made` about rows that only moved. (The last is an older name of the other two.)
_REWRITES = frozenset({"merge_adjacent", "rewrite_delete", "compacted_table"})
#: A flush is none of them: the rows that it moves have their snapshots inside.
_ARRIVALS = frozenset({"inserted_into_table", "inlined_insert"})
_DEPARTURES = frozenset({"deleted_from_table", "inlined_delete"})
_ROW_CHANGES = _ARRIVALS | _DEPARTURES


class FileChanges(NamedTuple):
    """One data file of which rows began or ended in the range."""

    file: DataFile
    inserted: tuple[SnapshotId, SnapshotId] | None = None
    """Rows that began at these snapshots, both included, are insertions; None if no row of it can be one.

    Rows begin at their embedded snapshot id if the file has a `partial_max`, else at its `begin_snapshot`.
    """
    deletes: tuple[DeleteFile, ...] = ()
    """Delete files up to the end of the range, older ones too: a position counts where it is first named.

    A position ends at the snapshot embedded beside it, else at the delete file's `begin_snapshot`.
    """
    inlined_deletes: tuple[tuple[int, SnapshotId], ...] = ()
    """Further deleted positions, each with its snapshot."""
    ended: SnapshotId | None = None
    """The snapshot of the range that deleted every row still left of the file."""

    @property
    def has_deletions(self) -> bool:
        """Whether rows of it may have ended in the range."""
        return self.ended is not None or bool(self.deletes or self.inlined_deletes)


@dataclass(frozen=True, slots=True)
class InlinedChanges:
    """A table of the catalog's own database with rows that began or ended in the range.

    A row whose `begin_snapshot` is its `end_snapshot` never was.
    """

    table_name: str
    schema_version: int
    columns: tuple[Column, ...]
    """The user's columns as that table has them, with the ids by which they are matched to the reader's."""
    inserted: int
    deleted: int
    """How many when the plan was made; fewer later means that they were flushed to a file since."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Everything that is to be read for the changes of a range of snapshots, for any reader."""

    table: Table
    """The table at the end of the range."""
    start: Snapshot
    """The first snapshot of the range; that of the table's creation if it was asked for from before."""
    end: Snapshot
    """The last snapshot of the range, part of it."""
    times: Mapping[SnapshotId, datetime]
    """When each snapshot of the range was committed."""
    files: Sequence[FileChanges] = ()
    inlined: tuple[InlinedChanges, ...] = ()
    mappings: Mapping[int, tuple[NameMapping, ...]] = field(default_factory=dict)
    """How files without field ids name the columns, by `mapping_id`."""
    moves: frozenset[SnapshotId] = frozenset()
    """Snapshots that only moved rows: what begins or ends at one of them is no change."""
    mixed: frozenset[SnapshotId] = frozenset()
    """Snapshots that moved rows and changed others: what ends and begins there the same is no change."""
    both: frozenset[SnapshotId] = frozenset()
    """Snapshots in which rows begin and rows end, which may be the same: updates."""
    touched: frozenset[SnapshotId] = frozenset()
    """Snapshots of the range that did anything to the table; the others are about other tables."""

    @property
    def insertions(self) -> list[FileChanges]:
        """The files that have insertions."""
        return [change for change in self.files if change.inserted is not None]

    @property
    def deletions(self) -> list[FileChanges]:
        """The files that have deletions."""
        return [change for change in self.files if change.has_deletions]

    @property
    def no_row_twice(self) -> bool:
        """Whether it is sure that no row both begins and ends in the range.

        A row that is updated or moved does so in one snapshot.
        """
        if self.inlined or self.mixed or self.moves or self.both:
            return False
        return not any(change.has_deletions for change in self.insertions)

    @property
    def rows_at_most(self) -> int:
        """How many changes there are at most (an update is two), told without reading any file."""
        total = sum(inlined.inserted + inlined.deleted for inlined in self.inlined)
        for change in self.files:
            rows = change.file.record_count
            if change.inserted is not None:
                total += rows
            if change.ended is not None:
                total += rows
            elif change.has_deletions:
                deleted = sum(delete.delete_count for delete in change.deletes)
                total += min(rows, deleted + len(change.inlined_deletes))
        return total


Find = Callable[[Connection, At], tuple[CatalogState, Table]]


def plan_changes(db: Database, find: Find, start: Since, end: At = None) -> ChangePlan:
    """Plan reading the changes that the snapshots from `start` to `end`, both included, made to a table.

    `find` finds the table at `end`, in the transaction that everything is read in. A time as `start` means
    the first snapshot not before it, as `end` the last one not after it.
    """

    def attempt(connection: Connection) -> ChangePlan:
        state, table = find(connection, end)
        with garbage_left():
            return _Planner(db, connection, table, state.snapshot, start).plan()

    missing = ""
    for _ in range(_ATTEMPTS):
        try:
            return db.read(attempt)
        except psycopg.errors.UndefinedTable as error:
            # A flush dropped a table of inlined rows that the transaction still saw registered.
            missing = str(error).partition("\n")[0]
    raise CatalogError(
        "The catalog names a table that is not there.", detail=missing, hint="Run `headwater doctor`."
    )


def replan_changes(db: Database, plan: ChangePlan) -> ChangePlan:
    """The same plan from the catalog as it is now: the same changes, perhaps in other files."""
    state = CatalogState(plan.end, "", {}, {}, {})
    return plan_changes(db, lambda connection, at: (state, plan.table), plan.start.id, plan.end.id)


#: A delete file may hold deletes of the range if it says so, by its first or its last snapshot. DuckDB leaves
#: the last one out of those it writes beside flushed rows; but what was stored before the range has none.
_MAYBE_IN_RANGE = (
    "(d.begin_snapshot >= %(low)s OR d.partial_max >= %(low)s "
    "OR (d.partial_max IS NULL AND d.delete_file_id >= %(first_file)s))"
)
_FILES = (
    f"SELECT {FILE_COLUMNS} FROM {{files}} f WHERE f.table_id = %(table)s AND f.begin_snapshot <= %(high)s "
    "AND (f.begin_snapshot >= %(low)s OR f.partial_max >= %(low)s "
    "OR f.end_snapshot BETWEEN %(low)s AND %(high)s "
    "OR f.data_file_id IN (SELECT d.data_file_id FROM {deletes} d WHERE d.table_id = %(table)s "
    f"AND d.begin_snapshot <= %(high)s AND {_MAYBE_IN_RANGE}) {{inlined}})"
)
_DELETED_INLINED = (
    "OR f.data_file_id IN (SELECT file_id FROM {} WHERE begin_snapshot BETWEEN %(low)s AND %(high)s)"
)
_DELETES = (
    f"SELECT {DELETE_COLUMNS}, {_MAYBE_IN_RANGE} AND "
    "(d.begin_snapshot >= %(low)s OR d.partial_max >= %(low)s OR f.partial_max IS NOT NULL) "
    "FROM {ducklake_delete_file} d JOIN {ducklake_data_file} f USING (data_file_id) "
    "WHERE d.table_id = %(table)s AND d.data_file_id = ANY(%(ids)s) AND d.begin_snapshot <= %(high)s "
    "ORDER BY d.delete_file_id"
)
_INLINED_DELETES = (
    "SELECT file_id, row_id, begin_snapshot FROM {} "
    "WHERE file_id = ANY(%(ids)s) AND begin_snapshot <= %(high)s ORDER BY 1, 2, 3"
)
_COUNTS = (
    "SELECT count(*) FILTER (WHERE begin_snapshot BETWEEN %(low)s AND %(high)s), "
    "count(*) FILTER (WHERE end_snapshot BETWEEN %(low)s AND %(high)s) FROM {} "
    "WHERE begin_snapshot IS DISTINCT FROM end_snapshot"
)


class _Planner:
    def __init__(
        self, db: Database, connection: Connection, table: Table, end: Snapshot, start: Since
    ) -> None:
        self.db = db
        self.connection = connection
        self.table = table
        self.range = find_range(db, connection, table, start, end)
        self.low, self.high = self.range.first, end.id
        self.end = end
        self.told = _told(self.range.snapshots, table.id)

    def plan(self) -> ChangePlan:
        deletes_table = self.db.name(f"ducklake_inlined_delete_{self.table.id}")
        found = self.connection.execute("SELECT to_regclass(%s)", (deletes_table.as_string(None),))
        has_inlined_deletes = found.fetchall()[0][0] is not None
        files = data_files(self._ask(self._files_query(deletes_table if has_inlined_deletes else None)))
        changes = self._file_changes(files, deletes_table if has_inlined_deletes else None)
        mapping_ids = sorted({c.file.mapping_id for c in changes if c.file.mapping_id is not None})
        mappings = self._ask(self.db.text(MAPPINGS), ids=mapping_ids) if mapping_ids else []
        return ChangePlan(
            table=self.table,
            start=self.range.snapshots[0],
            end=self.end,
            times={snapshot.id: snapshot.time for snapshot in self.range.snapshots},
            files=changes,
            inlined=self._inlined(),
            mappings=name_mappings(mappings),
            moves=self.told.moves,
            mixed=self.told.mixed,
            both=self.told.both,
            touched=self.told.touched,
        )

    def _ask(self, query: bytes | sql.Composed, **more: Any) -> list[tuple[Any, ...]]:
        parameters = {
            "table": self.table.id,
            "folder": self.table.path,
            "low": self.low,
            "high": self.high,
            "first_file": self.range.first_file,
            **more,
        }
        return self.connection.execute(query, parameters, binary=True).fetchall()

    def _files_query(self, deletes_table: sql.Identifier | None) -> sql.Composed:
        inlined = sql.SQL("") if deletes_table is None else sql.SQL(_DELETED_INLINED).format(deletes_table)
        return sql.SQL(_FILES).format(
            files=self.db.name("ducklake_data_file"),
            deletes=self.db.name("ducklake_delete_file"),
            inlined=inlined,
        )

    def _file_changes(self, files: list[DataFile], deletes_table: sql.Identifier | None) -> list[FileChanges]:
        ids = [file.id for file in files]
        deletes: dict[FileId, list[DeleteFile]] = {}
        deleted: set[FileId] = set()  # files of which single rows may have been deleted in the range
        for *row, in_range in self._ask(self.db.text(_DELETES), ids=ids) if ids else ():
            delete = DeleteFile._make(row)
            deletes.setdefault(delete.data_file_id, []).append(delete)
            if in_range:
                deleted.add(delete.data_file_id)
        positions: dict[FileId, list[tuple[int, SnapshotId]]] = {}
        if deletes_table is not None and ids:
            for file_id, position, at in self._ask(sql.SQL(_INLINED_DELETES).format(deletes_table), ids=ids):
                positions.setdefault(file_id, []).append((position, at))
                if at >= self.low:
                    deleted.add(file_id)
        changes = []
        for file in files:
            ended = file.end_snapshot
            if ended is not None and (not self.low <= ended <= self.high or ended in self.told.moves):
                ended = None
            known = ended is not None or file.id in deleted
            change = FileChanges(
                file,
                self._inserted(file),
                tuple(deletes.get(file.id, ())) if known else (),
                tuple(positions.get(file.id, ())) if known else (),
                ended,
            )
            if change.inserted is not None or change.has_deletions:
                changes.append(change)
        return changes

    def _inserted(self, file: DataFile) -> tuple[SnapshotId, SnapshotId] | None:
        if file.partial_max is None:
            begins = self.low <= file.begin_snapshot and file.begin_snapshot not in self.told.moves
        else:
            begins = self.low <= file.partial_max
        return (self.low, self.high) if begins else None

    def _inlined(self) -> tuple[InlinedChanges, ...]:
        changes = []
        for name, version, columns in inlined_layouts(self.db, self.connection, self.table, self.end):
            inserted, deleted = self._ask(sql.SQL(_COUNTS).format(self.db.name(name)))[0]
            if inserted or deleted:
                changes.append(InlinedChanges(name, version, columns, inserted, deleted))
        return tuple(changes)


@dataclass(frozen=True)
class _Told:
    """What the snapshots of a range say that they did to a table; see `ChangePlan`."""

    moves: frozenset[SnapshotId]
    mixed: frozenset[SnapshotId]
    both: frozenset[SnapshotId]
    touched: frozenset[SnapshotId]


def _told(snapshots: Sequence[Snapshot], table_id: int) -> _Told:
    done = {
        snapshot.id: {change.token for change in read_changes(snapshot.changes) if change.is_about(table_id)}
        for snapshot in snapshots
    }
    moved = {number for number, tokens in done.items() if tokens & _REWRITES}
    changed = {number for number, tokens in done.items() if tokens & _ROW_CHANGES}
    return _Told(
        moves=frozenset(moved - changed),
        mixed=frozenset(moved & changed),
        both=frozenset(n for n, tokens in done.items() if tokens & _ARRIVALS and tokens & _DEPARTURES),
        touched=frozenset(number for number, tokens in done.items() if tokens),
    )
