"""Where values are in a column of whole numbers: found without looking at all that the column has.

Row groups whose bounds leave out every value are passed over. Where the numbers of a row group are in order,
as keys often are, each value is looked up in it; elsewhere a sieve lets few others through than the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.lake.model import Column, DataFile
from headwater.lake.reading.deletes import Positions
from headwater.lake.reading.file_reader import own_name
from headwater.lake.reading.kept_columns import KeptColumns
from headwater.lake.reading.members import Members
from headwater.storage.store import Store

_Numbers = npt.NDArray[np.signedinteger[Any]]
#: How many places a sieve has for each value, and at least and at most: it should fit into a core's cache.
_PLACES, _LEAST, _MOST = 64, 1 << 16, 1 << 22


def search(
    store: Store, file: DataFile, column: Column, members: Members, kept: KeptColumns
) -> Positions | None:
    """The positions of rows with one of the values, ascending; None if the file has no such numbers."""
    values = members.values
    if not pa.types.is_signed_integer(values.type) or file.encryption_key is not None:
        return None
    with store.open_input(file.path) as source:
        parquet = kept.open(file.path, source)
        name = own_name(parquet.schema_arrow, file, column)
        if name is None or parquet.schema_arrow.field(name).type != values.type:
            return None
        found = [np.empty(0, np.int64), *_found(file.path, parquet, name, members, kept)]
    return np.concatenate(found)


def expected_share(
    store: Store, file: DataFile, column: Column, values: pa.Array[Any], kept: KeptColumns
) -> float | None:
    """Which part of a file's rows has one of the values, were all numbers between its bounds as frequent."""
    if not pa.types.is_signed_integer(values.type) or file.encryption_key is not None:
        return None
    with store.open_input(file.path) as source:
        parquet = kept.open(file.path, source)
        name = own_name(parquet.schema_arrow, file, column)
        if name is None or parquet.schema_arrow.field(name).type != values.type or not file.record_count:
            return None
        bounds = kept.bounds(file.path, parquet, name)
    least, most = int(bounds.least.min()), int(bounds.most.max())
    if most - least > np.iinfo(np.int64).max:  # of some row group they are not known
        return None
    numbers = values.to_numpy(zero_copy_only=False)
    return int(((numbers >= least) & (numbers <= most)).sum()) / (most - least + 1)


def _found(
    path: str, parquet: pq.ParquetFile, name: str, members: Members, kept: KeptColumns
) -> Iterator[Positions]:
    bounds = kept.bounds(path, parquet, name)
    wanted = np.sort(members.values.to_numpy())
    sieve = None if members.tabled else _Sieve(wanted)
    low = np.searchsorted(wanted, bounds.least, "left")
    high = np.searchsorted(wanted, bounds.most, "right")
    for group in np.flatnonzero(low < high):
        column = kept.read(path, parquet, [int(group)], [name]).column(0)
        if column.null_count:
            hits = np.flatnonzero(members.among(column))
        else:
            numbers = column.combine_chunks().to_numpy()
            if kept.in_order(path, int(group), name, numbers):
                hits = _looked_up(numbers, wanted[low[group] : high[group]])
            elif sieve is None:
                hits = np.flatnonzero(members.of_numbers(numbers))
            else:
                maybe = sieve.left(numbers)
                hits = maybe[members.among(pa.array(numbers[maybe]))]
        if len(hits):
            yield hits + bounds.first[group]


class _Sieve:
    """Lets numbers through that end like a wanted one: quicker than to compare each with the wanted."""

    def __init__(self, wanted: _Numbers):
        places = min(_MOST, max(_LEAST, 1 << (_PLACES * len(wanted)).bit_length()))
        self._end = wanted.dtype.type(min(places - 1, np.iinfo(wanted.dtype).max))
        self._open = np.zeros(places, np.bool_)
        self._open[wanted & self._end] = True

    def left(self, numbers: _Numbers) -> Positions:
        """The positions of numbers that may be wanted."""
        return np.flatnonzero(self._open[numbers & self._end])


def _looked_up(numbers: _Numbers, some: _Numbers) -> Positions:
    """Where some numbers are among others that are in order."""
    first = np.searchsorted(numbers, some, "left")
    counts = np.searchsorted(numbers, some, "right") - first
    # The places of each, one after the other: first, first + 1, … as often as it is there.
    starts = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return np.asarray(starts + np.arange(len(starts)), np.int64)


__all__ = ["expected_share", "search"]
