"""Which files of a table are worth moving, and together with which others.

| file | what becomes of it |
|---|---|
| small, all its deletes older than any live snapshot | merged with others of its columns and partition |
| many deletes, all as old | the same, alone if need be: nobody sees what is left out |
| many deletes, younger ones among them | written again: the old file ends, and serves older snapshots |
| not in the order that is asked for, its deletes as old | sorted, with all those that it overlaps |
| anything else | stays |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import InvalidInputError
from headwater.lake.format.texts import FLOATS
from headwater.lake.maintenance.clustering import SMALL, Candidate, Group, apart, filled, outputs, together
from headwater.lake.maintenance.ordering import SortKey, order_in, spans
from headwater.lake.maintenance.table_files import TableFiles
from headwater.lake.model import Table
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.typedefs import ColumnId, FileId, SnapshotId

#: A file of more of its rows deleted is worth writing again.
DELETE_RATIO = 0.3
#: So many files of the target size are sorted together without being asked: if one of them is changed
#: meanwhile, all stay as they are.
_SPREAD = 32


@dataclass(frozen=True, slots=True)
class Wishes:
    """What compaction is asked for."""

    merge: bool = True
    """Put small files together."""
    rewrite: bool = True
    """Leave deleted rows behind."""
    target_size: int | None = None
    """Bytes of a good file; the table's own option if None."""
    delete_ratio: float | None = None
    """Of its rows; the table's own option (`rewrite_delete_threshold`) if None, else `DELETE_RATIO`."""
    sort_by: tuple[str, ...] | None = None
    """Sort the rows within files and across them; the table's own order if None, then of new files only."""
    min_files: int = 2
    """Fewer files are not worth a new one."""

    def __post_init__(self) -> None:
        if self.delete_ratio is not None and not 0 <= self.delete_ratio <= 1:
            raise InvalidInputError("The ratio of deleted rows is a number from 0 to 1.")
        if self.target_size is not None and self.target_size < 1:
            raise InvalidInputError("The target size is a number of bytes.")
        if self.min_files < 1:
            raise InvalidInputError("min_files is 1 or more.")


@dataclass(frozen=True)
class Move:
    """Rows on their way from some files into others, of which there usually is one."""

    plan: ScanPlan
    """The table with the columns that the new files get, and the snapshot; without files."""
    sources: tuple[FileScan, ...]
    snapshots: tuple[SnapshotId, SnapshotId] | None
    """The first and the last snapshot that rows of it began at; None if it begins anew."""
    partition_id: int | None = None
    partition_values: tuple[str | None, ...] = ()
    maybe_nan: frozenset[ColumnId] = frozenset()
    """Float columns of which not every source is known to be free of NaN."""
    order: tuple[SortKey, ...] = ()
    """What the rows are sorted by."""
    outputs: int = 1
    """In how many files they go, each a range of the sort keys."""

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return sum(scan.file.file_size_bytes for scan in self.sources)

    @property
    def keeps_history(self) -> bool:
        """Whether older snapshots read the new files too."""
        return self.snapshots is not None


def deleted_rows(scan: FileScan) -> int:
    """How many rows of a file are deleted, as its catalog rows say."""
    deleted = sum(delete.delete_count for delete in scan.deletes) + len(scan.inlined_deletes)
    return min(deleted, scan.file.record_count)


def live_bytes(scan: FileScan, size: int) -> int:
    """That part of so many bytes of a file that is not deleted."""
    rows = max(1, scan.file.record_count)
    return size * (rows - deleted_rows(scan)) // rows


#: Finds the files among some whose rows are in an order already.
InOrder = Callable[[ScanPlan, Sequence[FileScan], Sequence[SortKey]], Collection[FileId]]


