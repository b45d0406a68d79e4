"""Tables that nothing happened to between two snapshots: told for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.lake.connection import Connection, Database
from headwater.lake.format.changes import read_changes
from headwater.lake.model import Snapshot, Table
from headwater.lake.reading.change_plan import ChangePlan
from headwater.lake.reading.change_range import snapshots_between
from headwater.typedefs import SnapshotId

#: What may give a name that is there another meaning.
_VIEWS = frozenset({"dropped_view", "altered_view"})


class QuietTables:
    """What the snapshots after one and up to another say that they did.

    They say nothing of any table if one of them is missing, or does not tell.
    """

    def __init__(self, since: SnapshotId, until: SnapshotId, snapshots: Sequence[Snapshot]):
        self._snapshots = {snapshot.id: snapshot for snapshot in snapshots}
        self._known = len(snapshots) == until - since and all(each.changes for each in snapshots)
        self._touched: dict[int, SnapshotId] = {}
        self._views: SnapshotId = -1
        for snapshot in snapshots if self._known else ():
            for change in read_changes(snapshot.changes):
                if isinstance(change.target, int):
                    self._touched[change.target] = snapshot.id
                if change.token in _VIEWS:
                    self._views = snapshot.id

    @classmethod
    def between(cls, db: Database, since: SnapshotId, until: SnapshotId) -> QuietTables:
        """Ask the catalog, if there is anything to ask."""

        def work(connection: Connection) -> list[Snapshot]:
            return snapshots_between(db, connection, since + 1, until)

        return cls(since, until, db.read(work) if since < until else [])

    def untouched(self, table_id: int, since: SnapshotId, until: SnapshotId) -> bool:
        """Whether it is sure that no snapshot after one and up to another did anything to a table."""
        known = self._known and since + 1 in self._snapshots and until in self._snapshots
        return known and self._touched.get(table_id, -1) <= since

    def same_views(self, since: SnapshotId) -> bool:
        """Whether it is sure that every view that was there at a snapshot still means the same."""
        return self._known and self._views <= since

    def plan(self, table: Table, since: SnapshotId, until: SnapshotId) -> ChangePlan | None:
        """A plan without changes, if no snapshot did anything to the table; None if that is open."""
        if not self.untouched(table.id, since, until):
            return None
        return ChangePlan(table=table, start=self._snapshots[since + 1], end=self._snapshots[until], times={})


__all__ = ["QuietTables"]
