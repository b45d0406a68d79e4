"""Statistics of whole tables: how the rows of `ducklake_table_column_stats` follow the data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.lake.format.leaves import leaves
from headwater.lake.format.texts import FLOATS
from headwater.lake.format.values import UNBOUNDED, parse_stat
from headwater.lake.model import Column, ColumnStats
from headwater.typedefs import ColumnId


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
            # Nothing but NULL so far, or DuckDB lost the bounds: it does when the first file of a table's
            # first insert is all NULL in that column and the others are not. The new values' bounds alone
            # would then hide the older ones.
            if bounded:
                return None
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
    a: Any
    b: Any
    if type_ == "blob":
        a, b = old, new  # two spellings are in use; DuckDB compares them as text and prunes by neither
    else:
        a, b = parse_stat(old, type_), parse_stat(new, type_)
        if a is None or b is None:
            return None
        if type_ in FLOATS:  # NaN reads as infinity, and is above it
            a, b = (a, old.lower() == "nan"), (b, new.lower() == "nan")
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
