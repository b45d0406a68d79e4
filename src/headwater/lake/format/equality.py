"""Rows as Python values that are equal exactly if SQL's DISTINCT calls them equal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

Key = tuple[Any, ...]


def row_keys(rows: pa.Table) -> list[Key]:
    """The rows as values that can be compared, counted and looked up.

    >>> row_keys(pa.table({"a": [float("nan"), None], "b": [[1], []]}))
    [('NaN', (1,)), (None, ())]
    """
    columns = [_plain(column) for column in rows.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def _plain(column: pa.ChunkedArray[Any]) -> list[Any]:
    # Moments as numbers: Python has none before the year 1 and after 9999.
    values: list[Any] = column.cast(_as_numbers(column.type)).to_pylist()
    if kinds.is_nested(column.type) or kinds.is_floating(column.type):
        return [_hashable(value) for value in values]
    return values


def _as_numbers(kind: Any) -> Any:
    """A type with numbers in the places of dates and times."""
    if kinds.is_date32(kind) or kinds.is_time32(kind):
        return pa.int32()
    if kinds.is_temporal(kind) and not kinds.is_interval(kind):
        return pa.int64()
    if kinds.is_list(kind):
        return pa.list_(_field_as_numbers(kind.value_field))
    if kinds.is_large_list(kind):
        return pa.large_list(_field_as_numbers(kind.value_field))
    if kinds.is_struct(kind):
        return pa.struct([_field_as_numbers(field) for field in kind.fields])
    if kinds.is_map(kind):
        return pa.map_(_field_as_numbers(kind.key_field), _field_as_numbers(kind.item_field))
    return kind


def _field_as_numbers(field: Any) -> Any:
    return field.with_type(_as_numbers(field.type))


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):  # an array, or an entry of a map
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    # NaN is equal to itself.
    return "NaN" if isinstance(value, float) and value != value else value


__all__ = ["Key", "row_keys"]
