"""Statistics of files and tables, in DuckLake's own text form.

File statistics come from the Parquet footer that was just written, never from a second pass over the data.
Two things a footer does not say: whether a float column holds NaN (`nan_columns` looks), and the bounds of
strings longer than pyarrow cares to record (`long_string_bounds` looks, at those columns only).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.lake.model import Column, ColumnStats
from headwater.lake.texts import FLOATS, INTEGERS, TICKS, plain_values, to_text
from headwater.lake.types import AnyArray, decimal_parts
from headwater.lake.values import UNBOUNDED, parse_stat, stat_text
from headwater.typedefs import ColumnId

#: Python's default context would round decimals of more than 28 digits.
_EXACT = Context(prec=76)


def leaves(columns: Iterable[Column]) -> list[Column]:
    """The columns that hold values, in the order of a Parquet file's own columns."""
    return [column for top in columns for column in top.walk() if not column.children]


def file_statistics(
    metadata: pq.FileMetaData,
    columns: Sequence[Column],
    *,
    contains_nan: Mapping[ColumnId, bool] | None = None,
    bounds: Mapping[ColumnId, tuple[str | None, str | None]] | None = None,
) -> tuple[ColumnStats, ...]:
    """Statistics of every leaf column of a file that pyarrow wrote for these columns.

    `contains_nan` and `bounds` add what the footer cannot say (see `nan_columns`, `long_string_bounds`).
    Columns of the file beyond `columns` (embedded row ids) are left out.
    """
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    found = []
    for place, column in enumerate(leaves(columns)):
        chunks = [group.column(place) for group in groups]
        stats = _column_statistics(column, chunks, metadata.schema.column(place))
        if column.type in FLOATS and contains_nan is not None:
            stats = replace(stats, contains_nan=contains_nan.get(column.id, False))
        if bounds is not None and column.id in bounds:
            low, high = bounds[column.id]
            stats = replace(stats, min_value=low, max_value=high)
        found.append(stats)
    return tuple(found)


def _column_statistics(
    column: Column, chunks: Sequence[pq.ColumnChunkMetaData], leaf: pq.ColumnSchema
) -> ColumnStats:
    size = sum(chunk.total_compressed_size for chunk in chunks)
    parts: list[Any] = [chunk.statistics for chunk in chunks]
    if any(part is None or not part.has_null_count for part in parts):
        return ColumnStats(column.id, size, None, None, None, None)
    nulls = sum(part.null_count for part in parts)
    values = sum(part.num_values for part in parts)
    low = high = None
    # A row group of nothing but NULL has no bounds and needs none.
    bounded = [part for part in parts if part.num_values]
    if column.type not in UNBOUNDED and bounded and all(part.has_min_max for part in bounded):
        plain = _plain_bound(column, leaf)
        if plain is not None:
            low = stat_text(min(plain(part.min_raw) for part in bounded), column.type)
            high = stat_text(max(plain(part.max_raw) for part in bounded), column.type, upper=True)
    return ColumnStats(column.id, size, values, nulls, low, high)


def _plain_bound(column: Column, leaf: pq.ColumnSchema) -> Callable[[Any], Any] | None:
    """How a raw bound of this leaf becomes a plain value; None where the file's type is not the column's.

    Raw, because Python's own classes overflow where DuckDB's values do not.
    """
    type_, physical = column.type, leaf.physical_type
    decimal = decimal_parts(type_)
    if decimal is not None:
        scale = Decimal(1).scaleb(-decimal[1])
        if leaf.logical_type.type != "DECIMAL" or leaf.scale != decimal[1]:
            return None
        return lambda raw: _EXACT.multiply(Decimal(_integer(raw)), scale)
    if type_ in INTEGERS:
        width = {"INT32": 32, "INT64": 64}.get(physical)
        if width is None:
            return None
        if leaf.logical_type.type == "INT" and not json.loads(leaf.logical_type.to_json())["isSigned"]:
            return lambda raw: raw % (1 << width)
        return int
    if type_ in ("varchar", "json"):
        return (lambda raw: raw.decode()) if physical == "BYTE_ARRAY" else None
    if type_ == "uuid":
        return (lambda raw: UUID(bytes=raw)) if leaf.length == 16 else None
    if type_ in TICKS:
        return _ticks(type_, leaf)
    expected = {"boolean": "BOOLEAN", "date": "INT32", "blob": "BYTE_ARRAY", "float32": "FLOAT"}
    return (lambda raw: raw) if physical == expected.get(type_, "DOUBLE") else None


