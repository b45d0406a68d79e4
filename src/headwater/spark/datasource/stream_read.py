"""`spark.readStream.format("ducklake")`: the rows that snapshots insert, each exactly once.

Without `startingVersion` or `startingTimestamp` a stream first reads the whole table as it is when the stream
begins, then what is inserted. A snapshot that deletes or updates rows ends the stream with an error, unless
options say what to do with it; with `readChangeFeed` it is read like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from headwater.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SettingsError,
    SnapshotError,
)
from headwater.lake.catalog import CatalogState, as_time
from headwater.lake.format.types import AnyArray
from headwater.lake.lake import Lake
from headwater.lake.model import Snapshot, Table
from headwater.lake.reading.change_plan import ChangePlan, FileChanges
from headwater.lake.reading.change_reader import read_changes
from headwater.lake.reading.read import iter_plan, read_plan
from headwater.lake.reading.scan import FileScan, ScanPlan, plan_scan
from headwater.spark.datasource.batch_read import FilesTask, RowsTask, grouped, sub_plan
from headwater.spark.datasource.change_feed import ChangesTask, as_feed, change_tasks, feed_schema, read_task
from headwater.spark.datasource.history import Commit, TableHistory
from headwater.spark.datasource.options import SourceOptions
from headwater.spark.datasource.place import OpenLake
from headwater.spark.datasource.positions import Position, between
from headwater.spark.datasource.row_ranges import Range, catalog_range, footer_range
from headwater.spark.types import spark_schema, to_spark
from headwater.typedefs import FileId, SnapshotId

#: As much as Delta takes at once.
_DEFAULT_MAX_FILES = 1000
#: After so many snapshots about other tables an idle stream moves on, lest those it waits at expire.
_IDLE_SNAPSHOTS = 50
_REPLANS = 5


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream reads."""

    starting_version: str | None
    starting_timestamp: str | None
    max_files: int | None
    max_bytes: int | None
    change_feed: bool
    ignore_deletes: bool
    ignore_changes: bool
    skip_changes: bool
    fail_on_data_loss: bool
    max_partition_bytes: int

    @classmethod
    def of(cls, said: SourceOptions, max_partition_bytes: int) -> StreamOptions:
        """From the user's options; refuses those that only a batch read knows."""
        said.refuse_both("startingVersion", "startingTimestamp")
        for name in ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp", "where", "columns"):
            if said.text(name) is not None:
                raise SettingsError(f"A stream has no option {name!r}.", hint="Filter the stream instead.")
        version = said.text("startingVersion")
        if version is not None and version.lower() != "latest":
            said.number("startingVersion")
        files, size = said.number("maxFilesPerTrigger"), said.size("maxBytesPerTrigger")
        if files == 0:
            raise SettingsError("maxFilesPerTrigger must be at least 1.")
        return cls(
            version,
            said.text("startingTimestamp"),
            _DEFAULT_MAX_FILES if files is None and size is None else files,
            size,
            said.flag("readChangeFeed"),
            said.flag("ignoreDeletes"),
            said.flag("ignoreChanges"),
            said.flag("skipChangeCommits"),
            said.flag("failOnDataLoss", True),
            said.size("maxPartitionBytes") or max_partition_bytes,
        )


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


