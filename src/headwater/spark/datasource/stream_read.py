"""`spark.readStream.format("ducklake")`: the rows that snapshots insert, each exactly once.

Without `startingVersion` or `startingTimestamp` a stream first reads the whole table as it is when the stream
begins, then what is inserted. A snapshot that deletes or updates rows ends the stream with an error, unless
options say what to do with it; with `readChangeFeed` it is read like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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

from headwater.errors import ConflictError, NotFoundError, SnapshotError
from headwater.lake.catalog import as_time
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.lake.reading.change_plan import ChangePlan
from headwater.spark.datasource.change_feed import feed_schema
from headwater.spark.datasource.history import Commit
from headwater.spark.datasource.place import OpenLake
from headwater.spark.datasource.positions import Position
from headwater.spark.datasource.row_ranges import catalog_range
from headwater.spark.datasource.stream_options import Budget, StreamOptions
from headwater.spark.datasource.stream_tasks import StreamTasks
from headwater.spark.types import spark_schema
from headwater.typedefs import SnapshotId

#: After so many snapshots about other tables an idle stream moves on, lest those it waits at expire.
_IDLE_SNAPSHOTS = 50
_REPLANS = 5


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one table as a stream."""

    def __init__(self, opened: OpenLake, table: Table, options: StreamOptions, schema: st.StructType):
        self._opened = opened
        self._table = table
        self._options = options
        self._tasks = StreamTasks(opened, table, options, schema.fieldNames())
        # A column of that name hides the row id, by which snapshots are cut.
        self._can_cut = table.column("rowid") is None
        self._last: SnapshotId | None = None
        """With Trigger.AvailableNow, the snapshot that was the newest when the query began."""

    @property
    def _lake(self) -> Lake:
        return self._opened.open()

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
            Budget(None, None)
            if isinstance(limit, ReadAllAvailable)
            else Budget(self._options.max_files, self._options.max_bytes)
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

    def _initial_end(self, start: Position, budget: Budget) -> Position:
        plan = self._tasks.initial_plan(start.snapshot)
        done = replace(start, row=None)
        if (budget.files is None and budget.size is None) or not self._can_cut:
            return done
        if budget.files is not None and len(plan.files) <= budget.files and budget.size is None:
            return done
        ranges = self._tasks.ranges(plan)
        ordered = sorted(
            (known, scan.file.file_size_bytes)
            for scan in plan.files
            if (known := ranges[scan.file.id]) is not None and known[0] >= (start.row or 0)
        )
        for (low, _), size in ordered:
            if not budget.take(size) and low > (start.row or 0):
                return replace(start, row=low)
        return done

    def _changes_end(self, start: Position, newest: SnapshotId, budget: Budget) -> Position | None:
        low = start.next_snapshot
        try:
            plan = self._tasks.history.plan(low, newest)
        except SnapshotError as error:
            return self._after_loss(start, error)
        origin = start.origin
        last: Position | None = None
        for commit in self._tasks.history.commits(low, newest):
            if self._options.is_refused(commit):
                if last is None:
                    raise self._options.refusal(commit, self._table.name)
                return last
            end: Position | None = Position(start.table, commit.snapshot.id, None, False, origin)
            if self._options.is_read(commit):
                end = self._within(plan, commit, start, budget)
            if end is None:
                return last
            last = end
            if end.row is not None:
                return last
        if last is None and newest - low < _IDLE_SNAPSHOTS:
            return None
        return Position(start.table, newest, None, False, origin)

    def _within(self, plan: ChangePlan, commit: Commit, start: Position, budget: Budget) -> Position | None:
        """How far into one snapshot the budget reaches; None if not at all."""
        number = commit.snapshot.id
        complete = Position(start.table, number, None, False, start.origin)
        files = [c.file for c in plan.files if c.inserted is not None and c.file.begin_snapshot == number]
        ranges = [catalog_range(file) for file in files]
        whole = commit.deletes or self._options.change_feed or not self._can_cut
        if whole or not files or None in ranges:
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

    # -- reading ----------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch: the same rows for the same offsets, always."""
        last = self._checked(Position.of(end))
        first = Position.of(start).as_before(last)
        if last.initial:
            return self._again_if_flushed(lambda: self._tasks.initial(first, last))
        if first.next_snapshot > last.snapshot:
            return []
        try:
            if self._options.change_feed:
                return self._tasks.changed(first, last)
            return self._again_if_flushed(lambda: self._tasks.inserted(first, last))
        except SnapshotError as error:
            self._after_loss(first, error)
            return []

    @staticmethod
    def _again_if_flushed(plan: Callable[[], Iterable[InputPartition]]) -> list[InputPartition]:
        for _ in range(_REPLANS):
            try:
                return list(plan())
            except ConflictError:
                continue
        return list(plan())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._tasks.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to forget: the lake keeps snapshots by rules of its own."""

    def stop(self) -> None:
        """Close the connections of this process."""
        self._opened.lake.close()


def stream_schema(table: Table, options: StreamOptions) -> st.StructType:
    """The Spark schema of a stream of that table."""
    return feed_schema(table) if options.change_feed else spark_schema(table.columns)
