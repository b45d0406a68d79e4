"""Reading files of any age: DuckDB alters and writes, pyarrow reads the files, and both must agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import CorruptFileError
from headwater.lake.format.conform import NameMapping, conform, hive_values, name_mapping
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import arrow_schema
from headwater.lake.model import Column
from tests.lake.oracle import Oracle
from tests.lake.random_data import NESTED_TEXTS, SCALAR_TEXTS, columns, table


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[Oracle]:
    found = Oracle(tmp_path)
    yield found
    found.close()


def current_columns(oracle: Oracle, name: str) -> tuple[Column, ...]:
    """The table's columns as its catalog has them now."""
    rows = oracle.meta(
        "SELECT column_id, column_name, column_type, nulls_allowed, initial_default, parent_column "
        "FROM $ducklake_column WHERE table_id = ? AND end_snapshot IS NULL ORDER BY column_order",
        oracle.table_id(name),
    )

    def below(parent: int | None) -> tuple[Column, ...]:
        return tuple(
            Column(i, n, t, nulls, default, children=below(i))
            for i, n, t, nulls, default, of in rows
            if of == parent
        )

    return below(None)


def as_text(data: pa.Table, cols: tuple[Column, ...]) -> list[tuple[Any, ...]]:
    """Every row as DuckDB prints it."""
    import duckdb

    from headwater.lake.format.types import type_text

    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("t", data)
        parts = ", ".join(f'"{c.name}"::{type_text(c)}::VARCHAR' for c in cols)
        return duck.execute(f"SELECT {parts} FROM t ORDER BY ALL").fetchall()


def read_all(oracle: Oracle, name: str) -> list[tuple[Any, ...]]:
    cols = current_columns(oracle, name)
    parts = [conform(pq.read_table(path, partitioning=None), cols) for path in oracle.files(name)]
    return as_text(pa.concat_tables(parts), cols)


def test_every_type_written_by_duckdb_reads_as_duckdb_reads_it(oracle: Oracle) -> None:
    cols = columns(tuple(t for t in SCALAR_TEXTS + NESTED_TEXTS if t not in ("int128", "uint128")))
    name = oracle.create(cols)
    oracle.insert(name, table(random.Random(4), cols, 60))

    assert read_all(oracle, name) == oracle.read(name)


def test_columns_that_were_renamed_moved_dropped_and_added_again(oracle: Oracle) -> None:
    run = oracle.duck.execute
    run("CREATE TABLE t(a INTEGER, b VARCHAR, c DOUBLE)")
    run("INSERT INTO t VALUES (1, 'x', 1.5), (2, NULL, NULL)")
    run("ALTER TABLE t DROP COLUMN b")
    run("ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 7")
    run("INSERT INTO t VALUES (3, 2.5, 30)")
    run("ALTER TABLE t RENAME a TO c2")
    run("ALTER TABLE t RENAME c TO a")
    run("ALTER TABLE t ADD COLUMN s VARCHAR DEFAULT 'it''s'")
    run("ALTER TABLE t ADD COLUMN d DATE DEFAULT '2024-02-29'")
    run("ALTER TABLE t ADD COLUMN z TIMESTAMPTZ DEFAULT '2024-02-29 01:00:00+02'")
    run("ALTER TABLE t ADD COLUMN p DECIMAL(10,2) DEFAULT 1.5")
    run("INSERT INTO t VALUES (4, 3.5, 40, 's', '2020-01-01', '2020-01-01 00:00:00+00', 2)")

    assert read_all(oracle, "t") == oracle.read("t")


def test_types_that_were_widened(oracle: Oracle) -> None:
    run = oracle.duck.execute
    run("CREATE TABLE t(a TINYINT, b USMALLINT, c FLOAT, s STRUCT(x SMALLINT))")
    run("INSERT INTO t VALUES (1, 2, 0.1, {'x': 5}), (NULL, NULL, NULL, NULL)")
    run("ALTER TABLE t ALTER a TYPE BIGINT")
    run("ALTER TABLE t ALTER b TYPE UBIGINT")
    run("ALTER TABLE t ALTER c TYPE DOUBLE")
    run("INSERT INTO t VALUES (3000000000, 18446744073709551615, 1e300, {'x': 6})")

    assert read_all(oracle, "t") == oracle.read("t")


def test_fields_of_structs_that_were_renamed_dropped_and_added(oracle: Oracle) -> None:
    run = oracle.duck.execute
    run(
        "CREATE TABLE t(s STRUCT(a INTEGER, b VARCHAR, deep STRUCT(x INTEGER, y INTEGER)), "
        "l STRUCT(q INTEGER)[])"
    )
    run("INSERT INTO t VALUES ({'a': 1, 'b': 'x', 'deep': {'x': 1, 'y': 2}}, [{'q': 1}, NULL]), (NULL, NULL)")
    run("ALTER TABLE t RENAME s.a TO a2")
    run("ALTER TABLE t DROP COLUMN s.b")
    run("ALTER TABLE t ADD COLUMN s.b INTEGER")
    run("ALTER TABLE t DROP COLUMN s.deep.x")
    run("ALTER TABLE t ADD COLUMN s.deep.z INTEGER")
    run("ALTER TABLE t ADD COLUMN l.element.r VARCHAR")
    run("INSERT INTO t VALUES ({'a2': 2, 'deep': {'y': 3, 'z': 4}, 'b': 5}, [{'q': 2, 'r': 'r'}])")

    assert read_all(oracle, "t") == oracle.read("t")


