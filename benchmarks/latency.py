"""From COMMIT in PostgreSQL to visible in DuckDB, through capture and a stream table, while rows keep coming.

Orders are written by one client in small transactions, for a minute at each rate. The service runs in this
process; DuckDB's own extension looks at the result twenty times a second, so up to 50 ms are the looking's.
The other side is one trivial aggregation of the same Spark session, measured before and after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import headwater
from benchmarks.environment import Environment
from benchmarks.measure import Result, seconds
from benchmarks.spark_session import spark_session
from headwater.engine.demos.latency import Seen, Writer
from headwater.engine.demos.running import running_service
from headwater.lake.connection import Connection, Database
from headwater.lake.scratch import fresh_database

#: The middle of the latencies, in trivial aggregations.
TARGET = 4.0
#: Rows a second, and rows in one transaction.
RATES = ((10, 1), (1_000, 20))
WARM_UP, MEASURED = 15.0, 60.0
QUERY = """SELECT region, count(*) AS orders, sum(amount) AS revenue, max(batch) AS newest
FROM shop.orders GROUP BY region"""


def run(environment: Environment) -> Iterator[Result]:
    measured = 10.0 if environment.quick else MEASURED
    for rate, rows in RATES:
        place = environment.place()
        shop = fresh_database(place.dsn, f"shop_{rate}")
        database = Database(shop)
        with database.connection() as connection:
            connection.execute(
                "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, batch bigint, "
                "region text, amount numeric(10, 2))"
            )
            connection.execute("INSERT INTO orders (batch, region, amount) VALUES (0, 'none', 0)")
        database.close()
        with spark_session(environment) as spark:
            hw = headwater.connect(place.dsn, data_path=place.data_path, spark=spark)

            def trivial() -> None:
                spark.range(1000).selectExpr("id % 10 AS k", "id").groupBy("k").sum("id").toArrow()

            with hw:
                hw.add_postgres_source(shop, ["orders"], name="shop", schema="shop")
                hw.create_stream_table("revenue", QUERY, schedule="on change")
                before = [seconds(trivial) for _ in range(20)][10:]
                seen = watched(hw, shop, rate, rows, measured)
                after = [seconds(trivial) for _ in range(20)][10:]
        found = seen.latencies(WARM_UP)
        assert found.p50 is not None
        assert found.p99 is not None
        one = median([*before, *after])
        what = f"COMMIT to visible in DuckDB, {rate:,} rows/s"
        against = "a trivial aggregation on Spark"
        yield Result(f"{what}: p50", against, (found.p50,), (one,), TARGET)
        yield Result(f"{what}: p99", against, (found.p99,), (one,))


def watched(hw: headwater.Headwater, shop: str, rate: int, rows: int, measured: float) -> Seen:
    """Write for a while, and look until everything is seen."""

    def write(connection: Connection, number: int) -> None:
        connection.execute(
            "INSERT INTO orders (batch, region, amount) "
            "SELECT %s, 'region ' || n %% 7, (n * 31 %% 1000) / 10.0 FROM generate_series(1, %s) AS n",
            (number, rows),
        )

    writer = Writer(shop, write, rate / rows)
    seen = Seen(writer)
    with hw.duckdb() as session, running_service(hw) as reports:
        writer.start()
        until = time.monotonic() + WARM_UP + measured
        while time.monotonic() < until + 60 and (time.monotonic() < until or seen.last < writer.last):
            if time.monotonic() > until:
                writer.stop()
            row = session.execute("SELECT max(newest) FROM revenue").fetchone()
            seen.look(None if row is None else row[0])
            time.sleep(0.05)
        writer.stop()
    assert seen.last == writer.last, "not everything was seen"
    assert all(report.ok for report in reports), [report.message for report in reports if not report.ok]
    return seen
