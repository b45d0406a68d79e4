"""What lies before the tables of a lake and behind its stream tables: sources, sinks, outboxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.lake.connection import Connection
from headwater.lake.lake import Lake
from headwater.lake.own import lake_id
from headwater.lake.secrets import Secrets
from headwater.refresh.model import StreamTable
from headwater.refresh.sink_status import sink_statuses
from headwater.typedefs import TableName

#: (from, to), as names of nodes.
Edge = tuple[str, str]

_SOURCES = """
    SELECT s.name, t.schema_name, t.name, t.lake_schema, t.lake_name
    FROM headwater.source s JOIN headwater.source_table t ON t.lake_id = s.lake_id AND t.source_id = s.id
    WHERE s.lake_id = %s ORDER BY s.name, t.number"""
_OUTBOXES = """
    SELECT t.schema_name, t.name, o.name
    FROM headwater.outbox o JOIN headwater.stream_table t ON t.lake_id = o.lake_id AND t.id = o.stream_id
    WHERE o.lake_id = %s ORDER BY o.name"""


def edges_outside(lake: Lake, streams: Sequence[StreamTable]) -> list[Edge]:
    """Where mirrored tables come from, and where results go."""
    secrets = Secrets(lake)
    edges = [
        (f"{source}: {TableName(schema, name)}", str(TableName(lake_schema, lake_name)))
        for source, schema, name, lake_schema, lake_name in _rows(lake, "source", _SOURCES)
    ]
    for stream in streams:
        edges += [
            (str(stream.name), f"{status.sink}: {status.target}")
            for status, sink in zip(sink_statuses(secrets, stream), stream.sinks, strict=True)
            if not sink.in_storage
        ]
    edges += [
        (str(TableName(schema, name)), f"outbox {outbox}")
        for schema, name, outbox in _rows(lake, "outbox", _OUTBOXES)
    ]
    return edges


def _rows(lake: Lake, table: str, text: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, if the table that it needs is there."""

    def work(connection: Connection) -> list[tuple[Any, ...]]:
        there = connection.execute("SELECT to_regclass(%s)", (f"headwater.{table}",)).fetchone()
        known = lake_id(lake.db, connection)
        if there is None or there[0] is None or known is None:
            return []
        return connection.execute(text.encode(), (known,)).fetchall()

    return lake.db.read(work)
