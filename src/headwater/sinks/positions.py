"""How far a sink is, kept in the database it writes to, by the very transaction that writes there.

So a delivery is there with its position or not at all, whatever becomes of the process that sent it.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from headwater.errors import ConflictError
from headwater.lake.connection import Connection, Cursor
from headwater.sinks.result import Result

_CREATE = (
    "CREATE SCHEMA IF NOT EXISTS headwater",
    """CREATE TABLE IF NOT EXISTS headwater.sink_position (
        lake_id uuid NOT NULL, stream_id uuid NOT NULL, sink text NOT NULL, stream_table text NOT NULL,
        target text NOT NULL, own boolean NOT NULL, storage_table_id bigint NOT NULL,
        snapshot_id bigint NOT NULL, refresh_id text NOT NULL, sequence bigint NOT NULL DEFAULT 0,
        delivered_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lake_id, stream_id, sink))""",
)
# Any number, the same in every process: who creates the table does so alone.
_LOCK = 0x73696E6B


@dataclass(frozen=True)
class Position:
    """Up to where a sink holds a result."""

    #: The table it is written to, and whether the sink made it.
    target: str
    own: bool
    storage_table_id: int
    snapshot_id: int
    refresh_id: str
    #: The number of the next row of a log.
    sequence: int = 0

    def holds(self, result: Result) -> bool:
        """Whether a result, or a later one, is there already."""
        return self.storage_table_id == result.storage.id and self.snapshot_id >= result.snapshot_id

    def follows(self, result: Result) -> bool:
        """Whether deltas lead from here to a result."""
        return self.storage_table_id == result.storage.id


def ensure_positions(connection: Connection) -> None:
    """Create the table of positions if it is missing."""
    found = connection.execute("SELECT to_regclass('headwater.sink_position')").fetchone()
    if found is not None and found[0] is not None:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        for text in _CREATE:
            connection.execute(sql.SQL(text))


def read_position(connection: Connection, result: Result, sink: str) -> Position | None:
    """Where a sink is; None before the first delivery."""
    row = connection.execute(
        "SELECT target, own, storage_table_id, snapshot_id, refresh_id, sequence "
        "FROM headwater.sink_position WHERE lake_id = %s AND stream_id = %s AND sink = %s",
        (result.lake_id, result.stream_id, sink),
    ).fetchone()
    return None if row is None else Position(*row)


def write_position(
    cursor: Cursor, result: Result, sink: str, before: Position | None, after: Position
) -> None:
    """Move a position; another one than `before` is a conflict: somebody else delivered meanwhile."""
    given = {
        "lake": result.lake_id,
        "stream": result.stream_id,
        "sink": sink,
        "name": str(result.name),
        "target": after.target,
        "own": after.own,
        "storage": after.storage_table_id,
        "snapshot": after.snapshot_id,
        "refresh": after.refresh_id,
        "sequence": after.sequence,
        "before_storage": None if before is None else before.storage_table_id,
        "before": None if before is None else before.snapshot_id,
    }
    if before is None:
        cursor.execute(
            "INSERT INTO headwater.sink_position (lake_id, stream_id, sink, stream_table, target, own, "
            "storage_table_id, snapshot_id, refresh_id, sequence) VALUES (%(lake)s, %(stream)s, %(sink)s, "
            "%(name)s, %(target)s, %(own)s, %(storage)s, %(snapshot)s, %(refresh)s, %(sequence)s) "
            "ON CONFLICT DO NOTHING",
            given,
        )
    else:
        cursor.execute(
            "UPDATE headwater.sink_position SET stream_table = %(name)s, target = %(target)s, own = %(own)s, "
            "storage_table_id = %(storage)s, snapshot_id = %(snapshot)s, refresh_id = %(refresh)s, "
            "sequence = %(sequence)s, delivered_at = now() "
            "WHERE lake_id = %(lake)s AND stream_id = %(stream)s AND sink = %(sink)s "
            "AND storage_table_id = %(before_storage)s AND snapshot_id = %(before)s",
            given,
        )
    if cursor.rowcount != 1:
        raise ConflictError(f"Sink {sink} of {result.name} was served by somebody else meanwhile.", sink=sink)


def forget_position(connection: Connection, lake_id: str, stream_id: str, sink: str) -> Position | None:
    """Remove a position; returns what it was."""
    found = connection.execute("SELECT to_regclass('headwater.sink_position')").fetchone()
    if found is None or found[0] is None:
        return None
    row = connection.execute(
        "DELETE FROM headwater.sink_position WHERE lake_id = %s AND stream_id = %s AND sink = %s "
        "RETURNING target, own, storage_table_id, snapshot_id, refresh_id, sequence",
        (lake_id, stream_id, sink),
    ).fetchone()
    return None if row is None else Position(*row)
