"""`readChangeFeed`: how rows changed, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.errors import InvalidInputError
from headwater.lake.model import Table
from headwater.lake.reading.change_reader import read_changes
from headwater.lake.reading.change_rows import CHANGE_COLUMNS
from headwater.spark.datasource.history import TableHistory
from headwater.spark.datasource.place import OpenLake
from headwater.spark.types import spark_field, to_spark
from headwater.typedefs import SnapshotId

#: The columns after those of the table, in Delta's order; `_rowid` tells rows apart that look the same.
FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp", "_rowid")
_TASKS = 8


def feed_schema(table: Table) -> st.StructType:
    """The Spark schema of a table's changes."""
    own = {column.name: column for column in CHANGE_COLUMNS}
    for column in table.columns:
        if column.name.lower() in own:
            raise InvalidInputError(
                f"Table {table.name} has a column {column.name!r}, as its changes have.",
                hint="Rename it to read the table's changes.",
                table=str(table.name),
            )
    return st.StructType([spark_field(c) for c in (*table.columns, *(own[name] for name in FEED_COLUMNS))])


@dataclass
class ChangesTask(InputPartition):
    """The changes of some snapshots, one after the other."""

    low: SnapshotId
    high: SnapshotId


def change_tasks(snapshots: Sequence[SnapshotId]) -> list[InputPartition]:
    """Tasks for the changes of these snapshots. (Old and new row of an update are of the same snapshot.)"""
    size = max(1, -(-len(snapshots) // _TASKS))
    groups = [snapshots[i : i + size] for i in range(0, len(snapshots), size)]
    return [ChangesTask(group[0], group[-1]) for group in groups]


def read_task(
    opened: OpenLake, table: Table, task: ChangesTask, where: str | None, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in Spark's types and under these names."""
    lake = opened.open()
    plan = TableHistory(lake, table).plan(task.low, task.high)
    rows = read_changes(plan, lake.store, lake.db, where=where, replan=True)
    yield from as_feed(rows, table, names).to_batches()


def as_feed(rows: pa.Table, table: Table, names: Sequence[str]) -> pa.Table:
    """Changes as Spark wants them."""
    chosen = rows.select([*(column.name for column in table.columns), *FEED_COLUMNS])
    return to_spark(chosen, (*table.columns, *CHANGE_COLUMNS)).rename_columns(list(names))


class ChangeFeedReader(DataSourceReader):
    """Reads the changes of a range of snapshots."""

    def __init__(
        self,
        opened: OpenLake,
        table: Table,
        between: tuple[SnapshotId, SnapshotId],
        where: str | None,
        schema: st.StructType,
    ):
        self._opened = opened
        self._table = table
        self._between = between
        self._where = where
        self._names = schema.fieldNames()

    def partitions(self) -> list[InputPartition]:
        """A few tasks of consecutive snapshots."""
        history = TableHistory(self._opened.open(), self._table)
        history.plan(*self._between)  # says so if changes of the range are no longer known
        return change_tasks([commit.snapshot.id for commit in history.commits(*self._between)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one task."""
        if isinstance(partition, ChangesTask):
            yield from read_task(self._opened, self._table, partition, self._where, self._names)
