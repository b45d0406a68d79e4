"""Rows of some files spread over others, each of which gets a range of the sort keys.

Where a range ends is taken from a sample of the keys; then rows are cut into ranges piece by piece, and every
range is sorted and stored by itself. The same steps are taken here and on Spark, where ranges are brought
together by a shuffle. Here files are read again for every few ranges instead: no row is kept on disk in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.lake.format.types import AnyArray, arrow_type
from headwater.lake.maintenance.choosing import Move
from headwater.lake.maintenance.moved_rows import in_order, keys_of, read_rows, sorted_places, store_rows
from headwater.lake.maintenance.ordering import SortKey
from headwater.lake.model import ROW_ID_COLUMN, Column, StagedFile
from headwater.lake.reading.deletes import Positions
from headwater.lake.reading.file_reader import Mask, Selection, explained, live_rows, read_selected
from headwater.lake.reading.read import read_concurrently
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.lake.writing.staging import Stager
from headwater.storage.parquet import ROW_GROUP_ROWS
from headwater.storage.store import Store
from headwater.typedefs import FileId

#: Rows of a sample: so many for each new file, and within these limits all in all.
_SAMPLED = 200
_LEAST, _MOST = 10_000, 100_000
#: So many row groups of a long file are sampled.
_WINDOWS = 8
#: Stored bytes whose rows are in memory together.
_AT_ONCE = 128 << 20


def spread(move: Move, stager: Stager) -> list[StagedFile]:
    """Carry out a move into several files, in this process."""
    ends = range_ends(move, [sample(move, stager.store, sample_counts(move))])
    ranges = len(ends) + 1
    step = max(1, ranges * _AT_ONCE // max(1, move.bytes))
    staged: list[StagedFile] = []
    try:
        for first in range(0, ranges, step):
            wanted = range(first, min(ranges, first + step))
            parts: dict[int, list[pa.Table]] = {number: [] for number in wanted}
            for rows in read_rows(move, stager):
                for number, part in cut(rows, move.order, ends, wanted):
                    parts[number].append(part)
            for number in wanted:
                staged += store_range(move, stager, parts.pop(number))
    except BaseException:
        stager.discard(move.plan.table, staged)
        raise
    return staged


def store_range(move: Move, stager: Stager, parts: Sequence[pa.Table]) -> list[StagedFile]:
    """Sort and store the rows of one range, if there are any."""
    if not parts:
        return []
    return [store_rows(move, stager, in_order(pa.concat_tables(parts), move.order))]


def cut(
    rows: pa.Table, order: Sequence[SortKey], ends: pa.Table, wanted: Collection[int]
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each wanted range, by its number. A row that equals an end is of the range after it."""
    count = ends.num_rows
    places = np.asarray(sorted_places(pa.concat_tables([ends, keys_of(rows, order)]), order))
    is_end = places < count
    borders = [0, *(np.flatnonzero(is_end) - np.arange(count)), rows.num_rows]
    places = places[~is_end] - count
    for number in wanted:
        chosen = places[borders[number] : borders[number + 1]]
        if len(chosen):
            yield number, rows.take(chosen)


# -- sampling --------------------------------------------------------------------------------------


def sample_counts(move: Move) -> list[int]:
    """How many rows to sample of each file of a move: as many as it has of all."""
    rows = np.array([scan.file.record_count for scan in move.sources], np.int64)
    wanted = min(_MOST, max(_LEAST, _SAMPLED * move.outputs))
    until = np.cumsum(rows) * min(1.0, wanted / max(1, int(rows.sum())))
    return [int(count) for count in np.diff(np.floor(until), prepend=0)]


def sample(move: Move, store: Store, counts: Sequence[int]) -> pa.Table:
    """The keys of so many rows of each file, at random."""

    def read(one: tuple[FileScan, int]) -> Iterator[pa.Table]:
        scan, count = one
        positions = _random_positions(scan, count)
        return _read_keys(move.plan, store, scan, move.order, lambda live: _Sampled(live, positions))

    pairs = [pair for pair in zip(move.sources, counts, strict=True) if pair[1]]
    return pa.concat_tables([_no_keys(move.order), *read_concurrently(pairs, read)])


