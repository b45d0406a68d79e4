from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.format.statistics import (
    TableColumnStats,
    file_statistics,
    leaves,
    long_string_bounds,
    merge_table_stats,
    nan_columns,
    row_statistics,
)
from headwater.lake.format.table_statistics import merge_column_stats
from headwater.lake.format.types import arrow_schema
from headwater.lake.format.values import parse_stat
from headwater.lake.model import Column, ColumnStats
from headwater.storage.parquet import write_parquet
from tests.lake.oracle import Oracle
from tests.lake.random_data import NESTED_TEXTS, SCALAR_TEXTS, columns, table


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[Oracle]:
    found = Oracle(tmp_path)
    yield found
    found.close()


def statistics(data: pa.Table, cols: tuple[Column, ...], folder: Path) -> dict[int, ColumnStats]:
    summary = write_parquet(folder / "ours.parquet", data, arrow_schema(cols), row_group_rows=100)
    found = file_statistics(
        summary.metadata,
        cols,
        contains_nan=nan_columns(data, cols),
        bounds=long_string_bounds(data, cols, summary.metadata),
    )
    return {stats.column_id: stats for stats in found}


def miscounted_by_duckdb(cols: tuple[Column, ...]) -> set[int]:
    """Leaves whose counts DuckDB gets wrong: it records none for timetz, and counts the NULLs of structs
    inside lists and maps more than once."""

    def inside(column: Column, repeated: bool) -> Iterator[int]:
        for child in column.children:
            if repeated and column.type == "struct" and not child.children:
                yield child.id
            yield from inside(child, repeated or column.type in ("list", "map"))

    found = {leaf.id for leaf in leaves(cols) if leaf.type == "timetz"}
    return found | {i for column in cols for i in inside(column, repeated=False)}


