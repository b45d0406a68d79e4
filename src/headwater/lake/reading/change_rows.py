"""Rows that began and rows that ended, made into changes.

A row that ends and one of the same row id that begins at the same snapshot are an update.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format.types import AnyArray, AnyType
from headwater.lake.model import Column
from headwater.typedefs import SnapshotId

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Kinds of events, in the order of those of one row at one snapshot.
ENDS, BEGINS = 0, 1
CHANGE_TYPES = ("delete", "insert", "update_preimage", "update_postimage")
_UPDATE = 2
#: The columns of a change after those of the table.
CHANGE_COLUMNS = (
    Column(-1, "_change_type", "varchar"),
    Column(-2, "_rowid", "int64"),
    Column(-3, "_commit_version", "int64"),
    Column(-4, "_commit_timestamp", "timestamptz"),
)


@dataclass(frozen=True, slots=True)
class Events:
    """Rows, each with its id, the snapshot at which it began or ended, and which of the two."""

    found: pa.Table
    row_ids: Numbers
    versions: Numbers
    kinds: Numbers
    at: Numbers | None = None
    """Which of the rows found each event is about; None if they are in the same order."""

    @property
    def rows(self) -> pa.Table:
        """The row of each event."""
        return self.found if self.at is None or not self.found.num_columns else self.found.take(self.at)

    @classmethod
    def of(cls, table: pa.Table) -> Events:
        """From a table whose last three columns are row ids, snapshots and kinds; see `with_events`."""
        width = table.num_columns - 3
        row_ids, versions, kinds = (table.column(width + i).to_numpy() for i in range(3))
        return cls(table.select(range(width)), row_ids, versions, kinds)

    def take(self, places: Numbers) -> Events:
        """The events at these places, in their order."""
        at = places if self.at is None else self.at[places]
        return Events(self.found, self.row_ids[places], self.versions[places], self.kinds[places], at)

    def same(self, left: Numbers, right: Numbers) -> Mask:
        """For each two events whether every column is the same; NULL and NaN are the same as themselves."""
        if self.at is not None:
            left, right = self.at[left], self.at[right]
        return same_rows(self.found, left, right)

    def ordered(self) -> Events:
        """By snapshot, row id, and ends before beginnings."""
        return self.take(np.lexsort((self.kinds, self.row_ids, self.versions)))


def with_events(
    rows: pa.Table, row_ids: AnyArray, begins: tuple[Numbers, Mask], ends: tuple[Numbers, Mask]
) -> pa.Table:
    """The rows that begin and those that end, each with the three columns of an event.

    Of both a snapshot for every row is given, and a mask that says for which rows it counts.
    """
    parts = []
    for kind, (versions, mask) in ((ENDS, ends), (BEGINS, begins)):
        places = np.flatnonzero(mask)
        everything = len(places) == len(mask)
        arrays = [
            *(column if everything else column.take(places) for column in (*rows.columns, row_ids)),
            pa.array(versions[mask]),
            pa.array(np.full(len(places), kind, np.int64)),
        ]
        fields = [*rows.schema, *(pa.field(name, pa.int64()) for name in ("", "", ""))]
        parts.append(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
    return pa.concat_tables(parts)


def changes(events: Events, mixed: Collection[SnapshotId] = ()) -> tuple[Events, Numbers]:
    """Every change in its order, and the place of its type among `CHANGE_TYPES`.

    At the snapshots `mixed`, an update that changes nothing is none.
    """
    ordered = _without_moved(events.ordered(), mixed)
    return ordered, _types(ordered)


def net_changes(events: Events, mixed: Collection[SnapshotId] = ()) -> tuple[Events, Numbers]:
    """For each row id what became of it from before the first to after the last event.

    The row before and the row after; neither if they are the same. The snapshot is that of the last event.
    """
    if mixed:
        events = _without_moved(events.ordered(), mixed)
    by_row = events.take(np.lexsort((events.kinds, events.versions, events.row_ids)))
    count = len(by_row.kinds)
    new = np.ones(count, np.bool_)
    new[1:] = by_row.row_ids[1:] != by_row.row_ids[:-1]
    first = np.flatnonzero(new)
    last = np.append(first[1:], count) - 1 if count else first
    twice = np.zeros(len(first), np.bool_)
    twice[(np.cumsum(new) - 1)[_strange(by_row, np.flatnonzero(~new))]] = True
    before = (by_row.kinds[first] == ENDS) & ~twice
    after = (by_row.kinds[last] == BEGINS) & ~twice
    both = np.flatnonzero(before & after)
    same = both[by_row.same(first[both], last[both])]
    before[same] = after[same] = False
    left = [_left(by_row, *group) for group in zip(first[twice], last[twice], strict=True)]
    places = np.concatenate((first[before], last[after], *(places for places, _ in left)))
    dates = np.concatenate((last[before], last[after], *(dates for _, dates in left)))
    chosen = by_row.take(places)
    result = replace(chosen, versions=by_row.versions[dates]).ordered()
    return result, _types(result)


def _strange(by_row: Events, following: Numbers) -> Numbers:
    """Those events that cannot follow the one before them if both are about one row.

    A row begins and ends in turn, and ends as it began.
    """
    kinds, kinds_before = by_row.kinds[following], by_row.kinds[following - 1]
    ends = following[(kinds == ENDS) & (kinds_before == BEGINS)]
    changed = ends[~by_row.same(ends - 1, ends)]
    return np.concatenate((following[kinds == kinds_before], changed))


def _left(by_row: Events, first: int, last: int) -> tuple[Numbers, Numbers]:
    """What is left of the events of several rows that share an id, and the place of the last event for each.

    DuckDB can give an id to several rows when it merges files. Such rows are told apart by what they hold:
    one that ends undoes one that began the same, and the other way round.
    """
    left: list[int] = []
    for place in range(first, last + 1):
        others = np.array([o for o in left if by_row.kinds[o] != by_row.kinds[place]], np.int64)
        undone = others[by_row.same(others, np.full(len(others), place))]
        if len(undone):
            left.remove(int(undone[0]))
        else:
            left.append(place)
    return np.array(left, np.int64), np.full(len(left), last)


def _without_moved(ordered: Events, mixed: Collection[SnapshotId]) -> Events:
    """The events without those of rows that a compaction took from one file to another."""
    pairs = _pairs(ordered) if mixed else np.empty(0, np.int64)
    suspects = pairs[np.isin(ordered.versions[pairs], list(mixed))]
    moved = suspects[ordered.same(suspects, suspects + 1)]
    if not len(moved):
        return ordered
    kept = np.ones(len(ordered.kinds), np.bool_)
    kept[moved] = kept[moved + 1] = False
    return ordered.take(np.flatnonzero(kept))


def _types(ordered: Events) -> Numbers:
    pairs = _pairs(ordered)
    types = ordered.kinds.copy()
    types[pairs] += _UPDATE
    types[pairs + 1] += _UPDATE
    return types


def _pairs(ordered: Events) -> Numbers:
    """The places of rows that end and begin again at the same snapshot; the new row is the next one."""
    same = (
        (ordered.row_ids[:-1] == ordered.row_ids[1:])
        & (ordered.versions[:-1] == ordered.versions[1:])
        & (ordered.kinds[:-1] == ENDS)
        & (ordered.kinds[1:] == BEGINS)
    )
    return np.flatnonzero(same)


def labelled(
    rows: pa.Table, events: Events, types: Numbers, times: Mapping[SnapshotId, datetime]
) -> pa.Table:
    """Rows with the columns of a change after their own."""
    known = np.array(sorted(times), np.int64)
    moments = pa.array([times[version] for version in known.tolist()], pa.timestamp("us", "UTC"))
    arrays: list[AnyArray] = [
        pa.array(CHANGE_TYPES, pa.string()).take(types),
        pa.array(events.row_ids, pa.int64()),
        pa.array(events.versions, pa.int64()),
        moments.take(np.searchsorted(known, events.versions)),
    ]
    fields = [pa.field(c.name, array.type) for c, array in zip(CHANGE_COLUMNS, arrays, strict=True)]
    return pa.Table.from_arrays([*rows.columns, *arrays], schema=pa.schema([*rows.schema, *fields]))


def same_rows(rows: pa.Table, left: Numbers, right: Numbers) -> Mask:
    """For each two rows whether every column is the same; NULL and NaN are the same as themselves."""
    same = np.ones(len(left), np.bool_)
    for column in rows.columns if len(left) else ():
        a, b = column.take(left), column.take(right)
        same &= _same_values(a, b)
    return same


def _same_values(a: AnyArray, b: AnyArray) -> Mask:
    kind: AnyType = a.type
    if _is_plain(kind):
        equal: AnyArray = pc.equal(a, b)
        same: Mask = equal.fill_null(False).to_numpy() | (a.is_null().to_numpy() & b.is_null().to_numpy())
        return same
    # What Arrow cannot compare, or compares as numbers: 0.0 and -0.0 differ, and NaN does not.
    pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
    return np.fromiter((repr(one) == repr(other) for one, other in pairs), np.bool_, len(a))


def _is_plain(kind: AnyType) -> bool:
    is_ = pa.types
    return bool(
        is_.is_integer(kind)
        or is_.is_boolean(kind)
        or is_.is_string(kind)
        or is_.is_binary(kind)
        or is_.is_decimal(kind)
        or is_.is_date(kind)
        or is_.is_time(kind)
        or is_.is_timestamp(kind)
    )
