"""Columns of data files that are looked at again and again, decoded once and kept in memory.

A data file never changes under its name, so what was read of it stays true; what is not used for long is
forgotten. Kept are columns of single row groups as the file has them: deletes, defaults and names come later.
So are single values that were picked: who asks for some rows often asks for more of their columns next.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

#: What part of the machine's memory is used, if nobody says otherwise; how much that is at least and most.
_PART, _LEAST, _MOST = 8, 256 << 20, 4 << 30
#: A column that would take more than this part of everything is not kept.
_LARGEST = 0.25
#: … and of a table no more than this part, unless all of a column has to be looked at.
_ROOM = 0.125
#: Of so many files footers are kept.
_FOOTERS = 4096

#: A file, one of its row groups or a digest of positions, and a column.
_Place = tuple[str, int | bytes, str]


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest number of each row group, and the position at which it begins."""

    least: npt.NDArray[np.int64]
    most: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]


class KeptColumns:
    """Decoded columns by file, row group and name, and the footers of their files."""

    def __init__(self, most_bytes: int | None = None):
        self.most_bytes = _usual_bytes() if most_bytes is None else most_bytes
        self.bytes = 0
        """How much is kept now, footers aside."""
        self._columns: OrderedDict[_Place, pa.ChunkedArray[Any]] = OrderedDict()
        self._footers: dict[str, pq.FileMetaData] = {}
        self._bounds: dict[str, dict[str, Bounds]] = {}
        self._in_order: dict[_Place, bool] = {}
        self._lock = Lock()

    def has_room_for(self, size: int) -> bool:
        """Whether columns of so many bytes can be kept without pushing much else out."""
        return size <= _ROOM * self.most_bytes

    def open(self, path: str, source: pa.NativeFile) -> pq.ParquetFile:
        """A file, whose footer is read the first time only."""
        with self._lock:
            footer = self._footers.get(path)
        parquet = pq.ParquetFile(source, pre_buffer=True, metadata=footer)
        if footer is None:
            with self._lock:
                self._footers[path] = parquet.metadata
                while len(self._footers) > _FOOTERS:
                    self._forget(next(iter(self._footers)))
        return parquet

    def read(self, path: str, parquet: pq.ParquetFile, groups: Sequence[int], names: list[str]) -> pa.Table:
        """Columns of row groups: those that are here, and the others read and kept."""
        found: dict[tuple[int, str], pa.ChunkedArray[Any]] = {}
        for group in groups:
            for name in names:
                if (known := self._known((path, group, name))) is not None:
                    found[group, name] = known
        missing = [name for name in names if any((group, name) not in found for group in groups)]
        if missing:
            data = parquet.read_row_groups(list(groups), columns=missing)
            first = 0
            for group in groups:
                count = parquet.metadata.row_group(group).num_rows
                for name in missing:
                    found[group, name] = data.column(name).slice(first, count)
                    self._keep((path, group, name), found[group, name])
                first += count
        # With the fields' ids: names alone do not tell which column of the table this is.
        fields = [parquet.schema_arrow.field(name) for name in names]
        arrays = [
            pa.chunked_array(
                [chunk for group in groups for chunk in found[group, field.name].chunks], field.type
            )
            for field in fields
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def taken(
        self, path: str, footer: pq.FileMetaData, name: str, positions: npt.NDArray[np.int64]
    ) -> pa.ChunkedArray[Any] | None:
        """Values of a column at some positions, ascending, if they are here."""
        if (picked := self._known((path, _digest(positions), name))) is not None:
            return picked
        ends = np.cumsum([footer.row_group(group).num_rows for group in range(footer.num_row_groups)])
        groups, starts = np.unique(np.searchsorted(ends, positions, "right"), return_index=True)
        chunks: list[pa.Array[Any]] = []
        for group, own in zip(groups.tolist(), np.split(positions, starts[1:]), strict=True):
            if (column := self._known((path, group, name))) is None:
                return None
            first = ends[group] - footer.row_group(group).num_rows
            chunks += column.take(pa.array(own - first)).chunks
        return pa.chunked_array(chunks) if chunks else None

    def picked(self, path: str, rows: pa.Table, positions: npt.NDArray[np.int64]) -> None:
        """Keep what was picked of a file."""
        digest = _digest(positions)
        for name in rows.schema.names:
            self._keep((path, digest, name), rows.column(name))

    def bounds(self, path: str, parquet: pq.ParquetFile, name: str) -> Bounds:
        """What the statistics of a column of whole numbers say of its row groups."""
        with self._lock:
            found = self._bounds.get(path, {}).get(name)
        if found is None:
            found = _bounds(parquet.metadata, name)
            with self._lock:
                if path in self._footers:
                    self._bounds.setdefault(path, {})[name] = found
        return found

    def in_order(self, path: str, group: int, name: str, numbers: npt.NDArray[np.signedinteger[Any]]) -> bool:
        """Whether no number of a row group's column is less than the one before."""
        place = (path, group, name)
        found = self._in_order.get(place)
        if found is None:
            found = bool((numbers[:-1] <= numbers[1:]).all())
            with self._lock:
                if place in self._columns:
                    self._in_order[place] = found
        return found

    def _known(self, place: _Place) -> pa.ChunkedArray[Any] | None:
        with self._lock:
            if place in self._columns:
                self._columns.move_to_end(place)
            return self._columns.get(place)

    def _keep(self, place: _Place, column: pa.ChunkedArray[Any]) -> None:
        size = column.nbytes
        if size > _LARGEST * self.most_bytes:
            return
        with self._lock:
            old = self._columns.pop(place, None)
            self.bytes += size - (old.nbytes if old is not None else 0)
            self._columns[place] = column
            while self.bytes > self.most_bytes:
                left, gone = self._columns.popitem(last=False)
                self.bytes -= gone.nbytes
                self._in_order.pop(left, None)
                self._forget(left[0])

    def _forget(self, path: str) -> None:
        """What is known of a file, but for its columns."""
        self._footers.pop(path, None)
        self._bounds.pop(path, None)


def _digest(positions: npt.NDArray[np.int64]) -> bytes:
    return blake2b(positions.tobytes(), digest_size=16).digest()


def _bounds(footer: pq.FileMetaData, name: str) -> Bounds:
    place = next(n for n in range(footer.num_columns) if footer.schema.column(n).path == name)
    limits = np.iinfo(np.int64)
    rows, bounds = [0], []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        told = group.column(place).statistics
        known = told is not None and told.has_min_max
        bounds.append((told.min, told.max) if told is not None and known else (limits.min, limits.max))
        rows.append(group.num_rows)
    least, most = np.array(bounds, np.int64).reshape(-1, 2).T
    return Bounds(least, most, np.cumsum(rows[:-1], dtype=np.int64))


def _usual_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_MOST, max(_LEAST, memory // _PART))
