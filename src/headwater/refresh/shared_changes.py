"""Changes of tables that several stream tables follow: read once, for all of them.

What became of a table's rows between two snapshots never changes, so it can be kept from one refresh to the
next. Of the rows only those columns are read that some stream table of this process uses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Lock

from headwater.lake.reading.change_plan import ChangePlan
from headwater.lake.reading.change_reader import count_changes
from headwater.lake.reading.row_identity import first_loss
from headwater.recent import Recent
from headwater.refresh.compiling import Compiled
from headwater.refresh.deltas import (
    ChangedRows,
    Delta,
    delta_by_spark,
    delta_of,
    late_delta,
    read_changed_rows,
)
from headwater.refresh.local_rows import most_here
from headwater.spark.connector import LakeSpark
from headwater.typedefs import SnapshotId

#: Changes that take up to so many bytes in files are read by this process, if they are not too many rows.
_MOST_BYTES = 128 << 20
#: More changes than these are not read before it is known that they are followed; that there are any, which
#: those of columns that are not in use leave open, has to be sure then.
_AT_ONCE = 20_000
#: So many bytes of them are kept.
_KEPT = 512 << 20
#: So many counts of changes are, and so many answers on row ids.
_COUNTS = 1000

#: A table by its id, and the snapshots that changed it.
_Place = tuple[int, frozenset[SnapshotId]]


@dataclass
class SharedChanges:
    """What was read of changes, and what is wanted of them."""

    _wanted: dict[int, set[str]] = field(default_factory=dict)
    _kept: OrderedDict[_Place, ChangedRows] = field(default_factory=OrderedDict)
    _counts: Recent[_Place, int] = field(default_factory=lambda: Recent(_COUNTS))
    _losses: Recent[_Place, SnapshotId | None] = field(default_factory=lambda: Recent(_COUNTS))
    _lock: Lock = field(default_factory=Lock)

    def want(self, compiled: Compiled) -> None:
        """Remember which columns a stream table uses."""
        with self._lock:
            for name, source in compiled.sources.items():
                self._wanted.setdefault(source.table.id, set()).update(compiled.used_columns[name])

    def delta(self, session: LakeSpark, plan: ChangePlan, used: Collection[str]) -> Delta:
        """What became of a table's rows, in the columns in use.

        Updates that change no column in use are left out.
        """
        rows = plan.rows_at_most
        if rows > _AT_ONCE:
            rows = self._count(session, plan)
        if _too_many(plan, rows, most_here(session)):
            return delta_by_spark(session, plan, used, rows)

        def read() -> ChangedRows:
            return self._changed_rows(session, plan, used)

        if rows > _AT_ONCE and plan.no_row_twice:
            return late_delta(session, plan, used, rows, read)
        return delta_of(read(), plan, used)

    def first_loss(self, session: LakeSpark, plan: ChangePlan) -> SnapshotId | None:
        """The first snapshot of a plan's range that may have given rows other ids; None if there is none."""
        if not plan.moves and not plan.mixed:
            return None
        lake = session.lake
        return self._losses.get(
            (plan.table.id, plan.touched), lambda: first_loss(lake.db, lake.store, lake.data_path, plan)
        )

    def _count(self, session: LakeSpark, plan: ChangePlan) -> int:
        """How many changes there are at most; delete files are read for that once."""
        lake = session.lake
        place = plan.table.id, plan.touched
        return self._counts.get(place, lambda: count_changes(plan, lake.store, lake.kept_columns))

    def _changed_rows(self, session: LakeSpark, plan: ChangePlan, used: Collection[str]) -> ChangedRows:
        """Changes in this process, in the columns in use and maybe more."""
        table = plan.table
        # Ranges with the same snapshots that did anything to the table have the same changes.
        place = (table.id, plan.touched)
        with self._lock:
            found = self._kept.get(place)
            wanted = self._wanted.get(table.id, set()) | set(used)
        if found is None or not set(used) <= found.names:
            found = read_changed_rows(session, plan, wanted)
            with self._lock:
                self._kept[place] = found
                self._kept.move_to_end(place)
                while len(self._kept) > 1 and sum(each.rows.nbytes for each in self._kept.values()) > _KEPT:
                    self._kept.popitem(last=False)
        return found


def _too_many(plan: ChangePlan, changes: int, most: int) -> bool:
    """Whether changes are too many for this process, or take too much if rows are all alike."""
    files = [change.file for change in plan.files]
    rows = sum(file.record_count for file in files)
    size = sum(file.file_size_bytes for file in files) * min(1.0, changes / max(1, rows))
    return changes > most or size > _MOST_BYTES
