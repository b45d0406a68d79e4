"""Relays an outbox: events from the feed to the target, batch after batch, and the position after each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headwater.errors import HeadwaterError
from headwater.sinks.outbox import Event, Outbox, Position, RelayResult
from headwater.sinks.outbox_feed import Feed
from headwater.sinks.outbox_store import OutboxStore
from headwater.sinks.relay_targets import RelayTarget


@dataclass
class Relay:
    """One run over one outbox."""

    store: OutboxStore
    outbox: Outbox
    feed: Feed
    target: RelayTarget
    #: Whether the outbox is still this process's own; asked before each batch.
    still_mine: Callable[[], bool] = lambda: True

    def run(self, limit: int | None = None) -> RelayResult:
        """Deliver what is pending, at most `limit` events; an error becomes part of the result."""
        began = time.monotonic()
        result = RelayResult(self.outbox.name, self.outbox.stream_table, self.outbox.target)
        try:
            result = self._deliver(result, limit)
        except HeadwaterError as error:
            self.store.note_failure(self.outbox.name, error.message)
            result = replace(self._so_far, error=error.as_dict())
        return replace(result, seconds=time.monotonic() - began, snapshot_id=self.outbox.position.snapshot_id)

    def _deliver(self, result: RelayResult, limit: int | None) -> RelayResult:
        self._so_far = result
        waiting: list[Event] = []
        at = self.outbox.position
        left = float("inf") if limit is None else limit
        for event, position in self.feed.events(self.outbox.position):
            if event is None:
                at = position
                continue
            if not self.still_mine():
                return self._so_far
            if left <= 0:
                break
            waiting.append(event)
            at = position
            left -= 1
            if len(waiting) >= self.target.batch:
                self._send(waiting, at)
                waiting = []
        if waiting:
            self._send(waiting, at)
        elif at != self.outbox.position:
            # Passed without an event: remembered too, or the snapshots in between could expire unread.
            self.store.advance(self.outbox, at, 0)
            self._moved(at)
        return self._so_far

    def _send(self, events: list[Event], position: Position) -> None:
        self.target.deliver(self.outbox, events, position)
        self._moved(position)
        lag = (datetime.now(UTC) - events[-1].committed_at).total_seconds()
        self._so_far = replace(
            self._so_far,
            events=self._so_far.events + len(events),
            batches=self._so_far.batches + 1,
            lag_seconds=max(0.0, lag),
        )

    def _moved(self, position: Position) -> None:
        self.outbox = replace(self.outbox, position=position, sequence=self.outbox.sequence + 1)
