"""Starting Spark, or taking the one that is there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.errors import SettingsError
from headwater.lake.lake import Lake
from headwater.settings.model import SparkSettings
from headwater.spark.connector import LakeSpark
from headwater.spark.session import REQUIRED, attach_session, open_session


def run_python(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], cwd=folder, capture_output=True, text=True, timeout=200
    )


def test_a_first_session_says_nothing_but_the_result(tmp_path: Path) -> None:
    (tmp_path / "headwater.yaml").write_text(
        "spark:\n  master: local[2]\n  conf:\n    spark.sql.shuffle.partitions: 3\n"
    )
    done = run_python(
        """
        import headwater
        with headwater.connect() as hw:
            hw.sql("CREATE TABLE orders (id BIGINT, region STRING)")
            hw.sql("INSERT INTO orders VALUES (1, 'EU'), (2, 'US'), (3, 'EU')")
            hw.sql("SELECT region, count(*) AS n FROM orders GROUP BY ALL ORDER BY region").show()
            first = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
            print(hw.spark.conf.get("spark.sql.shuffle.partitions"), hw.spark.conf.get(first, None))
            print(hw.spark.sparkContext.master)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "|    EU|  2|" in done.stdout
    assert done.stdout.endswith("3 None\nlocal[2]\n")  # whoever says how many partitions gets as many
    assert done.stderr == ""


def test_a_session_that_is_there_is_completed(lake: Lake, spark: SparkSession) -> None:
    name = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(name, "INT96")
    assert attach_session(spark) is spark
    assert spark.conf.get(name) == REQUIRED[name]
    with headwater.connect(lake.dsn, spark=spark) as hw:
        assert hw.spark is spark
    assert open_session(SparkSettings("local[7]", {})) is spark  # one for the whole process


def test_what_correct_results_depend_on_cannot_be_switched_off(lake: Lake) -> None:
    settings = SparkSettings(None, {"spark.sql.parquet.fieldId.read.enabled": "false"})
    with pytest.raises(SettingsError, match="Headwater needs 'true'"):
        open_session(settings)
    with pytest.raises(SettingsError, match="must be a SparkSession"):
        LakeSpark(lake, "local[2]")  # type: ignore[arg-type]
