"""A condition on a sorted column over 1,000 files, in Spark: only the files that match are read.

Spark's own count of the files must be that of the files that hold matching rows. The time is measured
against the scan of all, and that one against `spark.read.parquet` of the same files.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.environment import Environment
from benchmarks.measure import Result, in_turns
from benchmarks.spark_session import spark_session
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from headwater.spark.sql import run_sql

FILES = 1_000
ROWS_PER_FILE = 5_000
MATCHING = 3


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    files = max(10, int(FILES * scale))
    lake = environment.place().lake()
    _fill(lake, files)
    first = files // 2 * ROWS_PER_FILE + ROWS_PER_FILE // 2
    last = first + (MATCHING - 1) * ROWS_PER_FILE
    condition = f"id BETWEEN {first} AND {last}"
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)
        paths = [scan.file.path for scan in lake.scan("t").files]
        assert len(paths) == files

        def summed(frame: DataFrame) -> DataFrame:
            return frame.agg(F.sum("id"), F.sum("value"), F.count("name"))

        def pruned() -> DataFrame:
            return summed(connector.table("t").df().where(condition))

        def by_sql() -> DataFrame:
            return run_sql(connector, f"SELECT sum(id), sum(value), count(name) FROM t WHERE {condition}")

        def everything() -> DataFrame:
            return summed(connector.table("t").df())

        def alone() -> DataFrame:
            return summed(spark.read.parquet(*paths))

        wanted = ((first + last) * (last - first + 1) // 2, last - first + 1)
        for work, count in ((pruned, MATCHING), (by_sql, MATCHING), (everything, files), (alone, files)):
            read = files_read(work())
            assert read == count, f"{work.__name__}: Spark read {read} files, not {count}"
            row = work().collect()[0]
            assert count == files or (row[0], row[2]) == wanted, f"{work.__name__}: {row}, not {wanted}"
        few, few_by_sql, ours, theirs = in_turns(
            [lambda work=work: work().collect() for work in (pruned, by_sql, everything, alone)],  # type: ignore[misc]
            environment.rounds(7),
            warm_up=2,
        )
    lake.close()
    what = f"scan in Spark, {MATCHING} of {files:,} files left by a condition"
    yield Result(what, "our own scan of all", few, ours)
    yield Result(f"{what}, as SQL", "our own scan of all", few_by_sql, ours)
    yield Result(f"scan in Spark of {files:,} files", "the same files, spark.read.parquet", ours, theirs)


def _fill(lake: Lake, files: int) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "bigint", "value": "double", "name": "varchar"})
        for number in range(files):
            ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            names = pa.array(ids % 1000).cast(pa.string())
            tx.append("t", pa.table({"id": ids, "value": ids / 7, "name": names}))


def files_read(frame: DataFrame) -> int:
    """How many files a query reads, by Spark's own count."""
    spark = frame.sparkSession
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # its plan hides the scans
    try:
        fresh = frame.select("*")
        fresh.collect()
        leaves = fresh._jdf.queryExecution().executedPlan().collectLeaves()
        metrics = [leaves.apply(place).metrics() for place in range(leaves.size())]
        return sum(found.apply("numFiles").value() for found in metrics if found.contains("numFiles"))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
