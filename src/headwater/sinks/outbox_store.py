"""Outboxes in the catalog: what they are, and how far they have come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headwater.errors import AlreadyExistsError, OutboxError
from headwater.lake.connection import Connection, Cursor
from headwater.lake.lake import Lake
from headwater.lake.own import check_component, component_version, ensure_component, lake_id, write
from headwater.lake.writing.commit import Join
from headwater.sinks.outbox import Outbox, Position, TargetKind
from headwater.typedefs import SnapshotId

_COMPONENT = "outbox"
_VERSIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE headwater.outbox (
            lake_id uuid NOT NULL, name text NOT NULL, stream_id uuid NOT NULL, stream_table text NOT NULL,
            kind text NOT NULL, target text NOT NULL, place text NOT NULL, headers jsonb NOT NULL,
            batch int NOT NULL, timeout double precision NOT NULL, table_id bigint NOT NULL,
            snapshot_id bigint NOT NULL, number bigint NOT NULL, sequence bigint NOT NULL DEFAULT 0,
            delivered bigint NOT NULL DEFAULT 0, delivered_at timestamptz, failures int NOT NULL DEFAULT 0,
            last_error text, created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lake_id, name))""",
    ),
)

_ALL = """
    SELECT name, stream_id::text, stream_table, kind, target, place, table_id, snapshot_id, number, headers,
        batch, timeout, sequence, delivered, delivered_at, failures, last_error, created_at
    FROM headwater.outbox WHERE lake_id = %(lake)s ORDER BY name"""
_INSERT = """
    INSERT INTO headwater.outbox (lake_id, name, stream_id, stream_table, kind, target, place, headers, batch,
        timeout, table_id, snapshot_id, number)
    VALUES (%(lake)s, %(name)s, %(stream_id)s, %(stream_table)s, %(kind)s, %(target)s, %(place)s,
        %(headers)s::jsonb, %(batch)s, %(timeout)s, %(table_id)s, %(snapshot_id)s, %(number)s)
    ON CONFLICT DO NOTHING"""
_ADVANCE = """
    UPDATE headwater.outbox
    SET table_id = %(table_id)s, snapshot_id = %(snapshot_id)s, number = %(number)s, failures = 0,
        sequence = sequence + 1, last_error = NULL, delivered = delivered + %(events)s,
        delivered_at = CASE WHEN %(events)s > 0 THEN clock_timestamp() ELSE delivered_at END
    WHERE lake_id = %(lake)s AND name = %(name)s AND sequence = %(sequence)s"""
_FAILED = """
    UPDATE headwater.outbox SET failures = failures + 1, last_error = %(error)s
    WHERE lake_id = %(lake)s AND name = %(name)s"""
_DELETE = "DELETE FROM headwater.outbox WHERE lake_id = %(lake)s AND name = %(name)s"
# Rows of the refresh layer, committed with the snapshots they speak of; they stay when those expire.
_REFRESHES = """
    SELECT snapshot_id, refresh_id FROM headwater.provenance
    WHERE lake_id = %(lake)s AND stream_id = %(stream)s AND snapshot_id > %(after)s
    ORDER BY snapshot_id LIMIT %(limit)s"""


