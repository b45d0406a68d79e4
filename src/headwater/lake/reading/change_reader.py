"""Reading a change plan into Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from headwater.errors import ConflictError, FileMissingError, InvalidInputError
from headwater.lake.connection import Connection, Database
from headwater.lake.format.types import AnyArray, arrow_schema, no_rows
from headwater.lake.model import Column
from headwater.lake.reading.change_plan import ChangePlan, FileChanges, InlinedChanges, replan_changes
from headwater.lake.reading.change_rows import (
    BEGINS,
    CHANGE_COLUMNS,
    CHANGE_TYPES,
    Events,
    Mask,
    Numbers,
    changes,
    labelled,
    net_changes,
    with_events,
)
from headwater.lake.reading.deletes import first_deletes, read_deletes
from headwater.lake.reading.file_reader import Part, Selection, explained, parts_of, read_selected
from headwater.lake.reading.inlined_reader import inlined_fields, inlined_rows, inlined_source
from headwater.lake.reading.kept_columns import KeptColumns
from headwater.lake.reading.read import read_concurrently, readers_of
from headwater.lake.reading.request import Request
from headwater.lake.reading.row_filter import RowFilter
from headwater.lake.reading.scan import ScanPlan
from headwater.storage.picking import SPARSE
from headwater.storage.store import Store

#: Later than any snapshot.
_NEVER = np.iinfo(np.int64).max
_REPLANS = 5
#: Files of more rows than these are read in parts.
_PART = 1 << 18
#: Rows are close to each other if so many times as many would have place between the first and the last.
_CLOSE = 20
#: What `event_rows` calls the columns of an event.
EVENT_COLUMNS = ("_rowid", "_commit_version", "_begins")
_IMAGES = ("preimage", "postimage")


def read_changes(
    plan: ChangePlan,
    store: Store,
    db: Database,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    net: bool = False,
    replan: bool = False,
) -> pa.Table:
    """The changes of a plan, in the columns that the table has at its end.

    After them come `_change_type` (insert, update_preimage, update_postimage, delete), `_rowid`,
    `_commit_version` and `_commit_timestamp`; the order is by snapshot, row id, and old before new.
    `where` may name them like the table's own, and is applied to each row by itself. With `net` there is only
    what differs between the state before the first snapshot and that of the last. Rows that moved since the
    plan was made are a `ConflictError` or a `FileMissingError`, or with `replan` a reason to plan again.
    """
    wanted = _wanted(plan, columns)
    condition = None if where is None else RowFilter.of(where, _with_change_columns(plan).table)
    also = () if condition is None else condition.columns
    # Whether two rows are the same is to be told by all of their columns, if it is asked of all.
    everything = net or bool(plan.mixed)
    ids = {column.id for column in (*wanted, *also)}
    needed = tuple(column for column in plan.table.columns if everything or column.id in ids)
    _check_names(plan, needed)
    plan, events = _events(plan, store, db, needed, replan)

    found, types = (net_changes if net else changes)(events, plan.mixed)
    result = labelled(found.rows, found, types, plan.times)
    if condition is not None:
        result = result.filter(pa.array(condition.matches(result)))
    places = [needed.index(column) for column in wanted]
    return result.select([*places, *range(len(needed), result.num_columns)])


@dataclass(frozen=True)
class NetRows:
    """What differs between two states of a table: rows that went and rows that came, in no order."""

    rows: pa.Table
    row_ids: Numbers
    came: Mask
    updates: tuple[Numbers, Numbers]
    """The places of rows that are another than before: of each as it was, and as it is."""


def net_rows(
    plan: ChangePlan, store: Store, db: Database, columns: Sequence[str], known: KeptColumns | None = None
) -> NetRows:
    """What of some columns differs between the state before a plan's first snapshot and that of its last.

    Rows that moved since the plan was made are found where they are now. Of single rows of large files,
    columns that are `known` are not read.
    """
    wanted = _wanted(plan, columns)
    _check_names(plan, wanted)
    plan, events = _events(plan, store, db, wanted, True, known)
    if plan.no_row_twice:
        none = np.empty(0, np.int64)
        found, updates = events, (none, none)
    else:
        found, types = net_changes(events, plan.mixed)
        before, after = (np.flatnonzero(types == CHANGE_TYPES.index(f"update_{kind}")) for kind in _IMAGES)
        ids = found.row_ids
        updates = before[np.argsort(ids[before])], after[np.argsort(ids[after])]
    return NetRows(found.rows, found.row_ids, found.kinds == BEGINS, updates)


def count_changes(plan: ChangePlan, store: Store, kept: KeptColumns | None = None) -> int:
    """How many changes there are at most, closer than the plan knows: delete files are looked into.

    A delete file may name rows that were deleted long before the range, and the catalog has only their sum.
    What is read of them may be `kept`.
    """
    total = plan.rows_at_most
    for change in plan.files:
        if change.ended is not None or not change.deletes:
            continue
        told = sum(delete.delete_count for delete in change.deletes)
        found = 0
        for delete in change.deletes:
            _, when = read_deletes(store, delete, kept)
            begun = delete.begin_snapshot >= plan.start.id
            found += delete.delete_count * begun if when is None else int((when >= plan.start.id).sum())
        extra = len(change.inlined_deletes)
        rows = change.file.record_count
        total -= min(rows, told + extra) - min(rows, found + extra)
    return total


def file_deaths(
    store: Store, plan: ChangePlan, change: FileChanges, kept: KeptColumns | None = None
) -> tuple[Numbers, Numbers]:
    """The positions of a file that were deleted one by one until the end of the range, ascending, each once.

    Beside each the snapshot that deleted it, which may be before the range. What was left when the whole
    file ended is not among them.
    """
    inlined = np.array(change.inlined_deletes, np.int64).reshape(-1, 2)
    positions, snapshots = [inlined[:, 0]], [inlined[:, 1]]
    for file in change.deletes:
        at, when = read_deletes(store, file, kept)
        positions.append(at)
        snapshots.append(np.full(len(at), file.begin_snapshot, np.int64) if when is None else when)
    all_positions, all_snapshots = np.concatenate(positions), np.concatenate(snapshots)
    last = plan.end.id if change.file.end_snapshot is None else min(plan.end.id, change.file.end_snapshot - 1)
    counts = all_snapshots <= last
    all_positions, all_snapshots = all_positions[counts], all_snapshots[counts]
    return first_deletes(all_positions, all_snapshots)


def event_rows(
    plan: ChangePlan, store: Store, db: Database, columns: Sequence[str] | None = None
) -> pa.Table:
    """Beginnings and ends of rows as they are, for a reader that makes changes of them itself.

    After the columns come row id, snapshot, and 1 for a beginning or 0 for an end.
    """
    wanted = _wanted(plan, columns)
    _check_names(plan, wanted)
    events = _read_events(plan, store, db, wanted)
    rows = events.rows
    for name, numbers in zip(EVENT_COLUMNS, (events.row_ids, events.versions, events.kinds), strict=True):
        rows = rows.append_column(name, pa.array(numbers, pa.int64()))
    return rows


@dataclass(frozen=True)
class _FileRows:
    """Which rows of a file changed, and what becomes of them once they are read."""

    plan: ChangePlan
    change: FileChanges
    needed: tuple[Column, ...]
    positions: Numbers
    snapshots: Numbers
    needed_hidden: tuple[str, ...] = ("rowid", "snapshot_id", "file_row_number")

    @property
    def by_snapshot(self) -> bool:
        return self.change.file.partial_max is not None

    @cached_property
    def known(self) -> Numbers | None:
        """The positions of the rows that changed, if single rows were deleted and no other changed."""
        if self.by_snapshot or self.change.ended is not None or self.change.inserted is not None:
            return None
        return self.positions[self._counts(self.snapshots)]

    @property
    def few(self) -> bool:
        """Whether they are so few that parts of the file are not worth being read by several."""
        return self.known is not None and SPARSE * len(self.known) <= self.change.file.record_count

    def none_of(self, first: int, count: int, snapshots: tuple[int, int] | None) -> bool:
        if self.change.ended is not None:
            return False
        if self.change.inserted is not None:
            start, end = self.change.inserted
            if snapshots is None or (snapshots[0] <= end and snapshots[1] >= start):
                return False
        low, high = np.searchsorted(self.positions, (first, first + count))
        return not self._counts(self.snapshots[low:high]).any()

    def kept(self, first: int, count: int, snapshots: Numbers | None) -> Mask:
        begins, ends = self._changed(np.arange(first, first + count), snapshots)
        kept: Mask = begins[1] | ends[1]
        return kept

    def finish(self, rows: pa.Table, hidden: Callable[[str], AnyArray]) -> pa.Table:
        places = _numbers(hidden("file_row_number"))
        snapshots = _numbers(hidden("snapshot_id")) if self.by_snapshot else None
        row_ids = hidden("rowid")
        plain = pa.Table.from_arrays(rows.columns, schema=_schema(self.needed))
        return with_events(plain, row_ids, *self._changed(places, snapshots))

    def _changed(
        self, places: Numbers, snapshots: Numbers | None
    ) -> tuple[tuple[Numbers, Mask], tuple[Numbers, Mask]]:
        """When rows begin and end, and whether that is an insertion and a deletion."""
        file = self.change.file
        births = np.full(len(places), file.begin_snapshot, np.int64) if snapshots is None else snapshots
        deaths = self._deaths(places)
        lived = births < deaths
        inserted = lived & self._counts(births) & (self.change.inserted is not None)
        return (births, inserted), (deaths, lived & self._counts(deaths))

    def _deaths(self, places: Numbers) -> Numbers:
        """When rows at some places end."""
        end = self.change.file.end_snapshot
        never = _NEVER if end is None else end
        if not len(self.positions) or not len(places):
            return np.full(len(places), never, np.int64)
        first, last = int(places.min()), int(places.max())
        if last - first < _CLOSE * len(places):  # as in pieces of a file: quicker than to search for each
            low, high = np.searchsorted(self.positions, (first, last + 1))
            whole = np.full(last - first + 1, never, np.int64)
            whole[self.positions[low:high] - first] = self.snapshots[low:high]
            return whole if len(whole) == len(places) else whole[places - first]
        deaths = np.full(len(places), never, np.int64)
        at = np.minimum(np.searchsorted(self.positions, places), len(self.positions) - 1)
        deleted = self.positions[at] == places
        deaths[deleted] = self.snapshots[at[deleted]]
        return deaths

    def _counts(self, snapshots: Numbers) -> Mask:
        """Whether something that happened at these snapshots is a change of the range."""
        counts = _in_range(self.plan, snapshots)
        moves = self.plan.moves
        return counts & ~np.isin(snapshots, list(moves)) if moves else counts


class _Once:
    """The changed rows of a file, found by whoever asks first."""

    def __init__(self, change: FileChanges):
        self._change = change
        self._lock = Lock()
        self._rows: _FileRows | None = None

    def get(self, find: Callable[[FileChanges], _FileRows]) -> _FileRows:
        with self._lock:
            if self._rows is None:
                self._rows = find(self._change)
            return self._rows


@dataclass(frozen=True)
class _Portion:
    """A part of a file, from one position to another."""

    change: FileChanges
    part: tuple[int, int]
    rows: _Once


def _in_range(plan: ChangePlan, snapshots: Numbers) -> Mask:
    inside: Mask = (snapshots >= plan.start.id) & (snapshots <= plan.end.id)
    return inside


def _events(
    plan: ChangePlan,
    store: Store,
    db: Database,
    needed: tuple[Column, ...],
    replan: bool,
    known: KeptColumns | None = None,
) -> tuple[ChangePlan, Events]:
    for _ in range(_REPLANS if replan else 0):
        try:
            return plan, _read_events(plan, store, db, needed, known)
        except (ConflictError, FileMissingError):
            # Rows were flushed from the catalog to a file, or files merged and cleaned up.
            again = replan_changes(db, plan)
            if again == plan:
                raise
            plan = again
    return plan, _read_events(plan, store, db, needed, known)


def _read_events(
    plan: ChangePlan,
    store: Store,
    db: Database,
    needed: tuple[Column, ...],
    known: KeptColumns | None = None,
) -> Events:
    inlined = _read_inlined(plan, db, needed)
    context = ScanPlan(plan.table, plan.end, (), mappings=plan.mappings)

    def rows_of(change: FileChanges) -> _FileRows:
        return _FileRows(plan, change, needed, *file_deaths(store, plan, change, known))

    def read(portion: _Portion) -> Iterator[pa.Table]:
        change, part = portion.change, portion.part
        with explained(context, change.file):
            rows = portion.rows.get(rows_of)
            selection: Selection = rows
            if rows.few and part[0]:
                return  # the first part reads them all
            if not rows.few:
                selection = Part(rows, *part)
            # One row group after the other, so that of a large file no more is held than what changed.
            yield from read_selected(
                store, context, change.file, rows, selection, 1, positions=rows.known, known=known
            )

    portions = [
        _Portion(change, part, rows)
        for change in plan.files
        for rows in [_Once(change)]
        for part in parts_of(change.file, _PART)
    ]
    readers = readers_of([change.file for change in plan.files])
    pieces = [*read_concurrently(portions, read, readers), *inlined]
    if not pieces:
        empty = no_rows(_schema(needed))
        nothing = np.empty(0, np.int64)
        return Events(empty, nothing, nothing, nothing)
    return Events.of(pa.concat_tables(pieces))


# -- rows in the catalog ------------------------------------------------------------------------------------


def _read_inlined(plan: ChangePlan, db: Database, needed: tuple[Column, ...]) -> list[pa.Table]:
    if not plan.inlined:
        return []

    def fetch(connection: Connection) -> list[list[tuple[Any, ...]]]:
        with connection.pipeline():
            cursors = [_select(db, connection, plan, part, needed) for part in plan.inlined]
        return [cursor.fetchall() for cursor in cursors]

    try:
        found = db.read(fetch)
    except psycopg.errors.UndefinedTable:
        raise _flushed(plan) from None
    return [_inlined_events(plan, part, rows, needed) for part, rows in zip(plan.inlined, found, strict=True)]


def _stored(part: InlinedChanges, needed: Sequence[Column]) -> list[Column]:
    wanted = {column.id for column in needed}
    return [column for column in part.columns if column.id in wanted]


def _select(
    db: Database, connection: Connection, plan: ChangePlan, part: InlinedChanges, needed: Sequence[Column]
) -> psycopg.Cursor[tuple[Any, ...]]:
    wanted = {column.id for column in needed}
    fields = zip(part.columns, inlined_fields(part.columns), strict=True)
    selected: list[sql.Composable] = [
        *map(sql.Identifier, ("row_id", "begin_snapshot", "end_snapshot")),
        *(field for column, field in fields if column.id in wanted),
    ]
    query = sql.SQL(
        "SELECT {} FROM {} WHERE begin_snapshot IS DISTINCT FROM end_snapshot "
        "AND (begin_snapshot BETWEEN %(low)s AND %(high)s OR end_snapshot BETWEEN %(low)s AND %(high)s)"
    ).format(sql.SQL(", ").join(selected), inlined_source(db, part.table_name, part.columns))
    return connection.execute(query, {"low": plan.start.id, "high": plan.end.id})


def _inlined_events(
    plan: ChangePlan, part: InlinedChanges, rows: list[tuple[Any, ...]], needed: tuple[Column, ...]
) -> pa.Table:
    begins = np.array([row[1] for row in rows], np.int64)
    ends = np.array([_NEVER if row[2] is None else row[2] for row in rows], np.int64)
    inserted, deleted = _in_range(plan, begins), _in_range(plan, ends)
    if (inserted.sum(), deleted.sum()) != (part.inserted, part.deleted):
        raise _flushed(plan)
    current = inlined_rows([row[3:] for row in rows], _stored(part, needed), needed)
    plain = pa.Table.from_arrays(current.columns, schema=_schema(needed))
    row_ids = pa.array([row[0] for row in rows], pa.int64())
    return with_events(plain, row_ids, (begins, inserted), (ends, deleted))


def _flushed(plan: ChangePlan) -> ConflictError:
    return ConflictError(
        f"Rows of {plan.table.name} moved from the catalog to a file while its changes were read.",
        hint="Plan again; the changes are the same.",
        table=str(plan.table.name),
        snapshot_id=plan.end.id,
    )


# -- helpers ------------------------------------------------------------------------------------------------


def _wanted(plan: ChangePlan, columns: Sequence[str] | None) -> tuple[Column, ...]:
    if columns is not None and not columns:
        return ()
    return Request.of(plan.table, columns, None, ()).columns


def _check_names(plan: ChangePlan, columns: Sequence[Column]) -> None:
    own = {column.name for column in CHANGE_COLUMNS}
    for column in columns:
        if column.name.lower() in own:
            raise InvalidInputError(
                f"Table {plan.table.name} has a column {column.name!r}, as its changes have.",
                hint="Rename it, or read the changes of other columns.",
                table=str(plan.table.name),
                column=column.name,
            )


def _with_change_columns(plan: ChangePlan) -> ChangePlan:
    """The plan with a table that has the columns of changes, for conditions that name them."""
    own = {column.name for column in CHANGE_COLUMNS}
    kept = tuple(column for column in plan.table.columns if column.name.lower() not in own)
    return replace(plan, table=replace(plan.table, columns=(*kept, *CHANGE_COLUMNS)))


def _schema(columns: Sequence[Column]) -> pa.Schema:
    """The schema of changes: a column that is NOT NULL now may not have been in the rows that are gone."""
    return pa.schema([field.with_nullable(True) for field in arrow_schema(columns, field_ids=False)])


def _numbers(array: AnyArray) -> Numbers:
    numbers: Numbers = array.to_numpy()
    return numbers
