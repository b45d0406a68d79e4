"""When scheduled stream tables are due.

Late runs are skipped, never queued: however many due times have passed, one run covers them all, and the next
due time is the first one after now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import croniter

from headwater.errors import SettingsError
from headwater.refresh.options import Schedule, parse_schedule


def time_zone(name: str) -> tzinfo:
    """The time zone in which cron expressions are read."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SettingsError(
            f"There is no time zone {name!r}.",
            hint="Use a name such as UTC or Europe/Berlin.",
            setting="service.timezone",
        ) from None


def next_due(schedule: Schedule, after: datetime, zone: tzinfo = UTC) -> datetime | None:
    """The first due time after a run that began at `after`; None for what time alone never makes due.

    >>> next_due(parse_schedule("5s"), datetime(2026, 1, 1, tzinfo=UTC)).second
    5
    """
    if schedule.kind == "every" and schedule.seconds is not None:
        return after + timedelta(seconds=schedule.seconds)
    if schedule.kind == "cron":
        found: datetime = croniter(schedule.text, after.astimezone(zone)).get_next(datetime)
        return found.astimezone(UTC)
    return None


@dataclass
class _Entry:
    text: str
    schedule: Schedule
    due: datetime | None


class Timetable:
    """The due times of stream tables, by id."""

    def __init__(self, zone: tzinfo = UTC):
        self._zone = zone
        self._entries: dict[str, _Entry] = {}

    def knows(self, identity: str, schedule: str | None) -> bool:
        """Whether it is listed with that schedule already."""
        entry = self._entries.get(identity)
        return schedule is None if entry is None else entry.text == schedule

    def enter(self, identity: str, schedule: str | None, last_run: datetime | None, now: datetime) -> None:
        """List a stream table, or change its schedule. One that never ran, or missed a run, is due now."""
        self._entries.pop(identity, None)
        if schedule is None:
            return
        parsed = parse_schedule(schedule)
        due = None
        if parsed.kind in ("every", "cron"):
            due = now if last_run is None else next_due(parsed, last_run, self._zone)
        self._entries[identity] = _Entry(schedule, parsed, due)

    def keep(self, identities: Collection[str]) -> None:
        """Forget all others."""
        self._entries = {each: entry for each, entry in self._entries.items() if each in identities}

    def kind(self, identity: str) -> str | None:
        """`every`, `cron`, `change`, `downstream`, or None for what is only refreshed on request."""
        entry = self._entries.get(identity)
        return None if entry is None else entry.schedule.kind

    def due(self, now: datetime) -> set[str]:
        """Everything whose time has come."""
        return {
            identity
            for identity, entry in self._entries.items()
            if entry.due is not None and entry.due <= now
        }

    def due_at(self, identity: str) -> datetime | None:
        """When it is to run next."""
        entry = self._entries.get(identity)
        return None if entry is None else entry.due

    def ran(self, identity: str, now: datetime) -> int:
        """A run has ended: set the next due time after now; returns how many due times were skipped."""
        entry = self._entries.get(identity)
        if entry is None or entry.due is None or entry.due > now:
            return 0
        if entry.schedule.kind == "every" and entry.schedule.seconds is not None:
            # On the same beat as before, so that a slow run does not shift all later ones.
            passed = int((now - entry.due).total_seconds() // entry.schedule.seconds)
            entry.due += timedelta(seconds=entry.schedule.seconds * (passed + 1))
            return passed
        due, skipped = next_due(entry.schedule, entry.due, self._zone), 0
        if due is not None and due <= now:
            # Of a cron expression it is only known that one was missed: counting them could take long.
            due, skipped = next_due(entry.schedule, now, self._zone), 1
        entry.due = due
        return skipped


__all__ = ["Timetable", "next_due", "parse_schedule", "time_zone"]
