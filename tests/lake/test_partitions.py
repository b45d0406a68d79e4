from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.format.buckets import bucket_numbers
from headwater.lake.format.partitions import hive_path, split_by_partition, transformed_text
from headwater.lake.format.texts import plain_array
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import arrow_schema
from headwater.lake.model import Column, PartitionField
from tests.lake.oracle import Oracle
from tests.lake.random_data import SCALAR_TEXTS, array, columns, table

NASTY = [
    "", " ", "a b", "é", "😀", "a/b", "a=b", "%41", "NULL", "a\\b", "x:y", "a&?#+;,@!~*()", "q\"u'o", "-_.~",
    "new\nline", ".", "..", "__HIVE_DEFAULT_PARTITION__", None,
]  # fmt: skip


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    found = Oracle(tmp_path_factory.mktemp("lake"))
    yield found
    found.close()


def by_duckdb(oracle: Oracle, data: pa.Table, cols: tuple[Column, ...], spec: str) -> list[tuple[Any, ...]]:
    """Folder, values and row count of every part that DuckDB makes."""
    name = oracle.create(cols)
    oracle.duck.execute(f"ALTER TABLE {name} SET PARTITIONED BY ({spec})")
    oracle.insert(name, data)
    rows = oracle.meta(
        "SELECT f.path, list(v.partition_value ORDER BY v.partition_key_index), any_value(f.record_count) "
        "FROM $ducklake_data_file f JOIN $ducklake_file_partition_value v USING (data_file_id) "
        "WHERE f.table_id = ? GROUP BY f.data_file_id, f.path",
        oracle.table_id(name),
    )
    return sorted(((path.rpartition("/")[0] + "/", tuple(values), n) for path, values, n in rows), key=repr)


def by_us(data: pa.Table, cols: tuple[Column, ...], fields: list[PartitionField]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (hive_path(fields, cols, values), values, part.num_rows)
            for values, part in split_by_partition(data, fields, cols)
        ),
        key=repr,
    )


# A blob that is not ASCII cannot be a partition key in DuckDB.
@pytest.mark.parametrize("type_", [t for t in SCALAR_TEXTS if t != "blob"])
def test_identity_parts_have_the_folders_and_values_of_duckdb(oracle: Oracle, type_: str) -> None:
    cols = columns([type_])
    data = table(random.Random(type_), cols, 40)
    if type_.startswith("float"):  # DuckDB names the part of the zeros after the first zero it meets
        data = pa.table([pc.add(data.column(0), pa.scalar(0.0, data.column(0).type))], schema=data.schema)
    if type_ == "varchar":  # DuckDB cannot make a folder of such a name
        data = data.filter(pc.less(pc.utf8_length(data.column(0)), 100))

    assert by_us(data, cols, [PartitionField(1, "identity")]) == by_duckdb(oracle, data, cols, "c0")


def test_nasty_strings_make_the_folders_of_duckdb(oracle: Oracle) -> None:
    cols = (column_from_text("we ird/n=é", "varchar"),)
    data = pa.table([pa.array(NASTY, pa.string())], schema=arrow_schema(cols))

    ours = by_us(data, cols, [PartitionField(1, "identity")])

    assert ours == by_duckdb(oracle, data, cols, '"we ird/n=é"')


@pytest.mark.parametrize(
    "type_", ["date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz"]
)
def test_calendar_parts_are_those_of_duckdb(oracle: Oracle, type_: str) -> None:
    cols = columns([type_])
    infinity = 2**31 - 1 if type_ == "date" else 2**63 - 1
    special = plain_array(
        [infinity, -infinity] if type_ not in ("timestamp_s", "timestamp_ms") else [], cols[0]
    )
    data = pa.concat_tables(
        [table(random.Random(1), cols, 30), pa.table([special], schema=arrow_schema(cols))]
    )
    fields = [PartitionField(1, transform) for transform in ("year", "month", "day", "hour")]

    ours = by_us(data, cols, fields)

    assert ours == by_duckdb(oracle, data, cols, "year(c0), month(c0), day(c0), hour(c0)")


@pytest.mark.parametrize("type_", SCALAR_TEXTS)
def test_buckets_are_those_of_duckdb(oracle: Oracle, type_: str) -> None:
    cols = columns([type_])
    values = array(random.Random(3), cols[0], 200)
    oracle.duck.register("v", pa.table({"c0": values}))
    cast = (
        f"c0::{ {'timetz': 'TIMETZ', 'int128': 'HUGEINT', 'uint128': 'UHUGEINT'}[type_] }"
        if type_ in ("timetz", "int128", "uint128")
        else "c0"
    )
    hashed = oracle.duck.execute(f"SELECT (murmur3_32({cast}) & 2147483647) % 97 FROM v").fetchall()

    assert bucket_numbers(values, cols[0], 97).to_pylist() == [row[0] for row in hashed]


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=20), max_size=20), st.integers(0, 3))
def test_buckets_do_not_depend_on_how_arrow_cut_the_data(texts: list[str | None], start: int) -> None:
    column = Column(1, "v", "varchar")
    whole = pa.array(texts, pa.string())

    sliced = bucket_numbers(whole.slice(start), column, 1000).to_pylist()

    assert sliced == bucket_numbers(whole, column, 1000).to_pylist()[start:]
    assert sliced == [
        v
        for one in texts[start:]
        for v in bucket_numbers(pa.array([one], pa.string()), column, 1000).to_pylist()
    ]


