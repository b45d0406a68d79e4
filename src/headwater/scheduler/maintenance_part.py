"""Maintenance as a part of the service: one pass now and then, by one process of all, in quiet hours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import time as clock_time
from typing import Protocol

from headwater.errors import SettingsError
from headwater.scheduler.work import Item, Kind, Report, Seen, Task

_HOURS = re.compile(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*")
#: The whole lake is one item: two processes never do this at once.
ITEM = Item("maintenance", "lake", ("maintenance",))


class MaintenancePort(Protocol):
    """Whatever does a pass."""

    def run(self) -> Sequence[Report]:
        """Do what is to be done, within bounds."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A span of the day; it may pass midnight."""

    begin: clock_time
    end: clock_time

    @classmethod
    def of(cls, text: str) -> QuietHours:
        """The span that a text names.

        >>> QuietHours.of("22:00-06:00").holds(clock_time(3))
        True
        """
        found = _HOURS.fullmatch(text)
        try:
            if found is not None:
                hours = [int(part) for part in found.groups()]
                return cls(clock_time(hours[0] % 24, hours[1]), clock_time(hours[2] % 24, hours[3]))
        except ValueError:
            pass
        raise SettingsError(
            f"{text!r} is not a span of hours.",
            hint="Write 22:00-06:00.",
            setting="maintenance.quiet_hours",
        )

    def holds(self, now: clock_time) -> bool:
        """Whether a time of the day is in it."""
        if self.begin <= self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end


class MaintenancePart:
    """Due every so often, but only in quiet hours where there are any."""

    kind: Kind = "maintenance"

    def __init__(
        self,
        port: MaintenancePort,
        *,
        every_seconds: float,
        quiet_hours: str | None = None,
        zone: tzinfo = UTC,
    ):
        self._port = port
        self._every = timedelta(seconds=every_seconds)
        self._quiet = None if quiet_hours is None else QuietHours.of(quiet_hours)
        self._zone = zone
        self._next: datetime | None = None

    def items(self) -> Sequence[Item]:
        """The lake."""
        return [ITEM]

    def see(self, seen: Seen) -> None:
        """What changed is found by the pass itself."""

    def due(self, item: Item, now: datetime) -> Task | None:
        """A pass, if it is time."""
        if self._next is not None and now < self._next:
            return None
        if self._quiet is not None and not self._quiet.holds(now.astimezone(self._zone).time()):
            return None
        return Task(item, self._port.run, lambda reports: self._done(now))

    def _done(self, began: datetime) -> None:
        self._next = began + self._every

    def late(self, item: Item, now: datetime) -> Mapping[str, float]:
        """Nothing waits for it."""
        return {}
