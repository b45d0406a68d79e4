"""Statistics of files and tables, in DuckLake's own text form.

File statistics come from the Parquet footer that was just written, never from a second pass over the data.
Two things pyarrow's footers do not say: whether a float column holds NaN (`nan_columns` looks), and the
bounds of strings longer than it cares to record (`long_string_bounds` looks, at those columns only).
The footers of others are taken at what they say (`footer_floats` has what Spark's say of NaN).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.lake.format.footer_floats import footer_floats, writes_nan_as_greatest
from headwater.lake.format.leaves import leaf_arrays, leaves
from headwater.lake.format.table_statistics import (
    BOX_KEYS,
    MergedStats,
    TableColumnStats,
    geometry_extra,
    merge_table_stats,
)
from headwater.lake.format.texts import FLOATS, INTEGERS, TICKS, plain_values, to_text
from headwater.lake.format.types import AnyArray, decimal_parts
from headwater.lake.format.values import UNBOUNDED, stat_text
from headwater.lake.model import Column, ColumnStats
from headwater.typedefs import ColumnId

__all__ = [
    "LeafPlace", "MergedStats", "TableColumnStats", "file_statistics", "leaf_arrays", "leaves",
    "long_string_bounds", "merge_table_stats", "missing_counts", "nan_bounds", "nan_columns",
    "row_statistics",
]  # fmt: skip

#: A leaf, the first of a file's columns that hold it, and their number.
LeafPlace: TypeAlias = tuple[Column, int, int]
#: Python's default context would round decimals of more than 28 digits.
_EXACT = Context(prec=76)


def file_statistics(
    metadata: pq.FileMetaData,
    columns: Sequence[Column],
    *,
    contains_nan: Mapping[ColumnId, bool] | None = None,
    bounds: Mapping[ColumnId, tuple[str | None, str | None]] | None = None,
    counts: Mapping[ColumnId, tuple[int, int]] | None = None,
    places: Iterable[LeafPlace] | None = None,
) -> tuple[ColumnStats, ...]:
    """Statistics of every leaf column of a file whose first columns are these, or that has them at `places`.

    `contains_nan`, `bounds` and `counts` add what the footer cannot say (see `nan_columns`,
    `long_string_bounds`, `missing_counts`). Columns of the file beyond `columns` (row ids) are left out.
    """
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    found = []
    nan_is_greatest = writes_nan_as_greatest(metadata.created_by)
    for column, place, width in _file_places(metadata, columns) if places is None else places:
        chunks = [group.column(i) for group in groups for i in range(place, place + width)]
        if column.type == "variant":
            stats = ColumnStats(column.id, _size(chunks), None, None, None, None)
        else:
            stats = _column_statistics(column, chunks, metadata.schema.column(place), nan_is_greatest)
        if column.type in FLOATS and contains_nan is not None:
            stats = replace(stats, contains_nan=contains_nan.get(column.id, False))
        if bounds is not None and column.id in bounds:
            low, high = bounds[column.id]
            stats = replace(stats, min_value=low, max_value=high)
        if stats.value_count is None and counts is not None and column.id in counts:
            values, nulls = counts[column.id]
            stats = replace(stats, value_count=values, null_count=nulls)
        found.append(stats)
    return tuple(found)


def _file_places(metadata: pq.FileMetaData, columns: Sequence[Column]) -> Iterator[LeafPlace]:
    """Every leaf with the first of the file's columns that hold it, and their number.

    That is one, except for a variant, which is a group of as many as its values need.
    """
    place = 0
    for column in columns:
        for leaf in leaves([column]):
            width = 1
            if leaf.type == "variant":
                prefix = column.name + "."
                while place + width < metadata.num_columns and metadata.schema.column(
                    place + width
                ).path.startswith(prefix):
                    width += 1
            yield leaf, place, width
            place += width


def _size(chunks: Sequence[pq.ColumnChunkMetaData]) -> int:
    return sum(chunk.total_compressed_size for chunk in chunks)


def _column_statistics(
    column: Column,
    chunks: Sequence[pq.ColumnChunkMetaData],
    leaf: pq.ColumnSchema,
    nan_is_greatest: bool,
) -> ColumnStats:
    size = _size(chunks)
    parts: list[Any] = [chunk.statistics for chunk in chunks]
    if any(part is None or not part.has_null_count for part in parts):
        return ColumnStats(column.id, size, None, None, None, None)
    nulls = sum(part.null_count for part in parts)
    values = sum(part.num_values for part in parts)
    low = high = has_nan = None
    # A row group of nothing but NULL has no bounds and needs none.
    bounded = [part for part in parts if part.num_values]
    if column.type not in UNBOUNDED and bounded and all(part.has_min_max for part in bounded):
        plain = _plain_bound(column, leaf)
        if plain is not None and column.type in FLOATS:
            pairs = [(plain(part.min_raw), plain(part.max_raw)) for part in bounded]
            least, most, has_nan = footer_floats(pairs, nan_is_greatest)
            low, high = stat_text(least, column.type), stat_text(most, column.type, upper=True)
        elif plain is not None:
            try:
                low = stat_text(min(plain(part.min_raw) for part in bounded), column.type)
                above = _plain_bound(column, leaf, upper=True) or plain
                high = stat_text(max(above(part.max_raw) for part in bounded), column.type, upper=True)
            except UnicodeDecodeError:  # not everybody's strings are UTF-8
                low = high = None
    elif not values and column.type in FLOATS and nan_is_greatest:
        has_nan = False
    extra = _box(chunks) if column.type == "geometry" and values else None
    return ColumnStats(column.id, size, values, nulls, low, high, has_nan, extra)


def _box(chunks: Sequence[Any]) -> str | None:
    """The box around all geometries, and their types; None where a row group does not say."""
    found = [chunk.geo_statistics for chunk in chunks if chunk.statistics.num_values]
    if not found or any(one is None for one in found):
        return None
    box: dict[str, float | None] = {}
    for key in BOX_KEYS:
        values = [value for one in found if (value := getattr(one, key)) is not None]
        box[key] = None if not values else (min if key.endswith("min") else max)(values)
    codes = sorted({code for one in found for code in one.geospatial_types or ()})
    return geometry_extra(box, sorted(_GEOMETRIES[code % 1000] + _DIMENSIONS[code // 1000] for code in codes))


_GEOMETRIES = dict(
    enumerate(
        (
            "point",
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
            "geometrycollection",
        ),
        start=1,
    )
)
_DIMENSIONS = ("", "_z", "_m", "_zm")


def _plain_bound(
    column: Column, leaf: pq.ColumnSchema, *, upper: bool = False
) -> Callable[[Any], Any] | None:
    """How a raw bound of this leaf becomes a plain value; None where the file's type is not the column's.

    Raw, because Python's own classes overflow where DuckDB's values do not.
    """
    type_, physical, logical = column.type, leaf.physical_type, leaf.logical_type.type
    decimal = decimal_parts(type_)
    if decimal is not None:
        scale = Decimal(1).scaleb(-decimal[1])
        if logical != "DECIMAL" or leaf.scale != decimal[1]:
            return None
        return lambda raw: _EXACT.multiply(Decimal(_integer(raw)), scale)
    if type_ in INTEGERS:
        if logical == "DECIMAL":
            return _integer if leaf.scale == 0 else None
        width = {"INT32": 32, "INT64": 64}.get(physical)
        if width is None or logical not in ("NONE", "INT"):
            return None
        if logical == "INT" and not json.loads(leaf.logical_type.to_json())["isSigned"]:
            return lambda raw: raw % (1 << width)
        return int
    if type_ in ("varchar", "json"):
        is_text = physical == "BYTE_ARRAY" and logical in ("STRING", "JSON", "ENUM")
        return (lambda raw: raw.decode()) if is_text else None
    if type_ == "uuid":
        return (lambda raw: UUID(bytes=raw)) if leaf.length == 16 else None
    if type_ in TICKS:
        return _ticks(type_, leaf, upper)
    if type_ == "date" and logical != "DATE":
        return None
    expected = {"boolean": "BOOLEAN", "date": "INT32", "blob": "BYTE_ARRAY", "float32": "FLOAT"}
    return (lambda raw: raw) if physical == expected.get(type_, "DOUBLE") else None


def _integer(raw: Any) -> int:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)


def _ticks(type_: str, leaf: pq.ColumnSchema, upper: bool) -> Callable[[Any], Any] | None:
    """Files may count in another unit than the column's type (timestamp_s is stored in microseconds)."""
    if leaf.logical_type.type not in ("TIMESTAMP", "TIME"):
        return None
    unit = json.loads(leaf.logical_type.to_json())["timeUnit"]
    stored = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}[unit]
    wanted = TICKS[type_]
    if stored == wanted:
        return lambda raw: raw
    more = stored - 1 if upper else 0  # whoever reads them may round up
    return lambda raw: raw if abs(raw) == 2**63 - 1 else (raw * wanted + more) // stored


