"""One row changes under a join of three tables with an aggregate: its refresh against a trivial query."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.environment import Environment
from benchmarks.measure import Result, in_turns
from benchmarks.spark_session import spark_session
from headwater.refresh.model import Action, Definition
from headwater.refresh.streams import Streams
from headwater.spark.connector import LakeSpark
from headwater.typedefs import TableName

TARGET = 4.0
QUERY = """
    SELECT r.name, sum(o.amount) AS total, count(*) AS orders
    FROM orders o JOIN customers c ON o.customer = c.id JOIN regions r ON c.region = r.id
    GROUP BY r.name
"""


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    place = environment.place()
    session = place.duckdb()
    session.execute("USE lake")
    session.execute("CREATE TABLE regions AS SELECT range AS id, 'region ' || range AS name FROM range(10)")
    session.execute("CREATE TABLE customers AS SELECT range AS id, range % 10 AS region FROM range(1000)")
    rows = int(1_000_000 * scale)
    session.execute(
        "CREATE TABLE orders AS SELECT range AS id, range % 1000 AS customer, "
        f"(range % 10000)::DECIMAL(10, 2) AS amount FROM range({rows})"
    )
    lake = place.lake()
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)
        streams = Streams(lake, lambda: connector)
        streams.create(Definition(TableName("main", "totals"), QUERY))
        lake.run(lambda tx: tx.create_table("other", {"id": "int64"}))
        number = iter(range(rows, rows + 10**6))

        def insert() -> None:
            session.execute(f"INSERT INTO orders VALUES ({next(number)}, 7, 1.5)")

        def refresh() -> None:
            (result,) = streams.refresh(["totals"])
            assert result.action is Action.INCREMENTAL, result

        def trivial() -> None:
            spark.range(1000).selectExpr("id % 10 AS k", "id").groupBy("k").sum("id").toArrow()
            lake.run(lambda tx: tx.append("other", [{"id": 1}]))

        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(-15, environment.rounds(20)):
            insert()
            one, other = in_turns([refresh, trivial], 1, warm_up=0)
            if turn >= 0:
                ours += one
                theirs += other
        yield Result(
            "refresh after one row, three tables joined and grouped",
            "a trivial aggregation on Spark and a commit",
            tuple(ours),
            tuple(theirs),
            TARGET,
        )
    session.close()
    lake.close()
