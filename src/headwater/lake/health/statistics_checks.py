"""Checks of the statistics that DuckDB trusts: row ids and the bounds of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.lake.format.texts import FLOATS
from headwater.lake.format.values import UNBOUNDED, parse_stat
from headwater.lake.health.findings import CatalogView, Finding, finding
from headwater.typedefs import ColumnId, TableId


def tables_have_stats(catalog: CatalogView) -> Iterator[Finding]:
    """A table that ever got rows has statistics."""
    rows = catalog.rows(
        "SELECT DISTINCT table_id FROM {ducklake_data_file} f WHERE NOT EXISTS "
        "(SELECT FROM {ducklake_table_stats} s WHERE s.table_id = f.table_id) ORDER BY 1"
    )
    without = {table_id for (table_id,) in rows}
    for table_id, name in _inlined_tables(catalog):
        if table_id not in without and _largest_inlined(catalog, name) is not None:
            known = catalog.rows(
                "SELECT FROM {ducklake_table_stats} WHERE table_id = %(table)s", table=table_id
            )
            without |= set() if known else {table_id}
    for table_id in sorted(without & catalog.live):
        yield finding("table_stats_missing", catalog.name(table_id), "the table has rows but no statistics")


def row_ids_are_free(catalog: CatalogView) -> Iterator[Finding]:
    """New rows get ids that no row has."""
    known = dict(catalog.rows("SELECT table_id, next_row_id FROM {ducklake_table_stats}"))
    # A file that was merged or flushed holds its row ids itself, and more rows than ids; it says nothing.
    rows = catalog.rows(
        "SELECT table_id, max(row_id_start + record_count - 1) FROM {ducklake_data_file} "
        "WHERE row_id_start IS NOT NULL AND partial_max IS NULL GROUP BY 1"
    )
    largest: dict[TableId, int] = dict(rows)
    for table_id, name in _inlined_tables(catalog):
        found = _largest_inlined(catalog, name)
        if found is not None:
            largest[table_id] = max(found, largest.get(table_id, -1))
    for table_id, row_id in sorted(largest.items()):
        following = known.get(table_id)
        if following is not None and row_id >= following and table_id in catalog.live:
            message = f"next_row_id is {following}, and row id {row_id} is in use"
            yield finding("row_ids_reused", catalog.name(table_id), message)


def _inlined_tables(catalog: CatalogView) -> list[tuple[TableId, str]]:
    rows = catalog.rows(
        "SELECT table_id, table_name FROM {ducklake_inlined_data_tables} "
        "WHERE to_regclass(format('%%I.%%I', %(schema)s::text, table_name)) IS NOT NULL ORDER BY 1, 2",
        schema=catalog.db.schema,
    )
    return [(table_id, name) for table_id, name in rows]


def _largest_inlined(catalog: CatalogView, name: str) -> int | None:
    found = catalog.rows("SELECT max(row_id) FROM {" + name + "}")[0][0]
    return None if found is None else int(found)


@dataclass
class _Bounds:
    """What the table says of one column."""

    name: str
    type: str
    low: Any
    high: Any
    has_bounds: bool
    contains_null: bool | None
    contains_nan: bool | None


def bounds_cover_files(catalog: CatalogView) -> Iterator[Finding]:
    """What the table says of a column holds for each of its files, those of older snapshots included."""
    columns = _table_bounds(catalog)
    if not columns:
        return
    today: dict[TableId, dict[str, str]] = {}
    history: dict[TableId, dict[str, str]] = {}
    with catalog.stream(
        "SELECT s.table_id, s.column_id, s.min_value, s.max_value, bool_or(s.value_count > 0), "
        "bool_or(s.null_count > 0), bool_or(s.contains_nan), f.end_snapshot IS NULL "
        "FROM {ducklake_file_column_stats} s JOIN {ducklake_data_file} f USING (data_file_id) "
        "GROUP BY 1, 2, 3, 4, 8"
    ) as rows:
        for table_id, column_id, low, high, values, nulls, nan, current in rows:
            bounds = columns.get((table_id, column_id))
            fault = bounds and _fault(bounds, low, high, bool(values), bool(nulls), bool(nan))
            if bounds is not None and fault:
                (today if current else history).setdefault(table_id, {})[bounds.name] = fault
    for code, found in (("column_bounds", today), ("column_bounds_history", history)):
        for table_id, faults in sorted(found.items()):
            listed = [f"{name}: {fault}" for name, fault in sorted(faults.items())]
            message = f"the statistics of {len(listed)} column(s) do not cover the files"
            yield finding(code, catalog.name(table_id), message, listed)


def _table_bounds(catalog: CatalogView) -> dict[tuple[TableId, ColumnId], _Bounds]:
    columns = {
        (table_id, column_id): (name, type_, parent)
        for table_id, column_id, name, type_, parent in catalog.rows(
            "SELECT table_id, column_id, column_name, column_type, parent_column FROM {ducklake_column} "
            "WHERE end_snapshot IS NULL"
        )
    }

    def path(table_id: TableId, column_id: ColumnId) -> str:
        name, _, parent = columns[table_id, column_id]
        return name if (table_id, parent) not in columns else f"{path(table_id, parent)}.{name}"

    rows = catalog.rows(
        "SELECT table_id, column_id, min_value, max_value, contains_null, contains_nan "
        "FROM {ducklake_table_column_stats}"
    )
    found = {}
    for table_id, column_id, low, high, null, nan in rows:
        if (table_id, column_id) in columns and table_id in catalog.live:
            type_ = columns[table_id, column_id][1]
            found[table_id, column_id] = _Bounds(
                path(table_id, column_id),
                type_,
                parse_stat(low, type_, "min"),
                parse_stat(high, type_, "max"),
                low is not None or high is not None,
                null,
                nan,
            )
    return found


def _fault(
    bounds: _Bounds, low: str | None, high: str | None, values: bool, nulls: bool, nan: bool
) -> str | None:
    """How a file contradicts the table, or None."""
    if nulls and bounds.contains_null is False:
        return "the table says that there is no NULL"
    if nan and bounds.contains_nan is False:
        return "the table says that there is no NaN"
    if bounds.type in UNBOUNDED or low is None or high is None:
        return None
    if bounds.type in FLOATS and bounds.contains_nan is not False:
        return None  # DuckDB keeps such bounds badly, and uses none
    if values and not bounds.has_bounds:
        return "the table has no bounds, which DuckDB takes for a column of nothing but NULL"
    # A bound of the file that the table's covers when it is read as leniently as DuckDB wrote it.
    least, most = parse_stat(low, bounds.type), parse_stat(high, bounds.type)
    if least is not None and bounds.low is not None and least < bounds.low:
        return f"a file begins at {low}"
    if most is not None and bounds.high is not None and most > bounds.high:
        return f"a file ends at {high}"
    return None
