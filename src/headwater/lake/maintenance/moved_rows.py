"""The rows of files that are to be moved: read as they are stored, sorted, and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format.types import AnyArray, arrow_schema
from headwater.lake.maintenance.choosing import Move
from headwater.lake.maintenance.ordering import SortKey
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
from headwater.lake.writing.staging import Stager, plain_values

#: Files of fewer bytes are read several at once.
_SMALL_FILE = 4 << 20


def deleted_count(move: Move, stager: Stager) -> int:
    """How many rows of a move's files are left behind."""
    return sum(
        len(deleted_positions(stager.store, scan.deletes, scan.inlined_deletes, move.plan.snapshot.id))
        for scan in move.sources
        if scan.deletes or scan.inlined_deletes
    )


def read_rows(move: Move, stager: Stager) -> Iterator[pa.Table]:
    """The rows of a move's files a row group at a time, with their ids and, if need be, their snapshots."""
    snapshots = move.snapshots
    several = snapshots is not None and snapshots[0] != snapshots[1]
    request = _MovedRows(move.plan.table.columns, with_snapshots=several)

    def read(scan: FileScan) -> Iterator[pa.Table]:
        with explained(move.plan, scan.file):
            selection = live_rows(stager.store, move.plan, scan)
            yield from read_selected(stager.store, move.plan, scan.file, request, selection, rows_at_once=1)

    if all(scan.file.file_size_bytes < _SMALL_FILE for scan in move.sources):
        return read_concurrently(move.sources, read)
    return (piece for scan in move.sources for piece in read(scan))


def store_rows(move: Move, stager: Stager, data: pa.Table | Iterator[pa.RecordBatch]) -> StagedFile:
    """Store rows as one file of the move's partition."""
    return stager.stage_moved(
        move.plan.table,
        data,
        move.plan.table.columns,
        move.partition_id,
        move.partition_values,
        move.maybe_nan,
    )


def keys_of(rows: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    """What rows are sorted by: their keys, and then their ids."""
    names = [key.column.name for key in order]
    keys = [plain_values(rows.column(name)) for name in names]
    return pa.table([*keys, rows.column(ROW_ID_COLUMN)], names=[*names, ROW_ID_COLUMN])


def sorted_places(keys: pa.Table, order: Sequence[SortKey]) -> AnyArray:
    """The places of rows with these keys, in order.

    Row ids come last, so that there are no two equal rows: any number of them can be cut between any two.
    """
    by = [*(key.arrow for key in order), (ROW_ID_COLUMN, "ascending", "at_end")]
    # The stubs do not know null placement.
    return pc.sort_indices(keys, sort_keys=cast(Any, by))


def in_order(rows: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    """The rows, sorted."""
    return rows.take(sorted_places(keys_of(rows, order), order)) if order else rows


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


def _embedded(name: str, field_id: int) -> pa.Field[Any]:
    return pa.field(name, pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(field_id)})
