"""An open Headwater: the lake and everything that works on it."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.lake.lake import Lake

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from headwater.lake.embedded import EmbeddedServer
    from headwater.settings import Settings
    from headwater.spark.connector import LakeSpark
    from headwater.spark.sql.fetching import QueryResult
    from headwater.spark.table import LakeTable


class Headwater:
    """What `headwater.connect()` returns. Close it, or use it in a `with` block.

    >>> with headwater.connect() as hw:  # doctest: +SKIP
    ...     hw.lake.snapshots()
    """

    def __init__(
        self,
        lake: Lake,
        settings: Settings,
        server: EmbeddedServer | None = None,
        spark: SparkSession | None = None,
    ):
        self.lake = lake
        """The DuckLake catalog: transactions, snapshots, scans, reads."""
        self.settings = settings
        """What the settings file and the environment say."""
        self._server = server
        self._given_spark = spark

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the one given to `connect`, else this process's, else a new one."""
        return self._connector.spark

    def table(self, name: str) -> LakeTable:
        """A table for Spark to read and change: `hw.table("sales.orders").df()`."""
        return self._connector.table(name)

    def sql(self, text: str) -> DataFrame:
        """Run a statement of Spark's SQL in which the lake's tables and views are simply there.

        All tables of a query are read at one snapshot. A statement that writes is one snapshot, and returns
        how many rows it inserted, updated and deleted.
        """
        from headwater.spark.sql import run_sql

        return run_sql(self._connector, text)

    def fetch(self, text: str, limit: int = 1000) -> QueryResult:
        """Run a statement and take its first rows as plain data."""
        from headwater.spark.sql.fetching import fetch

        return fetch(self._connector, text, limit)

    @cached_property
    def _connector(self) -> LakeSpark:
        # Late: starting Spark takes seconds, and much can be done without it.
        from headwater.spark.connector import LakeSpark
        from headwater.spark.session import open_session

        spark = open_session(self.settings.spark) if self._given_spark is None else self._given_spark
        return LakeSpark(self.lake, spark)

    @property
    def embedded(self) -> bool:
        """Whether the catalog is in an embedded PostgreSQL that this process shares with others."""
        return self._server is not None

    def duckdb(self, alias: str = "lake") -> duckdb.DuckDBPyConnection:
        """A DuckDB session with this lake attached as `alias` and in use."""
        return self.lake.duckdb(alias)

    def close(self) -> None:
        """Close this process's connections; the last one to leave stops the embedded server.

        DuckDB sessions that were handed out are yours to close; until then the server keeps running. Spark
        is shared by the whole process, and stays.
        """
        self.lake.close()
        server, self._server = self._server, None
        if server is not None:
            server.stop_if_unused()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Headwater({self.lake.uri!r}, data_path={self.lake.data_path!r})"
