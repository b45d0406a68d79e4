"""TPC-H, all 22 queries in Spark: over the lake, against the very same files through `spark.read.parquet`.

DuckDB generates the data, writes it into the lake and answers the queries too; whoever gives another answer
ends the benchmark. Both sides take turns query by query, and what counts is the total of a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from pyspark.sql import SparkSession

from benchmarks.environment import Environment, Place
from benchmarks.measure import Result, in_turns
from benchmarks.spark_session import spark_session
from headwater.lake.duckdb_session import literal
from headwater.spark.connector import LakeSpark
from headwater.spark.sql import run_sql
from headwater.storage.duckdb_engine import extension_file

TARGET = 1.05
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
Row = Sequence[Any]


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    place = environment.place()
    session = generated(place, scale)
    queries = dict(session.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    answers = {number: session.execute(text).fetchall() for number, text in queries.items()}
    session.close()
    lake = place.lake()
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)
        for name in TABLES:
            connector.table(name).df().createOrReplaceTempView(f"lake_{name}")
            files = [scan.file.path for scan in lake.scan(name).files]
            spark.read.parquet(*files).createOrReplaceTempView(f"files_{name}")
        rounds = environment.rounds(3)
        by_side: list[list[tuple[float, ...]]] = [[], [], []]
        for number, text in queries.items():
            sides = _sides(connector, spark, text)
            for side in sides:
                check_answer(number, side(), answers[number])
            for times, found in zip(by_side, in_turns(list(sides), rounds, warm_up=0), strict=True):
                times.append(found)
    lake.close()
    views, statements, files_alone = ([sum(times) for times in zip(*side, strict=True)] for side in by_side)
    what = f"TPC-H, scale {scale:g}, 22 queries in Spark"
    yield Result(what, "the same files, spark.read.parquet", tuple(views), tuple(files_alone), TARGET)
    yield Result(
        f"{what}, names looked up each time",
        "the same files, spark.read.parquet",
        tuple(statements),
        tuple(files_alone),
        TARGET,
    )
    ratios = sorted(
        (Result("", "", *pair).ratio, number)
        for number, pair in zip(queries, zip(by_side[0], by_side[2], strict=True), strict=True)
    )
    for _, number in (ratios[-1], ratios[0]):
        place_of = list(queries).index(number)
        yield Result(
            f"… query {number}, {'worst' if number == ratios[-1][1] else 'best'} of them",
            "the same files, spark.read.parquet",
            by_side[0][place_of],
            by_side[2][place_of],
        )


def generated(place: Place, scale: float) -> duckdb.DuckDBPyConnection:
    """The data in the lake, and the session that wrote it."""
    session = place.duckdb()
    session.execute(f"LOAD {literal(str(extension_file('tpch')))}")
    session.execute("CALL lake.set_option('data_inlining_row_limit', 0)")  # no file has rows that are inlined
    session.execute("USE memory")
    parts = max(1, round(scale))  # what does not fit into memory at once is made piece by piece
    for part in range(parts):
        session.execute(
            f"CALL dbgen(sf = {scale}" + (f", children = {parts}, step = {part})" if parts > 1 else ")")
        )
        for name in TABLES:
            if part == 0:
                session.execute(f"CREATE TABLE lake.{name} AS FROM memory.{name}")
            else:
                session.execute(f"INSERT INTO lake.{name} FROM memory.{name}")
            session.execute(f"DROP TABLE memory.{name}")
    return session


def _sides(connector: LakeSpark, spark: SparkSession, text: str) -> tuple[Callable[[], list[Row]], ...]:
    """The query over views of the lake, as a statement over the lake, and over views of its files."""
    own, files = _translated(text, "lake_"), _translated(text, "files_")
    named = _translated(text, "")
    return (
        lambda: spark.sql(own).collect(),
        lambda: run_sql(connector, named).collect(),
        lambda: spark.sql(files).collect(),
    )


def _translated(text: str, prefix: str) -> str:
    """A query of DuckDB's in Spark's SQL, over tables with a prefix to their names."""
    tree = sqlglot.parse_one(text, read="duckdb")
    for table in tree.find_all(sqlglot.exp.Table):
        if table.name in TABLES and prefix:
            if not table.alias:
                table.set("alias", sqlglot.exp.TableAlias(this=sqlglot.exp.to_identifier(table.name)))
            table.set("this", sqlglot.exp.to_identifier(prefix + table.name))
    return tree.sql(dialect="spark")


def check_answer(number: int, found: Sequence[Row], expected: Sequence[Row]) -> None:
    """The same number of rows, the same texts and dates, the same sums; rows that tie may change places."""
    assert len(found) == len(expected), f"query {number}: {len(found)} rows, not {len(expected)}"
    for ours, theirs in zip(zip(*found, strict=True), zip(*expected, strict=True), strict=True):
        if all(isinstance(value, str | date | None) for value in theirs):
            same = sorted(map(str, ours)) == sorted(map(str, theirs))
        else:
            same = math.isclose(_sum(ours), _sum(theirs), rel_tol=1e-6, abs_tol=1e-4)
        assert same, f"query {number}: another answer than DuckDB's"


def _sum(values: Sequence[Decimal | float | None]) -> float:
    return math.fsum(float(value) for value in values if value is not None)