def test_a_file_that_already_fits_is_not_touched(tmp_path: Path) -> None:
    cols = columns(["int32", "varchar", "int32[]", "struct(a int32)"])
    data = table(random.Random(1), cols, 10)

    assert conform(data, cols) is data


def test_files_without_ids_are_matched_by_position() -> None:
    cols = columns(["int64", "varchar", "int32"])
    plain = pa.table({"whatever": pa.array([1], pa.int32()), "else": ["x"]})

    found = conform(plain, cols)

    assert found.schema.equals(arrow_schema(cols), check_metadata=True)
    assert found.to_pylist() == [{"c0": 1, "c1": "x", "c2": None}]


def test_a_name_mapping_wins_over_position_and_reaches_into_structs_lists_and_maps() -> None:
    cols = (
        column_from_text("a", "int64", 1),
        column_from_text("s", "struct(x int32, y varchar)", 2),
        column_from_text("l", "struct(q int32)[]", 5),
        column_from_text("m", "map(varchar, struct(v int32))", 8),
        column_from_text("day", "date", 12),
        Column(13, "late", "int32", initial_default="9"),
    )
    mapping = name_mapping(
        [
            (0, "A", 1, None, False),
            (1, "S", 2, None, False), (2, "old_x", 3, 1, False),
            (3, "L", 5, None, False), (4, "list", 6, 3, False), (5, "Q", 7, 4, False),
            (6, "M", 8, None, False), (7, "key", 9, 6, False), (8, "value", 10, 6, False),
            (9, "V", 11, 8, False),
            (10, "day", 12, None, True),
        ]
    )  # fmt: skip
    source = pa.table(
        {
            "M": pa.array([[("k", {"V": 4})]], pa.map_(pa.string(), pa.struct({"V": pa.int32()}))),
            "L": pa.array([[{"Q": 3}]]),
            "S": pa.array([{"y": "not mapped", "old_x": 2}]),
            "a": pa.array([1]),
        }
    )

    found = conform(source, cols, mapping=mapping, path="lake/day=2024-02-29/file.parquet")

    assert found.schema.equals(arrow_schema(cols), check_metadata=True)
    [row] = found.to_pylist()
    assert str(row.pop("day")) == "2024-02-29"
    assert row == {"a": 1, "s": {"x": 2, "y": None}, "l": [{"q": 3}], "m": [("k", {"v": 4})], "late": 9}


def test_the_same_mapping_in_duckdb(oracle: Oracle, tmp_path: Path) -> None:
    """Files that DuckDB adopts with `ducklake_add_data_files`."""
    oracle.duck.execute("CREATE TABLE t(a BIGINT, s STRUCT(x INTEGER, y VARCHAR), l INTEGER[], day DATE)")
    folder = tmp_path / "foreign" / "day=2024-02-29"
    folder.mkdir(parents=True)
    source = pa.table(
        {
            "l": pa.array([[1, None]], pa.list_(pa.int32())),
            "s": pa.array([{"y": "y", "x": 1}], pa.struct({"y": pa.string(), "x": pa.int32()})),
            "a": pa.array([5]),
        }
    )
    pq.write_table(source, folder / "f.parquet")
    oracle.duck.execute(
        f"CALL ducklake_add_data_files('lake', 't', '{folder}/f.parquet', hive_partitioning => true, "
        "allow_missing => true)"
    )
    cols = current_columns(oracle, "t")
    rows = oracle.meta(
        "SELECT column_id, source_name, target_field_id, parent_column, is_partition "
        "FROM $ducklake_name_mapping ORDER BY column_id"
    )

    found = conform(
        pq.read_table(folder / "f.parquet", partitioning=None), cols,
        mapping=name_mapping(rows), path=str(folder / "f.parquet"),  # type: ignore[arg-type]
    )  # fmt: skip

    assert as_text(found, cols) == oracle.read("t")


def test_values_that_cannot_be_the_columns_are_an_error_not_a_guess() -> None:
    cols = columns(["int32"])
    data = pa.table(
        [pa.array([2**40])],
        schema=pa.schema([pa.field("c0", pa.int64(), metadata={"PARQUET:field_id": "1"})]),
    )

    with pytest.raises(CorruptFileError, match="c0"):
        conform(data, cols)


def test_values_of_folders() -> None:
    assert hive_values("/lake/a%20b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__/plain/f.parquet") == {
        "a b": "x/y",
        "c": None,
    }


def test_a_mapping_is_a_tree() -> None:
    assert name_mapping([(0, "s", 1, None, None), (1, "x", 2, 0, False)]) == (
        NameMapping("s", 1, (NameMapping("x", 2),)),
    )
