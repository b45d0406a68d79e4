"""The running service on an open lake: capture, refresh, publish, relay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from headwater.engine.service_ports import Capturing, Maintaining, Publishing, Refreshing, Relaying
from headwater.errors import NotFoundError
from headwater.lake.connection import Database
from headwater.scheduler.backoff import Backoff
from headwater.scheduler.changes import SnapshotWatch, TableChanges
from headwater.scheduler.health import HealthServer
from headwater.scheduler.leases import PATIENCE, Leases
from headwater.scheduler.logs import log_report
from headwater.scheduler.loop import Loop, LoopOptions
from headwater.scheduler.maintenance_part import MaintenancePart
from headwater.scheduler.metrics import Metrics
from headwater.scheduler.parts import OutboxPart, SinkPart, SourcePart
from headwater.scheduler.state import RunSummary, ServiceState
from headwater.scheduler.stream_part import StreamPart
from headwater.scheduler.timetable import time_zone
from headwater.scheduler.work import KINDS, Item, Part, Report

if TYPE_CHECKING:
    from headwater.engine.headwater import Headwater
    from headwater.settings import ServiceSettings

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
        kinds: Collection[str] = KINDS,
        observer: Callable[[Report], None] | None = None,
    ):
        given = settings or hw.settings.service
        self._once = once
        self._refreshing = Refreshing(hw, warm=not once)
        self._capturing = Capturing(hw, self._refreshing)
        # A handle of its own that gives up soon: what is not answered now is asked again in a moment.
        self._db = Database(hw.lake.dsn, hw.lake.metadata_schema, patience=PATIENCE)
        changes = TableChanges()
        self._metrics = Metrics(self._current_state)
        backoff = Backoff(1.0, given.retry_seconds)
        wanted = frozenset(only) or None
        leases = Leases(self._db, given.lease_seconds, wanted, standing=not once)
        parts: list[Part] = [
            SourcePart(self._capturing),
            StreamPart(
                hw.stream_tables.store,
                self._refreshing,
                changes,
                zone=time_zone(given.timezone),
                backoff=backoff,
                skipped=self._metrics.skipped,
            ),
            SinkPart(Publishing(hw)),
            OutboxPart(Relaying(hw.outbox_relays), changes, leases.holds),
        ]
        self._maintaining = Maintaining(hw, self._refreshing)
        if (kept := hw.settings.maintenance).enabled:
            parts.append(
                MaintenancePart(
                    self._maintaining.policy,
                    every_seconds=kept.every_seconds,
                    quiet_hours=kept.quiet_hours,
                    zone=time_zone(given.timezone),
                )
            )
        self.parts = [part for part in parts if part.kind in kinds]
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
            give_up=self._give_up,
        )
        self.id = leases.id
        """What the process is called in `headwater.service`."""
        self._health: HealthServer | None = None
        if not once and "streams" in kinds:
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

    def _give_up(self) -> None:
        self._maintaining.cancel()
        self._refreshing.cancel()

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
            self._capturing.close()
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


__all__ = ["Service"]
