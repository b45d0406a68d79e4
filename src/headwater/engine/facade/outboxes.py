"""Calls about outboxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.engine.facade.services import Services

if TYPE_CHECKING:
    from headwater.sinks.outbox import Outbox, RelayResult


class OutboxCalls(Services):
    """Outboxes: attach, relay, detach."""

    def attach_outbox(
        self,
        stream_table: str,
        name: str,
        to: str,
        *,
        start: str | int = "now",
        headers: Mapping[str, str] | None = None,
        batch: int = 500,
        timeout: float = 10.0,
    ) -> Outbox:
        """Let the changes of a stream table's result be delivered to a consumer, in order, at least once.

        `to` is `table:schema.name` (of this lake: exactly once), `https://…` (batches are posted as JSON) or
        `stdout`. `start` is `now`, `beginning`, or the snapshot after which to begin. Values of `headers` are
        kept encrypted; `env:NAME` takes one from the environment each time.

        >>> hw.attach_outbox("sales.revenue", "audit", to="table:audit.revenue")  # doctest: +SKIP
        """
        return self.outbox_relays.attach(
            stream_table, name, to, start=start, headers=headers, batch=batch, timeout=timeout
        )

    def detach_outbox(self, name: str) -> None:
        """Remove an outbox; what it delivered stays."""
        self.outbox_relays.detach(name)

    def outboxes(self) -> list[Outbox]:
        """All outboxes, with how far they have come. Does not start Spark."""
        return self.outbox_relays.all()

    def relay(
        self, names: str | Sequence[str] | None = None, *, limit: int | None = None
    ) -> list[RelayResult]:
        """Deliver what is pending in some outboxes, or in all; `headwater run` does it by itself.

        What could not be delivered is part of the result, with the error, and is sent again next time.
        """
        return self.outbox_relays.relay([names] if isinstance(names, str) else names, limit=limit)
