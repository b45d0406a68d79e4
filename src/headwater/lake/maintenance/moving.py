"""Carrying rows from some files into one other: the data work of compaction, in any process.

Only what a footer says comes back. Rows go through memory a row group at a time, unless they are few, are to
be sorted, or only DuckDB can write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptFileError, HeadwaterError
from headwater.lake.format.layout import sort_keys
from headwater.lake.format.types import AnyArray, arrow_schema
from headwater.lake.maintenance.choosing import Move
from headwater.lake.model import (
    ROW_ID_COLUMN,
    ROW_ID_FIELD,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD,
    Column,
    StagedFile,
)
from headwater.lake.reading.deletes import deleted_positions
from headwater.lake.reading.file_reader import explained, live_rows, read_selected
from headwater.lake.reading.read import read_concurrently
from headwater.lake.reading.scan import FileScan
from headwater.lake.writing.draft import FileDeletes, FileReplacement
from headwater.lake.writing.parquet_files import can_stream
from headwater.lake.writing.staging import Stager, plain_values

#: Moves of fewer stored bytes are carried out in one piece.
_FEW_BYTES = 16 << 20
#: Files of fewer bytes are read several at once.
_SMALL_FILE = 4 << 20


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
        size = 4 * self._threads
        for start in range(0, len(moves), size):
            yield moves[start : start + size]

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


def carry_out(move: Move, stager: Stager) -> Moved:
    """Store the rows of a move's files in one file, with their row ids and, if need be, their snapshots."""
    columns = move.plan.table.columns
    snapshots = move.snapshots
    request = _MovedRows(columns, with_snapshots=snapshots is not None and snapshots[0] != snapshots[1])
    gone = [_gone(stager, move, scan) for scan in move.sources]
    rows = sum(scan.file.record_count for scan in move.sources) - sum(gone)
    if not rows:
        return Moved(move, (), 0, sum(gone))
    pieces = _pieces(move, stager, request)
    keys = sort_keys(move.plan.table) if move.sorted else []
    form = stager.file_format(move.plan.table)
    data: pa.Table | Iterator[pa.RecordBatch]
    if move.bytes <= _FEW_BYTES or keys or not can_stream(columns, form):
        data = _in_order(pa.concat_tables(list(pieces)), keys)
    else:
        data = (batch for piece in pieces for batch in piece.to_batches())
    staged = stager.stage_moved(
        move.plan.table, data, columns, move.partition_id, move.partition_values, move.maybe_nan
    )
    if staged.record_count != rows:
        stager.discard(move.plan.table, [staged])
        raise CorruptFileError(
            f"{len(move.sources)} files of {move.plan.table.name} hold {staged.record_count} rows, "
            f"not {rows} as the catalog says.",
            hint="Run `headwater doctor`.",
            table=str(move.plan.table.name),
        )
    return Moved(move, (staged,), rows, sum(gone))


def _gone(stager: Stager, move: Move, scan: FileScan) -> int:
    if not scan.deletes and not scan.inlined_deletes:
        return 0
    found = deleted_positions(stager.store, scan.deletes, scan.inlined_deletes, move.plan.snapshot.id)
    return len(found)


def _pieces(move: Move, stager: Stager, request: _MovedRows) -> Iterator[pa.Table]:
    def read(scan: FileScan) -> Iterator[pa.Table]:
        with explained(move.plan, scan.file):
            selection = live_rows(stager.store, move.plan, scan)
            yield from read_selected(stager.store, move.plan, scan.file, request, selection, rows_at_once=1)

    if all(scan.file.file_size_bytes < _SMALL_FILE for scan in move.sources):
        return read_concurrently(move.sources, read)
    return (piece for scan in move.sources for piece in read(scan))


@dataclass(frozen=True)
class _MovedRows:
    """All columns of a table, then row ids and snapshots as files embed them."""

    columns: tuple[Column, ...]
    with_snapshots: bool

    @property
    def needed(self) -> tuple[Column, ...]:
        return self.columns

    @property
    def needed_hidden(self) -> tuple[str, ...]:
        return ("rowid", "snapshot_id") if self.with_snapshots else ("rowid",)

    def finish(self, rows: pa.Table, hidden: Callable[[str], AnyArray]) -> pa.Table:
        fields = [_embedded(ROW_ID_COLUMN, ROW_ID_FIELD)]
        if self.with_snapshots:
            fields.append(_embedded(SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD))
        arrays: list[Any] = [*rows.columns, *map(hidden, self.needed_hidden)]
        return pa.Table.from_arrays(arrays, schema=pa.schema([*arrow_schema(self.columns), *fields]))


def _in_order(rows: pa.Table, keys: Sequence[tuple[str, str, str]]) -> pa.Table:
    if not keys:
        return rows
    columns = {name: plain_values(rows.column(name)) for name, _, _ in keys}
    return rows.take(pc.sort_indices(pa.table(columns), sort_keys=cast(Any, keys)))


def _embedded(name: str, field_id: int) -> pa.Field[Any]:
    return pa.field(name, pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(field_id)})


def _unchanged(scan: FileScan) -> FileDeletes:
    """A file as it was read, to be compared at the commit."""
    nothing = np.empty(0, np.int64)
    return FileDeletes(scan.file, scan.deletes, np.array(scan.inlined_deletes, np.int64), nothing)