class OutboxStore:
    """The outboxes of one lake."""

    def __init__(self, lake: Lake):
        self._db = lake.db
        self._lake: str | None = None

    def ensure(self) -> str:
        """Create the table, or bring it up to date; returns the lake's id."""
        if self._lake is None:
            self._lake = ensure_component(self._db, _COMPONENT, _VERSIONS)
        return self._lake

    def all(self) -> list[Outbox]:
        """All outboxes, by name."""

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            lake = self._lake or lake_id(self._db, connection)
            if lake is None:
                return []
            if self._lake is None:
                version = component_version(connection, _COMPONENT)
                check_component(version, _COMPONENT, len(_VERSIONS))
                if version == 0:
                    return []
                self._lake = lake
            return connection.execute(_ALL, {"lake": lake}).fetchall()

        return [_outbox(row) for row in self._db.read(work)]

    def get(self, name: str) -> Outbox | None:
        """One outbox, or None."""
        return next((outbox for outbox in self.all() if outbox.name == name), None)

    def refreshes(self, stream_id: str, after: SnapshotId, limit: int) -> list[tuple[int, str]]:
        """Snapshots after one in which a stream table was refreshed, oldest first, with their refreshes."""
        given = {"lake": self.ensure(), "stream": stream_id, "after": after, "limit": limit}
        found = self._db.read(lambda connection: connection.execute(_REFRESHES, given).fetchall())
        return [(int(snapshot), str(refresh)) for snapshot, refresh in found]

    def insert(self, outbox: Outbox) -> None:
        """Add an outbox."""
        write(self._db, lambda connection: self._insert(connection.cursor(), outbox))

    def insert_with(self, outbox: Outbox) -> Join:
        """The same inside a transaction of the lake."""
        self.ensure()
        return lambda cursor, snapshot: self._insert(cursor, outbox)

    def _insert(self, cursor: Cursor, outbox: Outbox) -> None:
        given = {
            "lake": self.ensure(),
            "name": outbox.name,
            "stream_id": outbox.stream_id,
            "stream_table": outbox.stream_table,
            "kind": outbox.kind.value,
            "target": outbox.target,
            "place": outbox.place,
            "headers": json.dumps(dict(outbox.headers)),
            "batch": outbox.batch,
            "timeout": outbox.timeout,
            "table_id": outbox.position.table_id,
            "snapshot_id": outbox.position.snapshot_id,
            "number": outbox.position.number,
        }
        cursor.execute(_INSERT, given)
        if cursor.rowcount != 1:
            raise AlreadyExistsError(
                f"There is already an outbox {outbox.name}.",
                hint="Choose another name, or detach that one first.",
                outbox=outbox.name,
            )

    def delete(self, name: str) -> bool:
        """Remove an outbox."""
        given = {"lake": self.ensure(), "name": name}
        return write(self._db, lambda connection: connection.execute(_DELETE, given).rowcount == 1)

    def advance(self, outbox: Outbox, position: Position, events: int) -> None:
        """Remember that everything up to a position is delivered."""
        write(self._db, lambda connection: self._advance(connection.cursor(), outbox, position, events))

    def advance_with(self, outbox: Outbox, position: Position, events: int) -> Join:
        """The same inside a transaction of the lake."""
        self.ensure()
        return lambda cursor, snapshot: self._advance(cursor, outbox, position, events)

    def _advance(self, cursor: Cursor, outbox: Outbox, position: Position, events: int) -> None:
        given = {
            "lake": self.ensure(),
            "name": outbox.name,
            "sequence": outbox.sequence,
            "table_id": position.table_id,
            "snapshot_id": position.snapshot_id,
            "number": position.number,
            "events": events,
        }
        cursor.execute(_ADVANCE, given)
        if cursor.rowcount != 1:
            raise OutboxError(
                f"Outbox {outbox.name} was relayed by another process, or removed, meanwhile.",
                hint="Relay again: it goes on from where the other one is.",
                outbox=outbox.name,
            )

    def note_failure(self, name: str, error: str) -> None:
        """Remember why a delivery failed."""
        given = {"lake": self.ensure(), "name": name, "error": error}
        write(self._db, lambda connection: connection.execute(_FAILED, given))


def _outbox(row: tuple[Any, ...]) -> Outbox:
    name, stream_id, stream_table, kind, target, place, table, snapshot, number, headers, *rest = row
    return Outbox(
        name,
        stream_id,
        stream_table,
        TargetKind(kind),
        target,
        place,
        Position(int(table), int(snapshot), int(number)),
        dict(headers),
        *rest,
    )
