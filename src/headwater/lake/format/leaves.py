"""The columns that hold values: what Parquet has columns for, and statistics are kept of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from headwater.lake.format.types import AnyArray
from headwater.lake.model import Column


def leaves(columns: Iterable[Column]) -> list[Column]:
    """The columns that hold values, in the order of a Parquet file's own columns."""
    return [column for top in columns for column in top.walk() if not column.children]


def leaf_arrays(table: pa.Table, columns: Sequence[Column]) -> Iterator[tuple[Column, AnyArray]]:
    """Every leaf with its values, those inside lists and maps flattened; NULL where a parent is NULL."""
    for column, data in zip(columns, table.columns, strict=True):
        yield from _leaf_arrays(column, data.combine_chunks() if column.is_nested else data)


def _leaf_arrays(column: Column, array: AnyArray) -> Iterator[tuple[Column, AnyArray]]:
    if isinstance(array, pa.ChunkedArray) and column.is_nested:
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not column.is_nested:
        yield column, array
    elif column.type == "struct":
        for child, part in zip(column.children, array.flatten(), strict=True):
            yield from _leaf_arrays(child, part)
    elif column.type == "list":
        yield from _leaf_arrays(column.children[0], elements(array))
    else:
        entries = elements(array.cast(pa.list_(array.type.field(0))))
        for child, part in zip(column.children, entries.flatten(), strict=True):
            yield from _leaf_arrays(child, part)


def elements(lists: AnyArray) -> AnyArray:
    """What is in all lists. Where there is none, Arrow cannot make an empty array of UUIDs or JSON texts."""
    return lists.flatten() if lists.null_count < len(lists) else lists.values.slice(0, 0)