def range_ends(move: Move, samples: Iterable[pa.Table]) -> pa.Table:
    """The keys at which a range ends and the next begins, by a sample of them."""
    keys = pa.concat_tables(samples)
    keys = keys.take(sorted_places(keys, move.order))
    places = np.unique(np.arange(1, move.outputs) * keys.num_rows // move.outputs)
    return keys.take(places[places > 0]).combine_chunks()


def files_in_order(
    store: Store, plan: ScanPlan, scans: Sequence[FileScan], order: Sequence[SortKey]
) -> set[FileId]:
    """Those of some files whose rows are in order.

    Only the first row group is looked at: who wrote it in order did so with the rest.
    """

    def read(scan: FileScan) -> Iterator[pa.Table]:
        for keys in _read_keys(plan, store, scan, order, lambda live: live):
            # Rows with equal keys are in order, whatever their ids.
            numbers = np.arange(keys.num_rows)
            places = sorted_places(keys.set_column(len(order), ROW_ID_COLUMN, pa.array(numbers)), order)
            yield pa.table({"file": [scan.file.id], "sorted": [np.array_equal(places, numbers)]})
            return

    found = read_concurrently(scans, read)
    told = {row["file"]: row["sorted"] for piece in found for row in piece.to_pylist()}
    return {scan.file.id for scan in scans if told.get(scan.file.id, True)}


def _read_keys(
    plan: ScanPlan,
    store: Store,
    scan: FileScan,
    order: Sequence[SortKey],
    choose: Callable[[Selection], Selection],
) -> Iterator[pa.Table]:
    with explained(plan, scan.file):
        selection = choose(live_rows(store, plan, scan))
        yield from read_selected(store, plan, scan.file, _Keys(tuple(order)), selection, rows_at_once=1)


def _random_positions(scan: FileScan, count: int) -> Positions:
    """Rows of a file to look at; of a long one only in some of its row groups."""
    rows = scan.file.record_count
    # The same again if the work is done again.
    chance = np.random.default_rng(scan.file.id)
    if rows <= _WINDOWS * ROW_GROUP_ROWS:
        return np.sort(chance.choice(rows, min(count, rows), replace=False))
    begins = np.linspace(0, rows - ROW_GROUP_ROWS, _WINDOWS).astype(np.int64)
    inside = chance.integers(0, ROW_GROUP_ROWS, count)
    return np.unique(begins[np.arange(count) % _WINDOWS] + inside)


def _no_keys(order: Sequence[SortKey]) -> pa.Table:
    fields = [pa.field(key.column.name, arrow_type(key.column)) for key in order]
    return keys_of(pa.schema([*fields, pa.field(ROW_ID_COLUMN, pa.int64())]).empty_table(), order)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """Some of the rows that another selection has."""

    among: Selection
    positions: Positions

    @property
    def by_snapshot(self) -> bool:
        return self.among.by_snapshot

    def none_of(self, first: int, count: int, snapshots: tuple[int, int] | None) -> bool:
        low, high = np.searchsorted(self.positions, (first, first + count))
        return bool(low == high) or self.among.none_of(first, count, snapshots)

    def kept(self, first: int, count: int, snapshots: Positions | None) -> Mask | None:
        low, high = np.searchsorted(self.positions, (first, first + count))
        chosen = np.zeros(count, np.bool_)
        chosen[self.positions[low:high] - first] = True
        others = self.among.kept(first, count, snapshots)
        return chosen if others is None else chosen & others


@dataclass(frozen=True)
class _Keys:
    """The keys of rows, and their ids."""

    order: tuple[SortKey, ...]

    @property
    def needed(self) -> tuple[Column, ...]:
        return tuple(key.column for key in self.order)

    @property
    def needed_hidden(self) -> tuple[str, ...]:
        return ("rowid",)

    def finish(self, rows: pa.Table, hidden: Callable[[str], AnyArray]) -> pa.Table:
        return keys_of(rows.append_column(ROW_ID_COLUMN, hidden("rowid")), self.order)
