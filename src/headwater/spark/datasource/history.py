"""What the snapshots of a range did to one table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.lake.catalog import CatalogState
from headwater.lake.format.changes import read_changes as read_tokens
from headwater.lake.lake import Lake
from headwater.lake.model import Snapshot, Table
from headwater.lake.reading.change_plan import ChangePlan, plan_changes
from headwater.lake.reading.change_reader import file_deaths, read_changes
from headwater.typedefs import SnapshotId

_INSERTS = frozenset({"inserted_into_table", "inlined_insert"})
_DELETES = frozenset({"deleted_from_table", "inlined_delete"})


@dataclass(frozen=True, slots=True)
class Commit:
    """One snapshot that changed rows of the table."""

    snapshot: Snapshot
    inserts: bool
    deletes: bool


class TableHistory:
    """Plans and facts about the changes of one table, which is found by its id, whatever its name is by now.

    `table` says which columns are read: files and inlined rows of any age are matched to it by column id.
    """

    def __init__(self, lake: Lake, table: Table):
        self._lake = lake
        self._table = table
        self._known: dict[SnapshotId, Commit] = {}

    def plan(self, low: SnapshotId, high: SnapshotId) -> ChangePlan:
        """How to read the changes of the snapshots from `low` to `high`, both included."""
        state = CatalogState(self._lake.snapshot(high), "", {}, {}, {})
        return plan_changes(self._lake.db, lambda connection, at: (state, self._table), low, high)

    def commits(self, low: SnapshotId, high: SnapshotId) -> list[Commit]:
        """The snapshots of a range that changed rows, oldest first. Those that expired are missing."""
        found = []
        newest = self._lake.snapshot().id
        for snapshot in reversed(self._lake.snapshots(limit=max(0, newest - low + 1))):
            if low <= snapshot.id <= high:
                if snapshot.id not in self._known:
                    self._known[snapshot.id] = self._commit(snapshot)
                found.append(self._known[snapshot.id])
        return [commit for commit in found if commit.inserts or commit.deletes]

    def _commit(self, snapshot: Snapshot) -> Commit:
        tokens = {c.token for c in read_tokens(snapshot.changes) if c.is_about(self._table.id)}
        if not tokens & _DELETES:
            return Commit(snapshot, bool(tokens & _INSERTS), False)
        # More is said than done: a flush of old deletes says that it deletes, and whoever replaces a delete
        # file may say that he inserts, so that others who delete take notice.
        plan = self.plan(snapshot.id, snapshot.id)
        return Commit(snapshot, self._inserts(plan), self._deletes(plan))

    def _inserts(self, plan: ChangePlan) -> bool:
        if any(part.inserted for part in plan.inlined):
            return True
        files = plan.insertions
        if any(change.file.partial_max is None for change in files):
            return True
        if not files:
            return False
        where = "_change_type IN ('insert', 'update_postimage')"
        rows = read_changes(plan, self._lake.store, self._lake.db, columns=[], where=where, replan=True)
        return rows.num_rows > 0

    def _deletes(self, plan: ChangePlan) -> bool:
        if any(part.deleted for part in plan.inlined):
            return True
        for change in plan.deletions:
            if change.ended is not None:
                return True
            _, snapshots = file_deaths(self._lake.store, plan, change)
            if np.any(snapshots == plan.end.id):
                return True
        return False
