"""One Spark for all tests of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.lake.embedded import EmbeddedServer
from headwater.lake.lake import Lake
from headwater.settings.model import SparkSettings
from headwater.spark.connector import LakeSpark
from headwater.spark.session import open_session
from tests.support import duck


@pytest.fixture(scope="session")
def spark(pg_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads, or on the master that HEADWATER_TEST_MASTER names.

    It ends before the PostgreSQL of the tests, which does not stop while Spark's workers are connected to it.
    """
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = open_session(
        SparkSettings(
            os.environ.get("HEADWATER_TEST_MASTER", "local[2]"),
            {
                "spark.app.name": "headwater tests",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.driver.memory": "1g",
            },
        )
    )
    yield session
    session.stop()


@pytest.fixture
def session(lake: Lake, spark: SparkSession) -> LakeSpark:
    """The test's own lake in Spark."""
    return LakeSpark(lake, spark)


@pytest.fixture
def con(lake: Lake) -> Iterator[Any]:
    """DuckDB on the same lake, by its own extension."""
    connection = duck(lake.dsn)
    yield connection
    connection.close()
