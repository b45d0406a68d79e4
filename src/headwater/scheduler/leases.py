"""Leases: who works on what, when several processes run.

A lease belongs to one process until a time of the server's clock. A thread renews all of a process's leases
and its heartbeat together. A process that was paused for longer than its leases finds, by its own clock, that
it holds nothing any more; what it had under way commits only if nobody else was faster, since commits compare
the frontier they began at.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from headwater._version import __version__
from headwater.errors import HeadwaterError
from headwater.lake.connection import Connection, Database
from headwater.lake.own import ensure_component, write
from headwater.scheduler import catalog_tables as sql

log = logging.getLogger("headwater.service")

#: Seconds for which a short question to the catalog is repeated before it counts as failed.
PATIENCE = 2.0


@dataclass(frozen=True)
class Process:
    """A running service, as the catalog knows it."""

    id: str
    #: The names it was limited to, if it was.
    only: frozenset[str] | None = None

    def may_do(self, names: Iterable[str]) -> bool:
        """Whether an item, known by these names, is among what it does."""
        return self.only is None or not self.only.isdisjoint(names)


@dataclass(frozen=True)
class RunningService:
    """A row of `headwater.service`."""

    id: str
    started_at: datetime
    beat: datetime
    working_on: str
    only: tuple[str, ...] | None
    standing: bool
    version: str
    alive: bool


def preferred(lease: str, names: Iterable[str], processes: Sequence[Process]) -> str | None:
    """The process that should work on an item: the same answer in every process, evenly spread.

    When a process comes or goes, only the items it gains or loses move.
    """
    known = tuple(names)
    able = [process for process in processes if process.may_do(known)]
    best = max(able, key=lambda process: _weight(process.id, lease), default=None)
    return None if best is None else best.id


def _weight(process: str, name: str) -> bytes:
    return hashlib.sha256(f"{process}/{name}".encode()).digest()


@dataclass
class _Held:
    token: int
    #: By this process's own clock.
    until: float


@dataclass
class Leases:
    """The leases of one process."""

    db: Database
    seconds: float = 10.0
    only: frozenset[str] | None = None
    #: Whether it stays: a process that does one round takes what is free and is given nothing.
    standing: bool = True
    #: Says what is being worked on, for the heartbeat.
    working_on: Callable[[], str] = str
    #: Called when a lease came or went.
    changed: Callable[[], None] = lambda: None
    id: str = field(default_factory=lambda: str(uuid4()))
    clock: Callable[[], float] = time.monotonic
    #: Whether leases are only renewed as long as `still_there` is called.
    attended: bool = True

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        # What a round finds replaces what is held, so that one must end before the next begins.
        self._one_round = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._wanted: frozenset[str] = frozenset()
        self._given_back: set[str] = set()
        self._processes: tuple[Process, ...] = (Process(self.id, self.only),) if self.standing else ()
        self._wake = threading.Event()
        self._stopped = False
        self._alive_at = self.clock()
        self._thread: threading.Thread | None = None
        self._lake: str | None = None

    # -- what the service asks ----------------------------------------------------------------------

    def holds(self, name: str) -> bool:
        """Whether an item is this process's own right now."""
        with self._lock:
            held = self._held.get(name)
            return held is not None and held.until > self.clock()

    def held(self) -> set[str]:
        """All items that are this process's own right now."""
        with self._lock:
            now = self.clock()
            return {name for name, held in self._held.items() if held.until > now}

    def processes(self) -> tuple[Process, ...]:
        """The running services, this one among them if it stays."""
        return self._processes

    def want(self, names: Collection[str]) -> None:
        """Say which items this process should have; it is given them as they become free."""
        wanted = frozenset(names)
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()

    def give_back(self, names: Collection[str]) -> None:
        """Let others have items, from the moment of this call."""
        with self._lock:
            gone = [name for name in names if self._held.pop(name, None) is not None]
            self._given_back.update(gone)
        if gone:
            self._wake.set()

    def still_there(self) -> None:
        """The service's loop runs. Without this, its leases are not renewed: a hung process is replaced."""
        self._alive_at = self.clock()
        if self._thread is not None and not self._thread.is_alive() and not self._stopped:
            self._begin()  # whatever ended it, a service without leases would run on and do nothing

    # -- keeping them -------------------------------------------------------------------------------

    def start(self) -> None:
        """Enter this process and keep its leases until `stop`."""
        self._lake = ensure_component(self.db, sql.COMPONENT, sql.VERSIONS)
        given = {"lake": self._lake}
        write(self.db, lambda connection: [connection.execute(text, given) for text in sql.TIDY])
        self.round()
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._keep, name="headwater-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give everything back and sign off."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * PATIENCE)
        with self._lock:
            self._held.clear()
        given = {"lake": self._lake, "me": self.id, "names": None}

        def work(connection: Connection) -> None:
            connection.execute(sql.RELEASE, given)
            connection.execute(sql.LEAVE, given)

        try:
            write(self.db, work)
        except HeadwaterError as error:
            log.warning("leases could not be given back, and will run out: %s", error.message)

    def _keep(self) -> None:
        while not self._stopped:
            self._wake.wait(min(1.0, self.seconds / 5))
            self._wake.clear()
            if self._stopped or (self.attended and self.clock() - self._alive_at > self.seconds):
                continue
            try:
                self.round()
            except HeadwaterError as error:
                log.warning("leases could not be renewed: %s", error.message)

    def round(self) -> None:
        """Beat, renew, give back, take: one short transaction."""
        with self._one_round:
            self._round()

    def _round(self) -> None:
        with self._lock:
            mine = {name: held.token for name, held in self._held.items()}
            back, self._given_back = self._given_back, set()
        wanted = sorted(self._wanted - set(mine) - back)
        began = self.clock()
        given: Mapping[str, Any] = {
            "lake": self._lake,
            "me": self.id,
            "seconds": self.seconds,
            "working_on": self.working_on(),
            "only": None if self.only is None else sorted(self.only),
            "standing": self.standing,
            "version": __version__,
        }

        def work(connection: Connection) -> tuple[list[Any], list[Any]]:
            # Lost in a crash of the server, a lease is simply taken again.
            connection.execute("SET LOCAL synchronous_commit = off")
            connection.execute(sql.BEAT, given)
            if back:
                connection.execute(sql.RELEASE, {**given, "names": sorted(back)})
            kept: list[Any] = []
            if mine:
                listed = {**given, "names": list(mine), "tokens": list(mine.values())}
                kept += connection.execute(sql.RENEW, listed).fetchall()
            if wanted:
                kept += connection.execute(sql.TAKE, {**given, "names": wanted}).fetchall()
            return kept, connection.execute(sql.ALIVE, given).fetchall()

        kept, alive = write(self.db, work)
        # A tenth less than the server grants: clocks do not run alike.
        until = began + 0.9 * self.seconds
        with self._lock:
            before = set(self._held)
            now_held = {name: _Held(int(token), until) for name, token in kept}
            self._held = {n: held for n, held in now_held.items() if n not in self._given_back}
            after = set(self._held)
        processes = tuple(Process(each, None if only is None else frozenset(only)) for each, only in alive)
        if before != after or processes != self._processes:
            self._processes = processes
            self.changed()


def running_services(db: Database, lake: str) -> list[RunningService]:
    """All processes that signed on and did not sign off, dead ones too."""

    def work(connection: Connection) -> list[Any]:
        return connection.execute(sql.PROCESSES, {"lake": lake}).fetchall()

    return [
        RunningService(row[0], row[1], row[2], row[3], None if row[4] is None else tuple(row[4]), *row[5:])
        for row in db.read(work)
    ]
