"""Arrow data between the lake's form and Spark's.

Spark accepts a batch only if its types are exactly those it would have chosen itself, so every level of every
column is rebuilt where the two forms differ; where they do not, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format.types import AnyArray, AnyType, decimal_parts
from headwater.lake.model import Column

#: An interval as numpy sees Arrow's sixteen bytes.
_INTERVAL_BYTES = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_INTERVAL_FIELDS: list[Any] = [
    pa.field("months", pa.int32()),
    pa.field("days", pa.int32()),
    pa.field("microseconds", pa.int64()),
]
_MICROSECONDS_PER_DAY = 86_400_000_000

_SPARK_SCALARS: dict[str, AnyType] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "int128": pa.decimal128(38, 0),
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "uint128": pa.decimal128(38, 0),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "time": pa.int64(),
    "time_ns": pa.int64(),
    "timetz": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "timestamp_s": pa.timestamp("us"),
    "timestamp_ms": pa.timestamp("us"),
    "timestamp_ns": pa.int64(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "interval": pa.struct(_INTERVAL_FIELDS),
    "varchar": pa.string(),
    "json": pa.string(),
    "blob": pa.binary(),
    "uuid": pa.string(),
    "variant": pa.string(),
    "geometry": pa.binary(),
}


def spark_arrow_type(column: Column) -> AnyType:
    """The Arrow type that Spark uses for the Spark type of this column."""
    if column.type in _SPARK_SCALARS:
        return _SPARK_SCALARS[column.type]
    decimal = decimal_parts(column.type)
    if decimal is not None:
        return pa.decimal128(*decimal)
    children = [pa.field(child.name, spark_arrow_type(child)) for child in column.children]
    if column.type == "struct":
        return pa.struct(children)
    if column.type == "list":
        return pa.list_(children[0])
    return pa.map_(children[0].with_nullable(False), children[1])


def to_spark(data: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Rows of the lake in the Arrow types Spark wants; columns that are not among `columns` stay."""
    known = {column.name: column for column in columns}
    arrays: list[AnyArray] = []
    fields: list[Any] = []
    for place, name in enumerate(data.schema.names):
        array: AnyArray = data.column(place)
        if name in known:
            kind = spark_arrow_type(known[name])
            array = _chunked(array, kind, lambda chunk, c=known[name]: _to_spark(chunk, c))  # type: ignore[misc]
        arrays.append(array)
        fields.append(pa.field(name, array.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def from_spark(data: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Rows of Spark with the values in the lake's form wherever the column they are meant for is known.

    Columns are found by name, as everywhere; what is left to do (order, defaults, checks of values and types)
    is done when the rows are appended. Types that only Spark has (its TIME, intervals, variants) are turned
    into what `columns_of` makes of them in any case.
    """
    known = {column.name.lower(): column for column in columns}
    arrays: list[AnyArray] = []
    for place, name in enumerate(data.schema.names):
        array: AnyArray = data.column(place)
        column = known.get(name.lower())
        chunks = [_from_spark(chunk, column) for chunk in array.chunks]
        if not chunks:
            chunks = [_from_spark(pa.array([], array.type), column)]
        arrays.append(pa.chunked_array(chunks))
    return pa.Table.from_arrays(arrays, names=data.schema.names)


def in_pieces(data: pa.Table) -> pa.Table:
    """The same rows for `createDataFrame`, which takes a piece without rows for the end of all of them."""
    pieces = data.to_batches()
    left = [piece for piece in pieces if piece.num_rows]
    return data if len(left) == len(pieces) else pa.Table.from_batches(left, data.schema)


def _chunked(array: AnyArray, kind: AnyType, convert: Callable[[AnyArray], AnyArray]) -> AnyArray:
    if array.type.equals(kind) and not pa.types.is_nested(kind):
        return array
    return pa.chunked_array([convert(chunk) for chunk in array.chunks], type=kind)


def _to_spark(array: AnyArray, column: Column) -> AnyArray:
    kind = spark_arrow_type(column)
    mask = array.is_null() if array.null_count else None
    match column.type:
        case "struct":
            children = [_to_spark(array.field(i), child) for i, child in enumerate(column.children)]
            fields = [kind.field(i) for i in range(kind.num_fields)]
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
        case "list":
            values = _to_spark(array.values, column.children[0])
            return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=mask)
        case "map":
            keys, items = array.keys, array.items
            return pa.MapArray.from_arrays(
                _offsets(array),
                _to_spark(keys, column.children[0]),
                _to_spark(items, column.children[1]),
                type=kind,
                mask=mask,
            )
        case "uuid":
            return _uuid_texts(array.storage)
        case "json":
            return array.storage
        case "interval":
            return _interval_structs(array)
    return array if array.type.equals(kind) else array.cast(kind)


def _offsets(array: AnyArray) -> AnyArray:
    # A copy: `from_arrays` takes no offsets that are a slice themselves, as those of a slice are.
    return pc.add(array.offsets, 0)


def _uuid_texts(array: AnyArray) -> AnyArray:
    """The usual text with dashes, for fixed_size_binary(16)."""
    if not len(array):
        return pa.array([], pa.string())
    raw = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset : 16 * (array.offset + len(array))]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.empty((len(array), 36), np.uint8)
    text[:, [8, 13, 18, 23]] = ord("-")
    places = np.array([p for p in range(36) if p not in (8, 13, 18, 23)])
    raw = raw.reshape(len(array), 16)
    text[:, places[0::2]] = digits[raw >> 4]
    text[:, places[1::2]] = digits[raw & 15]
    offsets = np.arange(0, 36 * (len(array) + 1), 36, dtype=np.int32)
    texts = pa.Array.from_buffers(
        pa.string(), len(array), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text.tobytes())]
    )
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string())) if array.null_count else texts


def _interval_structs(array: AnyArray) -> AnyArray:
    size = len(array)
    if not size:
        return pa.nulls(0, pa.struct(_INTERVAL_FIELDS))
    raw = np.frombuffer(array.buffers()[1], _INTERVAL_BYTES)[array.offset : array.offset + size]
    parts = [
        pa.array(np.ascontiguousarray(raw["months"])),
        pa.array(np.ascontiguousarray(raw["days"])),
        pa.array(np.ascontiguousarray(raw["nanoseconds"]) // 1000),
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=_INTERVAL_FIELDS, mask=mask)


def _from_spark(array: AnyArray, column: Column | None) -> AnyArray:
    kind = array.type
    if pa.types.is_time(kind):
        return array.cast(pa.time64("us"), safe=False)  # Spark's TIME may have nine digits, the lake's six
    if pa.types.is_duration(kind):
        return _from_durations(array)
    if pa.types.is_struct(kind) and _is_variant(kind):
        return _variant_texts(array)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if column is not None and column.type == "interval" and _is_interval(kind):
            return _intervals(array)
        inner = _children(column, "struct")
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = [_from_spark(array.field(i), inner.get(f.name.lower())) for i, f in enumerate(fields)]
        renewed = [f.with_type(part.type) for f, part in zip(fields, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=renewed, mask=mask) if fields else array
    if pa.types.is_map(kind):
        inner = _children(column, "map")
        keys = _from_spark(array.keys, inner.get("key"))
        items = _from_spark(array.items, inner.get("value"))
        key, item = kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type)
        map_type: AnyType = pa.map_(cast(AnyType, key), item)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=map_type, mask=mask)
    if pa.types.is_list(kind):
        values = _from_spark(array.values, _children(column, "list").get("element"))
        list_type = pa.list_(kind.value_field.with_type(values.type))
        return pa.ListArray.from_arrays(_offsets(array), values, type=list_type, mask=mask)
    if column is not None and pa.types.is_int64(kind):
        if column.type in ("time", "timetz"):
            return array.cast(pa.time64("us"))
        if column.type == "timestamp_ns":
            return array.cast(pa.timestamp("ns"))
    return array


def _children(column: Column | None, kind: str) -> dict[str, Column]:
    if column is None or column.type != kind:
        return {}
    return {child.name.lower(): child for child in column.children}


def _is_interval(kind: AnyType) -> bool:
    return [kind.field(i).name.lower() for i in range(kind.num_fields)] == ["months", "days", "microseconds"]


def _intervals(array: AnyArray) -> AnyArray:
    months, days, microseconds = (
        pc.fill_null(array.field(i).cast(kind), 0).to_numpy(zero_copy_only=False)
        for i, kind in enumerate((pa.int32(), pa.int32(), pa.int64()))
    )
    return _interval_array(months, days, microseconds, array)


def _from_durations(array: AnyArray) -> AnyArray:
    """Spark's interval of days and seconds; whole days are days, as DuckDB counts them."""
    counted: AnyArray = pc.fill_null(array.cast(pa.duration("us")).cast(pa.int64()), 0)
    microseconds = counted.to_numpy(zero_copy_only=False)
    days = np.sign(microseconds) * (np.abs(microseconds) // _MICROSECONDS_PER_DAY)
    months = np.zeros(len(array), np.int32)
    return _interval_array(months, days, microseconds - days * _MICROSECONDS_PER_DAY, array)


def _interval_array(months: Any, days: Any, microseconds: Any, like: AnyArray) -> AnyArray:
    """Intervals, NULL where `like` is."""
    raw = np.empty(len(like), _INTERVAL_BYTES)
    raw["months"], raw["days"], raw["nanoseconds"] = months, days, microseconds * 1000
    kind = pa.month_day_nano_interval()
    valid = None
    if like.null_count:
        valid = pa.py_buffer(np.packbits(like.is_valid().to_numpy(False), bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(like), [valid, pa.py_buffer(raw.tobytes())])


def _is_variant(kind: AnyType) -> bool:
    """Spark marks the struct that stands for a variant."""
    fields = [kind.field(i) for i in range(kind.num_fields)]
    return any(f.name == "metadata" and (f.metadata or {}).get(b"variant") == b"true" for f in fields)


def _variant_texts(array: AnyArray) -> AnyArray:
    from pyspark.sql.types import VariantVal

    texts: list[str | None] = []
    for row in array.to_pylist():
        known = row is not None and row["value"] is not None
        texts.append(VariantVal(row["value"], row["metadata"]).toJson() if known else None)
    return cast(AnyArray, pa.array(texts, pa.string()))
