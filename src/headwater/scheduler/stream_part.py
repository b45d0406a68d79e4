"""Refreshes: on schedule, on change, and of what a due stream table reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from headwater.refresh.model import Action, RefreshResult, Status, StreamTable
from headwater.refresh.options import parse_schedule
from headwater.scheduler.backoff import Backoff, Failures
from headwater.scheduler.changes import TableChanges
from headwater.scheduler.graph import groups, oldest_position, positions, without_waiting
from headwater.scheduler.timetable import Timetable
from headwater.scheduler.work import Item, Kind, Report, Seen, StreamTablesPort, Task
from headwater.typedefs import TableName

#: A stream table is late when it is overdue by this many seconds, or by two of its intervals.
LATE_SECONDS = 60.0


class _Recorded(Protocol):
    @property
    def recorded_at(self) -> datetime | None: ...


class StreamRows(Protocol):
    """The stream tables in the catalog; `StreamStore` is one."""

    def all(self) -> list[StreamTable]:
        """All stream tables."""

    def history(self, name: TableName | None = None, limit: int = 100) -> Sequence[_Recorded]:
        """Refreshes, newest first."""


class StreamPart:
    """The stream tables that have a schedule, in groups that share waves."""

    kind: Kind = "streams"

    def __init__(
        self,
        rows: StreamRows,
        port: StreamTablesPort,
        changes: TableChanges,
        *,
        zone: tzinfo = UTC,
        backoff: Backoff | None = None,
        skipped: Callable[[str, int], None] = lambda name, count: None,
    ):
        self._rows = rows
        self._port = port
        self._changes = changes
        self._timetable = Timetable(zone)
        self._failures = Failures(backoff or Backoff())
        self._skipped = skipped
        self._streams: dict[str, StreamTable] = {}
        self._groups: dict[str, list[StreamTable]] = {}
        self._positions: dict[str, dict[int, int]] = {}
        #: The newest snapshot when the last refresh began: what it did not move, it had no reason to.
        self._checked: dict[str, int] = {}
        self._newest = -1

    # -- what there is ------------------------------------------------------------------------------

    def items(self) -> Sequence[Item]:
        """Groups with something that is refreshed by itself."""
        self.load()
        return [
            Item("streams", leader, tuple(str(stream.name) for stream in members))
            for leader, members in self._groups.items()
            if any(self._acts(stream) for stream in members)
        ]

    def load(self) -> list[StreamTable]:
        """Read the stream tables again."""
        streams = self._rows.all()
        now = datetime.now(UTC)
        self._streams = {stream.id: stream for stream in streams}
        self._groups = groups(streams)
        self._positions = {stream.id: positions(self._streams, stream.id) for stream in streams}
        for stream in streams:
            if not self._timetable.knows(stream.id, stream.definition.schedule):
                self._timetable.enter(stream.id, stream.definition.schedule, self._last_run(stream), now)
        self._timetable.keep(self._streams)
        for gone in set(self._failures.names()) - set(self._streams):
            self._failures.succeeded(gone)
        return streams

    def _last_run(self, stream: StreamTable) -> datetime | None:
        if stream.definition.schedule is None:
            return None
        last = next(iter(self._rows.history(stream.name, 1)), None)
        return stream.created_at if last is None else last.recorded_at

    def _acts(self, stream: StreamTable) -> bool:
        return stream.status is Status.ACTIVE and self._timetable.kind(stream.id) in (
            "every",
            "cron",
            "change",
        )

    def oldest_position(self) -> int | None:
        """The oldest snapshot up to which any stream table has seen an input."""
        return oldest_position(self._streams.values())

    def see(self, seen: Seen) -> None:
        """Read frontiers again where a snapshot changed something that is followed."""
        self._newest = seen.newest
        changed = {table for change in seen.changes for table in change.tables}
        if any(changed & at.keys() for at in self._positions.values()):
            self.load()

    # -- what is due --------------------------------------------------------------------------------

    def behind_since(self, stream: StreamTable) -> datetime | None:
        """When something it follows first changed after its last refresh; None if it is fresh."""
        seen = self._checked.get(stream.id, -1)
        times = (
            self._changes.since(table, max(at, seen)) for table, at in self._positions[stream.id].items()
        )
        return min(filter(None, times), default=None)

    def _is_due(self, stream: StreamTable, timely: set[str]) -> bool:
        if not self._acts(stream):
            return False
        if stream.id in timely or self._failures.count(stream.id):
            return True
        if self._timetable.kind(stream.id) != "change":
            return False
        return stream.id not in self._checked or self.behind_since(stream) is not None

    def due(self, item: Item, now: datetime) -> Task | None:
        """A wave of everything in the group that is due and need not wait after a failure."""
        members = {stream.id: stream for stream in self._groups.get(item.id, ())}
        timely = self._timetable.due(now)
        wanted = {each for each, stream in members.items() if self._is_due(stream, timely)}
        waiting = [each for each in members if self._failures.waits(each, now)]
        wanted = without_waiting(members, wanted, waiting)
        if not wanted:
            return None
        names = [str(stream.name) for each, stream in members.items() if each in wanted]
        at = self._newest
        return Task(
            item,
            lambda: [report_of(result) for result in self._port.refresh(names)],
            lambda reports: self._done(wanted, at, reports),
        )

    def _done(self, wanted: set[str], at: int, reports: Sequence[Report]) -> None:
        now = datetime.now(UTC)
        by_name = {report.name: report for report in reports}
        for stream in (self._streams[each] for each in self._streams):
            report = by_name.get(str(stream.name))
            if report is not None and report.ok:
                self._failures.succeeded(stream.id)
                self._checked[stream.id] = max(at, self._checked.get(stream.id, -1))
            elif report is not None and self._acts(stream):
                self._failures.failed(stream.id, now, report.message or "failed")
            if stream.id in wanted and (skipped := self._timetable.ran(stream.id, now)):
                self._skipped(str(stream.name), skipped)
        self.load()

    # -- how it is ----------------------------------------------------------------------------------

    def lags(self, now: datetime) -> Mapping[str, float]:
        """Seconds since which each stream table is behind; 0 if it is fresh."""
        found = {}
        for stream in list(self._streams.values()):
            since = self.behind_since(stream)
            found[str(stream.name)] = 0.0 if since is None else max(0.0, (now - since).total_seconds())
        return found

    def failing(self, item: Item) -> Mapping[str, tuple[int, str]]:
        """Stream tables of a group whose last refresh failed: how often in a row, and why.

        One that was suspended for it still fails, until it is resumed or has no schedule any more.
        """
        found: dict[str, tuple[int, str]] = {}
        for stream in self._groups.get(item.id, ()):
            count = max(stream.failures, self._failures.count(stream.id))
            if count and stream.definition.schedule is not None:
                known = self._failures.count(stream.id)
                why = self._failures.message(stream.id) if known else stream.last_error
                found[str(stream.name)] = (count, why or "failed")
        return found

    def late(self, item: Item, now: datetime) -> Mapping[str, float]:
        """Stream tables of a group that should have been refreshed a while ago."""
        found: dict[str, float] = {}
        for stream in self._groups.get(item.id, ()):
            if not self._acts(stream) or stream.definition.schedule is None:
                continue
            schedule = parse_schedule(stream.definition.schedule)
            since = self.behind_since(stream) if schedule.kind == "change" else None
            if schedule.kind != "change":
                since = self._timetable.due_at(stream.id)
            late = 0.0 if since is None else (now - since).total_seconds()
            if late > max(LATE_SECONDS, 2.0 * (schedule.seconds or 0)):
                found[str(stream.name)] = late
        return found


def report_of(result: RefreshResult) -> Report:
    """A refresh as a report."""
    return Report(
        "streams",
        result.name,
        str(result.action),
        result.action is not Action.FAILED,
        result.seconds,
        {
            "strategy": result.strategy,
            "rows_in": result.rows_in,
            "rows_inserted": result.rows_inserted,
            "rows_deleted": result.rows_deleted,
            "snapshot": result.snapshot_id,
            "refresh_id": result.refresh_id,
            "reason": result.reason,
        },
        result.error,
    )