@pytest.mark.parametrize(
    ("names", "spec", "fields"),
    [
        (["a:int32", "b:int32", "c:date", "d:date"], "bucket(4,a),bucket(4,b),year(c),year(d)",
         [(1, "bucket(4)"), (2, "bucket(4)"), (3, "year"), (4, "year")]),
        (["d:date", "year:int32"], "year(d),year", [(1, "year"), (2, "identity")]),
        (["bucket:int32", "bucket_a:int32", "a:int32"], "bucket,bucket(4,a),bucket_a",
         [(1, "identity"), (3, "bucket(4)"), (2, "identity")]),
        (["a:int32", "YEAR:int32", "d:date"], '"YEAR",year(d)', [(2, "identity"), (3, "year")]),
        (["a:date"], "year(a),a,bucket(4,a),month(a)",
         [(1, "year"), (1, "identity"), (1, "bucket(4)"), (1, "month")]),
    ],
)  # fmt: skip
def test_keys_that_clash_are_told_apart_as_duckdb_does(
    oracle: Oracle, names: list[str], spec: str, fields: list[tuple[int, str]]
) -> None:
    cols = tuple(
        column_from_text(name.partition(":")[0], name.partition(":")[2], i + 1)
        for i, name in enumerate(names)
    )
    data = table(random.Random(5), cols, 25)

    ours = by_us(data, cols, [PartitionField(*field) for field in fields])

    assert ours == by_duckdb(oracle, data, cols, spec)


def test_every_row_lands_in_exactly_one_part_and_keeps_its_order() -> None:
    cols = columns(["int32", "varchar", "date"])
    data = table(random.Random(7), cols, 500).append_column("row", pa.array(range(500)))
    fields = [PartitionField(1, "bucket(3)"), PartitionField(2, "identity"), PartitionField(3, "month")]

    parts = list(split_by_partition(data, fields, cols))

    rows = [part.column("row").to_pylist() for _, part in parts]
    assert sorted(r for part in rows for r in part) == list(range(500))
    assert all(part == sorted(part) for part in rows)
    assert len({values for values, _ in parts}) == len(parts)


def test_a_table_that_is_one_part_is_not_copied() -> None:
    cols = columns(["int32", "float64"])
    data = pa.table([pa.array([1, 1], pa.int32()), pa.array([-0.0, 0.0])], schema=arrow_schema(cols))

    [(values, part)] = split_by_partition(
        data, [PartitionField(1, "identity"), PartitionField(2, "identity")], cols
    )

    assert values == ("1", "0.0")
    assert part is data


def test_one_value_has_the_partition_value_its_row_would_have() -> None:
    assert transformed_text(19782, column_from_text("d", "date"), "year") == "2024"
    assert transformed_text("abc", column_from_text("v", "varchar"), "bucket(1000)") == "354"
    assert transformed_text(None, column_from_text("v", "varchar"), "identity") is None


@pytest.mark.parametrize(
    ("type_", "transform", "error"),
    [
        ("int32[]", "identity", UnsupportedError),
        ("int32", "year", InvalidInputError),
        ("time", "day", InvalidInputError),
        ("int32", "bucket(0)", InvalidInputError),
        ("int32", "truncate(3)", InvalidInputError),
    ],
)
def test_impossible_partition_keys_are_refused(type_: str, transform: str, error: type[Exception]) -> None:
    cols = columns([type_])

    with pytest.raises(error):
        list(split_by_partition(table(random.Random(1), cols, 2), [PartitionField(1, transform)], cols))


def test_a_nul_character_cannot_be_a_partition_value() -> None:
    cols = columns(["varchar"])
    data = pa.table([pa.array(["a\x00b"])], schema=arrow_schema(cols))

    with pytest.raises(InvalidInputError, match="NUL"):
        list(split_by_partition(data, [PartitionField(1, "identity")], cols))


def test_a_value_too_long_for_a_folder_goes_without_folders() -> None:
    cols = columns(["varchar", "int32"])
    fields = [PartitionField(2, "identity"), PartitionField(1, "identity")]

    assert hive_path(fields, cols, ("1", "é" * 40)) == "c1=1/c0=" + "%C3%A9" * 40 + "/"
    assert hive_path(fields, cols, ("1", "é" * 43)) == ""