def _integer(raw: Any) -> int:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)


def _ticks(type_: str, leaf: pq.ColumnSchema) -> Callable[[Any], Any] | None:
    """Files may count in another unit than the column's type (timestamp_s is stored in microseconds)."""
    if leaf.logical_type.type not in ("TIMESTAMP", "TIME"):
        return None
    unit = json.loads(leaf.logical_type.to_json())["timeUnit"]
    stored = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}[unit]
    wanted = TICKS[type_]
    if stored == wanted:
        return lambda raw: raw
    return lambda raw: raw if abs(raw) == 2**63 - 1 else raw * wanted // stored


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
        yield from _leaf_arrays(column.children[0], array.flatten())
    else:
        entries = array.cast(pa.list_(array.type.field(0))).flatten()
        for child, part in zip(column.children, entries.flatten(), strict=True):
            yield from _leaf_arrays(child, part)


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


def long_string_bounds(
    table: pa.Table, columns: Sequence[Column], metadata: pq.FileMetaData
) -> dict[ColumnId, tuple[str | None, str | None]]:
    """Bounds of the string and blob columns for which the footer has none, because a value is very long."""
    tops = [column.id for column in columns for leaf in column.walk() if not leaf.children]
    missing: dict[ColumnId, set[ColumnId]] = {}
    for place, (top, leaf) in enumerate(zip(tops, leaves(columns), strict=True)):
        parts = [metadata.row_group(i).column(place).statistics for i in range(metadata.num_row_groups)]
        if leaf.type in ("varchar", "json", "blob") and any(
            part is None or (part.num_values and not part.has_min_max) for part in parts
        ):
            missing.setdefault(top, set()).add(leaf.id)
    found = {}
    for top_column, data in zip(columns, table.columns, strict=True):
        wanted = missing.get(top_column.id, set())
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


# --- table statistics -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableColumnStats:
    """One row of `ducklake_table_column_stats`."""

    column_id: ColumnId
    contains_null: bool | None
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None
    extra_stats: str | None = None


@dataclass(frozen=True, slots=True)
class MergedStats:
    """What more data does to a table's rows in `ducklake_table_column_stats`."""

    added: tuple[TableColumnStats, ...] = ()
    changed: tuple[TableColumnStats, ...] = ()
    removed: frozenset[ColumnId] = frozenset()


def merge_table_stats(
    existing: Mapping[ColumnId, TableColumnStats] | None,
    new: Sequence[ColumnStats],
    columns: Sequence[Column],
) -> MergedStats:
    """Merge the statistics of new files and inlined rows into those of their table.

    `existing` is None for the first data that a table ever gets, and only then rows are added: a column that
    was added later, or whose row was deleted, has older values that a new row would not cover.
    """
    by_column: dict[ColumnId, list[ColumnStats]] = {}
    for stats in new:
        by_column.setdefault(stats.column_id, []).append(stats)
    added, changed, removed = [], [], set()
    for leaf in leaves(columns):
        old = None if existing is None else existing.get(leaf.id)
        if not new or (existing is not None and old is None):
            continue
        merged, first = old, existing is None
        for stats in by_column.get(leaf.id, [ColumnStats(leaf.id, None, None, None, None, None)]):
            merged = merge_column_stats(merged, stats, leaf.type) if first or merged is not None else None
            first = False
        if merged is None:
            removed |= {leaf.id} if old is not None else set()
        elif old is None:
            added.append(merged)
        elif merged != old:
            changed.append(merged)
    return MergedStats(tuple(added), tuple(changed), frozenset(removed))


