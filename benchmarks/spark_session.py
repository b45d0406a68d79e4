"""What the Spark benchmarks share: one session for both sides, rounds with something to prepare, rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.environment import Environment
from benchmarks.measure import Work, seconds
from headwater.settings.model import SparkSettings
from headwater.spark.session import open_session

#: The rows of the table that is appended to, changed and scanned, at scale 1.
ROWS = 5_000_000
#: Its columns as the lake and DuckDB name them.
COLUMNS = {
    "id": "bigint",
    "customer": "integer",
    "name": "varchar",
    "amount": "decimal(12,2)",
    "price": "double",
    "updated": "timestamptz",
}


@contextmanager
def spark_session(environment: Environment) -> Iterator[SparkSession]:
    """Two threads, the settings of any session of Headwater's; both sides of a comparison run in it."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = open_session(
        SparkSettings(
            "local[2]",
            {
                "spark.app.name": "headwater benchmarks",
                "spark.driver.memory": "4g",
                "spark.local.dir": str(environment.folder / "spark"),
                "spark.sql.warehouse.dir": str(environment.folder / "warehouse"),
            },
        )
    )
    try:
        yield spark
    finally:
        # Before PostgreSQL, which does not stop while anybody is connected to it.
        spark.stop()


def orders(spark: SparkSession, rows: int, first: int = 0) -> DataFrame:
    """Orders that cost little to compute: keys, many names, money, a measure, a time."""
    number = F.xxhash64("id")
    return spark.range(first, first + rows).select(
        "id",
        F.pmod(number, F.lit(100_000)).cast("int").alias("customer"),
        F.concat(F.lit("customer number "), F.pmod(number, F.lit(50_000))).alias("name"),
        (F.pmod(number, F.lit(1_000_000_000)).cast("decimal(12,0)") / 100)
        .cast("decimal(12,2)")
        .alias("amount"),
        (F.pmod(number, F.lit(99_999_989)) / 1e6).alias("price"),
        F.timestamp_micros(F.pmod(number, F.lit(10**13)) + F.lit(1_700_000_000_000_000)).alias("updated"),
    )


#: The same in DuckDB's SQL, with other numbers: from `first` to before `end`.
ORDERS_SQL = """
    SELECT id, (number % 100000)::INTEGER AS customer, 'customer number ' || number % 50000 AS name,
        ((number % 1000000000) / 100)::DECIMAL(12, 2) AS amount, (number % 99999989) / 1e6 AS price,
        make_timestamptz(1700000000000000 + (number % 10000000000000)::BIGINT) AS updated
    FROM (SELECT range AS id, hash(range) AS number FROM range({first}, {end}))
"""


def in_turns_prepared(
    works: Sequence[Work], rounds: int, prepare: Callable[[int], object], *, warm_up: int = 1
) -> list[tuple[float, ...]]:
    """Like `in_turns`; before each work `prepare(place)` runs, on nobody's account."""
    found: list[list[float]] = [[] for _ in works]
    for number in range(-warm_up, rounds):
        order = list(range(len(works)))
        shift = number % len(works)
        for place in order[shift:] + order[:shift]:
            prepare(place)
            elapsed = seconds(works[place])
            if number >= 0:
                found[place].append(elapsed)
    return [tuple(times) for times in found]
