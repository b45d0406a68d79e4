"""Carrying rows from some files into others: the data work of compaction, in any process.

Only what a footer says comes back. Rows go through memory a row group at a time, unless they are few, are to
be sorted, or only DuckDB can write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headwater.errors import CorruptFileError, HeadwaterError
from headwater.lake.maintenance.choosing import Move
from headwater.lake.maintenance.moved_rows import deleted_count, in_order, read_rows, store_rows
from headwater.lake.maintenance.spreading import spread
from headwater.lake.model import StagedFile
from headwater.lake.reading.scan import FileScan
from headwater.lake.writing.draft import FileDeletes, FileReplacement
from headwater.lake.writing.parquet_files import can_stream
from headwater.lake.writing.staging import Stager

#: Moves of fewer stored bytes are carried out in one piece.
_FEW_BYTES = 16 << 20


@dataclass(frozen=True)
class Moved:
    """A move that was carried out: what is stored, and what the catalog is to be told."""

    move: Move
    staged: tuple[StagedFile, ...]
    rows: int
    deleted: int
    """Rows that were left behind."""

    @property
    def replacement(self) -> FileReplacement:
        """The same for a transaction."""
        snapshots = self.move.snapshots
        return FileReplacement(
            sources=tuple(_unchanged(scan) for scan in self.move.sources),
            staged=self.staged,
            first_snapshot=None if snapshots is None else snapshots[0],
            last_snapshot=None if snapshots is None else snapshots[1],
        )


class Mover(Protocol):
    """Carries out moves, here or on other machines."""

    def waves(self, moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
        """The moves in groups that are carried out, and committed, together."""

    def carry_out(self, moves: Sequence[Move], stager: Stager) -> list[Moved | HeadwaterError]:
        """The outcome of each move."""


class LocalMover:
    """Carries out moves in threads of this process."""

    def __init__(self, threads: int = 2):
        self._threads = threads

    def waves(self, moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
        """A few at a time."""
        return in_waves(moves, 4 * self._threads)

    def carry_out(self, moves: Sequence[Move], stager: Stager) -> list[Moved | HeadwaterError]:
        """The outcome of each move."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="headwater-compact") as pool:
            return list(pool.map(lambda move: attempt(move, stager), moves))


def attempt(move: Move, stager: Stager) -> Moved | HeadwaterError:
    """Carry out a move; an error is a result like another, for the files may have been replaced meanwhile."""
    try:
        return carry_out(move, stager)
    except HeadwaterError as error:
        return error


def in_waves(moves: Iterable[Move], files: int) -> Iterator[list[Move]]:
    """Moves in groups of about so many new files."""
    wave: list[Move] = []
    for move in moves:
        if wave and sum(one.outputs for one in wave) + move.outputs > files:
            yield wave
            wave = []
        wave.append(move)
    if wave:
        yield wave


def carry_out(move: Move, stager: Stager) -> Moved:
    """Store the rows of a move's files in others, with their row ids and, if need be, their snapshots."""
    deleted = deleted_count(move, stager)
    if deleted == sum(scan.file.record_count for scan in move.sources):
        return Moved(move, (), 0, deleted)
    staged = spread(move, stager) if move.outputs > 1 else [_one_file(move, stager)]
    return checked(move, stager, staged, deleted)


def _one_file(move: Move, stager: Stager) -> StagedFile:
    pieces = read_rows(move, stager)
    form = stager.file_format(move.plan.table)
    if move.bytes <= _FEW_BYTES or move.order or not can_stream(move.plan.table.columns, form):
        return store_rows(move, stager, in_order(pa.concat_tables(pieces), move.order))
    return store_rows(move, stager, (batch for piece in pieces for batch in piece.to_batches()))


def checked(move: Move, stager: Stager, staged: Sequence[StagedFile], deleted: int) -> Moved:
    """A move that was carried out, if the new files hold as many rows as the old ones had left."""
    rows = sum(scan.file.record_count for scan in move.sources) - deleted
    stored = sum(file.record_count for file in staged)
    if stored != rows:
        stager.discard(move.plan.table, staged)
        raise CorruptFileError(
            f"{len(move.sources)} files of {move.plan.table.name} hold {stored} rows, "
            f"not {rows} as the catalog says.",
            hint="Run `headwater doctor`.",
            table=str(move.plan.table.name),
        )
    return Moved(move, tuple(staged), rows, deleted)


def _unchanged(scan: FileScan) -> FileDeletes:
    """A file as it was read, to be compared at the commit."""
    nothing = np.empty(0, np.int64)
    return FileDeletes(scan.file, scan.deletes, np.array(scan.inlined_deletes, np.int64), nothing)