def nan_columns(table: pa.Table, columns: Sequence[Column]) -> dict[ColumnId, bool]:
    """Which float columns hold a NaN. The one look at the data that statistics need."""
    wanted = [
        (column, data)
        for column, data in zip(columns, table.columns, strict=True)
        if any(leaf.type in FLOATS for leaf in column.walk())
    ]
    found = {}
    for top, data in wanted:
        for column, array in leaf_arrays(pa.table([data], names=[top.name]), [top]):
            if column.type in FLOATS:
                found[column.id] = bool(pc.any(pc.is_nan(array)).as_py())
    return found


def nan_bounds(
    table: pa.Table, columns: Sequence[Column], nan: Mapping[ColumnId, bool]
) -> dict[ColumnId, tuple[str | None, str | None]]:
    """Bounds of the float columns that hold a NaN, among their other values."""
    found = {}
    for top, data in zip(columns, table.columns, strict=True):
        if not any(nan.get(leaf.id) for leaf in top.walk()):
            continue
        for column, array in leaf_arrays(pa.table([data], names=["v"]), [top]):
            if column.type in FLOATS:
                numbers = array.filter(pc.invert(pc.is_nan(array)))
                low, high = _min_max(numbers, column)
                found[column.id] = (stat_text(low, column.type), stat_text(high, column.type, upper=True))
    return found