@dataclass
class _Budget:
    """What a batch may still take; the first file always fits."""

    files: int | None
    size: int | None
    taken: int = field(default=0)

    def take(self, size: int) -> bool:
        """Whether one more file fits."""
        if self.taken and (
            (self.files is not None and self.files < 1) or (self.size is not None and self.size < size)
        ):
            return False
        self.taken += 1
        self.files = None if self.files is None else self.files - 1
        self.size = None if self.size is None else self.size - size
        return True


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one table as a stream."""

    def __init__(self, opened: OpenLake, table: Table, options: StreamOptions, schema: st.StructType):
        self._opened = opened
        self._table = table
        self._options = options
        self._names = schema.fieldNames()
        self._kept_history: TableHistory | None = None
        self._known_ranges: dict[FileId, Range | None] = {}
        self._last: SnapshotId | None = None
        """With Trigger.AvailableNow, the snapshot that was the newest when the query began."""

    @property
    def _lake(self) -> Lake:
        return self._opened.open()

    @property
    def _history(self) -> TableHistory:
        if self._kept_history is None:
            self._kept_history = TableHistory(self._lake, self._table)
        return self._kept_history

    # -- where to begin -------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new stream begins."""
        options, lake = self._options, self._lake
        newest = lake.snapshot().id
        if options.starting_timestamp is not None:
            before = [s.id for s in lake.snapshots() if s.time < as_time(options.starting_timestamp)]
            return self._changes_after(max(before, default=0)).offset()
        if options.starting_version is None:
            return Position(self._table.id, newest, 0, True, newest).offset()
        if options.starting_version.lower() == "latest":
            return self._changes_after(newest).offset()
        wanted = int(options.starting_version)
        if wanted > newest + 1:
            raise SnapshotError(
                f"Snapshot {wanted} is in the future: the newest is {newest}.", snapshot_id=wanted
            )
        return self._changes_after(max(0, wanted - 1)).offset()

    def _changes_after(self, snapshot: SnapshotId) -> Position:
        return Position(self._table.id, snapshot, None, False, snapshot)

    # -- how far to read ------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What one batch takes at most."""
        if self._options.max_files is not None:
            return ReadMaxFiles(self._options.max_files)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take no notice of what is committed from now on."""
        self._last = self._lake.snapshot().id

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far one could read, for Spark's progress reports."""
        newest = self._lake.snapshot().id
        return Position(self._table.id, newest, None, False, newest).offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` itself if there is nothing to read."""
        position = self._checked(Position.of(start))
        budget = (
            _Budget(None, None)
            if isinstance(limit, ReadAllAvailable)
            else _Budget(self._options.max_files, self._options.max_bytes)
        )
        if position.initial and position.row is not None:
            return self._initial_end(position, budget).offset()
        newest = self._lake.snapshot().id if self._last is None else self._last
        if position.next_snapshot > newest:
            return start
        self._refuse_lost_table()
        end = self._changes_end(position, newest, budget)
        return start if end is None or end == position else end.offset()

    def _checked(self, position: Position) -> Position:
        if position.table != self._table.id:
            raise NotFoundError(
                f"The table that this stream read is gone; {self._table.name} is another one.",
                hint="Begin a new stream, with a checkpoint of its own.",
                table=str(self._table.name),
            )
        return position

    def _refuse_lost_table(self) -> None:
        if self._lake.state().table_by_id(self._table.id) is None:
            raise NotFoundError(f"Table {self._table.name} was dropped.", table=str(self._table.name))

    def _initial_end(self, start: Position, budget: _Budget) -> Position:
        plan = self._initial_plan(start.snapshot)
        done = replace(start, row=None)
        if budget.files is None and budget.size is None:
            return done
        if budget.files is not None and len(plan.files) <= budget.files and budget.size is None:
            return done
        ranges = self._ranges(plan)
        ordered = sorted(
            (known, scan.file.file_size_bytes)
            for scan in plan.files
            if (known := ranges[scan.file.id]) is not None and known[0] >= (start.row or 0)
        )
        for (low, _), size in ordered:
            if not budget.take(size) and low > (start.row or 0):
                return replace(start, row=low)
        return done

    def _ranges(self, plan: ScanPlan) -> dict[FileId, Range | None]:
        pure = self._pure_snapshots(min((s.file.begin_snapshot for s in plan.files), default=0))
        for scan in plan.files:
            if scan.file.id not in self._known_ranges:
                known = catalog_range(scan.file) if scan.file.begin_snapshot in pure else None
                self._known_ranges[scan.file.id] = known or footer_range(self._lake.store, scan.file)
        return self._known_ranges

    def _pure_snapshots(self, low: SnapshotId) -> set[SnapshotId]:
        """Snapshots that inserted only: their files have row ids in the order of their rows."""
        commits = self._history.commits(low, self._lake.snapshot().id)
        return {commit.snapshot.id for commit in commits if not commit.deletes}

    def _changes_end(self, start: Position, newest: SnapshotId, budget: _Budget) -> Position | None:
        low = start.next_snapshot
        try:
            plan = self._history.plan(low, newest)
        except SnapshotError as error:
            return self._after_loss(start, error)
        origin = start.origin
        last: Position | None = None
        for commit in self._history.commits(low, newest):
            if self._is_refused(commit):
                if last is None:
                    raise self._refused(commit)
                return last
            end: Position | None = Position(start.table, commit.snapshot.id, None, False, origin)
            if self._is_read(commit):
                end = self._within(plan, commit, start, budget)
            if end is None:
                return last
            last = end
            if end.row is not None:
                return last
        if last is None and newest - low < _IDLE_SNAPSHOTS:
            return None
        return Position(start.table, newest, None, False, origin)

    def _within(self, plan: ChangePlan, commit: Commit, start: Position, budget: _Budget) -> Position | None:
        """How far into one snapshot the budget reaches; None if not at all."""
        number = commit.snapshot.id
        complete = Position(start.table, number, None, False, start.origin)
        files = [c.file for c in plan.files if c.inserted is not None and c.file.begin_snapshot == number]
        ranges = [catalog_range(file) for file in files]
        if commit.deletes or self._options.change_feed or not files or None in ranges:
            size = sum(file.file_size_bytes for file in files)
            return complete if budget.take(size) else None
        done = start.row if start.row is not None and start.snapshot == number else 0
        left = sorted(
            (known, file.file_size_bytes)
            for known, file in zip(ranges, files, strict=True)
            if known is not None and known[0] >= done
        )
        for place, ((low, _), size) in enumerate(left):
            if not budget.take(size):
                return None if place == 0 else replace(complete, row=low)
        return complete

    def _after_loss(self, start: Position, error: SnapshotError) -> Position:
        if self._options.fail_on_data_loss:
            raise SnapshotError(
                f"What snapshots after {start.snapshot} inserted into {self._table.name} is no longer known.",
                detail=error.detail or error.message,
                hint='Begin a new stream, or go on with what is left: .option("failOnDataLoss", "false").',
                **error.facts,
            ) from None
        gone = int(error.facts.get("snapshot_id", start.snapshot))
        after = [s.id for s in self._lake.snapshots() if s.id > gone]
        # The oldest snapshot that is left says nothing about what it changed itself.
        return Position(start.table, min(after, default=self._lake.snapshot().id), None, False, start.origin)

    # -- commits that do more than insert --------------------------------------------------------------

    def _is_read(self, commit: Commit) -> bool:
        """Whether what a commit inserts is read."""
        options = self._options
        if options.change_feed or not commit.deletes:
            return True
        return commit.inserts and options.ignore_changes and not options.skip_changes

    def _is_refused(self, commit: Commit) -> bool:
        options = self._options
        if not commit.deletes or options.change_feed or options.ignore_changes or options.skip_changes:
            return False
        return commit.inserts or not options.ignore_deletes

    def _refused(self, commit: Commit) -> InvalidInputError:
        what = "changed rows" if commit.inserts else "deleted rows"
        only_deletes = "" if commit.inserts else "ignoreDeletes (deletes are not noticed), "
        return InvalidInputError(
            f"Snapshot {commit.snapshot.id} {what} of {self._table.name}, and a stream of insertions cannot "
            "tell.",
            detail=f"It says of itself: {commit.snapshot.changes}.",
            hint=f"Choose one of the options {only_deletes}skipChangeCommits (such snapshots are left out), "
            "ignoreChanges (rows that they wrote are read, again if they only changed), readChangeFeed.",
            snapshot_id=commit.snapshot.id,
            table=str(self._table.name),
        )

    # -- reading ----------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch: the same rows for the same offsets, always."""
        last = self._checked(Position.of(end))
        first = Position.of(start).as_before(last)
        if last.initial:
            return self._again_if_flushed(lambda: self._initial_tasks(first, last))
        if first.next_snapshot > last.snapshot:
            return []
        try:
            if self._options.change_feed:
                return self._change_tasks(first, last)
            return self._again_if_flushed(lambda: self._insert_tasks(first, last))
        except SnapshotError as error:
            self._after_loss(first, error)
            return []

    def _change_tasks(self, first: Position, last: Position) -> list[InputPartition]:
        low, history = first.next_snapshot, self._history
        history.plan(low, last.snapshot)  # says so if changes of the range are no longer known
        return change_tasks([commit.snapshot.id for commit in history.commits(low, last.snapshot)])

    @staticmethod
    def _again_if_flushed(plan: Any) -> list[InputPartition]:
        for _ in range(_REPLANS):
            try:
                return list(plan())
            except ConflictError:
                continue
        return list(plan())

    def _initial_plan(self, snapshot_id: SnapshotId) -> ScanPlan:
        state = CatalogState(self._lake.snapshot(snapshot_id), "", {}, {}, {})
        return plan_scan(self._lake.db, state, self._table)

    def _initial_tasks(self, first: Position, last: Position) -> Iterator[InputPartition]:
        lake = self._lake
        plan = self._initial_plan(last.snapshot)
        low, high = first.row or 0, last.row
        where = None
        files: Sequence[FileScan] = plan.files
        if low or high is not None:
            where = f"rowid >= {low}" + ("" if high is None else f" AND rowid < {high}")
            ranges = self._ranges(plan)
            files = [scan for scan in plan.files if _overlaps(ranges[scan.file.id], low, high)]
        hidden = ("rowid",) if self._options.change_feed else ()
        rows = read_plan(replace(plan, files=()), lake.store, lake.db, where=where, hidden=hidden)
        if rows.num_rows:
            yield RowsTask(self._as_initial(rows, plan.snapshot))
        for group in grouped(files, self._options.max_partition_bytes):
            yield PlainTask(sub_plan(plan, group), where)

    def _insert_tasks(self, first: Position, last: Position) -> Iterator[InputPartition]:
        lake, low = self._lake, first.next_snapshot
        history = self._history
        plan = history.plan(low, last.snapshot)
        left_out = [
            commit.snapshot.id for commit in history.commits(low, last.snapshot) if not self._is_read(commit)
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
            scan_plan = ScanPlan(self._table, snapshot, scans, mappings=plan.mappings)
            rows_low, rows_high = _rows_of(born, first, last)
            cut = None
            if rows_low or rows_high is not None:
                cut = f"rowid >= {rows_low}" + ("" if rows_high is None else f" AND rowid < {rows_high}")
            for group in grouped(scans, self._options.max_partition_bytes):
                yield PlainTask(sub_plan(scan_plan, group), cut)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, RowsTask):
            yield from partition.rows.to_batches()
        elif isinstance(partition, ChangesTask):
            yield from read_task(self._opened, self._table, partition, None, self._names)
        elif isinstance(partition, InsertsTask):
            lake = self._lake
            rows = read_changes(partition.plan, lake.store, lake.db, where=partition.where)
            yield from self._as_rows(rows).to_batches()
        elif isinstance(partition, PlainTask | FilesTask):
            yield from self._read_plain(partition.plan, getattr(partition, "where", None))

    def _read_plain(self, plan: ScanPlan, where: str | None) -> Iterator[pa.RecordBatch]:
        lake = self._lake
        hidden = ("rowid",) if self._options.change_feed else ()
        for batch in iter_plan(plan, lake.store, lake.db, where=where, hidden=hidden):
            if batch.num_rows:
                rows = pa.Table.from_batches([batch])
                yield from self._as_initial(rows, plan.snapshot).to_batches()

    def _as_rows(self, rows: pa.Table) -> pa.Table:
        own = rows.select([column.name for column in self._table.columns])
        return to_spark(own, self._table.columns).rename_columns(self._names)

    def _as_initial(self, rows: pa.Table, snapshot: Snapshot) -> pa.Table:
        """Rows as Spark wants them; in a change feed, those that were there at first are insertions."""
        if not self._options.change_feed:
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
        return as_feed(rows, self._table, self._names)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to forget: the lake keeps snapshots by rules of its own."""

    def stop(self) -> None:
        """Close the connections of this process."""
        self._opened.lake.close()


def stream_schema(table: Table, options: StreamOptions) -> st.StructType:
    """The Spark schema of a stream of that table."""
    return feed_schema(table) if options.change_feed else spark_schema(table.columns)


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
