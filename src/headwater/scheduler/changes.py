"""Which tables of the lake changed, told by the list of snapshots alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headwater.lake.connection import Connection, Database
from headwater.lake.format.changes import read_changes
from headwater.scheduler import catalog_tables as sql

#: What may change the rows of a table, or what they mean. Compactions only move rows.
_TOKENS = frozenset(
    {
        "inserted_into_table",
        "deleted_from_table",
        "inlined_insert",
        "inlined_delete",
        "altered_table",
        "dropped_table",
    }
)
#: A service that starts looks back over so many snapshots; older ones are found by the first refresh.
LOOK_BACK = 10_000


@dataclass(frozen=True)
class SnapshotChange:
    """The tables that one snapshot changed."""

    snapshot_id: int
    committed_at: datetime
    tables: frozenset[int]


class SnapshotWatch:
    """Sees new snapshots, with one short query each time it looks."""

    def __init__(self, db: Database):
        self._db = db
        #: The newest snapshot that was seen.
        self.newest = -1

    def start(self, oldest: int | None) -> list[SnapshotChange]:
        """Begin after the snapshot `oldest`, or at the newest one if there is nothing to look back for."""
        newest = self._db.read(self._newest)
        self.newest = newest if oldest is None else max(min(oldest, newest), newest - LOOK_BACK)
        return self.look()

    def look(self) -> list[SnapshotChange]:
        """The snapshots since the last look, oldest first."""
        rows = self._db.read(self._rows)
        if rows:
            self.newest = int(rows[-1][0])
        return [SnapshotChange(int(row[0]), row[1], changed_tables(row[2])) for row in rows]

    def _newest(self, connection: Connection) -> int:
        row = connection.execute(self._db.text(sql.NEWEST)).fetchone()
        return -1 if row is None or row[0] is None else int(row[0])

    def _rows(self, connection: Connection) -> list[tuple[Any, ...]]:
        given = {"since": self.newest, "limit": LOOK_BACK}
        return connection.execute(self._db.text(sql.CHANGES), given).fetchall()


def changed_tables(text: str | None) -> frozenset[int]:
    """The ids of tables whose rows a snapshot may have changed.

    >>> sorted(changed_tables('created_table:"main"."t",inserted_into_table:7,inlined_insert:9'))
    [7, 9]
    """
    return frozenset(
        change.target
        for change in read_changes(text)
        if change.token in _TOKENS and isinstance(change.target, int)
    )


class TableChanges:
    """When each table last changed, as far back as a lag has to be told."""

    _MOST = 256

    def __init__(self) -> None:
        self._changes: dict[int, deque[tuple[int, datetime]]] = {}

    def note(self, changes: Iterable[SnapshotChange]) -> None:
        """Take note of new snapshots, in their order."""
        for change in changes:
            for table in change.tables:
                seen = self._changes.setdefault(table, deque(maxlen=self._MOST))
                seen.append((change.snapshot_id, change.committed_at))

    def last(self, table: int) -> int:
        """The last snapshot that changed a table; -1 if none did since the service looks."""
        seen = self._changes.get(table)
        return seen[-1][0] if seen else -1

    def since(self, table: int, snapshot: int) -> datetime | None:
        """When a table changed for the first time after a snapshot."""
        return next((at for number, at in self._changes.get(table, ()) if number > snapshot), None)