def missing_counts(
    table: pa.Table, columns: Sequence[Column], undescribed: Collection[str] = ()
) -> dict[ColumnId, tuple[int, int]]:
    """Values and NULLs of the leaves for which there are no statistics in the file.

    DuckDB writes none for variants, intervals, timetz; `undescribed` names further columns.

    Counted as Parquet counts: a list or map that is empty or NULL has a NULL of its own in every leaf.
    """
    found = {}
    for column, data in zip(columns, table.columns, strict=True):
        unknown = any(leaf.type in ("variant", "interval", "timetz") for leaf in leaves([column]))
        if not unknown and column.name not in undescribed:
            continue
        empty = _empty_lists(column, data.combine_chunks()) if column.is_nested else 0
        for leaf, array in leaf_arrays(pa.table([data], names=["v"]), [column]):
            found[leaf.id] = (len(array) - array.null_count, array.null_count + empty)
    return found


def _empty_lists(column: Column, array: AnyArray) -> int:
    """Lists and maps without an element, at the outermost level that repeats."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if column.type in ("list", "map"):
        sizes: AnyArray = pc.list_value_length(array.cast(pa.list_(array.type.field(0))))
        return int(pc.sum(pc.equal(pc.fill_null(sizes, 0), pa.scalar(0, sizes.type))).as_py() or 0)
    return 0


def long_string_bounds(
    table: pa.Table, columns: Sequence[Column], metadata: pq.FileMetaData
) -> dict[ColumnId, tuple[str | None, str | None]]:
    """Bounds of the string and blob columns for which the footer has none, because a value is very long."""
    missing: set[ColumnId] = set()
    for leaf, place, _ in _file_places(metadata, columns):
        if leaf.type not in ("varchar", "json", "blob"):
            continue
        parts = [metadata.row_group(i).column(place).statistics for i in range(metadata.num_row_groups)]
        if any(part is None or (part.num_values and not part.has_min_max) for part in parts):
            missing.add(leaf.id)
    found = {}
    for top_column, data in zip(columns, table.columns, strict=True):
        wanted = missing & {leaf.id for leaf in leaves([top_column])}
        if not wanted:
            continue
        for column, array in leaf_arrays(pa.table([data], names=["v"]), [top_column]):
            if column.id in wanted:
                low, high = _min_max(array, column)
                found[column.id] = (stat_text(low, column.type), stat_text(high, column.type, upper=True))
    return found


def _min_max(array: AnyArray, column: Column) -> tuple[Any, Any]:
    if column.type == "json":
        array = array.cast(pa.string())
    both: Any = pc.min_max(array).as_py()
    return both["min"], both["max"]


def row_statistics(table: pa.Table, columns: Sequence[Column]) -> tuple[ColumnStats, ...]:
    """Statistics of rows that go into an inlined table, in the words DuckDB has for those.

    They differ from those of files: booleans read `true`, blobs as DuckDB prints them, NaN is a maximum,
    128-bit integers have bounds, nothing is cut, and whether there is a NaN is not recorded.
    """
    found = []
    for column, data in leaf_arrays(table, columns):
        nulls = data.null_count
        values = [v for v in plain_values(_one(data), column) if v is not None]
        low = high = None
        if values and column.type not in UNBOUNDED - {"int128", "uint128"}:
            key: Callable[[Any], Any] | None = _nan_last if column.type in FLOATS else None
            if column.type == "blob":
                key = partial(to_text, type_="blob")  # DuckDB compares the texts; nobody prunes by them
            low = _inlined_text(min(values, key=key), column.type)
            high = _inlined_text(max(values, key=key), column.type)
        found.append(ColumnStats(column.id, None, len(values), nulls, low, high))
    return tuple(found)


def _one(data: AnyArray) -> AnyArray:
    if not isinstance(data, pa.ChunkedArray):
        return data
    return data.combine_chunks() if data.num_chunks != 1 else data.chunk(0)


def _nan_last(value: float) -> tuple[bool, float]:
    return (True, 0.0) if value != value else (False, value)


def _inlined_text(value: Any, type_: str) -> str | None:
    if type_ in FLOATS:
        value += 0.0
    text = to_text(value, type_)
    return None if "\x00" in text else text
