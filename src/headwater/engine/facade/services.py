"""What the calls of an open Headwater are made of, each made when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from headwater.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.engine.deltas import Deltas
    from headwater.engine.maintenance import Maintenance
    from headwater.engine.outbox import Outboxes
    from headwater.engine.streams import StreamTables
    from headwater.lake.embedded import EmbeddedServer
    from headwater.settings import Settings
    from headwater.sources.postgres import PostgresSources
    from headwater.spark.connector import LakeSpark


class Services:
    """The parts of Headwater on one lake, for programs that need more than its calls."""

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
        if settings.lake.keep_mb is not None:
            lake.kept_columns.most_bytes = settings.lake.keep_mb << 20
        self._server = server
        self._given_spark = spark

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the one given to `connect`, else this process's, else a new one."""
        return self._connector.spark

    @cached_property
    def postgres_sources(self) -> PostgresSources:
        """All PostgreSQL sources."""
        from headwater.sources.postgres import PostgresSources

        return PostgresSources(self.lake, lambda: self._connector)

    @cached_property
    def stream_tables(self) -> StreamTables:
        """All stream tables."""
        from headwater.engine.streams import StreamTables

        return StreamTables(self.lake, lambda: self._connector)

    @cached_property
    def datasets(self) -> Deltas:
        """All datasets of the delta store."""
        from headwater.engine.deltas import Deltas

        return Deltas(self.lake, lambda: self._connector, self.stream_tables.store)

    @cached_property
    def maintenance(self) -> Maintenance:
        """Maintenance of all tables."""
        from headwater.engine.maintenance import Maintenance

        return Maintenance(
            self.lake, lambda: self._connector, self.stream_tables.store, lambda: self.outbox_relays
        )

    @cached_property
    def outbox_relays(self) -> Outboxes:
        """All outboxes."""
        from headwater.engine.outbox import Outboxes

        return Outboxes(self.lake, self.stream_tables.store)

    @cached_property
    def _connector(self) -> LakeSpark:
        # Late: starting Spark takes seconds, and much can be done without it.
        from headwater.engine.procedures import procedures
        from headwater.spark.connector import LakeSpark
        from headwater.spark.session import open_session

        spark = open_session(self.settings.spark) if self._given_spark is None else self._given_spark
        connector = LakeSpark(self.lake, spark)
        connector.procedures = procedures(self.maintenance)
        return connector
