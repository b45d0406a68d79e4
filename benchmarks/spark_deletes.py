"""A scan in Spark of a table of which 10 % of the rows are deleted, against the same without deletes.

The deleted rows lie all over the files, so that none can be skipped. Finding out what is deleted is part of
the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import functions as F

from benchmarks.environment import Environment
from benchmarks.measure import Result, in_turns
from benchmarks.spark_session import ORDERS_SQL, ROWS, spark_session
from headwater.spark.connector import LakeSpark

TARGET = 1.4


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    rows = int(ROWS * scale)
    place = environment.place()
    session = place.duckdb()
    for name in ("whole", "holed"):
        session.execute(f"CREATE TABLE {name} AS {ORDERS_SQL.format(first=0, end=rows)}")
    session.execute("DELETE FROM holed WHERE hash(id + 1) % 10 = 0")
    lake = place.lake()
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)

        def scan(name: str) -> list[object]:
            sums = [F.sum("id"), F.sum("customer"), F.sum("amount"), F.sum("price"), F.count("name")]
            return list(connector.table(name).df().agg(*sums).collect()[0])

        for name in ("whole", "holed"):
            query = f"SELECT sum(id), sum(customer), sum(amount), sum(price), count(name) FROM {name}"
            expected = session.execute(query).fetchall()[0]
            found = scan(name)
            assert (*found[:3], found[4]) == (*expected[:3], expected[4]), f"{name}: {found}, not {expected}"
        session.close()
        frames = {name: connector.table(name).df() for name in ("whole", "holed")}

        def scan_again(name: str) -> list[object]:
            sums = [F.sum("id"), F.sum("customer"), F.sum("amount"), F.sum("price"), F.count("name")]
            return list(frames[name].agg(*sums).collect()[0])

        holed, whole, holed_again, whole_again = in_turns(
            [
                lambda: scan("holed"),
                lambda: scan("whole"),
                lambda: scan_again("holed"),
                lambda: scan_again("whole"),
            ],
            environment.rounds(9),
            warm_up=3,
        )
    lake.close()
    what = f"scan {rows:,} rows in Spark, 10 % deleted"
    yield Result(what, "the same without deletes", holed, whole, TARGET)
    yield Result(f"{what}, DataFrame made before", "the same without deletes", holed_again, whole_again)
