"""What happens in a run, one event at a time: for whoever watches it, and kept with the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

EventName = Literal[
    "run.started",
    "run.resumed",
    "step.enter",
    "call.done",
    "loop.item",
    "loop.done",
    "step.exit",
    "step.failed",
    "retry",
    "run.done",
    "run.failed",
    "run.cancelled",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `data` is small and holds no secret."""

    number: int
    """Counted from 1 within the run, over all its resumptions."""
    name: EventName
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    step: str | None = None
    visit: int | None = None
    item: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The event as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


Listener = Callable[[Event], None]


def nobody(event: Event) -> None:
    """Listens to nothing."""
