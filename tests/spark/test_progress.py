"""What people who wait, or ask before they run something, are shown."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.lake.lake import Lake
from headwater.spark import progress as showing
from headwater.spark.connector import LakeSpark
from tests.support import duck


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_says_how_far_it_is(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "_PATIENCE", 0.0)
    monkeypatch.setattr(showing, "_EVERY", 0.05)
    terminal, file = Terminal(), io.StringIO()
    slow = F.udf(lambda n: __import__("time").sleep(0.1) or n, "bigint")
    with showing.progress(spark.sparkContext, "append to t", terminal):
        spark.range(0, 10, 1, 5).select(slow("id")).collect()
    with showing.progress(spark.sparkContext, "append to t", file):
        spark.range(3).collect()
    assert "append to t: " in terminal.getvalue()
    assert " of 5 tasks" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert file.getvalue() == ""


def test_explain_says_who_reads_what(lake: Lake, spark: SparkSession) -> None:
    con: Any = duck(lake.dsn)
    con.execute("CREATE TABLE t (id INTEGER, i INTERVAL)")
    con.execute("INSERT INTO t SELECT i, INTERVAL 1 DAY FROM range(20) r(i)")
    con.execute("ALTER TABLE t DROP COLUMN i")
    con.execute("INSERT INTO t SELECT i FROM range(20, 40) r(i)")
    con.execute("DELETE FROM t WHERE id = 25")
    con.execute("INSERT INTO t VALUES (50)")
    table = LakeSpark(lake, spark).table("t")
    lines = table.explain(where="id > 22").splitlines()
    assert lines[0] == f"main.t at snapshot {lake.snapshot().id}"
    assert lines[1].startswith("  files: 1 of 2, ")
    assert lines[2:] == [
        "  pruned by: ((NOT id IS NULL) AND id > 22)",
        "  Spark's own reader: 1 files by field id",
        "  deleted rows to leave out: 1",
        "  rows in the catalog: 1",
    ]
    assert "because a column has a type" in table.explain(version=2)
    con.close()
