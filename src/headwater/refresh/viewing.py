"""The view under a stream table's own name: what users see of what is stored, and what its tags say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

from headwater._version import __version__
from headwater.algebra.stages import SHOWN
from headwater.deltas.row_log import log_view
from headwater.lake.model import Table
from headwater.refresh.catalog_tables import DATA_SNAPSHOT_ID, REFRESH_ID, REFRESHED_AT
from headwater.refresh.model import StreamTable
from headwater.sinks.model import SinkMode
from headwater.sinks.viewing import rows_view
from headwater.typedefs import quote_name

#: The query as the user wrote it, and the ids of the tables it reads.
QUERY, SOURCES, STREAM_ID = "headwater.query", "headwater.source_table_ids", "headwater.stream_table_id"
SINK_MODE = "headwater.sink_mode"


def view_text(stream: StreamTable, storage: Table) -> str:
    """The view's SELECT, in DuckDB's SQL."""
    columns = [name for name, _ in stream.columns]
    for sink in stream.sinks:
        for published in stream.published:
            if published.sink == sink.name and sink.behind_view and sink.mode is SinkMode.ACCUMULATE:
                return log_view(published.table, columns)
            if published.sink == sink.name and sink.behind_view and sink.mode is SinkMode.REPLACE:
                return rows_view(published.table, columns)
    hides = any(column.name == SHOWN for column in storage.columns)
    return rows_view(storage.name, columns, quote_name(SHOWN) if hides else None)


def comment_of(stream: StreamTable) -> str:
    """What a reader who lists views is told."""
    query = stream.definition.query
    return f"stream table: {query}" if query else "stream table"


def lasting_tags(stream: StreamTable, sources: Iterable[int]) -> dict[str, str]:
    """Tags that stay as long as the definition does."""
    mode = next((sink.mode for sink in stream.sinks if sink.behind_view), SinkMode.MERGE)
    return {
        QUERY: stream.definition.query or f"-- {stream.definition.function}",
        SOURCES: json.dumps(sorted(sources)),
        STREAM_ID: stream.id,
        SINK_MODE: mode.value,
    }


def fresh_tags(moment: datetime, data_snapshot_id: int, refresh_id: str) -> dict[str, str]:
    """Tags that each refresh changes."""
    return {
        REFRESHED_AT: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        DATA_SNAPSHOT_ID: str(data_snapshot_id),
        REFRESH_ID: refresh_id,
    }


def written_by(name: str, refresh_id: str) -> str:
    """Who a snapshot says it is by."""
    return f"headwater/{__version__}/stream_table/{name}/{refresh_id}"


def headwater_tags(tags: Mapping[str, str | None]) -> dict[str, str]:
    """What a view says of its stream table, without the prefix."""
    prefix = "headwater."
    return {
        name.removeprefix(prefix): value
        for name, value in tags.items()
        if name.startswith(prefix) and value is not None
    }
