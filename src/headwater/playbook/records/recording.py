"""A run's own pen: what happens is kept in batches, and the run's lease is renewed meanwhile.

A loop of ten thousand items is not ten thousand round trips, and still nothing waits longer than a moment: a
thread writes what has gathered, and says that this process is alive.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from headwater.errors import HeadwaterError, PlaybookRunError
from headwater.playbook.records.events import Event, EventName, Listener
from headwater.playbook.records.masking import Masking
from headwater.playbook.records.store import LEASE_SECONDS, RunStore, StepRecord, as_json

log = logging.getLogger("headwater.playbook")

_BATCH = 250
_BATCH_BYTES = 4 << 20
_SECONDS = 0.3


class Recorder:
    """Writes what happens in one run; use it in a `with` block."""

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        masking: Masking,
        listener: Listener,
        stopped: threading.Event | None = None,
    ):
        self._stopped = stopped
        self._store = store
        self._run_id = run_id
        self._masking = masking
        self._listener = listener
        self._number = store.last_event(run_id)
        self._steps: list[StepRecord] = []
        self._events: list[Event] = []
        self._bytes = 0
        self._lock = threading.Lock()
        # A batch is written before the next one is taken: rows of one step must not overtake each other.
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._lost: HeadwaterError | None = None
        self._thread = threading.Thread(target=self._keep, name="headwater-playbook-pen", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def event(
        self,
        name: EventName,
        step: str | None = None,
        visit: int | None = None,
        item: int | None = None,
        **data: Any,
    ) -> None:
        """Something happened."""
        with self._lock:
            self._number += 1
            event = Event(
                self._number, name, step=step, visit=visit, item=item, data=self._masking.value(data)
            )
            self._events.append(event)
        self._listener(event)
        self._flush_if_due()

    def step(self, record: StepRecord) -> None:
        """What became of a step or an item."""
        masked = self._masking
        if record.envelope is not None:
            record.envelope = masked.json(record.envelope)
        if record.error is not None:
            record.error = masked.value(record.error)
        if record.vars is not None:
            # As data: a resumed run reads them again, and a name alone must not change what it finds.
            record.vars = json.loads(masked.json(as_json(record.vars)))
        with self._lock:
            self._steps.append(record)
            self._bytes += len(record.envelope or "")
        self._flush_if_due()

    def check(self) -> None:
        """Raise if the run is not this process's any more, or if the run that called it was stopped."""
        if self._lost is not None:
            raise self._lost
        if self._stopped is not None and self._stopped.is_set():
            self._stopped = None  # once: the end of the run is still to be told
            raise KeyboardInterrupt

    def flush(self) -> None:
        """Write everything now."""
        with self._writing:
            with self._lock:
                steps, self._steps = self._steps, []
                events, self._events = self._events, []
                self._bytes = 0
            try:
                if steps or events:
                    self._store.record(self._run_id, steps, events)
            except BaseException:  # also Ctrl-C: what is done must not be forgotten
                with self._lock:
                    self._steps[:0] = steps
                    self._events[:0] = events
                raise

    def finish(self, status: str, error: Mapping[str, Any] | None = None) -> None:
        """Write the rest, and how the run ended."""
        self._stop.set()
        self._thread.join()
        self.flush()
        self._store.finish(self._run_id, status, None if error is None else self._masking.value(error))

    def _flush_if_due(self) -> None:
        self.check()
        if len(self._steps) + len(self._events) >= 2 * _BATCH or self._bytes >= _BATCH_BYTES:
            self.flush()

    def _keep(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(_SECONDS):
            try:
                self.flush()
                if time.monotonic() - renewed > LEASE_SECONDS / 5:
                    if not self._store.renew(self._run_id):
                        raise PlaybookRunError(
                            f"Another process has taken over run {self._run_id}.", run=self._run_id
                        )
                    renewed = time.monotonic()
            except HeadwaterError as error:
                log.warning("the run cannot be recorded: %s", error.message)
                self._lost = error
                return
