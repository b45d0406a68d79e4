"""One data file of a plan, read as the table's rows at the plan's snapshot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError, StorageError
from headwater.lake.format.conform import NameMapping, conform, field_id
from headwater.lake.format.file_columns import needs_duckdb_to_read
from headwater.lake.format.types import AnyArray
from headwater.lake.format.values import default_array
from headwater.lake.model import (
    ROW_ID_COLUMN,
    ROW_ID_FIELD,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD,
    Column,
    DataFile,
)
from headwater.lake.reading.deletes import Positions, deleted_positions
from headwater.lake.reading.kept_columns import KeptColumns
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.storage.duckdb_codec import encrypted_footer, read_with_duckdb
from headwater.storage.picking import pick_rows, worth_picking
from headwater.storage.store import Store
from headwater.typedefs import SnapshotId

Mask = npt.NDArray[np.bool_]

#: How values of a column can be written in a Parquet file: as numbers of a list of values …
_ENCODED = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
#: … or as themselves. (What else is named is about levels.)
_VALUES = _ENCODED | {"PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"}


class Selection(Protocol):
    """Which rows of a file are to be read."""

    @property
    def by_snapshot(self) -> bool:
        """Whether the rows' embedded snapshot ids are needed to tell."""

    def none_of(self, first: int, count: int, snapshots: tuple[int, int] | None) -> bool:
        """Whether it is clear that none of `count` rows that begin at position `first` is to be read.

        `snapshots` are the least and the greatest embedded snapshot id among them, where that is known.
        """

    def kept(self, first: int, count: int, snapshots: Positions | None) -> Mask | None:
        """Which of these rows are to be read, given their snapshots if `by_snapshot`; None for all."""


class FinishedRows(Protocol):
    """What becomes of the rows that are read; see `Request`."""

    @property
    def needed(self) -> tuple[Column, ...]:
        """The columns that must be read."""

    @property
    def needed_hidden(self) -> tuple[str, ...]:
        """The hidden columns that are needed."""

    def finish(self, rows: pa.Table, hidden: Callable[[str], AnyArray]) -> pa.Table:
        """The result of rows that have the needed columns; `hidden` gives the values of a hidden column."""


def read_file(
    store: Store,
    plan: ScanPlan,
    scan: FileScan,
    request: Request,
    rows_at_once: int,
    part: tuple[int, int] | None = None,
) -> Iterator[pa.Table]:
    """The rows of a scan, in pieces of whole row groups with about `rows_at_once` rows.

    With `part` only the pieces that begin at one of these positions, the second of them not included.
    """
    with explained(plan, scan.file):
        selection: Selection = live_rows(store, plan, scan)
        if part is not None:
            selection = Part(selection, *part)
        yield from read_selected(store, plan, scan.file, request, selection, rows_at_once)


