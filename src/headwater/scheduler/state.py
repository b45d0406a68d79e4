"""What a running service says of itself: for the health endpoint, the metrics and the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from headwater.scheduler.work import Kind, Report


@dataclass(frozen=True)
class ItemState:
    """One item, as this process sees it."""

    kind: Kind
    names: tuple[str, ...]
    #: Whether this process works on it.
    held: bool
    running: bool
    failures: int = 0
    error: str | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True)
class ServiceState:
    """The whole service at one moment."""

    id: str
    started_at: datetime
    #: By this process's own clock, to tell whether the loop still turns.
    ticked: float
    processes: int = 1
    items: tuple[ItemState, ...] = ()
    #: What is late, and by how many seconds.
    late: Mapping[str, float] = field(default_factory=dict)
    #: What fails, and why.
    failing: Mapping[str, str] = field(default_factory=dict)
    #: Seconds since which each stream table is behind.
    lags: Mapping[str, float] = field(default_factory=dict)
    #: Why the catalog cannot be asked, if it cannot.
    catalog: str | None = None

    def health(self, now: float, patience: float) -> tuple[bool, dict[str, Any]]:
        """Whether all is well, and what is not."""
        stuck = now - self.ticked
        well = not (self.late or self.failing or self.catalog or stuck > patience)
        return well, {
            "status": "ok" if well else "failing",
            "process": self.id,
            "started_at": self.started_at.isoformat(),
            "processes": self.processes,
            "seconds_since_last_look": round(stuck, 3),
            "catalog": self.catalog or "ok",
            "late": {name: round(seconds, 1) for name, seconds in self.late.items()},
            "failing": dict(self.failing),
            "items": [
                {**asdict(item), "retry_at": None if item.retry_at is None else item.retry_at.isoformat()}
                for item in self.items
            ],
        }


@dataclass
class RunSummary:
    """What a run of the service did."""

    process: str
    seconds: float = 0.0
    #: How often each (kind, action) happened.
    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: What failed last time it was tried, with the error.
    failed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Items that another process worked on.
    elsewhere: tuple[str, ...] = ()
    #: Items whose work had not ended when the service had to.
    abandoned: tuple[str, ...] = ()

    def add(self, report: Report) -> None:
        """Count a report."""
        self.actions[report.kind, report.action] += 1
        name = f"{report.kind} {report.name}"
        if report.ok:
            self.failed.pop(name, None)
        else:
            self.failed[name] = report.error or {"message": "failed"}

    def as_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {
            "process": self.process,
            "seconds": round(self.seconds, 3),
            "actions": [
                {"kind": kind, "action": action, "count": count}
                for (kind, action), count in sorted(self.actions.items())
            ],
            "failed": [{"name": name, **error} for name, error in self.failed.items()],
            "elsewhere": list(self.elsewhere),
            "abandoned": list(self.abandoned),
        }
