"""Every type of DuckLake has a form in Spark, and comes back from it as it was."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import VariantVal

from headwater.errors import InvalidInputError
from headwater.lake.format.align import align_input
from headwater.lake.format.types import SCALARS, columns_from_arrow
from headwater.lake.model import Column
from headwater.spark.types import columns_of, from_spark, spark_schema, spark_type, to_spark
from tests.lake import random_data

TEXTS = (*random_data.SCALAR_TEXTS, "interval", "geometry", "variant")
NESTED = (
    *random_data.NESTED_TEXTS,
    "interval[]",
    "struct(t time, n timestamp_ns, i interval, u uint64)",
    "map(uuid, time[])",
    "map(varchar, struct(a uint8[], b map(int32, timestamp_s)))",
)


@pytest.mark.parametrize("text", [*TEXTS, *NESTED])
def test_values_are_what_spark_expects_and_come_back_as_they_were(text: str) -> None:
    columns = random_data.columns([text])
    for seed in range(4):
        rows = random_data.table(random.Random(seed), columns, 60, nan=False)

        given_to_spark = to_spark(rows, columns)

        assert given_to_spark.schema.equals(to_arrow_schema(spark_schema(columns), timezone="UTC"))
        given_to_spark.validate(full=True)
        back = align_input(from_spark(given_to_spark, columns), columns)
        assert back.equals(rows)
        assert to_spark(rows.slice(7, 20), columns).equals(given_to_spark.slice(7, 20))


@given(some.data())
def test_any_mixture_of_columns_round_trips(data: some.DataObject) -> None:
    texts = data.draw(some.lists(some.sampled_from([*TEXTS, *NESTED]), min_size=1, max_size=4))
    columns = random_data.columns(texts)
    rows = random_data.table(random.Random(data.draw(some.integers(0, 999))), columns, 20, nan=False)

    given_to_spark = to_spark(rows, columns)

    assert given_to_spark.schema.equals(to_arrow_schema(spark_schema(columns), timezone="UTC"))
    assert align_input(from_spark(given_to_spark, columns), columns).equals(rows)


def test_no_type_is_forgotten() -> None:
    assert {text for text in SCALARS if text != "time_ns"} <= set(TEXTS)
    assert all(spark_type(Column(1, "c", text)) for text in SCALARS)


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ("uint8", "smallint"),
        ("uint16", "int"),
        ("uint32", "bigint"),
        ("uint64", "decimal(20,0)"),
        ("int128", "decimal(38,0)"),
        ("timestamp_ms", "timestamp_ntz"),
        ("timestamp_ns", "bigint"),
        ("timestamptz", "timestamp"),
        ("time", "bigint"),
        ("uuid", "string"),
        ("geometry", "binary"),
        ("interval", "struct<months:int,days:int,microseconds:bigint>"),
        ("map(uint8, struct(a date[]))", "map<smallint,struct<a:array<date>>>"),
    ],
)
def test_types_as_spark_names_them(text: str, spark: str) -> None:
    assert spark_type(random_data.columns([text])[0]).simpleString() == spark


def test_nothing_is_forced_to_be_there_and_comments_travel() -> None:
    schema = spark_schema([Column(1, "a", "int32", nulls_allowed=False, tags={"comment": "the key"})])

    assert schema["a"].nullable
    assert schema["a"].metadata == {"comment": "the key"}


def test_tables_for_spark_schemas() -> None:
    schema = st.StructType(
        [
            st.StructField("id", st.LongType(), nullable=False),
            st.StructField("small", st.ByteType()),
            st.StructField("at", st.TimestampType()),
            st.StructField("local", st.TimestampNTZType()),
            st.StructField("clock", st.TimeType(6)),
            st.StructField("span", st.DayTimeIntervalType()),
            st.StructField("price", st.DecimalType(12, 2)),
            st.StructField("v", st.VariantType()),
            st.StructField("tags", st.ArrayType(st.StructType([st.StructField("x", st.VarcharType(5))]))),
            st.StructField("m", st.MapType(st.StringType(), st.BinaryType())),
        ]
    )

    columns = columns_from_arrow(columns_of(schema))

    assert [column.type for column in columns] == [
        "int64", "int8", "timestamptz", "timestamp", "time",
        "interval", "decimal(12,2)", "variant", "list", "map",
    ]  # fmt: skip
    assert all(column.nulls_allowed for column in columns)


@pytest.mark.parametrize("kind", [st.NullType(), st.ArrayType(st.NullType()), st.YearMonthIntervalType()])
def test_what_ducklake_cannot_store_is_refused_by_name(kind: st.DataType) -> None:
    with pytest.raises(InvalidInputError, match="'odd"):
        columns_of(st.StructType([st.StructField("odd", kind)]))


def test_values_that_only_spark_has() -> None:
    variant = VariantVal.parseJson('{"a": [1, null]}')
    marked = pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    )
    rows = pa.table(
        {
            "clock": pa.array([3_600_000_000_000, None], pa.time64("ns")),
            "span": pa.array([timedelta(days=-2, seconds=5), None], pa.duration("us")),
            "v": pa.array([{"value": variant.value, "metadata": variant.metadata}, None], marked),
        }
    )

    found = from_spark(rows, ())

    assert found.schema.types == [pa.time64("us"), pa.month_day_nano_interval(), pa.string()]
    assert found.column("clock").cast(pa.int64()).to_pylist() == [3_600_000_000, None]
    assert found.column("span").to_pylist() == [(0, -1, -86_395 * 10**9), None]
    assert found.column("v").to_pylist() == ['{"a":[1,null]}', None]


def test_no_rows_have_the_types_too() -> None:
    columns = random_data.columns(list(NESTED))
    empty = random_data.table(random.Random(1), columns, 0)

    assert to_spark(empty, columns).schema.equals(to_arrow_schema(spark_schema(columns), timezone="UTC"))
    assert from_spark(to_spark(empty, columns), columns).num_rows == 0