@pytest.mark.parametrize("seed", range(8))
def test_file_statistics_equal_those_duckdb_writes_for_the_same_rows(
    oracle: Oracle, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    cols = columns(SCALAR_TEXTS + NESTED_TEXTS)
    data = table(rng, cols, rng.choice([1, 5, 400]), rng.choice([0, 0.2, 1]))
    name = oracle.create(cols)
    oracle.insert(name, data)

    ours = statistics(data, cols, tmp_path)

    theirs = oracle.file_stats(name)
    assert ours.keys() == theirs.keys()
    for leaf in leaves(cols):
        stats = ours[leaf.id]
        found = (stats.value_count, stats.null_count, stats.min_value, stats.max_value, stats.contains_nan)
        expected = theirs[leaf.id]
        if leaf.id in miscounted_by_duckdb(cols):
            found, expected = found[2:], expected[2:]
        assert found == expected, leaf


def test_statistics_of_a_list_of_structs_count_what_is_there(tmp_path: Path) -> None:
    cols = columns(["struct(x int32)[]"])
    values = [[{"x": 1}, None, {"x": None}], None, []]
    data = pa.table([pa.array(values, arrow_schema(cols).field(0).type)], schema=arrow_schema(cols))

    stats = statistics(data, cols, tmp_path)[3]

    # As Parquet counts them: an empty list and a missing one have a place of their own.
    assert (stats.value_count, stats.null_count, stats.min_value, stats.max_value) == (1, 4, "1", "1")


def test_very_long_strings_keep_bounds_although_the_footer_has_none(oracle: Oracle, tmp_path: Path) -> None:
    cols = columns(["varchar", "varchar[]", "blob"])
    row = ["z" * 5000, ["b" * 9000, "a"], b"\xaa" * 6000]
    data = pa.table(
        [pa.array([v], f.type) for v, f in zip(row, arrow_schema(cols), strict=True)],
        schema=arrow_schema(cols),
    )
    name = oracle.create(cols)
    oracle.insert(name, data)

    ours = statistics(data, cols, tmp_path)

    assert {i: (s.min_value, s.max_value) for i, s in ours.items()} == {
        i: s[2:4] for i, s in oracle.file_stats(name).items()
    }
    assert ours[1].max_value == "z" * 255 + "{"


def test_statistics_of_another_physical_type_are_left_out_rather_than_guessed(tmp_path: Path) -> None:
    cols = columns(["uuid", "int64", "timestamp_ms", "decimal(10,2)"])
    foreign = pa.table(
        {
            "c0": ["e8b4a1b0-0000-0000-0000-000000000001"],
            "c1": pa.array([1.5]),
            "c2": pa.array([1_700_000_000_123_000], pa.timestamp("us")),
            "c3": pa.array([1], pa.int32()),
        }
    )
    pq.write_table(foreign, tmp_path / "foreign.parquet")

    found = file_statistics(pq.read_metadata(tmp_path / "foreign.parquet"), cols)

    assert [s.min_value for s in found] == [None, None, "2023-11-14 22:13:20.123", None]
    assert [s.value_count for s in found] == [1, 1, 1, 1]


def test_a_nan_is_found_wherever_it_hides() -> None:
    cols = columns(["float64", "float32", "struct(x double)", "float64[]", "map(int32, double)", "int32"])
    nan = math.nan
    data = pa.Table.from_pylist(
        [
            {"c0": 1.0, "c1": None, "c2": {"x": nan}, "c3": [1.0, nan], "c4": [(1, nan)], "c5": 1},
            {"c0": nan, "c1": 2.0, "c2": None, "c3": None, "c4": None, "c5": 1},
        ],
        schema=arrow_schema(cols),
    )

    found = nan_columns(data, cols)

    assert found == {1: True, 2: False, 4: True, 6: True, 9: True}


TYPES_OF_INLINED = [t for t in SCALAR_TEXTS if t != "timetz"]


@pytest.mark.parametrize("seed", range(3))
def test_statistics_of_inlined_rows_equal_duckdbs(tmp_path: Path, seed: int) -> None:
    oracle = Oracle(tmp_path, inline=50)
    rng = random.Random(seed)
    cols = columns(TYPES_OF_INLINED)
    data = table(rng, cols, 12, 0.2)
    name = oracle.create(cols)
    oracle.insert(name, data)

    ours = row_statistics(data, cols)

    theirs = oracle.meta(
        "SELECT column_id, contains_null, contains_nan, min_value, max_value "
        "FROM $ducklake_table_column_stats WHERE table_id = ? ORDER BY column_id",
        oracle.table_id(name),
    )
    oracle.close()
    assert [
        (s.column_id, bool(s.null_count), s.contains_nan, s.min_value, s.max_value) for s in ours
    ] == theirs


def part(values: list[Any], type_: str = "int32", **more: Any) -> ColumnStats:
    kept = [v for v in values if v is not None]
    return ColumnStats(
        1, None, len(kept), len(values) - len(kept),
        str(min(kept)) if kept else None, str(max(kept)) if kept else None, **more,
    )  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(st.lists(st.none() | st.integers(-1000, 1000), min_size=1, max_size=4), min_size=1, max_size=6)
)
def test_merged_table_statistics_cover_every_value_ever_written(parts: list[list[int | None]]) -> None:
    row: TableColumnStats | None = None
    for values in parts:
        row = merge_column_stats(row, part(values), "int32")
        if row is None:
            break  # unknown: no row, no promise

    if row is not None:
        everything = [v for values in parts for v in values]
        kept = [v for v in everything if v is not None]
        assert row.contains_null == (None in everything)
        assert parse_stat(row.min_value, "int32") == (min(kept) if kept else None)
        assert parse_stat(row.max_value, "int32") == (max(kept) if kept else None)


def test_numbers_are_compared_as_numbers_not_as_text() -> None:
    row = merge_column_stats(None, part([9, 100]), "int64")

    merged = merge_column_stats(row, part([-5, 20]), "int64")

    assert merged == TableColumnStats(1, False, None, "-5", "100")


