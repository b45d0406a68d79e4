"""The batches of a stream as tasks, and the tasks as rows.

Tasks are made from two positions alone, so that a batch that is run again has the rows it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headwater.lake.catalog import CatalogState
from headwater.lake.format.types import AnyArray
from headwater.lake.lake import Lake
from headwater.lake.model import Snapshot, Table
from headwater.lake.reading.change_plan import ChangePlan, FileChanges
from headwater.lake.reading.change_reader import read_changes
from headwater.lake.reading.read import iter_plan, read_plan
from headwater.lake.reading.scan import FileScan, ScanPlan, plan_scan
from headwater.spark.datasource.batch_read import RowsTask, grouped, sub_plan
from headwater.spark.datasource.change_feed import ChangesTask, as_feed, change_tasks, read_task
from headwater.spark.datasource.history import TableHistory
from headwater.spark.datasource.place import OpenLake
from headwater.spark.datasource.positions import Position, between
from headwater.spark.datasource.row_ranges import Range, catalog_range, footer_range
from headwater.spark.datasource.stream_options import StreamOptions
from headwater.spark.types import to_spark
from headwater.typedefs import FileId, SnapshotId


@dataclass
class InsertsTask(InputPartition):
    """Rows that merged files hold among others: the changes of a sub-plan, of which insertions are kept."""

    plan: ChangePlan
    where: str | None


@dataclass
class PlainTask(InputPartition):
    """Files as a snapshot stored them; of those that a limit cut, some row ids."""

    plan: ScanPlan
    where: str | None = None


class StreamTasks:
    """Makes and reads the tasks of one stream; its columns come out under `names`."""

    def __init__(self, opened: OpenLake, table: Table, options: StreamOptions, names: Sequence[str]):
        self._opened = opened
        self.table = table
        self.options = options
        self.names = list(names)
        self._kept_history: TableHistory | None = None
        self._known_ranges: dict[FileId, Range | None] = {}

    @property
    def lake(self) -> Lake:
        """The lake, open in this process."""
        return self._opened.open()

    @property
    def history(self) -> TableHistory:
        """What snapshots did to the table."""
        if self._kept_history is None:
            self._kept_history = TableHistory(self.lake, self.table)
        return self._kept_history

    def changed(self, first: Position, last: Position) -> list[InputPartition]:
        """Tasks for all changes between two positions."""
        low = first.next_snapshot
        self.history.plan(low, last.snapshot)  # says so if changes of the range are no longer known
        return change_tasks([commit.snapshot.id for commit in self.history.commits(low, last.snapshot)])

    def initial_plan(self, snapshot_id: SnapshotId) -> ScanPlan:
        """How to read the whole table at one snapshot."""
        state = CatalogState(self.lake.snapshot(snapshot_id), "", {}, {}, {})
        return plan_scan(self.lake.db, state, self.table)

    def ranges(self, plan: ScanPlan) -> dict[FileId, Range | None]:
        """The row ids that each file of a plan holds."""
        pure = self._pure_snapshots(min((s.file.begin_snapshot for s in plan.files), default=0))
        for scan in plan.files:
            if scan.file.id not in self._known_ranges:
                known = catalog_range(scan.file) if scan.file.begin_snapshot in pure else None
                self._known_ranges[scan.file.id] = known or footer_range(self.lake.store, scan.file)
        return self._known_ranges

    def _pure_snapshots(self, low: SnapshotId) -> set[SnapshotId]:
        """Snapshots that inserted only: their files have row ids in the order of their rows."""
        commits = self.history.commits(low, self.lake.snapshot().id)
        return {commit.snapshot.id for commit in commits if not commit.deletes}

    def initial(self, first: Position, last: Position) -> Iterator[InputPartition]:
        """Tasks for rows that the table has when the stream begins."""
        lake = self.lake
        plan = self.initial_plan(last.snapshot)
        low, high = first.row or 0, last.row
        where = _row_condition(low, high)
        files: Sequence[FileScan] = plan.files
        if where is not None:
            ranges = self.ranges(plan)
            files = [scan for scan in plan.files if _overlaps(ranges[scan.file.id], low, high)]
        hidden = ("rowid",) if self.options.change_feed else ()
        rows = read_plan(replace(plan, files=()), lake.store, lake.db, where=where, hidden=hidden)
        if rows.num_rows:
            yield RowsTask(self._as_initial(rows, plan.snapshot))
        for group in grouped(files, self.options.max_partition_bytes):
            yield PlainTask(sub_plan(plan, group), where)

    def inserted(self, first: Position, last: Position) -> Iterator[InputPartition]:
        """Tasks for rows that were inserted between two positions."""
        lake, low = self.lake, first.next_snapshot
        history = self.history
        plan = history.plan(low, last.snapshot)
        left_out = [
            commit.snapshot.id
            for commit in history.commits(low, last.snapshot)
            if not self.options.is_read(commit)
        ]
        where = _all_of(
            "_change_type IN ('insert', 'update_postimage')",
            between(first, last, "_commit_version", "_rowid"),
            f"_commit_version NOT IN ({', '.join(map(str, left_out))})" if left_out else None,
        )
        rows = read_changes(replace(plan, files=()), lake.store, lake.db, where=where)
        if rows.num_rows:
            yield RowsTask(self._as_rows(rows))
        if plan.mixed:  # what only moved is told from what changed by looking at all of it
            yield InsertsTask(replace(plan, inlined=()), where)
            return
        plain: dict[SnapshotId, list[FileScan]] = {}
        for change in plan.insertions:
            born = change.file.begin_snapshot
            if change.file.partial_max is not None:
                yield InsertsTask(replace(plan, files=(change,), inlined=()), where)
            elif born not in left_out and _overlaps(catalog_range(change.file), *_rows_of(born, first, last)):
                plain.setdefault(born, []).append(_at_birth(change))
        for born, scans in sorted(plain.items()):
            snapshot = Snapshot(born, plan.times[born], 0, 0, 0)
            scan_plan = ScanPlan(self.table, snapshot, scans, mappings=plan.mappings)
            rows_low, rows_high = _rows_of(born, first, last)
            cut = _row_condition(rows_low, rows_high)
            for group in grouped(scans, self.options.max_partition_bytes):
                yield PlainTask(sub_plan(scan_plan, group), cut)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, RowsTask):
            yield from partition.rows.to_batches()
        elif isinstance(partition, ChangesTask):
            yield from read_task(self._opened, self.table, partition, None, self.names)
        elif isinstance(partition, InsertsTask):
            lake = self.lake
            rows = read_changes(partition.plan, lake.store, lake.db, where=partition.where)
            yield from self._as_rows(rows).to_batches()
        elif isinstance(partition, PlainTask):
            yield from self._read_plain(partition.plan, partition.where)

    def _read_plain(self, plan: ScanPlan, where: str | None) -> Iterator[pa.RecordBatch]:
        lake = self.lake
        hidden = ("rowid",) if self.options.change_feed else ()
        for batch in iter_plan(plan, lake.store, lake.db, where=where, hidden=hidden):
            if batch.num_rows:
                rows = pa.Table.from_batches([batch])
                yield from self._as_initial(rows, plan.snapshot).to_batches()

    def _as_rows(self, rows: pa.Table) -> pa.Table:
        own = rows.select([column.name for column in self.table.columns])
        return to_spark(own, self.table.columns).rename_columns(self.names)

    def _as_initial(self, rows: pa.Table, snapshot: Snapshot) -> pa.Table:
        """Rows as Spark wants them; in a change feed, those that were there at first are insertions."""
        if not self.options.change_feed:
            return self._as_rows(rows)
        moment = pa.scalar(snapshot.time, pa.timestamp("us", "UTC"))
        feed: dict[str, AnyArray] = {
            "_change_type": pa.repeat(pa.scalar("insert"), rows.num_rows),
            "_commit_version": pa.repeat(pa.scalar(snapshot.id, pa.int64()), rows.num_rows),
            "_commit_timestamp": pa.repeat(moment, rows.num_rows),
            "_rowid": rows.column("rowid"),
        }
        rows = rows.drop_columns(["rowid"])
        for name, values in feed.items():
            rows = rows.append_column(name, values)
        return as_feed(rows, self.table, self.names)


def _at_birth(change: FileChanges) -> FileScan:
    """The rows of a file that were there when it was committed: those deleted later too."""
    born = change.file.begin_snapshot
    return FileScan(
        change.file,
        tuple(delete for delete in change.deletes if delete.begin_snapshot <= born),
        tuple(position for position, at in change.inlined_deletes if at <= born),
    )


def _rows_of(snapshot: SnapshotId, first: Position, last: Position) -> tuple[int, int | None]:
    """The row ids of one snapshot that a batch reads: from, and up to (None: all)."""
    low = first.row if first.row is not None and first.snapshot == snapshot else 0
    return low, last.row if last.snapshot == snapshot else None


def _overlaps(known: Range | None, low: int, high: int | None) -> bool:
    return known is None or (known[1] > low and (high is None or known[0] < high))


def _all_of(*parts: str | None) -> str:
    return " AND ".join(f"({part})" for part in parts if part is not None)


def _row_condition(low: int, high: int | None) -> str | None:
    """A condition on the hidden column `rowid`; None for all rows."""
    parts = [f"rowid >= {low}"] if low else []
    if high is not None:
        parts.append(f"rowid < {high}")
    return " AND ".join(parts) or None