def merge_column_stats(
    existing: TableColumnStats | None, new: ColumnStats, type_: str
) -> TableColumnStats | None:
    """The row of a column after more data came, or None: the row must be deleted (or not written).

    `existing` is None only for the first data a table ever gets.

    Bounds only ever widen, because older snapshots are read with the same row. DuckDB takes a row without
    bounds for a column that holds nothing but NULL, so a bound that is not known leaves only deletion.
    """
    bounded = type_ not in UNBOUNDED
    if new.value_count is None or new.null_count is None:
        return None
    if bounded and _bounds_unknown(new, type_):
        return None
    fresh = TableColumnStats(
        new.column_id, new.null_count > 0, new.contains_nan, new.min_value, new.max_value, new.extra_stats
    )
    if existing is None:
        return fresh
    low, high = existing.min_value, existing.max_value
    if new.value_count:
        if low is None and high is None:
            if bounded and not existing.contains_null and not existing.contains_nan:
                return None
            low, high = (new.min_value, new.max_value) if bounded else (None, None)
        else:
            low = _outer(low, new.min_value, type_, want_less=True)
            high = _outer(high, new.max_value, type_, want_less=False)
            if bounded and (low is None or high is None) and not _only_nan(new, type_):
                return None
    extra, known = _merge_extra(existing.extra_stats, new, type_)
    if not known:
        return None
    return TableColumnStats(
        existing.column_id,
        _either(existing.contains_null, fresh.contains_null),
        _either(existing.contains_nan, fresh.contains_nan),
        low,
        high,
        extra,
    )


def _only_nan(new: ColumnStats, type_: str) -> bool:
    return type_ in FLOATS and bool(new.contains_nan) and new.min_value is None and new.max_value is None


def _bounds_unknown(new: ColumnStats, type_: str) -> bool:
    if not new.value_count or _only_nan(new, type_):
        return False
    return new.min_value is None or new.max_value is None


def _either(one: bool | None, other: bool | None) -> bool | None:
    """True or False where both are known; unknown stays unknown, as DuckDB keeps it."""
    if one is None or other is None:
        return None
    return one or other


def _outer(old: str | None, new: str | None, type_: str, *, want_less: bool) -> str | None:
    if new is None or old is None:
        return old if new is None and type_ in FLOATS else None
    if type_ == "blob":
        a, b = old, new  # two spellings are in use; DuckDB compares them as text and prunes by neither
    else:
        a, b = parse_stat(old, type_), parse_stat(new, type_)
        if a is None or b is None:
            return None
    return new if (b < a if want_less else b > a) else old


def _merge_extra(old: str | None, new: ColumnStats, type_: str) -> tuple[str | None, bool]:
    """Merge the boxes of a geometry column; the flag says whether the result can be trusted."""
    if type_ != "geometry" or not new.value_count:
        return (None if type_ == "variant" else old), True
    if old is None or new.extra_stats is None:
        return new.extra_stats, old is None and new.extra_stats is not None
    try:
        ours, theirs = json.loads(old), json.loads(new.extra_stats)
        box = {
            key: _extreme(ours["bbox"][key], theirs["bbox"][key], least=key.endswith("min"))
            for key in BOX_KEYS
        }
        types = sorted({*ours["types"], *theirs["types"]})
    except (ValueError, KeyError, TypeError):
        return None, False
    return geometry_extra(box, types), True


BOX_KEYS = ("xmin", "xmax", "ymin", "ymax", "zmin", "zmax", "mmin", "mmax")


def _extreme(one: float | None, other: float | None, *, least: bool) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other) if least else max(one, other)


def geometry_extra(box: Mapping[str, float | None], types: Sequence[str]) -> str:
    """`extra_stats` of a geometry column. (DuckDB prints six decimals, which can cut a box too small.)"""
    return json.dumps({"bbox": {key: box.get(key) for key in BOX_KEYS}, "types": list(types)})
