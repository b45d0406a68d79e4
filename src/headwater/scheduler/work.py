"""What the service does, in terms of its parts: items, tasks and reports.

The parts that do the work (change capture, sinks, outboxes) are met through these protocols, so that the loop
knows nothing of PostgreSQL, Spark or webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from headwater.refresh.model import RefreshResult
from headwater.scheduler.changes import SnapshotChange

Kind = Literal["source", "streams", "sink", "outbox", "maintenance"]
#: The order in which a change passes through.
KINDS: tuple[Kind, ...] = ("source", "streams", "sink", "outbox", "maintenance")


@dataclass(frozen=True)
class Item:
    """Something that one process at a time works on."""

    kind: Kind
    #: Identifies it among those of its kind, whatever it is called.
    id: str
    #: The names by which people know it; a group of stream tables has several.
    names: tuple[str, ...]

    @property
    def lease(self) -> str:
        """The name of its lease."""
        return f"{self.kind}:{self.id}"

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(self.names)}"


@dataclass(frozen=True)
class Report:
    """One thing that was done, or failed: a line of the log, and some metrics."""

    kind: Kind
    name: str
    #: `INCREMENTAL`, `captured`, `delivered`, `FAILED`, …
    action: str
    ok: bool = True
    seconds: float = 0.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None

    @property
    def message(self) -> str | None:
        """What went wrong."""
        return None if self.error is None else str(self.error.get("message", "failed"))


@dataclass(frozen=True)
class Task:
    """Work on an item that is due."""

    item: Item
    run: Callable[[], Sequence[Report]]
    #: Called once its reports are known.
    done: Callable[[Sequence[Report]], None] = lambda reports: None


@dataclass(frozen=True)
class Seen:
    """What the service knows when it decides what is due."""

    now: datetime
    newest: int
    changes: Sequence[SnapshotChange] = ()


class Part(Protocol):
    """One kind of work. All calls but a task's own come from the service's thread."""

    kind: Kind

    def items(self) -> Sequence[Item]:
        """What there is to work on; asked about once a second, and when the lake's schema changed."""

    def see(self, seen: Seen) -> None:
        """Take note of new snapshots."""

    def due(self, item: Item, now: datetime) -> Task | None:
        """What is to be done about an item now, if anything."""

    def late(self, item: Item, now: datetime) -> Mapping[str, float]:
        """What of an item is late, and by how many seconds."""


class StreamTablesPort(Protocol):
    """Refreshing, as `Streams.refresh` does it."""

    def refresh(self, names: Sequence[str]) -> Sequence[RefreshResult]:
        """Bring stream tables up to date, as one snapshot."""


class SourcesPort(Protocol):
    """Change capture."""

    def names(self) -> Sequence[str]:
        """The sources that are followed."""

    def pending(self, name: str) -> bool:
        """Whether there is something to capture, by one short query."""

    def capture(self, name: str) -> Sequence[Report]:
        """Bring what is pending into the lake."""


class SinksPort(Protocol):
    """Publishing of results to further sinks."""

    def names(self) -> Sequence[str]:
        """The sinks there are, each by a name of its own."""

    def pending(self) -> Sequence[str]:
        """Those that are behind, by one short query."""

    def deliver(self, name: str) -> Sequence[Report]:
        """Bring a sink up to date."""


class OutboxesPort(Protocol):
    """Outboxes of stream tables."""

    def followed(self) -> Mapping[str, tuple[int, int]]:
        """For each outbox the id of the table whose changes it relays, and the snapshot it has come to."""

    def relay(self, name: str, still_mine: Callable[[], bool]) -> Sequence[Report]:
        """Deliver what is pending, as long as the outbox is this process's own."""
