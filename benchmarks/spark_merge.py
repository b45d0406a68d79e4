"""MERGE of 1 % of the rows, half of them new, into a table of 5,000,000.

Against DuckDB's own MERGE on a copy of the lake, and against the way out where there is no MERGE: computing
the whole table anew and overwriting it. Every round has tables of its own, all alike. The source is a file
that each side reads as part of its work; the DataFrame that stands for it is made before. Both have merged
into a small table some times before they are timed: a JVM that has not is another machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from benchmarks.environment import Environment
from benchmarks.measure import Result
from benchmarks.spark_session import ORDERS_SQL, ROWS, in_turns_prepared, spark_session
from headwater.lake.duckdb_session import literal
from headwater.spark.connector import LakeSpark
from headwater.spark.table import LakeTable

TARGET = 2.0
OVERWRITE_TARGET = 1 / 4
#: How often both sides merge before they are timed, and into how many rows.
WARM_UP, FEW = 12, 100_000
MERGE_SQL = """
    MERGE INTO {table} t USING read_parquet({source}) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET customer = s.customer, name = s.name, amount = s.amount, price = s.price,
        updated = s.updated
    WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.customer, s.name, s.amount, s.price, s.updated)
"""


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    rows = int(ROWS * scale)
    place, other = environment.place(), environment.place()
    session, beside = place.duckdb(), other.duckdb()
    source = environment.scratch("changes.parquet")
    _make_source(session, source, rows)
    lake = place.lake()
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)
        changes = spark.read.parquet(str(source))

        def table(name: str) -> LakeTable:
            return connector.table(name)

        def merge() -> None:
            given = table("merged").merge(changes, on="t.id = s.id")
            given.when_matched_update_all().when_not_matched_insert_all().execute()

        def overwrite() -> None:
            kept = table("replaced").df().join(changes, "id", "left_anti")
            table("replaced").overwrite(kept.unionByName(changes))

        def prepare(number: int, end: int = rows) -> None:
            used, name = [(session, "merged"), (beside, "merged"), (session, "replaced")][number]
            used.execute(f"DROP TABLE IF EXISTS {name}")
            used.execute(f"CREATE TABLE {name} AS {ORDERS_SQL.format(first=0, end=end)}")

        def merge_by_duckdb() -> None:
            beside.execute(MERGE_SQL.format(table="merged", source=literal(str(source)))).fetchall()

        for _ in range(environment.rounds(WARM_UP)):
            for number, work in enumerate([merge, merge_by_duckdb]):
                prepare(number, min(FEW, rows))
                work()
        ours, theirs, overwritten = in_turns_prepared(
            [merge, merge_by_duckdb, overwrite], environment.rounds(5), prepare
        )
    expected = _summary(beside, "merged")
    for name in ("merged", "replaced"):
        found = _summary(session, name)
        assert found == expected, f"{name}: {found}, not {expected}"
    for connection in (session, beside):
        connection.close()
    lake.close()
    what = f"MERGE of 1 % into {rows:,} rows in Spark"
    yield Result(what, "DuckDB, MERGE INTO", ours, theirs, TARGET)
    yield Result(what, "overwriting the table", ours, overwritten, OVERWRITE_TARGET)


def _make_source(session: duckdb.DuckDBPyConnection, path: Path, rows: int) -> None:
    """Half of the changes are of rows from all over the table, with other values; half are new."""
    half = max(1, rows // 200)
    session.execute(
        f"""
        COPY (
            SELECT (id * {rows // half}) AS id, customer + 1 AS customer, name || '!' AS name,
                amount + 1 AS amount, price, updated
            FROM ({ORDERS_SQL.format(first=0, end=half)})
            UNION ALL ({ORDERS_SQL.format(first=rows, end=rows + half)})
        ) TO {literal(str(path))}
        """
    )


def _summary(session: duckdb.DuckDBPyConnection, name: str) -> tuple[object, ...]:
    query = f"SELECT count(*), sum(id), sum(customer), sum(amount), sum(length(name)) FROM {name}"
    return session.execute(query).fetchall()[0]
