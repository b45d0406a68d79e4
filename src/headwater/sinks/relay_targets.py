"""Where a relay delivers to: a webhook, standard output, a table of the lake."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headwater._version import __version__
from headwater.errors import DeliveryError
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.sinks.outbox import Event, Outbox, Position, json_line
from headwater.sinks.outbox_store import OutboxStore

#: Columns of the table that an outbox fills, with their types.
TABLE_COLUMNS: Mapping[str, str] = {
    "event_id": "varchar",
    "type": "varchar",
    "stream_table": "varchar",
    "snapshot_id": "int64",
    "number": "int64",
    "committed_at": "timestamptz",
    "refresh_id": "varchar",
    "before": "json",
    "after": "json",
}
#: How often a batch is sent before the relay gives up until next time.
TRIES = 3


class RelayTarget(Protocol):
    """Takes batches in their order."""

    #: Events that suit it in a batch, at most.
    batch: int

    def deliver(self, outbox: Outbox, events: Sequence[Event], position: Position) -> None:
        """Deliver a batch, and remember that it is."""

    def close(self) -> None:
        """Let go of connections."""


class WebhookTarget:
    """Posts batches as JSON. Any answer of 200 to 299 means that the batch is taken."""

    def __init__(
        self,
        store: OutboxStore,
        url: str,
        headers: Mapping[str, str],
        *,
        batch: int,
        timeout: float,
        tries: int = TRIES,
    ):
        self._store = store
        self._url = url
        self.batch = batch
        self._tries = tries
        # No redirects: the headers may hold secrets that are meant for this address alone.
        self._client = httpx.Client(
            headers={**headers, "User-Agent": f"headwater/{__version__}"},
            timeout=timeout,
            follow_redirects=False,
        )

    def deliver(self, outbox: Outbox, events: Sequence[Event], position: Position) -> None:
        """Post a batch until it is taken, a few times; then remember it."""
        body = json_line(
            {
                "outbox": outbox.name,
                "stream_table": outbox.stream_table,
                "events": [event.as_dict() for event in events],
            }
        ).encode()
        # The same events always have the same key, since what is between two events never changes.
        key = f"{events[0].id}:{events[-1].id}"
        Retrying(
            retry=retry_if_exception_type(DeliveryError),
            wait=wait_random_exponential(multiplier=0.2, max=3),
            stop=stop_after_attempt(self._tries),
            reraise=True,
        )(self._post, outbox, body, key)
        self._store.advance(outbox, position, len(events))

    def _post(self, outbox: Outbox, body: bytes, key: str) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        try:
            answer = self._client.post(self._url, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise DeliveryError(
                f"The webhook of outbox {outbox.name} ({outbox.target}) did not answer.",
                detail=_without(f"{type(error).__name__}: {error}", self._url),
                hint="The batch is sent again; nothing is lost.",
                outbox=outbox.name,
            ) from None
        if not answer.is_success:
            raise DeliveryError(
                f"The webhook of outbox {outbox.name} ({outbox.target}) answered {answer.status_code}.",
                detail="Redirects are not followed." if answer.is_redirect else None,
                hint="An answer of 200 to 299 means that a batch is taken; any other is sent again.",
                outbox=outbox.name,
                status=answer.status_code,
            )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class StdoutTarget:
    """Writes an event per line."""

    batch = 1000

    def __init__(self, store: OutboxStore, stream: IO[str] | None = None):
        self._store = store
        self._stream = stream

    def deliver(self, outbox: Outbox, events: Sequence[Event], position: Position) -> None:
        """Write a batch, then remember it."""
        stream = self._stream or sys.stdout
        stream.write("".join(f"{json_line(event.as_dict())}\n" for event in events))
        stream.flush()
        self._store.advance(outbox, position, len(events))

    def close(self) -> None:
        """Nothing is open."""


class TableTarget:
    """Appends to a table of the same lake. Events and position are one snapshot: each comes exactly once."""

    batch = 20_000

    def __init__(self, lake: Lake, store: OutboxStore):
        self._lake = lake
        self._store = store

    def deliver(self, outbox: Outbox, events: Sequence[Event], position: Position) -> None:
        """Append a batch and remember it, as one snapshot."""
        rows = [_row(event) for event in events]

        def work(tx: Transaction) -> None:
            tx.append(outbox.place, rows)
            tx.join(self._store.advance_with(outbox, position, len(events)))

        self._lake.run(
            work,
            author=f"headwater/{__version__}/outbox/{outbox.name}",
            message=f"{len(events)} changes of {outbox.stream_table}",
        )

    def close(self) -> None:
        """Nothing is open."""


def _row(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.id,
        "type": event.type,
        "stream_table": event.stream_table,
        "snapshot_id": event.snapshot_id,
        "number": event.number,
        "committed_at": event.committed_at,
        "refresh_id": event.refresh_id,
        "before": None if event.before is None else json_line(event.before),
        "after": None if event.after is None else json_line(event.after),
    }


def _without(text: str, url: str) -> str:
    """A text of a library without the address, which may hold a secret."""
    return text.replace(url, "…")
