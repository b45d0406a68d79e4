"""How a stream table is: fresh or behind, active or suspended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from headwater.errors import SnapshotError
from headwater.lake.catalog import CatalogState
from headwater.lake.lake import Lake
from headwater.lake.secrets import Secrets
from headwater.refresh.model import Mode, Status, StreamTable
from headwater.refresh.sink_status import SinkStatus, sink_statuses
from headwater.refresh.store import StreamStore
from headwater.refresh.viewing import fresh_tags, headwater_tags


@dataclass(frozen=True)
class StreamStatus:
    """One stream table at a glance."""

    name: str
    status: Status
    mode: Mode
    schedule: str | None
    #: The last refresh: what it did, and when.
    last_action: str | None
    last_reason: str | None
    refreshed_at: datetime | None
    #: The snapshot of the lake that the result is of.
    data_snapshot_id: int | None
    #: Changed rows of its inputs that it has not seen, at most.
    pending_rows: int
    #: Since when it is behind, in seconds; 0 if it is not.
    lag_seconds: float
    failures: int
    last_error: str | None
    #: Where it is published, and how far.
    sinks: tuple[SinkStatus, ...] = ()
    #: Whether full refreshes left what is stored in between behind, to be caught up with once.
    catch_up_due: bool = False
    #: What its view says of it: query, source_table_ids, refreshed_at, data_snapshot_id, …
    tags: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The status as plain data."""
        return asdict(self)


def status_of(lake: Lake, store: StreamStore, stream: StreamTable, state: CatalogState) -> StreamStatus:
    """The status of one stream table, from the catalog alone."""
    last = next(iter(store.history(stream.name, 1)), None)
    pending, oldest = 0, None
    for position in stream.frontier.sources if stream.frontier else ():
        table = state.table_by_id(position.table_id)
        if table is None or position.snapshot_id >= state.snapshot.id:
            continue
        try:
            plan = lake.plan_changes(table.name, position.snapshot_id + 1, state.snapshot.id)
        except SnapshotError:
            continue
        if plan.rows_at_most:
            pending += plan.rows_at_most
            first = min(plan.times.values(), default=None)
            oldest = min(filter(None, (oldest, first)), default=None)
    return StreamStatus(
        str(stream.name),
        stream.status,
        stream.definition.mode,
        stream.definition.schedule,
        None if last is None else last.action,
        None if last is None else last.reason,
        None if last is None else last.recorded_at,
        stream.frontier.data_snapshot_id if stream.frontier else None,
        pending,
        max(0.0, (datetime.now(UTC) - oldest).total_seconds()) if oldest else 0.0,
        stream.failures,
        stream.last_error,
        tuple(sink_statuses(Secrets(lake), stream)),
        stream.frontier is not None and stream.frontier.behind,
        _tags(stream, state),
    )


def _tags(stream: StreamTable, state: CatalogState) -> dict[str, str]:
    view = state.find_view(stream.name)
    tags = {} if view is None else headwater_tags(view.tags)
    if tags and stream.frontier is not None:
        # A state is kept until the schema changes, and refreshes change these tags without that.
        frontier = stream.frontier
        tags |= headwater_tags(fresh_tags(frontier.moment, frontier.data_snapshot_id, ""))
        tags.pop("refresh_id", None)
    return tags
