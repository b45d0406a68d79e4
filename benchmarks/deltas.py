"""A dataset of 5,000,000 rows with a hundred deltas that change 1 % of them.

Reading it is timed against reading the same dataset compacted, in DuckDB and in Spark. What the deltas wrote
is compared, byte by byte, with what writing the base again would have.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from benchmarks.environment import Environment
from benchmarks.measure import Result, in_turns
from benchmarks.spark_session import ORDERS_SQL, ROWS, spark_session
from headwater.deltas.dataset import DeltaDataset
from headwater.lake.catalog import table_name
from headwater.spark.connector import LakeSpark

DELTAS = 100
#: Reading with deltas against reading the compacted dataset, at most.
READ_TARGET = 2.0
#: Bytes written by deltas against bytes of the base, at most.
WRITE_TARGET = 1 / 10
_SUMMARY = (
    "SELECT count(*), sum(id), sum(amount), sum(CAST(price * 1000000 AS BIGINT)), count(DISTINCT customer) "
    "FROM {}"
)


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    rows = int(ROWS * scale)
    place = environment.place()
    session, lake = place.duckdb(), place.lake()
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)
        names = ("changed", "compacted")
        datasets = {}
        for name in names:
            session.execute(f"CREATE TABLE {name} AS {ORDERS_SQL.format(first=0, end=rows)}")
            dataset = DeltaDataset(lake, lambda: connector, table_name(name), ("id",))
            datasets[name] = dataset.open(adopt=True)
        for number in range(DELTAS):
            changes = _changes(session, rows, number)
            for dataset in datasets.values():
                dataset.write_delta(changes)
        backlog = datasets["changed"].pending()
        datasets["compacted"].compact()

        def in_duckdb(name: str) -> object:
            return session.execute(_SUMMARY.format(name)).fetchall()

        def in_spark(name: str) -> object:
            datasets[name].read().createOrReplaceTempView("read")
            return spark.sql(_SUMMARY.format("read")).collect()

        shown = [in_duckdb(name) for name in names]
        assert shown[0] == shown[1], shown
        rounds = environment.rounds(7)
        by_duckdb = in_turns([lambda: in_duckdb("changed"), lambda: in_duckdb("compacted")], rounds)
        by_spark = in_turns([lambda: in_spark("changed"), lambda: in_spark("compacted")], rounds)
    session.close()
    lake.close()
    what = f"reading {rows:,} rows with {DELTAS} deltas in"
    yield Result(f"{what} DuckDB", "the compacted dataset", by_duckdb[0], by_duckdb[1], READ_TARGET)
    yield Result(f"{what} Spark", "the compacted dataset", by_spark[0], by_spark[1], READ_TARGET)
    yield Result(
        f"bytes written by deltas for 1 % of {rows:,} rows",
        "writing the base again",
        (float(backlog.bytes),),
        (float(backlog.base_bytes),),
        WRITE_TARGET,
        unit="B",
    )


def _changes(session: duckdb.DuckDBPyConnection, rows: int, number: int) -> pa.Table:
    """A hundredth of the rows that change, from all over the base."""
    some = f"SELECT * FROM ({ORDERS_SQL.format(first=0, end=rows)}) WHERE id % 10000 = {number}"
    return session.execute(f"SELECT * REPLACE (amount + 1 AS amount) FROM ({some})").to_arrow_table()
