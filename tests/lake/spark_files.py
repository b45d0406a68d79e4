"""Parquet files by Spark's own writer, for tests of what becomes of them: `python spark_files.py FOLDER`.

Every file has a column `id` that tells the rows of all files of one kind apart. The files of
a kind are written at once, as partitions: a folder `FOLDER/floats/case=mixed` for each.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as t

ROW_ID_FIELD = 2147483540
NAN, INF = float("nan"), float("inf")

SCALARS = {
    "bo": t.BooleanType(),
    "i8": t.ByteType(),
    "i16": t.ShortType(),
    "i32": t.IntegerType(),
    "i64": t.LongType(),
    "f32": t.FloatType(),
    "f64": t.DoubleType(),
    "d9": t.DecimalType(9, 2),
    "d18": t.DecimalType(18, 3),
    "d38": t.DecimalType(38, 10),
    "s": t.StringType(),
    "b": t.BinaryType(),
    "dt": t.DateType(),
    "ts": t.TimestampNTZType(),
    "tz": t.TimestampType(),
}
FLOATS = {
    "allnan": [NAN] * 3,
    "mixed": [1.0, NAN, 2.0],
    "nanfirst": [NAN, -3.0, 2.0],
    "nullnan": [None, NAN],
    "naninf": [INF, NAN],
    "infinite": [INF, -INF, 1.0],
    "zeros": [-0.0, 0.0],
    "negzero": [-0.0],
    "plain": [1.0, 2.5, None],
    "null": [None, None],
}
STRINGS = {
    "short": ["b", "a", None],
    "long": ["a" * 300, "z" * 300],
    "huge": ["a" * 5000, "é" * 5000, None],
    "unicode": ["\U0001f600", "\uffff", "z"],
    "empty": ["", None],
    "nul": ["a\x00b", "c"],
}


def field(name: str, kind: Any, number: int, nullable: bool = True) -> t.StructField:
    return t.StructField(name, kind, nullable, metadata={"parquet.field.id": number})


CASE = t.StructField("case", t.StringType())


def scalar(i: int) -> tuple[Any, ...]:
    """A row that grows with i in every column; i runs from -30 to 30."""
    if i % 7 == 3:
        return (None,) * len(SCALARS)
    day = timedelta(days=i * 7000)
    moment = datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC) + day
    return (
        i > 0, i, i * 1000, i * 10**7, i * 10**17, i / 3, i / 7, Decimal(i) / 100, Decimal(i * 10**10) / 1000,
        Decimal(i) * 10**20, f"s{i + 100}", bytes([i + 100, 255]), date(1970, 1, 1) + day,
        moment.replace(tzinfo=None), moment,
    )  # fmt: skip


def nested(i: int) -> tuple[Any, ...]:
    return (
        i,
        [i, None, i + 1] if i % 3 else ([] if i % 2 else None),
        {f"k{i}": float(i)} if i % 4 else None,
        (i, f"y{i}") if i % 5 else None,
        [[(i, ["q", None])], []] if i % 2 else [],
        {i: (i,)} if i % 3 else {},
    )


NESTED = [
    field("id", t.LongType(), 1),
    field("l", t.ArrayType(t.IntegerType()), 2),
    field("m", t.MapType(t.StringType(), t.DoubleType()), 4),
    field("st", t.StructType([field("x", t.IntegerType(), 8), field("y", t.StringType(), 9)]), 7),
    field(
        "ll",
        t.ArrayType(
            t.ArrayType(
                t.StructType([field("p", t.IntegerType(), 13), field("q", t.ArrayType(t.StringType()), 14)])
            )
        ),
        10,
    ),
    field("ms", t.MapType(t.IntegerType(), t.StructType([field("u", t.IntegerType(), 19)])), 16),
]


def main(folder: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .getOrCreate()
    )

    def write(name: str, fields: list[t.StructField], rows: list[tuple[Any, ...]], **options: str) -> None:
        frame = spark.createDataFrame(rows, t.StructType(fields)).coalesce(1)
        parts = [one.name for one in fields if one.name == CASE.name]
        frame.write.options(**options).partitionBy(*parts).parquet(f"{folder}/{name}")

    scalars = [field("id", t.LongType(), 1, nullable=False)]
    scalars += [field(name, kind, number) for number, (name, kind) in enumerate(SCALARS.items(), 2)]
    row_ids = field("_ducklake_internal_row_id", t.LongType(), ROW_ID_FIELD, nullable=False)
    rows = [(i, *scalar(i), f"p{(i + 30) // 20}") for i in range(-30, 30)]
    write("scalars", [*scalars, CASE], rows, **{"parquet.block.row.count.limit": "10"})
    write("scalars_row_ids", [*scalars, row_ids], [(i, *scalar(i), 5000 + i) for i in range(20)])
    for group, values, kinds in (
        ("floats", FLOATS, (t.DoubleType(), t.FloatType())),
        ("strings", STRINGS, (t.StringType(), t.BinaryType())),
    ):
        ids = count()
        fields = [field("id", t.LongType(), 1), field("a", kinds[0], 2), field("b", kinds[1], 3), CASE]
        rows = [
            (next(ids), value, value.encode() if isinstance(value, str) else value, name)
            for name, listed in values.items()
            for value in listed
        ]
        write(group, fields, rows)
    write("nested", NESTED, [nested(i) for i in range(30)])
    by_name = field(str(ROW_ID_FIELD), t.LongType(), ROW_ID_FIELD, nullable=False)
    write("nested_row_ids", [*NESTED, by_name], [(*nested(i), 5000 + i) for i in range(30)])
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    write(
        "int96", [field("id", t.LongType(), 1), field("tz", t.TimestampType(), 2)], [(1, datetime.now(UTC))]
    )
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    write("old_dates", [field("id", t.LongType(), 1), field("d", t.DateType(), 2)], [(1, date(1500, 1, 1))])
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