@dataclass(frozen=True)
class Choice:
    """Chooses what to move of a table, given how large a good file is."""

    files: TableFiles
    wishes: Wishes
    target_size: int
    in_order: InOrder

    def moves(self) -> list[Move]:
        """What is worth moving."""
        merges: dict[Any, Group] = {}
        rewrites: dict[Any, Group] = {}
        for scan in sorted(self.files.plan.files, key=lambda scan: (scan.file.begin_snapshot, scan.file.id)):
            size = live_bytes(scan, scan.file.file_size_bytes)
            many = self.wishes.rewrite and self._has_many_deletes(scan)
            partition = (scan.file.partition_id, scan.partition_values)
            if not deleted_rows(scan) or self.files.is_settled(scan):
                small = self.wishes.merge and size < SMALL * self.target_size
                if small or many or self.wishes.sort_by:
                    since = self.files.layout(scan.file.begin_snapshot).since
                    merges.setdefault((since, *partition), []).append(Candidate(scan, size, wanted=many))
            elif many:
                rewrites.setdefault(partition, []).append(Candidate(scan, size, wanted=True))
        moves = [move for found in merges.values() for move in self._merges(found)]
        table = self.files.plan.table
        # What these overlap is looked at when they are written, and can be merged.
        groups = [group for found in rewrites.values() for group in filled(found, self.target_size)]
        return moves + [self._move(group, table, None) for group in groups]

    def _has_many_deletes(self, scan: FileScan) -> bool:
        ratio = DELETE_RATIO if self.wishes.delete_ratio is None else self.wishes.delete_ratio
        deleted = deleted_rows(scan)
        return bool(deleted) and deleted >= ratio * scan.file.record_count

    def _merges(self, found: Group) -> Iterator[Move]:
        """Moves of files of one partition and one set of columns."""
        table = self.files.layout(found[0].scan.file.begin_snapshot).table
        order = order_in(table, self.files.plan.table)
        groups = self._clusters(found, table, order) if order else filled(found, self.target_size)
        for group in groups:
            if len(group) >= self.wishes.min_files or any(one.wanted for one in group):
                yield self._move(group, table, _snapshots(group))

    def _clusters(self, found: Group, table: Table, order: tuple[SortKey, ...]) -> list[Group]:
        located = []
        for one in found:
            file = one.scan.file
            # Footers of many small files would pass for rows.
            size = live_bytes(one.scan, file.file_size_bytes - (file.footer_size or 0))
            located.append(one._replace(size=size, spans=spans(file, order, self.files.key_stats)))
        groups = apart(located)
        if not self.wishes.sort_by:
            groups = [part for group in groups for part in filled(group, _SPREAD * self.target_size)]
        else:
            alone = [group[0].scan for group in groups if len(group) == 1]
            known = self.in_order(replace(self.files.plan, table=table), alone, order)
            groups = [
                [one._replace(wanted=one.wanted or one.scan.file.id not in known) for one in group]
                for group in groups
            ]
        return together(groups, self.target_size)

    def _move(self, group: Group, table: Table, snapshots: tuple[SnapshotId, SnapshotId] | None) -> Move:
        plan = self.files.plan
        order = order_in(table, plan.table)
        ids = {one.scan.file.id for one in group}
        floats = [c.id for top in table.columns for c in top.walk() if c.type in FLOATS]
        nan_free = self.files.without_nan
        wanted = {one.scan.file.mapping_id for one in group}
        mappings = {key: value for key, value in plan.mappings.items() if key in wanted}
        first = group[0].scan
        return Move(
            plan=replace(plan, table=table, files=(), inlined=(), mappings=mappings),
            sources=tuple(one.scan for one in group),
            snapshots=snapshots,
            partition_id=first.file.partition_id,
            partition_values=first.partition_values,
            maybe_nan=frozenset(c for c in floats if not ids <= nan_free.get(c, frozenset())),
            order=order,
            outputs=outputs(group, self.target_size) if order else 1,
        )


def _snapshots(group: Group) -> tuple[SnapshotId, SnapshotId]:
    files = [one.scan.file for one in group]
    first = min(file.begin_snapshot for file in files)
    return first, max(first, *(file.partial_max or file.begin_snapshot for file in files))
