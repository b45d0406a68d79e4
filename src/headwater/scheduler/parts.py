"""Change capture, sinks and outboxes as parts of the service."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from headwater.scheduler.changes import TableChanges
from headwater.scheduler.work import Item, Kind, OutboxesPort, Report, Seen, SinksPort, SourcesPort, Task

#: Sinks that are behind for reasons that no snapshot tells (one that failed) are looked for this often.
_LOOK_SECONDS = 1.0


class SourcePart:
    """Sources, each asked in a task of its own: one that does not answer holds up nobody else."""

    kind: Kind = "source"

    def __init__(self, port: SourcesPort, clock: Callable[[], float] = time.monotonic):
        self._port = port
        self._clock = clock
        #: Up to when everything of a source is known to be in the lake.
        self._complete: dict[str, float] = {}

    def items(self) -> Sequence[Item]:
        """The sources that are followed."""
        return [Item("source", name, (name,)) for name in self._port.names()]

    def see(self, seen: Seen) -> None:
        """Sources do not depend on the lake."""

    def due(self, item: Item, now: datetime) -> Task | None:
        """Ask the source, and capture what is there."""
        return Task(item, lambda: self._run(item.id))

    def _run(self, name: str) -> Sequence[Report]:
        asked = self._clock()
        reports: Sequence[Report] = ()
        if self._port.pending(name):
            since = self._complete.get(name, asked)
            reports = [
                replace(report, fields={**report.fields, "lag_seconds": round(self._clock() - since, 3)})
                if report.ok
                else report
                for report in self._port.capture(name)
            ]
        if all(report.ok for report in reports):
            self._complete[name] = asked
        return reports

    def late(self, item: Item, now: datetime) -> Mapping[str, float]:
        """Told by the source's own lag."""
        return {}


class SinkPart:
    """Sinks that are behind the results they publish."""

    kind: Kind = "sink"

    def __init__(self, port: SinksPort, clock: Callable[[], float] = time.monotonic):
        self._port = port
        self._clock = clock
        self._pending: frozenset[str] = frozenset()
        self._looked = float("-inf")

    def items(self) -> Sequence[Item]:
        """All sinks."""
        return [Item("sink", name, (name,)) for name in self._port.names()]

    def see(self, seen: Seen) -> None:
        """Ask which sinks are behind, if there are new snapshots or it was long ago."""
        if seen.changes or self._clock() - self._looked > _LOOK_SECONDS:
            self._pending = frozenset(self._port.pending())
            self._looked = self._clock()

    def due(self, item: Item, now: datetime) -> Task | None:
        """Deliver to a sink that is behind."""
        if item.id not in self._pending:
            return None
        return Task(item, lambda: self._port.deliver(item.id), lambda reports: self._done(item.id))

    def _done(self, name: str) -> None:
        # Until the next look: whatever came meanwhile is a new snapshot, or found within a second.
        self._pending -= {name}

    def late(self, item: Item, now: datetime) -> Mapping[str, float]:
        """A sink that is late is one that fails."""
        return {}


class OutboxPart:
    """Outboxes with changes to relay."""

    kind: Kind = "outbox"

    def __init__(self, port: OutboxesPort, changes: TableChanges, holds: Callable[[str], bool]):
        self._port = port
        self._changes = changes
        self._holds = holds
        self._followed: Mapping[str, tuple[int, int]] = {}
        self._checked: dict[str, int] = {}
        self._newest = -1

    def items(self) -> Sequence[Item]:
        """All outboxes."""
        self._followed = self._port.followed()
        return [Item("outbox", name, (name,)) for name in self._followed]

    def see(self, seen: Seen) -> None:
        """Take note of the newest snapshot."""
        self._newest = seen.newest

    def due(self, item: Item, now: datetime) -> Task | None:
        """Relay what came since the outbox's position."""
        table, position = self._followed.get(item.id, (-1, -1))
        checked = self._checked.get(item.id)
        if checked is not None and self._changes.last(table) <= max(position, checked):
            return None
        at = self._newest
        return Task(
            item,
            lambda: self._port.relay(item.id, lambda: self._holds(item.lease)),
            lambda reports: self._done(item.id, at, reports),
        )

    def _done(self, name: str, at: int, reports: Sequence[Report]) -> None:
        if all(report.ok for report in reports):
            self._checked[name] = at

    def late(self, item: Item, now: datetime) -> Mapping[str, float]:
        """An outbox that is late is one that fails."""
        return {}
