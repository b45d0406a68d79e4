"""What the service works with, as its loop wants to see it: sources, stream tables, sinks, outboxes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.engine.maintenance import Maintenance
from headwater.engine.maintenance_policy import MaintenancePolicy, check_settings
from headwater.engine.streams import StreamTables
from headwater.errors import HeadwaterError
from headwater.refresh.model import RefreshResult
from headwater.scheduler.work import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.engine.headwater import Headwater
    from headwater.engine.outbox import Outboxes
    from headwater.sinks.model import Delivered
    from headwater.sources.model import Captured
    from headwater.sources.postgres import PostgresSources
    from headwater.spark.connector import LakeSpark

log = logging.getLogger("headwater.service")


class Refreshing:
    """Refreshes from several threads: each has a session of its own, since settings belong to a session."""

    def __init__(self, hw: Headwater, *, warm: bool):
        self._hw = hw
        self._warm = warm
        self._free: list[StreamTables] = []
        self._made = 0
        self._lock = threading.Lock()
        # Starting Spark takes seconds, and must happen once.
        self._starting = threading.Lock()
        self._started = False

    def refresh(self, names: Sequence[str]) -> Sequence[RefreshResult]:
        """Bring stream tables up to date, as one snapshot."""
        self._warm_up()
        tables = self._take()
        try:
            return tables.refresh(list(names), full=False)
        finally:
            with self._lock:
                self._free.append(tables)

    def start(self) -> SparkSession:
        """The Spark session, started if it is not."""
        with self._starting:
            began = time.monotonic()
            spark = self._hw.spark
            if not self._started:
                self._started = True
                fields = {"kind": "spark", "action": "started", "seconds": round(time.monotonic() - began, 3)}
                log.info("", extra={"fields": fields})
            return spark

    def cancel(self) -> None:
        """Cancel what Spark computes."""
        if self._started:
            self._hw.spark.sparkContext.cancelAllJobs()

    def _take(self) -> StreamTables:
        with self._lock:
            if self._free:
                return self._free.pop()  # the one used last, which has most in its caches
            self._made += 1
            number = self._made
        made: list[LakeSpark] = []

        def connector() -> LakeSpark:
            if not made:
                made.append(self._connect(number))
            return made[0]

        return StreamTables(self._hw.lake, connector)

    def _connect(self, number: int) -> LakeSpark:
        from headwater.spark.connector import LakeSpark

        spark = self.start()
        return LakeSpark(self._hw.lake, spark if number == 1 else spark.newSession())

    def _warm_up(self) -> None:
        """Start Spark beside the first look: when a change comes, it is there."""
        with self._lock:
            begin, self._warm = self._warm, False
        if begin:
            threading.Thread(target=self._start_quietly, name="headwater-spark", daemon=True).start()

    def _start_quietly(self) -> None:
        try:
            self.start()
        except HeadwaterError as error:
            # The first refresh that needs it meets the same, and says so.
            log.debug("Spark could not be started: %s", error.message)


class Capturing:
    """PostgreSQL sources; what Spark copies for them is copied in a session of its own."""

    def __init__(self, hw: Headwater, refreshing: Refreshing):
        self._hw = hw
        self._refreshing = refreshing
        self._lock = threading.Lock()
        self._made: list[LakeSpark] = []

    @cached_property
    def _sources(self) -> PostgresSources:
        from headwater.sources.postgres import PostgresSources

        return PostgresSources(self._hw.lake, self._connector)

    def _connector(self) -> LakeSpark:
        from headwater.spark.connector import LakeSpark

        with self._lock:
            if not self._made:
                self._made.append(LakeSpark(self._hw.lake, self._refreshing.start().newSession()))
            return self._made[0]

    def names(self) -> Sequence[str]:
        """The sources that are not paused."""
        return [source.name for source in self._sources.all() if source.status == "active"]

    def pending(self, name: str) -> bool:
        """Whether there is something to capture."""
        return self._sources.pending(name)

    def capture(self, name: str) -> Sequence[Report]:
        """Bring what is pending into the lake."""
        found = self._sources.capture([name])
        return [_captured(one) for one in found if one.error is not None or one.snapshot_id is not None]

    def close(self) -> None:
        """Close connections to sources."""
        self._sources.close()


def _captured(one: Captured) -> Report:
    return Report(
        "source",
        one.source,
        "captured" if one.error is None else "FAILED",
        one.error is None,
        one.seconds,
        {
            "rows": one.changes + one.rows_copied,
            "transactions": one.transactions,
            "rows_inserted": one.rows_inserted,
            "rows_updated": one.rows_updated,
            "rows_deleted": one.rows_deleted,
            "rows_copied": one.rows_copied,
            "stopped": ", ".join(one.stopped),
            "snapshot": one.snapshot_id,
        },
        one.error,
    )


class Publishing:
    """Sinks outside the lake, by the stream table that they show."""

    def __init__(self, hw: Headwater):
        self._tables = hw.stream_tables

    def names(self) -> Sequence[str]:
        """Stream tables that are published outside the lake."""
        streams = self._tables.store.all()
        return [str(s.name) for s in streams if any(sink.remote for sink in s.sinks)]

    def pending(self) -> Sequence[str]:
        """Those of them that may be behind."""
        return self.names() if self._tables.publisher.pending() else ()

    def deliver(self, name: str) -> Sequence[Report]:
        """Serve the sinks of a stream table that are behind."""
        done = self._tables.publisher.deliver([name])
        return [_delivered(one) for one in done if one.outcome not in ("waiting", "nothing")]


def _delivered(one: Delivered) -> Report:
    return Report(
        "sink",
        f"{one.stream_table}/{one.sink}",
        "delivered" if one.error is None else "FAILED",
        one.error is None,
        one.seconds,
        {
            "sent": one.outcome,
            "rows_inserted": one.rows_inserted,
            "rows_deleted": one.rows_deleted,
            "snapshot": one.snapshot_id,
        },
        one.error,
    )


class Relaying:
    """Outboxes of stream tables."""

    def __init__(self, outboxes: Outboxes):
        self._outboxes = outboxes

    def followed(self) -> Mapping[str, tuple[int, int]]:
        """For each outbox the table that it follows, and how far it is."""
        return {
            outbox.name: (table_id, outbox.position.snapshot_id)
            for outbox, table_id in self._outboxes.followed()
        }

    def relay(self, name: str, still_mine: Callable[[], bool]) -> Sequence[Report]:
        """Deliver what is pending."""
        done = self._outboxes.relay_one(name, still_mine)
        if done.error is None and not done.events:
            return ()
        fields = {
            "stream_table": done.stream_table,
            "target": done.target,
            "events": done.events,
            "batches": done.batches,
            "snapshot": done.snapshot_id,
            "lag_seconds": None if done.lag_seconds is None else round(done.lag_seconds, 3),
        }
        action = "relayed" if done.error is None else "FAILED"
        return [Report("outbox", name, action, done.error is None, done.seconds, fields, done.error)]


class Maintaining:
    """Maintenance by itself; what Spark does for it is done in a session of its own."""

    def __init__(self, hw: Headwater, refreshing: Refreshing):
        self._hw = hw
        self._refreshing = refreshing

    @cached_property
    def policy(self) -> MaintenancePolicy:
        """What does a pass."""
        check_settings(self._hw.settings.maintenance)
        hw = self._hw
        return MaintenancePolicy(
            hw.lake, lambda: self._maintenance, lambda: hw.datasets, hw.settings.maintenance
        )

    def cancel(self) -> None:
        """End the pass under way, if there is one."""
        if "policy" in self.__dict__:
            self.policy.cancel()

    @cached_property
    def _maintenance(self) -> Maintenance:
        hw = self._hw
        return Maintenance(hw.lake, lambda: self._connector, hw.stream_tables.store, lambda: hw.outbox_relays)

    @cached_property
    def _connector(self) -> LakeSpark:
        from headwater.spark.connector import LakeSpark

        return LakeSpark(self._hw.lake, self._refreshing.start().newSession())


__all__ = ["Capturing", "Maintaining", "Publishing", "Refreshing", "Relaying"]
