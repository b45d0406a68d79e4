"""How long it takes until what was committed is seen: one writes, one looks, and both look at the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.lake.connection import Connection, Database

#: Writes one numbered event inside a transaction.
Write = Callable[[Connection, int], None]


@dataclass
class Writer:
    """Commits one event after the other, at a steady rate, from a thread of its own."""

    dsn: str
    write: Write
    per_second: float
    first: int = 1
    #: When each event was committed, by its number from `first` on.
    committed: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, name="headwater-demo-writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, after the event that is being written; raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    @property
    def last(self) -> int:
        """The number of the last event that is committed."""
        return self.first + len(self.committed) - 1

    def _run(self) -> None:
        database = Database(self.dsn)
        began = time.monotonic()
        try:
            with database.connection() as connection:
                while not self._stop.wait(
                    max(0.0, began + len(self.committed) / self.per_second - time.monotonic())
                ):
                    with connection.transaction():
                        self.write(connection, self.last + 1)
                    self.committed.append(time.monotonic())
        except BaseException as error:  # noqa: BLE001  (raised again by `stop`, in the thread that asks)
            self._error = error
        finally:
            database.close()


@dataclass
class Seen:
    """When events were first seen by a reader."""

    writer: Writer
    times: list[float] = field(default_factory=list)

    def look(self, last: int | None) -> None:
        """A reader has just seen everything up to this event."""
        now = time.monotonic()
        while last is not None and self.writer.first + len(self.times) <= min(last, self.writer.last):
            self.times.append(now)

    @property
    def last(self) -> int:
        """The newest event that was seen."""
        return self.writer.first + len(self.times) - 1

    def latencies(self, skip_seconds: float = 0.0) -> Latencies:
        """From commit to sight, of events that were committed after the first seconds."""
        pairs = list(zip(self.writer.committed, self.times, strict=False))
        start = pairs[0][0] + skip_seconds if pairs else 0.0
        return Latencies.of([seen - committed for committed, seen in pairs if committed >= start])


@dataclass(frozen=True)
class Latencies:
    """Seconds from commit to sight."""

    events: int
    p50: float | None
    p99: float | None
    worst: float | None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latencies:
        """The figures of some measurements."""
        ordered = sorted(seconds)
        if not ordered:
            return cls(0, None, None, None)
        at = [ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))] for share in (0.5, 0.99)]
        return cls(len(ordered), at[0], at[1], ordered[-1])
