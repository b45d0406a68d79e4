"""The service's loop: look, do what is due, take in what was done.

One thread looks and decides; the work runs in pools of threads, one pool per kind, so that a slow or broken
item holds up nothing of another kind. A task that ends wakes the loop at once: a captured change is refreshed
without waiting for the next look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headwater.errors import HeadwaterError
from headwater.scheduler.backoff import Backoff, Failures
from headwater.scheduler.changes import SnapshotWatch, TableChanges
from headwater.scheduler.leases import Leases, preferred
from headwater.scheduler.state import ItemState, RunSummary, ServiceState
from headwater.scheduler.stream_part import StreamPart
from headwater.scheduler.work import KINDS, Item, Kind, Part, Report, Seen, Task

log = logging.getLogger("headwater.service")

#: How often the lists of what there is are read again, and the state is told.
_LIST_SECONDS = 1.0
#: Being stopped is noticed within this time.
_STOP_NOTICED_SECONDS = 0.2
#: Within this time after it was asked, a source is not asked again while stream tables are refreshed.
_TURN_SECONDS = 0.5
#: How long work that was told to give up may still take.
_GIVE_UP_SECONDS = 3.0


@dataclass(frozen=True)
class LoopOptions:
    """How the loop runs."""

    poll_seconds: float = 0.1
    stop_seconds: float = 20.0
    #: Only items of these names; those that share waves with one come with it.
    only: frozenset[str] | None = None
    backoff: Backoff = field(default_factory=Backoff)
    #: How many items of a kind are worked on at once.
    at_once: Mapping[Kind, int] = field(
        default_factory=lambda: {"source": 8, "streams": 2, "sink": 4, "outbox": 4}
    )


@dataclass
class _Running:
    task: Task
    future: Future[Sequence[Report]]


class Loop:
    """One process's share of the service."""

    def __init__(
        self,
        watch: SnapshotWatch,
        leases: Leases,
        parts: Sequence[Part],
        changes: TableChanges,
        options: LoopOptions | None = None,
        *,
        observers: Iterable[Callable[[Report], None]] = (),
        give_up: Callable[[], None] = lambda: None,
    ):
        self._watch = watch
        self._leases = leases
        self._parts = {part.kind: part for part in sorted(parts, key=lambda part: KINDS.index(part.kind))}
        self._changes = changes
        self._options = options or LoopOptions()
        self._observers = tuple(observers)
        self._give_up = give_up
        self._wake = threading.Event()
        # Not an event: a signal handler must not wait for a lock that the interrupted thread holds.
        self._stopping = False
        self._items: dict[str, Item] = {}
        self._running: dict[str, _Running] = {}
        self._last_start: dict[str, float] = {}
        self._failures = Failures(self._options.backoff)
        self._pools = {
            kind: ThreadPoolExecutor(
                self._options.at_once.get(kind, 1), thread_name_prefix=f"headwater-{kind}"
            )
            for kind in self._parts
        }
        self._listed = self._looked = float("-inf")
        self._catalog: str | None = None
        self._began = time.monotonic()
        self._summary = RunSummary(leases.id)
        self._started_at = datetime.now(UTC)
        self.state = ServiceState(leases.id, self._started_at, time.monotonic())
        """How the service is; replaced about once a second."""
        leases.changed = self._wake.set
        leases.working_on = self.working_on

    # -- running ------------------------------------------------------------------------------------

    def run(self, seconds: float | None = None) -> RunSummary:
        """Run until `stop`, or for some seconds."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        self._start()
        try:
            while not self._stopping and time.monotonic() < end:
                self._wake.clear()
                self._tick()
                self._rest(min(end, time.monotonic() + self._options.poll_seconds))
        finally:
            self._end()
        return self._summary

    def run_once(self) -> RunSummary:
        """Do everything that is due, in the order in which a change passes through, and end."""
        self._start()
        try:
            elsewhere: list[str] = []
            for kind in self._parts:
                self._look(datetime.now(UTC), list_all=True)
                self._leases.round()
                mine = [item for item in self._items.values() if item.kind == kind]
                elsewhere += [str(item) for item in mine if not self._leases.holds(item.lease)]
                while not self._stopping:
                    if not self._dispatch(datetime.now(UTC), kind) and not self._of_kind(kind):
                        break
                    self._wait()
            self._summary.elsewhere = tuple(elsewhere)
        finally:
            self._end()
        return self._summary

    def stop(self) -> None:
        """Ask the loop to end; callable from a signal handler and from any thread."""
        self._stopping = True

    def working_on(self) -> str:
        """What is being done right now, for people."""
        return "; ".join(str(running.task.item) for running in list(self._running.values()))

    # -- its steps ----------------------------------------------------------------------------------

    def _start(self) -> None:
        oldest = None
        for part in self._parts.values():
            part.items()
            if isinstance(part, StreamPart):
                oldest = part.oldest_position()
        changes = self._watch.start(oldest)
        self._changes.note(changes)
        self._leases.start()

    def _tick(self) -> None:
        self._leases.still_there()
        try:
            ended = self._collect()
            now = datetime.now(UTC)
            if ended or time.monotonic() - self._looked >= self._options.poll_seconds:
                self._look(now)
            self._dispatch(now)
        except HeadwaterError as error:
            if self._catalog is None:
                log.warning("the catalog cannot be asked: %s", error.message)
            self._catalog = error.message
            self._tell(datetime.now(UTC))
            self._rest(time.monotonic() + 1.0)
        else:
            if self._catalog is not None:
                log.info("the catalog answers again")
                self._catalog = None

    def _rest(self, until: float) -> None:
        """Wait for the next look, for a task that ends, or for being stopped."""
        while not self._stopping and (left := until - time.monotonic()) > 0:
            if self._wake.wait(min(_STOP_NOTICED_SECONDS, left)):
                return

    def _look(self, now: datetime, *, list_all: bool = False) -> None:
        changes = self._watch.look()
        self._changes.note(changes)
        seen = Seen(now, self._watch.newest, changes)
        for part in self._parts.values():
            part.see(seen)
        self._looked = time.monotonic()
        if list_all or self._looked - self._listed >= _LIST_SECONDS:
            self._list()
            self._tell(now)
            self._listed = self._looked
        self._claim()

    def _list(self) -> None:
        only = self._options.only
        found = [item for part in self._parts.values() for item in part.items()]
        self._items = {item.lease: item for item in found if only is None or only.intersection(item.names)}

    def _claim(self) -> None:
        """Ask for the items that are ours by everybody's reckoning, and let the others go."""
        processes = self._leases.processes()
        if self._leases.standing:
            wanted = {
                lease
                for lease, item in self._items.items()
                if preferred(lease, item.names, processes) == self._leases.id
            }
        else:
            wanted = set(self._items)
        self._leases.want(wanted)
        self._leases.give_back(self._leases.held() - wanted - set(self._running))

    def _dispatch(self, now: datetime, kind: Kind | None = None) -> int:
        """Start what is due, the longest untouched first; returns how much that was."""
        started = 0
        for lease in sorted(self._items, key=lambda lease: self._last_start.get(lease, float("-inf"))):
            item = self._items[lease]
            if kind is not None and (item.kind != kind or lease in self._last_start):
                continue
            busy = lease in self._running or self._of_kind(item.kind) >= self._options.at_once.get(
                item.kind, 1
            )
            waits = self._failures.waits(lease, now) or self._has_time(item)
            if busy or waits or not self._leases.holds(lease):
                continue
            task = self._parts[item.kind].due(item, now)
            if task is None:
                continue
            self._last_start[lease] = time.monotonic()
            future = self._pools[item.kind].submit(task.run)
            self._running[lease] = _Running(task, future)
            future.add_done_callback(self._noticed)
            started += 1
        return started

    def _has_time(self, item: Item) -> bool:
        """Whether an item is better left until the refresh under way ends.

        What a source has by now would wait for that too, and capturing it takes of what the refresh needs.
        """
        asked = self._last_start.get(item.lease, float("-inf"))
        recently = time.monotonic() - asked < _TURN_SECONDS
        return item.kind == "source" and recently and self._of_kind("streams") > 0

    def _noticed(self, future: Future[Sequence[Report]]) -> None:
        """Wake the loop for what did something; a source that had nothing is asked again at the next look."""
        if future.cancelled() or future.exception() is not None or future.result():
            self._wake.set()

    def _of_kind(self, kind: Kind) -> int:
        return sum(running.task.item.kind == kind for running in self._running.values())

    def _wait(self) -> None:
        self._leases.still_there()
        wait([running.future for running in self._running.values()], 0.5, FIRST_COMPLETED)
        self._collect()

    def _collect(self) -> int:
        """Take in what has ended; returns how much did something."""
        ended = [lease for lease, running in self._running.items() if running.future.done()]
        acted = 0
        for lease in ended:
            running = self._running.pop(lease)
            acted += self._take_in(running.task, running.future)
        return acted

    def _take_in(self, task: Task, future: Future[Sequence[Report]]) -> int:
        error = future.exception()
        lease, item = task.item.lease, task.item
        if error is None:
            reports = list(future.result())
            broken = [report for report in reports if not report.ok and report.kind != "streams"]
        else:
            reports = broken = [failure_report(item, error)]
            if not isinstance(error, HeadwaterError):
                log.debug("unexpected error in %s", item, exc_info=error)
        for report in reports:
            self._summary.add(report)
            for observe in self._observers:
                observe(report)
        if broken:
            self._failures.failed(lease, datetime.now(UTC), broken[0].message or "failed")
        else:
            self._failures.succeeded(lease)
            if all(report.ok for report in reports):
                self._summary.failed.pop(str(item), None)
        if error is None:
            task.done(reports)
        return len(reports)

    # -- ending -------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Let what runs finish, within bounds, and give everything back."""
        deadline = time.monotonic() + self._options.stop_seconds
        self._leases.give_back(self._leases.held() - set(self._running))
        while self._running and time.monotonic() < deadline:
            self._wait_at_the_end()
        if self._running:
            log.warning("giving up on %s", self.working_on())
            self._give_up()
            deadline = time.monotonic() + _GIVE_UP_SECONDS
            while self._running and time.monotonic() < deadline:
                self._wait_at_the_end()
        self._summary.abandoned = tuple(str(running.task.item) for running in self._running.values())
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._leases.stop()
        self._summary.seconds = time.monotonic() - self._began

    def _wait_at_the_end(self) -> None:
        try:
            self._wait()
        except HeadwaterError as error:
            log.warning("the catalog cannot be asked: %s", error.message)

    # -- saying how it is ---------------------------------------------------------------------------

    def _tell(self, now: datetime) -> None:
        held = self._leases.held()
        late: dict[str, float] = {}
        failing: dict[str, str] = {}
        lags: Mapping[str, float] = {}
        items = []
        for lease, item in self._items.items():
            part, failures = self._parts[item.kind], self._failures.count(lease)
            error = self._failures.message(lease) if failures else None
            if lease in held:
                late.update(part.late(item, now))
                if error is not None:
                    failing[str(item)] = error
                if isinstance(part, StreamPart):
                    for name, (count, why) in part.failing(item).items():
                        failing[name] = why
                        failures, error = max(failures, count), error or why
            items.append(
                ItemState(
                    item.kind,
                    item.names,
                    lease in held,
                    lease in self._running,
                    failures,
                    error,
                    self._failures.retry_at(lease) if self._failures.count(lease) else None,
                )
            )
        streams = self._parts.get("streams")
        if isinstance(streams, StreamPart):
            lags = streams.lags(now)
        self.state = ServiceState(
            self._leases.id,
            self._started_at,
            time.monotonic(),
            max(1, len(self._leases.processes())),
            tuple(items),
            late,
            failing,
            lags,
            self._catalog,
        )


def failure_report(item: Item, error: BaseException) -> Report:
    """An item that could not be worked on at all."""
    if isinstance(error, HeadwaterError):
        told = error.as_dict()
    else:
        first = str(error).strip().splitlines()
        told = {
            "code": "internal",
            "message": f"{type(error).__name__}: {first[0] if first else ''}".strip(": "),
        }
    return Report(item.kind, ", ".join(item.names), "FAILED", False, error=told)
