"""Rows spread over ranges of their sort keys, on Spark: a sample, a shuffle, one task for each new file.

Rows travel as Arrow's own bytes, which Spark does not look into: no type is converted. A task holds a row
group of an old file, or the rows of one new file; this process holds the ends of the ranges.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import SparkContext

from headwater.errors import HeadwaterError
from headwater.lake.maintenance.choosing import Move
from headwater.lake.maintenance.moved_rows import deleted_count, read_rows
from headwater.lake.maintenance.moving import Moved, checked
from headwater.lake.maintenance.spreading import cut, range_ends, sample, sample_counts, store_range
from headwater.lake.model import StagedFile
from headwater.lake.writing.staging import Stager

#: Files that one task reads have together about so many bytes, and are at most so many.
_READ_BYTES, _READ_FILES = 64 << 20, 200
#: Rows are handed to the shuffle in pieces of about so many bytes: it keeps up to a thousand in memory.
_PIECE_BYTES = 256 << 10


@dataclass(frozen=True)
class _Part:
    """Some of the files of a move."""

    place: int
    move: Move
    counts: tuple[int, ...]
    """How many rows of each are sampled."""


@dataclass(frozen=True)
class _Left:
    """How many deleted rows a task left behind."""

    rows: int


def spread_on_spark(
    context: SparkContext, moves: Sequence[Move], stager: Stager
) -> list[Moved | HeadwaterError]:
    """The outcome of each move, all of them in two jobs."""
    parts = [part for place, move in enumerate(moves) for part in _parts(place, move)]
    outcomes: dict[int, Any] = {}
    samples: dict[int, list[pa.Table]] = {}
    for place, found in _sampled(context, parts, stager):
        if isinstance(found, HeadwaterError):
            outcomes[place] = found
        else:
            samples.setdefault(place, []).append(found)
    ends = {
        place: range_ends(moves[place], found) for place, found in samples.items() if place not in outcomes
    }
    stored: dict[int, list[Any]] = {place: [] for place in ends}
    for place, one in _stored(context, [part for part in parts if part.place in ends], ends, stager):
        stored[place].append(one)
    for place, results in stored.items():
        outcomes[place] = _outcome(moves[place], stager, results)
    return [outcomes[place] for place in range(len(moves))]


def _parts(place: int, move: Move) -> Iterator[_Part]:
    """A move's files, by the tasks that read them."""
    chosen: list[tuple[Any, int]] = []
    size = 0
    for pair in zip(move.sources, sample_counts(move), strict=True):
        if chosen and (size + pair[0].file.file_size_bytes > _READ_BYTES or len(chosen) == _READ_FILES):
            yield _part(place, move, chosen)
            chosen, size = [], 0
        chosen.append(pair)
        size += pair[0].file.file_size_bytes
    yield _part(place, move, chosen)


def _part(place: int, move: Move, chosen: Sequence[tuple[Any, int]]) -> _Part:
    sources, counts = zip(*chosen, strict=True)
    return _Part(place, replace(move, sources=sources), counts)


def _sampled(
    context: SparkContext, parts: Sequence[_Part], stager: Stager
) -> Iterator[tuple[int, pa.Table | HeadwaterError]]:
    own = pickle.dumps(stager)

    def work(part: _Part) -> tuple[int, Any]:
        store = pickle.loads(own).store  # noqa: S301 - our own
        try:
            return part.place, sample(part.move, store, part.counts)
        except HeadwaterError as error:
            return part.place, error

    yield from context.parallelize(parts, len(parts)).map(work).collect()


def _stored(
    context: SparkContext, parts: Sequence[_Part], ends: dict[int, pa.Table], stager: Stager
) -> Iterator[tuple[int, Any]]:
    """The files that were stored, the deleted rows that were left, and errors, with the place of the move."""
    if not parts:
        return
    own = pickle.dumps(stager)
    moves = {part.place: replace(part.move, sources=()) for part in parts}
    slots = [(place, number) for place, found in ends.items() for number in range(found.num_rows + 1)]
    first = {place: slots.index((place, 0)) for place in ends}

    def read(part: _Part) -> Iterator[tuple[int, Any]]:
        used: Stager = pickle.loads(own)  # noqa: S301 - our own
        slot, limits = first[part.place], ends[part.place]
        try:
            yield slot, _Left(deleted_count(part.move, used))
            for rows in read_rows(part.move, used):
                for number, found in cut(rows, part.move.order, limits, range(limits.num_rows + 1)):
                    yield from ((slot + number, piece) for piece in _pieces(found))
        except HeadwaterError as error:
            yield slot, error

    def write(slot: int, received: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        place, tables = slots[slot][0], []
        for _, one in received:
            if isinstance(one, bytes):
                tables.append(pa.ipc.open_stream(one).read_all())
            else:
                yield place, one
        try:
            for file in store_range(moves[place], pickle.loads(own), tables):  # noqa: S301 - our own
                yield place, file
        except HeadwaterError as error:
            yield place, error

    shuffled = context.parallelize(parts, len(parts)).flatMap(read).partitionBy(len(slots), lambda slot: slot)
    yield from shuffled.mapPartitionsWithIndex(write).collect()


def _pieces(rows: pa.Table) -> Iterator[bytes]:
    count = max(1, rows.num_rows * _PIECE_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, count):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
        ) as writer:
            writer.write_table(rows.slice(start, count))
        yield sink.getvalue().to_pybytes()


def _outcome(move: Move, stager: Stager, found: Sequence[Any]) -> Moved | HeadwaterError:
    staged = [one for one in found if isinstance(one, StagedFile)]
    errors = [one for one in found if isinstance(one, HeadwaterError)]
    if errors:
        stager.discard(move.plan.table, staged)
        return errors[0]
    try:
        return checked(move, stager, staged, sum(one.rows for one in found if isinstance(one, _Left)))
    except HeadwaterError as error:
        return error
