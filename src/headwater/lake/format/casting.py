"""Arrow arrays of any shape turned into exactly the Arrow type of a column.

One recursion serves the three callers that differ only in how they find a struct's fields: by field id
(files of any age), by name (a user's data), by position (what DuckDB hands out).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format.leaves import elements
from headwater.lake.format.types import AnyArray, AnyField, arrow_field, arrow_type
from headwater.lake.model import Column
from headwater.storage.parquet import rescaled

#: For each child of a struct column: which field of the Arrow struct holds it, or None if none does.
Picker: TypeAlias = Callable[[Column, Sequence[AnyField]], list[int | None]]
#: How the values of a leaf get the column's type.
LeafCast: TypeAlias = Callable[[AnyArray, Column], AnyArray]
#: The values of a column that the data does not have.
Filler: TypeAlias = Callable[[Column, int], AnyArray]


def by_position(column: Column, fields: Sequence[AnyField]) -> list[int | None]:
    """Fields are in the order of the column's children."""
    return [i if i < len(fields) else None for i in range(len(column.children))]


def by_name(column: Column, fields: Sequence[AnyField]) -> list[int | None]:
    """Fields are found by name, without regard to case, as DuckDB does."""
    places = {field.name.lower(): i for i, field in enumerate(fields)}
    return [places.get(child.name.lower()) for child in column.children]


def no_values(column: Column, length: int) -> AnyArray:
    """A filler that leaves missing fields NULL."""
    return pa.nulls(length, arrow_type(column))


def cast_column(
    data: AnyArray,
    column: Column,
    pick: Picker = by_position,
    fill: Filler = no_values,
    leaf: LeafCast | None = None,
) -> AnyArray:
    """`cast_array` over every chunk; the same object where nothing is to be done."""
    target = arrow_type(column)
    # A struct may hold its fields under other names or in another order although the types look equal, and
    # text may be a variant's JSON or not.
    if data.type.equals(target) and not column.is_nested and (leaf is None or column.type != "variant"):
        return data
    return pa.chunked_array(
        [cast_array(chunk, column, pick, fill, leaf) for chunk in data.chunks], type=target
    )


def cast_array(
    array: AnyArray,
    column: Column,
    pick: Picker = by_position,
    fill: Filler = no_values,
    leaf: LeafCast | None = None,
) -> AnyArray:
    """The array with exactly `arrow_type(column)`; values are never changed silently.

    Raises `pyarrow.ArrowInvalid` (or `ValueError`, for text that is no UUID) where a value does not fit.
    """
    if not column.is_nested:
        return (leaf or cast_leaf)(array, column)
    if pa.types.is_null(array.type):
        return no_values(column, len(array))
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.type == "struct":
        return _cast_struct(array, column, pick, fill, leaf)
    if column.type == "map":
        return _cast_map(array, column, pick, fill, leaf)
    return _cast_list(array, column, pick, fill, leaf)


def _cast_struct(
    array: AnyArray, column: Column, pick: Picker, fill: Filler, leaf: LeafCast | None
) -> AnyArray:
    if not pa.types.is_struct(array.type):
        raise pa.ArrowInvalid(f"{array.type} is not a struct")
    fields = [array.type.field(i) for i in range(array.type.num_fields)]
    children = []
    for child, place in zip(column.children, pick(column, fields), strict=True):
        children.append(
            fill(child, len(array))
            if place is None
            else cast_array(array.field(place), child, pick, fill, leaf)
        )
    return pa.StructArray.from_arrays(
        children,
        fields=[arrow_field(child, field_ids=False) for child in column.children],
        mask=array.is_null() if array.null_count else None,
    )


def _cast_list(
    array: AnyArray, column: Column, pick: Picker, fill: Filler, leaf: LeafCast | None
) -> AnyArray:
    offsets, values = _list_parts(array)
    return pa.ListArray.from_arrays(
        offsets,
        cast_array(values, column.children[0], pick, fill, leaf),
        type=arrow_type(column),
        mask=array.is_null() if array.null_count else None,
    )


def _list_parts(array: AnyArray) -> tuple[AnyArray, AnyArray]:
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        # Offsets of a slice point into the whole; adding nothing gives a copy without an offset of its own,
        # which `from_arrays` needs.
        return pc.add(array.offsets, 0), array.values
    if not (
        pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    ):
        raise pa.ArrowInvalid(f"{kind} is not a list")
    # Views may overlap and lie in any order, and pyarrow's own cast of a view breaks on NULLs.
    sizes: AnyArray = pc.list_value_length(array)
    lengths: AnyArray = pc.fill_null(sizes, 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int32()), ends]), elements(array)


def _cast_map(array: AnyArray, column: Column, pick: Picker, fill: Filler, leaf: LeafCast | None) -> AnyArray:
    key, value = column.children
    if pa.types.is_map(array.type):
        offsets, keys, items = pc.add(array.offsets, 0), array.keys, array.items
    else:
        # A list of two-field structs is what several tools make of a map.
        offsets, entries = _list_parts(array)
        if not pa.types.is_struct(entries.type) or entries.type.num_fields != 2:
            raise pa.ArrowInvalid(f"{array.type} is not a map")
        keys, items = entries.field(0), entries.field(1)
    return pa.MapArray.from_arrays(
        offsets,
        cast_array(keys, key, pick, fill, leaf),
        cast_array(items, value, pick, fill, leaf),
        type=arrow_type(column),
        mask=array.is_null() if array.null_count else None,
    )


def cast_leaf(array: AnyArray, column: Column) -> AnyArray:
    """A leaf's values in the column's Arrow type, without loss."""
    target = arrow_type(column)
    kind = array.type
    if kind.equals(target):
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(kind):
        return cast_leaf(array.dictionary_decode(), column)
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(target, pa.BaseExtensionType):
        if isinstance(kind, pa.UuidType) and column.type == "varchar":
            return pa.array([None if v is None else str(v) for v in array.to_pylist()], target)
        return cast_leaf(array.storage, column)
    if column.type == "uuid":
        return _as_uuid(array)
    if column.type == "json":
        return pa.ExtensionArray.from_storage(target, _storage(array).cast(pa.string()))
    if column.type == "interval" and pa.types.is_fixed_size_binary(kind) and kind.byte_width == 12:
        return _decode_intervals(array)
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(target) and kind.unit != target.unit:
        return rescaled(array, target)
    if pa.types.is_integer(kind) and pa.types.is_decimal(target):
        # Arrow wants room for every value of the integer type; what counts is whether these values fit.
        return array.cast(pa.decimal256(76, target.scale)).cast(target)
    return array.cast(target)


def _storage(array: AnyArray) -> AnyArray:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def _as_uuid(array: AnyArray) -> AnyArray:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return array.cast(pa.uuid())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        values = [None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()]
    else:
        values = array.cast(pa.binary()).to_pylist()
    return pa.array(values, pa.binary(16)).cast(pa.uuid())


def _decode_intervals(array: AnyArray) -> AnyArray:
    """Parquet's twelve bytes: months, days and milliseconds, little endian and unsigned."""
    decoded: list[tuple[int, int, int] | None] = []
    for raw in array.to_pylist():
        if raw is None:
            decoded.append(None)
            continue
        months, days, millis = (int.from_bytes(raw[i : i + 4], "little") for i in (0, 4, 8))
        decoded.append((months, days, millis * 1_000_000))
    return pa.array(decoded, pa.month_day_nano_interval())
