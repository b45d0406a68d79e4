"""Deleted rows at the edges of the bitmaps that Spark looks them up in."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
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
