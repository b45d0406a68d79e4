"""How the sinks of a stream table are: where they are, how far, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from headwater.errors import NotFoundError, SettingsError
from headwater.lake.secrets import Secrets, without_password
from headwater.refresh.model import StreamTable
from headwater.sinks.model import Sink, SinkKind


@dataclass(frozen=True)
class SinkStatus:
    """One sink at a glance; nothing in it is secret."""

    stream_table: str
    sink: str
    kind: SinkKind
    mode: str
    #: Where the result goes.
    target: str
    #: Whether it holds the newest result.
    current: bool
    #: The snapshot of the lake that it shows, the refresh that made it, and when it was delivered.
    snapshot_id: int | None
    refresh_id: str | None
    delivered_at: datetime | None
    #: Failures in a row, the last of them, since when, and when it is tried again.
    failures: int = 0
    last_error: str | None = None
    failing_since: datetime | None = None
    next_try_at: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """The status as plain data."""
        return asdict(self)


def sink_statuses(secrets: Secrets, stream: StreamTable) -> Iterator[SinkStatus]:
    """How each sink of a stream table is."""
    for sink in stream.sinks:
        state = stream.sink_state(sink.name)
        frontier = stream.frontier
        at = state.snapshot_id
        if sink.in_storage:
            at = None if frontier is None else frontier.snapshot_id
        behind = state.behind or state.failures > 0
        if sink.remote and frontier is not None:
            behind |= at is None or at < frontier.snapshot_id
        yield SinkStatus(
            str(stream.name),
            sink.name,
            sink.kind,
            sink.mode.value,
            _target(secrets, stream, sink),
            not behind,
            at,
            state.refresh_id,
            state.delivered_at,
            state.failures,
            state.last_error,
            state.failing_since,
            state.next_try_at,
        )


def _target(secrets: Secrets, stream: StreamTable, sink: Sink) -> str:
    if sink.kind is SinkKind.POSTGRES:
        return f"{sink.table or stream.name.name} in {_address(secrets, sink.dsn or '')}"
    table = sink.table or (f"table {sink.table_id}" if sink.table_id is not None else str(stream.name))
    if sink.catalog is not None:
        return f"{table} in {_address(secrets, sink.catalog)}"
    return table if sink.path is None else f"{table} at {sink.path}"


def _address(secrets: Secrets, reference: str) -> str:
    try:
        return without_password(secrets.get(reference))
    except (NotFoundError, SettingsError):
        return reference