def parts_of(file: DataFile, rows_at_once: int) -> list[tuple[int, int]]:
    """Parts of a file for `read_file` that are worth reading at the same time."""
    count = max(1, min(os.cpu_count() or 1, -(-file.record_count // rows_at_once)))
    bounds = [file.record_count * place // count for place in range(count)]
    return list(pairwise([*bounds, sys.maxsize]))


def live_rows(store: Store, plan: ScanPlan, scan: FileScan, kept: KeptColumns | None = None) -> _LiveRows:
    """Those rows of a scan's file that there are at the plan's snapshot. Deletes may be `kept`."""
    gone = (
        deleted_positions(store, scan.deletes, scan.inlined_deletes, plan.snapshot.id, kept)
        if scan.deletes or scan.inlined_deletes
        else np.empty(0, np.int64)
    )
    return _LiveRows(gone, scan.max_snapshot)


def read_selected(
    store: Store,
    plan: ScanPlan,
    file: DataFile,
    request: FinishedRows,
    selection: Selection,
    rows_at_once: int,
    kept: KeptColumns | None = None,
    positions: Positions | None = None,
    known: KeptColumns | None = None,
) -> Iterator[pa.Table]:
    """The selected rows of a file, of whose plan only table and mappings matter.

    What is decoded is `kept`; `positions` are those of the selected rows, ascending, if that is known, of
    which columns may be `known`. (Of the rows of a `Part` they are those of the whole.)
    """
    reader = _FileReader(store, plan, file, request, selection, kept, positions, known)
    if file.encryption_key is not None or needs_duckdb_to_read(request.needed):
        yield from reader.piece_by_duckdb()
        return
    with store.open_input(file.path) as source:
        yield from reader.pieces(source, rows_at_once)


@dataclass(frozen=True, slots=True)
class _LiveRows:
    """The rows that are neither deleted nor newer than a snapshot."""

    gone: Positions
    max_snapshot: SnapshotId | None

    @property
    def by_snapshot(self) -> bool:
        return self.max_snapshot is not None

    def among(self, positions: Positions) -> Positions:
        """Those of some positions where there are such rows, if these need not be looked at."""
        if not len(self.gone):
            return positions
        places = np.searchsorted(self.gone, positions)
        places[places == len(self.gone)] = 0
        alive: Positions = positions[self.gone[places] != positions]
        return alive

    def none_of(self, first: int, count: int, snapshots: tuple[int, int] | None) -> bool:
        if snapshots is not None and self.max_snapshot is not None and self.max_snapshot < snapshots[0]:
            return True
        low, high = np.searchsorted(self.gone, (first, first + count))
        return bool(high - low >= count)

    def kept(self, first: int, count: int, snapshots: Positions | None) -> Mask | None:
        kept: Mask | None = None
        low, high = np.searchsorted(self.gone, (first, first + count))
        if high > low:
            kept = np.ones(count, np.bool_)
            kept[self.gone[low:high] - first] = False
        if self.max_snapshot is not None and snapshots is not None:
            old = snapshots <= self.max_snapshot
            kept = old if kept is None else kept & old
        return kept


@dataclass(frozen=True, slots=True)
class Part:
    """The selected rows of those pieces that begin in a part of the file."""

    whole: Selection
    begin: int
    end: int

    @property
    def by_snapshot(self) -> bool:
        """As of the whole."""
        return self.whole.by_snapshot

    def none_of(self, first: int, count: int, snapshots: tuple[int, int] | None) -> bool:
        """As of the whole, for pieces that begin in the part."""
        return not self.begin <= first < self.end or self.whole.none_of(first, count, snapshots)

    def kept(self, first: int, count: int, snapshots: Positions | None) -> Mask | None:
        """As of the whole."""
        return self.whole.kept(first, count, snapshots)


@dataclass
class _FileReader:
    store: Store
    plan: ScanPlan
    file: DataFile
    request: FinishedRows
    selection: Selection
    columns: KeptColumns | None = None
    positions: Positions | None = None
    known: KeptColumns | None = None

    def pieces(self, source: pa.NativeFile, rows_at_once: int) -> Iterator[pa.Table]:
        kept = self.columns or self.known
        if kept is None:
            parquet = pq.ParquetFile(source, pre_buffer=True)
        else:
            parquet = kept.open(self.file.path, source)
        layout = self._layout(parquet.schema_arrow)
        if (picked := self._picked(parquet, layout)) is not None:
            yield picked
            return
        by_number = self._by_number(parquet, layout)
        if by_number:
            parquet = pq.ParquetFile(
                source, pre_buffer=True, metadata=parquet.metadata, read_dictionary=by_number
            )
        first = 0
        for groups, count in _groups(parquet.metadata, rows_at_once):
            snapshots = _snapshots(parquet.metadata, groups, layout) if self.selection.by_snapshot else None
            if not self.selection.none_of(first, count, snapshots):
                if self.columns is None or not layout.names:
                    data = parquet.read_row_groups(groups, columns=layout.names)
                else:
                    data = self.columns.read(self.file.path, parquet, groups, layout.names)
                yield self.piece(data, layout, first, count)
            first += count

    def _picked(self, parquet: pq.ParquetFile, layout: _Layout) -> pa.Table | None:
        """The selected rows, if they are so few and so known that no more than these need be decoded."""
        positions = self.positions
        if positions is None or self.columns is not None or not layout.names:
            return None
        if isinstance(self.selection, Part):  # of which the positions are not those alone
            return None
        if not worth_picking(parquet.metadata, positions):
            return None
        data = self._few(parquet, layout.names, positions)
        return None if data is None else self._finished(data, layout, positions)

    def _few(self, parquet: pq.ParquetFile, names: list[str], positions: Positions) -> pa.Table | None:
        """Columns of the rows at some positions: those that are here, and the others picked."""
        path, known = self.file.path, self.known
        if known is None:
            return pick_rows(path, parquet.schema_arrow, names, positions)
        taken = {name: known.taken(path, parquet.metadata, name, positions) for name in names}
        found = {name: column for name, column in taken.items() if column is not None}
        missing = [name for name in names if name not in found]
        if missing:
            data = pick_rows(path, parquet.schema_arrow, missing, positions)
            if data is None:
                return None
            known.picked(path, data, positions)
            found.update((name, data.column(name)) for name in missing)
        schema = pa.schema([parquet.schema_arrow.field(name) for name in names])
        return pa.Table.from_arrays([found[name] for name in names], schema=schema)

    def _by_number(self, parquet: pq.ParquetFile, layout: _Layout) -> list[str]:
        """Words that the file has numbered, if some rows are wanted: of others no words are made then."""
        if self.positions is None or self.columns is not None or not layout.names:
            return []
        words = {name for name in layout.names if pa.types.is_string(parquet.schema_arrow.field(name).type)}
        footer = parquet.metadata
        groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        return [
            name
            for place in range(footer.num_columns)
            if (name := footer.schema.column(place).path) in words
            and all(set(group.column(place).encodings) & _VALUES <= _ENCODED for group in groups)
        ]

    def piece_by_duckdb(self) -> Iterator[pa.Table]:
        """The whole file at once, for files that only DuckDB can decode."""
        file = self.file
        footer = self._footer(file)
        layout = self._layout(footer.schema.to_arrow_schema())
        if footer.num_rows and not self.selection.none_of(0, footer.num_rows, None):
            data = read_with_duckdb(self.store, file.path, file.encryption_key, layout.names)
            yield self.piece(data, layout, 0, footer.num_rows)

    def _footer(self, file: DataFile) -> pq.FileMetaData:
        if file.encryption_key is not None:
            return encrypted_footer(self.store, file.path, file.file_size_bytes, file.encryption_key)
        with self.store.open_input(file.path) as source:
            return pq.read_metadata(source)

    def _layout(self, schema: pa.Schema) -> _Layout:
        return _Layout.of(schema, self.plan, self.file, self.request, self.selection.by_snapshot)

    def piece(self, data: pa.Table, layout: _Layout, first: int, count: int) -> pa.Table:
        """The rows left of `count` rows that begin at position `first`, as the request wants them."""
        kept = self._kept(data, layout, first, count)
        if kept is None or kept.all():
            return self._finished(_spelled_out(data), layout, np.arange(first, first + count))
        if data.num_columns:  # without any, DuckDB's result does not know how many rows it has
            data = data.filter(pa.array(kept))
        return self._finished(_spelled_out(data), layout, np.flatnonzero(kept) + first)

    def _finished(self, data: pa.Table, layout: _Layout, places: Positions) -> pa.Table:
        """Rows of the file, which are at these places, as the request wants them."""
        file = self.file
        rows = layout.rows(data, len(places), file.path)

        def hidden(name: str) -> AnyArray:
            match name:
                case "filename":
                    return pa.repeat(pa.scalar(file.path), len(places))
                case "file_row_number":
                    return pa.array(places)
                case "rowid" if layout.row_ids is not None:
                    return data.column(layout.row_ids)
                case "rowid" if file.row_id_start is not None:
                    return pa.array(places + file.row_id_start)
                case "snapshot_id" if layout.snapshot_ids is not None:
                    return data.column(layout.snapshot_ids)
                case "snapshot_id":
                    return pa.repeat(pa.scalar(file.begin_snapshot), len(places))
            return pa.nulls(len(places), pa.int64())

        return self.request.finish(rows, hidden)

    def _kept(self, data: pa.Table, layout: _Layout, first: int, count: int) -> Mask | None:
        """Which rows are selected; None for all."""
        if not self.selection.by_snapshot:
            return self.selection.kept(first, count, None)
        if layout.snapshot_ids is None:
            raise CorruptFileError(
                f"{self.file.path!r} does not say which snapshot its rows are of.",
                detail="The catalog says that it holds rows of several.",
                location=self.file.path,
            )
        return self.selection.kept(first, count, data.column(layout.snapshot_ids).to_numpy())


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a file holds what is needed of it."""

    columns: tuple[Column, ...]
    positional: tuple[Column, ...] | None
    """All columns of the table, for a file that has no field ids: it is matched by their order."""
    mapping: Sequence[NameMapping] | None
    names: list[str] | None
    """The file's own names of the columns to read; None for all."""
    row_ids: str | None
    snapshot_ids: str | None

    @classmethod
    def of(
        cls, schema: pa.Schema, plan: ScanPlan, file: DataFile, request: FinishedRows, by_snapshot: bool
    ) -> _Layout:
        """Find the columns by field id, by the file's name mapping, or by position."""
        fields = list(schema)
        by_id = {found: field.name for field in fields if (found := field_id(field)) is not None}
        known = {field.name for field in fields}
        row_ids = by_id.get(ROW_ID_FIELD, ROW_ID_COLUMN if ROW_ID_COLUMN in known else None)
        snapshot_ids = by_id.get(
            SNAPSHOT_ID_FIELD, SNAPSHOT_ID_COLUMN if SNAPSHOT_ID_COLUMN in known else None
        )
        names: list[str] | None = None
        mapping = None if file.mapping_id is None else plan.mappings.get(file.mapping_id, ())
        if mapping is not None:
            wanted = {column.id for column in request.needed}
            sources = {m.source_name.lower() for m in mapping if m.target_id in wanted and not m.is_partition}
            names = [field.name for field in fields if field.name.lower() in sources]
        elif by_id:
            names = [by_id[column.id] for column in request.needed if column.id in by_id]
        if names is not None:
            if row_ids is not None and "rowid" in request.needed_hidden:
                names.append(row_ids)
            if snapshot_ids is not None and (by_snapshot or "snapshot_id" in request.needed_hidden):
                names.append(snapshot_ids)
        return cls(
            columns=request.needed,
            positional=plan.table.columns if mapping is None and not by_id else None,
            mapping=mapping,
            names=names,
            row_ids=row_ids,
            snapshot_ids=snapshot_ids,
        )

    def rows(self, data: pa.Table, count: int, path: str) -> pa.Table:
        """The needed columns, as the table has them now."""
        if self.positional is not None:
            return conform(data, self.positional).select([column.name for column in self.columns])
        if self.mapping is None and not self.names:
            # Without a column Arrow does not know how many rows there are.
            arrays = [default_array(column, count) for column in self.columns]
            return pa.Table.from_arrays(arrays, names=[column.name for column in self.columns])
        return conform(data, self.columns, mapping=self.mapping, path=path)


def _spelled_out(data: pa.Table) -> pa.Table:
    """Words instead of their numbers."""
    for place, field in enumerate(data.schema):
        kind: Any = field.type
        if pa.types.is_dictionary(kind):
            words = data.column(place).cast(kind.value_type)
            data = data.set_column(place, field.with_type(kind.value_type), words)
    return data


def _groups(metadata: pq.FileMetaData, rows_at_once: int) -> Iterator[tuple[list[int], int]]:
    """Row groups to read together, and their rows."""
    groups: list[int] = []
    count = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if groups and count + rows > rows_at_once:
            yield groups, count
            groups, count = [], 0
        groups.append(group)
        count += rows
    if count:
        yield groups, count


def _snapshots(metadata: pq.FileMetaData, groups: list[int], layout: _Layout) -> tuple[int, int] | None:
    """The least and the greatest snapshot id embedded in row groups, if statistics tell."""
    names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    if layout.snapshot_ids not in names:
        return None
    place = names.index(layout.snapshot_ids)
    bounds: list[int] = []
    for group in groups:
        statistics: Any = metadata.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        bounds += statistics.min, statistics.max
    return min(bounds), max(bounds)


def own_name(schema: pa.Schema, file: DataFile, column: Column) -> str | None:
    """What a file calls a column that it has by its field id; None if it is found in another way, or not."""
    if file.mapping_id is not None:
        return None
    return next((field.name for field in schema if field_id(field) == column.id), None)


@contextmanager
def explained(plan: ScanPlan, file: DataFile) -> Iterator[None]:
    """Say of which table and snapshot a file is that cannot be read."""
    where = f"{plan.table.name} at snapshot {plan.snapshot.id}"
    facts: dict[str, Any] = {"table": str(plan.table.name), "snapshot_id": plan.snapshot.id}
    try:
        yield
    except StorageError as error:
        raise type(error)(
            f"A file of {where} cannot be read: {error.message}",
            detail=error.detail,
            hint=error.hint,
            **{**facts, **error.facts},
        ) from None
    except pa.ArrowInvalid as error:
        raise CorruptFileError(
            f"A file of {where} is damaged: {file.path}", detail=str(error), location=file.path, **facts
        ) from None
    except OSError as error:
        raise StorageError(
            f"A file of {where} cannot be read: {file.path}", detail=str(error), location=file.path, **facts
        ) from None
