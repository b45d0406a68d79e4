"""Deleted rows at the edges of the bitmaps that Spark looks them up in."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.lake.lake import Lake
from headwater.lake.reading.deletes import deleted_positions
from headwater.spark.connector import LakeSpark
from headwater.spark.reading import deletes
from headwater.spark.sql import run_sql
from tests.spark.judging import assert_same, versions
from tests.support import duck

EDGES = "id IN (0, 63, 64, 127, 32767, 32768, 65535, 65536, 99999)"


@pytest.mark.parametrize(
    "where", [EDGES, f"id % 10 = 3 OR {EDGES}", f"id < 40000 OR {EDGES}", f"NOT ({EDGES})"]
)
def test_rows_are_deleted_up_to_the_edges_and_no_further(lake: Lake, spark: SparkSession, where: str) -> None:
    con = duck(lake.dsn)
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(100000)")
    con.execute("INSERT INTO t SELECT * FROM range(100000)")
    con.execute(f"DELETE FROM t WHERE {where}")
    session = LakeSpark(lake, spark)
    assert_same(session, con, "t", versions(session, "t")[-1])
    con.close()


def test_deletes_in_more_rows_than_an_array_has_bits_for_are_joined(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletes, "_FOR_AN_ARRAY", 100)
    con = duck(lake.dsn)
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(100000)")
    con.execute(f"DELETE FROM t WHERE id % 10 = 3 OR {EDGES}")
    session = LakeSpark(lake, spark)
    assert_same(session, con, "t", versions(session, "t")[-1])
    con.close()


def test_a_table_with_deletes_is_read_twice_in_one_statement(lake: Lake, spark: SparkSession) -> None:
    con = duck(lake.dsn)
    con.execute("CREATE TABLE t (id INTEGER, g INTEGER)")
    con.execute("INSERT INTO t SELECT range, range % 7 FROM range(10000)")
    con.execute("INSERT INTO t SELECT range, range % 5 FROM range(10000, 20000)")
    con.execute(f"DELETE FROM t WHERE id % 3 = 0 OR {EDGES}")
    query = """
        SELECT a.g, count(*), sum(a.id) FROM t a
        WHERE a.id > (SELECT avg(id) FROM t b WHERE b.g = a.g)
          AND EXISTS (SELECT 1 FROM t c WHERE c.id = a.id + 1) AND a.id NOT IN (SELECT id FROM t WHERE g = 2)
        GROUP BY a.g ORDER BY a.g
    """
    found = [tuple(row) for row in run_sql(LakeSpark(lake, spark), query).collect()]
    assert found == con.execute(query).fetchall() != []
    con.close()


def test_deleted_rows_of_the_same_files_are_read_once_for_each_snapshot(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    con = duck(lake.dsn)
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(10000)")
    con.execute("DELETE FROM t WHERE id % 10 = 3")
    con.execute("DELETE FROM t WHERE id % 10 = 4")  # the same delete file, written anew, holds both
    read = []

    def counted(*given: Any) -> Any:
        read.append(given)
        return deleted_positions(*given)

    monkeypatch.setattr(deletes, "deleted_positions", counted)
    session = LakeSpark(lake, spark)
    old, new = versions(session, "t")[-2:]
    for version in (new, old, new, old):
        assert_same(session, con, "t", version)
    assert len(read) == 2
    con.execute("DELETE FROM t WHERE id % 10 = 5")
    assert_same(session, con, "t", versions(session, "t")[-1])
    assert len(read) == 3
    con.close()


@pytest.mark.parametrize(("pierced", "scans"), [("id < 9000", 1), ("id >= 9000", 2)])
def test_files_without_deleted_rows_are_read_along_where_most_rows_have_to_be_looked_at(
    lake: Lake, spark: SparkSession, pierced: str, scans: int
) -> None:
    con = duck(lake.dsn)
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(9000)")
    con.execute("INSERT INTO t SELECT * FROM range(9000, 10000)")
    con.execute(f"DELETE FROM t WHERE id % 3 = 0 AND {pierced}")
    session = LakeSpark(lake, spark)
    assert_same(session, con, "t", versions(session, "t")[-1])
    plan = session.table("t").df()._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count(" parquet") == scans, plan
    con.close()
