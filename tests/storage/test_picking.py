"""A few rows of a file by their positions are those that pyarrow reads there."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.storage.picking import pick_rows, worth_picking

ROWS = 200_000
GROUP = 20_000
AT = np.array([0, 1, 19_999, 20_000, 77_777, 199_999], np.int64)


def values() -> pa.Table:
    """Every type that is picked, with NULLs, and values that readers like to change."""
    numbers = np.arange(ROWS)
    some = numbers % 3 == 0

    def spread(items: list[Any], kind: pa.DataType) -> Any:
        return pa.array([items[number % len(items)] for number in range(ROWS)], kind)

    return pa.table(
        {
            **{f"i{bits}": pa.array(numbers % 100, f"int{bits}", mask=some) for bits in (8, 16, 32, 64)},
            **{f"u{bits}": pa.array(numbers % 200, f"uint{bits}") for bits in (8, 16, 32, 64)},
            "double": spread([0.0, -0.0, float("nan"), float("inf"), 1e300, None], pa.float64()),
            "float": spread([0.5, float("nan"), None], pa.float32()),
            "flag": spread([True, None, False], pa.bool_()),
            "money": spread([Decimal("1.50"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
            "wide": spread([Decimal(10**37), None], pa.decimal128(38, 0)),
            "day": spread([date(1, 1, 1), date(9999, 12, 31), None], pa.date32()),
            "text": spread(["", "ä\0b", None, "x" * 300], pa.string()),
            'a "name", quoted': pa.array(numbers),
        }
    )


@pytest.fixture(scope="module", params=["pyarrow", "pyarrow, plain", "duckdb"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same rows in files of several writers, in a folder whose name is no partition of the table."""
    path = tmp_path_factory.mktemp("lake") / "i8=7" / "rows.parquet"
    path.parent.mkdir()
    if request.param == "duckdb":
        given = values()  # noqa: F841 (DuckDB finds it by its name)
        session = duckdb.connect()
        session.execute("SET preserve_insertion_order = true")
        session.execute(f"COPY given TO '{path}' (ROW_GROUP_SIZE {GROUP})")
    else:
        pq.write_table(
            values(),
            path,
            row_group_size=GROUP,
            use_dictionary=request.param == "pyarrow",
            data_page_size=4096,
        )
    return str(path)


def taken(path: str, names: list[str], positions: npt.NDArray[np.int64]) -> pa.Table:
    return pq.ParquetFile(path).read(columns=names).take(pa.array(positions))


def test_rows_are_those_at_the_positions(file: str) -> None:
    schema = pq.read_schema(file)
    chance = np.random.default_rng(5)
    some = [np.sort(chance.choice(ROWS, count, replace=False)) for count in (40, 1500, 3000)]
    for at in [AT, AT[:1], AT[:0], *some]:
        found = pick_rows(file, schema, schema.names, at)
        assert found is not None
        expected = taken(file, schema.names, at)
        assert found.schema.equals(expected.schema, check_metadata=True)
        # NaN is not equal to itself, and -0.0 is to 0.0: their texts tell.
        assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in expected.to_pylist()]


def test_columns_are_picked_in_the_order_in_which_they_are_asked_for(file: str) -> None:
    schema = pq.read_schema(file)
    found = pick_rows(file, schema, ["text", "i64"], AT)
    assert found is not None
    assert found.equals(taken(file, ["text", "i64"], AT))


def test_what_duckdb_may_read_otherwise_is_left_to_pyarrow(tmp_path: Path) -> None:
    path = str(tmp_path / "f.parquet")
    at = np.array([1])
    odd = {
        "list": pa.array([[1], [2]]),
        "bytes": pa.array([b"a", b"b"]),
        "moment": pa.array([0, 1], pa.timestamp("ns")),
    }
    for name, column in odd.items():
        pq.write_table(pa.table({name: column}), path)
        assert pick_rows(path, pq.read_schema(path), [name], at) is None
    for names in (["A", "a"], ["a", "File_Row_Number"]):
        pq.write_table(pa.table({name: [1, 2] for name in names}), path)
        assert pick_rows(path, pq.read_schema(path), names[:1], at) is None
    assert pick_rows("s3://bucket/f.parquet", pq.read_schema(path), ["a"], at) is None


def test_files_whose_names_look_like_patterns_and_damaged_ones_are_left_to_pyarrow(tmp_path: Path) -> None:
    at = np.array([1])
    for name in ("f*.parquet", "f[1].parquet", "f?.parquet", "damaged.parquet"):
        path = str(tmp_path / name)
        pq.write_table(pa.table({"a": [1, 2]}), path)
        schema = pq.read_schema(path)
        if name == "damaged.parquet":
            Path(path).write_bytes(b"PAR1 and nothing else PAR1")
        assert pick_rows(path, schema, ["a"], at) is None


def test_positions_that_a_file_does_not_have_are_not_passed_over(tmp_path: Path) -> None:
    path = str(tmp_path / "f.parquet")
    pq.write_table(pa.table({"a": [1, 2]}), path)
    assert pick_rows(path, pq.read_schema(path), ["a"], np.array([0, 2])) is None


@pytest.mark.parametrize(
    ("positions", "worth"),
    [
        (np.arange(0, ROWS, 1000), True),
        (np.arange(0, ROWS, 10), False),
        (np.array([5]), False),  # one row group of 20,000 rows is decoded in no time
        (np.empty(0, np.int64), False),
        (np.array([ROWS + 5]), False),
    ],
)
def test_picking_is_worth_it_for_few_rows_of_many(
    tmp_path: Path, positions: npt.NDArray[np.int64], worth: bool
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": range(ROWS)}), path, row_group_size=GROUP)
    assert worth_picking(pq.read_metadata(path), positions) is worth