def test_an_unknown_bound_means_the_row_must_go() -> None:
    known = TableColumnStats(1, False, None, "a", "b")
    unknown = ColumnStats(1, None, 3, 0, None, None)

    assert merge_column_stats(known, unknown, "varchar") is None
    assert merge_column_stats(None, unknown, "varchar") is None
    # DuckDB wrote a row without bounds although there are values: adopting ours would hide them.
    assert merge_column_stats(TableColumnStats(1, False, None, None, None), part([1]), "int32") is None


def test_types_without_bounds_keep_their_row() -> None:
    row = merge_column_stats(None, ColumnStats(1, None, 3, 0, None, None), "interval")

    merged = merge_column_stats(row, ColumnStats(1, None, 3, 1, None, None), "interval")

    assert merged == TableColumnStats(1, True, None, None, None)


def test_unknown_about_nan_stays_unknown_and_nan_only_changes_no_bound() -> None:
    floats = TableColumnStats(1, False, False, "0.0", "1.0")

    only_nan = ColumnStats(1, None, 2, 0, None, None, contains_nan=True)
    assert merge_column_stats(floats, only_nan, "float64") == TableColumnStats(1, False, True, "0.0", "1.0")
    unsaid = ColumnStats(1, None, 1, 0, "5.0", "5.0")
    assert merge_column_stats(floats, unsaid, "float64") == TableColumnStats(1, False, None, "0.0", "5.0")


def test_boxes_of_geometries_grow() -> None:
    def box(low: float, high: float, kind: str) -> str:
        return (
            f'{{"bbox": {{"xmin": {low}, "xmax": {high}, "ymin": {low}, "ymax": {high}, "zmin": null, '
            f'"zmax": null, "mmin": null, "mmax": null}}, "types": ["{kind}"]}}'
        )

    row = merge_column_stats(
        None, ColumnStats(1, None, 1, 0, None, None, extra_stats=box(1, 2, "point")), "geometry"
    )

    merged = merge_column_stats(
        row, ColumnStats(1, None, 1, 0, None, None, extra_stats=box(-1, 1.5, "line")), "geometry"
    )

    assert merged is not None
    assert merged.extra_stats is not None
    assert '"xmin": -1, "xmax": 2' in merged.extra_stats
    assert '["line", "point"]' in merged.extra_stats


def test_first_data_adds_rows_and_later_data_only_changes_or_removes_them() -> None:
    cols = columns(["int32", "varchar", "int32[]"])
    leaf_ids = [1, 2, 4]
    first = [ColumnStats(i, None, 1, 0, "5", "5") for i in leaf_ids]
    second = [ColumnStats(1, None, 1, 0, "3", "3"), ColumnStats(2, None, 1, 0, None, None)]

    start = merge_table_stats(None, first, cols)
    assert [row.column_id for row in start.added] == leaf_ids

    known = {row.column_id: row for row in start.added if row.column_id != 4}
    later = merge_table_stats(known, [*first, *second], cols)

    # The list's element has no row (it came later), so it gets none; the text's bounds are now unknown.
    assert later.added == ()
    assert later.changed == (TableColumnStats(1, False, None, "3", "5"),)
    assert later.removed == {2}


def test_a_column_the_new_data_says_nothing_about_loses_its_row() -> None:
    cols = columns(["int32", "varchar"])
    known = {i: TableColumnStats(i, False, None, "1", "2") for i in (1, 2)}

    merged = merge_table_stats(known, [ColumnStats(1, None, 1, 0, "1", "1")], cols)

    assert (merged.changed, merged.removed) == ((), {2})


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.integers(-9, 9), min_size=1, max_size=3), min_size=1, max_size=5))
def test_merging_files_together_or_one_by_one_gives_the_same(parts: list[list[int | None]]) -> None:
    cols = columns(["int32"])
    together = merge_table_stats(None, [part(values) for values in parts], cols)

    rows = {row.column_id: row for row in merge_table_stats(None, [part(parts[0])], cols).added}
    for values in parts[1:]:
        step = merge_table_stats(rows, [part(values)], cols)
        rows = {**rows, **{row.column_id: row for row in step.changed}}
        rows = {i: row for i, row in rows.items() if i not in step.removed}

    assert {row.column_id: row for row in together.added} == rows
