"""The running service on an open lake: capture, refresh, publish, relay."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from headwater.engine.streams import StreamTables
from headwater.errors import HeadwaterError, NotFoundError
from headwater.lake.connection import Database
from headwater.refresh.model import RefreshResult
from headwater.scheduler.backoff import Backoff
from headwater.scheduler.changes import SnapshotWatch, TableChanges
from headwater.scheduler.health import HealthServer
from headwater.scheduler.leases import PATIENCE, Leases
from headwater.scheduler.logs import log_report
from headwater.scheduler.loop import Loop, LoopOptions
from headwater.scheduler.metrics import Metrics
from headwater.scheduler.state import RunSummary, ServiceState
from headwater.scheduler.stream_part import StreamPart
from headwater.scheduler.timetable import time_zone
from headwater.scheduler.work import Item, Part, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.engine.headwater import Headwater
    from headwater.settings import ServiceSettings
    from headwater.spark.connector import LakeSpark

log = logging.getLogger("headwater.service")

#: The health endpoint says that the loop hangs after this many seconds, or after a lease.
_STUCK_SECONDS = 5.0


class Service:
    """What `headwater run` runs: one process's share of the work on a lake.

    >>> service = Service(hw)  # doctest: +SKIP
    >>> service.run(seconds=60).as_dict()  # doctest: +SKIP
    """

    def __init__(
        self,
        hw: Headwater,
        settings: ServiceSettings | None = None,
        *,
        only: Collection[str] = (),
        once: bool = False,
        observer: Callable[[Report], None] | None = None,
    ):
        given = settings or hw.settings.service
        self._once = once
        self._sessions = _Sessions(hw, warm=not once)
        # A handle of its own that gives up soon: what is not answered now is asked again in a moment.
        self._db = Database(hw.lake.dsn, hw.lake.metadata_schema, patience=PATIENCE)
        changes = TableChanges()
        self._metrics = Metrics(self._current_state)
        backoff = Backoff(1.0, given.retry_seconds)
        wanted = frozenset(only) or None
        leases = Leases(self._db, given.lease_seconds, wanted, standing=not once)
        self.parts: list[Part] = [
            StreamPart(
                hw.stream_tables.store,
                self._sessions,
                changes,
                zone=time_zone(given.timezone),
                backoff=backoff,
                skipped=self._metrics.skipped,
            ),
        ]
        _check_names(wanted, self.parts)
        observers = [self._metrics.observe, log_report, *([observer] if observer is not None else ())]
        self._loop = Loop(
            SnapshotWatch(self._db),
            leases,
            self.parts,
            changes,
            LoopOptions(
                given.poll_ms / 1000,
                given.stop_seconds,
                wanted,
                backoff,
                {"source": 8, "streams": given.workers, "sink": 4, "outbox": 4},
            ),
            observers=observers,
            give_up=self._sessions.cancel,
        )
        self.id = leases.id
        """What the process is called in `headwater.service`."""
        self._health: HealthServer | None = None
        if not once:
            self._health = HealthServer(
                given.host,
                given.port,
                self._current_state,
                self._metrics,
                max(_STUCK_SECONDS, given.lease_seconds),
            )

    @property
    def health_url(self) -> str | None:
        """Where `/health` and `/metrics` are; a single round has no endpoint."""
        return None if self._health is None else self._health.url

    @property
    def state(self) -> ServiceState:
        """How the service is, told about once a second."""
        return self._loop.state

    def _current_state(self) -> ServiceState:
        return self._loop.state

    def items(self) -> list[Item]:
        """What there is to work on."""
        return [item for part in self.parts for item in part.items()]

    def run(self, seconds: float | None = None) -> RunSummary:
        """Run until `stop` is called, or for some seconds; with `once`, until everything due is done."""
        try:
            if self._health is not None:
                self._health.start()
            return self._loop.run_once() if self._once else self._loop.run(seconds)
        finally:
            if self._health is not None:
                self._health.stop()
            self._db.close()

    def stop(self) -> None:
        """Ask the service to end; callable from a signal handler and from any thread."""
        self._loop.stop()


def _check_names(only: frozenset[str] | None, parts: Sequence[Part]) -> None:
    if only is None:
        return
    known = sorted({name for part in parts for item in part.items() for name in item.names})
    for name in sorted(only - set(known)):
        raise NotFoundError(
            f"There is nothing called {name} that the service could run.",
            hint=f"There are: {', '.join(known[:20])}."
            if known
            else "Stream tables are run if they have a schedule: ALTER STREAM TABLE … SET (schedule = '5s').",
            name=name,
        )


class _Sessions:
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

        spark = self._start()
        return LakeSpark(self._hw.lake, spark if number == 1 else spark.newSession())

    def _start(self) -> SparkSession:
        with self._starting:
            began = time.monotonic()
            spark = self._hw.spark
            if not self._started:
                self._started = True
                fields = {"kind": "spark", "action": "started", "seconds": round(time.monotonic() - began, 3)}
                log.info("", extra={"fields": fields})
            return spark

    def _warm_up(self) -> None:
        """Start Spark beside the first look: when a change comes, it is there."""
        with self._lock:
            begin, self._warm = self._warm, False
        if begin:
            threading.Thread(target=self._start_quietly, name="headwater-spark", daemon=True).start()

    def _start_quietly(self) -> None:
        try:
            self._start()
        except HeadwaterError as error:
            # The first refresh that needs it meets the same, and says so.
            log.debug("Spark could not be started: %s", error.message)


__all__ = ["Service"]
