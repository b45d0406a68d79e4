"""The change feed of a table: which rows were inserted, updated and deleted by which snapshots.

Few changes are read by the driver, without a Spark job. Many are read by Spark: files that only brought new
rows with its own reader, files of which rows were deleted in workers that read no more than those rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.errors import ConflictError
from headwater.lake.format.types import no_rows
from headwater.lake.lake import At
from headwater.lake.model import Column
from headwater.lake.reading.change_plan import ChangePlan, FileChanges, replan_changes
from headwater.lake.reading.change_reader import EVENT_COLUMNS, event_rows, read_changes
from headwater.lake.reading.change_rows import CHANGE_COLUMNS
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.spark.literals import name_sql
from headwater.spark.types import in_pieces, spark_schema, spark_type, to_spark
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

#: Up to this many changes the driver reads them itself.
FOR_THE_DRIVER = 100_000
_FILES_PER_TASK = 8
_REPLANS = 5
_ROW_ID, _VERSION, _BEGINS = EVENT_COLUMNS


def changes(
    session: LakeSpark,
    name: TableName | str,
    start: At,
    end: At = None,
    *,
    net: bool = False,
    large: bool | None = None,
) -> DataFrame:
    """The changes of the snapshots from `start` to `end`, both included; see `LakeTable.changes`."""
    lake = session.lake
    plan = lake.plan_changes(name, start if start is not None else 0, end)
    if not (plan.rows_at_most > FOR_THE_DRIVER if large is None else large):
        found = read_changes(plan, lake.store, lake.db, net=net, replan=True)
        columns = (*plan.table.columns, *CHANGE_COLUMNS)
        return session.spark.createDataFrame(in_pieces(to_spark(found, columns)), spark_schema(columns))
    return _Feed(session, plan, plan.table.columns).read(net)


def came_and_went(session: LakeSpark, plan: ChangePlan, columns: Sequence[Column]) -> DataFrame:
    """What differs in some columns between the two ends of a plan, read by Spark.

    After the columns come the row id, and 1 for a row that came or -1 for one that went.
    """
    feed = _Feed(session, plan, columns)
    sign = F.when(F.col(_BEGINS) == 1, 1).otherwise(-1)
    own = [F.col(name_sql(column.name)) for column in columns]
    return feed.net().select(*own, F.col(_ROW_ID), sign)


class _Feed:
    """The changes of one plan, read by Spark."""

    def __init__(self, session: LakeSpark, plan: ChangePlan, columns: Sequence[Column]):
        self.session = session
        self.plan = plan
        self.columns = columns

    def read(self, net: bool) -> DataFrame:
        return self._labelled(self.net() if net else self._all())

    def net(self) -> DataFrame:
        return self._events() if self.plan.no_row_twice else self._net(self._all())

    def _all(self) -> DataFrame:
        events = self._events()
        return self._without_moved(events) if self.plan.mixed else events

    # -- beginnings and ends of rows ----------------------------------------------------------------

    def _events(self) -> DataFrame:
        parts = [self._local(self._inlined())]
        arrivals = [change for change in self.plan.files if not change.has_deletions]
        others = [change for change in self.plan.files if change.has_deletions]
        if arrivals:
            parts.append(self._arrived(arrivals))
        if others:
            parts.append(self._in_workers(others))
        return reduce(DataFrame.unionAll, parts)

    def _inlined(self) -> pa.Table:
        """Events of rows in the catalog; the plan is made anew if they were flushed to files meanwhile."""
        lake = self.session.lake
        for _ in range(_REPLANS):
            try:
                return event_rows(replace(self.plan, files=()), lake.store, lake.db, self._names)
            except ConflictError:
                self.plan = replan_changes(lake.db, self.plan)
        return event_rows(replace(self.plan, files=()), lake.store, lake.db, self._names)

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.columns]

    def _local(self, rows: pa.Table) -> DataFrame:
        schema = _event_schema(self.columns)
        if not rows.num_rows:
            rows = no_rows(rows.schema)
        return self.session.spark.createDataFrame(in_pieces(to_spark(rows, self.columns)), schema)

    def _arrived(self, arrivals: Sequence[FileChanges]) -> DataFrame:
        """Rows of files from which nothing was deleted until the end of the range."""
        files = [FileScan(change.file) for change in arrivals]
        scan = ScanPlan(self.plan.table, self.plan.end, files, mappings=self.plan.mappings)
        rows = self.session.reader.read(scan, columns=self.columns, wanted=("rowid", "snapshot_id")).frame
        begun = F.col("snapshot_id")
        rows = rows.where(begun.between(self.plan.start.id, self.plan.end.id))
        if self.plan.moves:
            rows = rows.where(~begun.isin(sorted(self.plan.moves)))
        own = [F.col(name_sql(column.name)) for column in self.columns]
        return rows.select(
            *own, F.col("rowid").alias(_ROW_ID), begun.alias(_VERSION), F.lit(1).cast("bigint").alias(_BEGINS)
        )

    def _in_workers(self, others: Sequence[FileChanges]) -> DataFrame:
        lake = self.session.lake
        columns, names = self.columns, self._names
        context = pickle.dumps((replace(self.plan, files=(), inlined=()), lake.store, lake.db))
        tasks = [
            pickle.dumps(others[first : first + _FILES_PER_TASK])
            for first in range(0, len(others), _FILES_PER_TASK)
        ]

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            plan, store, db = pickle.loads(context)  # noqa: S301 - our own
            for batch in batches:
                for task in batch.column(0).to_numpy():
                    files = pickle.loads(tasks[task])  # noqa: S301 - our own
                    rows = event_rows(replace(plan, files=files), store, db, names)
                    yield from to_spark(rows, columns).to_batches(max_chunksize=65_536)

        schema = _event_schema(columns)
        return self.session.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, schema)

    # -- changes ------------------------------------------------------------------------------------

    def _without_moved(self, events: DataFrame) -> DataFrame:
        """Without rows that only went from one file to another, in snapshots that also changed others."""
        pair = Window.partitionBy(_ROW_ID, _VERSION)
        content = self._content()
        seen = events.withColumn("headwater pair", F.count("*").over(pair)).withColumn(
            "headwater same", F.min(content).over(pair).eqNullSafe(F.max(content).over(pair))
        )
        moved = (
            F.col(_VERSION).isin(sorted(self.plan.mixed))
            & (F.col("`headwater pair`") == 2)
            & F.col("`headwater same`")
        )
        return seen.where(~moved).drop("headwater pair", "headwater same")

    def _net(self, events: DataFrame) -> DataFrame:
        """Of each row the state before the first event and after the last, if they differ."""
        row = Window.partitionBy(_ROW_ID)
        ordered = row.orderBy(_VERSION, _BEGINS)
        backwards = row.orderBy(F.desc(_VERSION), F.desc(_BEGINS))
        last = F.max(_VERSION).over(row)
        ends = (
            events.withColumn("headwater first", F.row_number().over(ordered) == 1)
            .withColumn("headwater last", F.row_number().over(backwards) == 1)
            .withColumn(_VERSION, last)
        )
        before = F.col("`headwater first`") & (F.col(_BEGINS) == 0)
        after = F.col("`headwater last`") & (F.col(_BEGINS) == 1)
        kept = ends.where(before | after).drop("headwater first", "headwater last")
        content = self._content()
        same = (F.count("*").over(row) == 2) & F.min(content).over(row).eqNullSafe(F.max(content).over(row))
        return (
            kept.withColumn("headwater same", same).where(~F.col("`headwater same`")).drop("headwater same")
        )

    def _content(self) -> SparkColumn:
        """All columns of a row as one value that can be compared."""
        if not self.columns:
            return F.lit(0)
        return F.struct(*(_comparable(F.col(name_sql(c.name)), c) for c in self.columns))

    def _labelled(self, events: DataFrame) -> DataFrame:
        pair = Window.partitionBy(_ROW_ID, _VERSION)
        updated = F.count("*").over(pair) == 2
        begins = F.col(_BEGINS) == 1
        kind = (
            F.when(updated & begins, "update_postimage")
            .when(updated, "update_preimage")
            .when(begins, "insert")
            .otherwise("delete")
        )
        times = self.session.spark.createDataFrame(
            pa.table(
                {
                    _VERSION: pa.array(list(self.plan.times), pa.int64()),
                    "_commit_timestamp": pa.array(list(self.plan.times.values()), pa.timestamp("us", "UTC")),
                }
            )
        )
        labelled = events.withColumn("_change_type", kind).join(F.broadcast(times), _VERSION)
        names = [*(c.name for c in self.columns), *(c.name for c in CHANGE_COLUMNS)]
        return labelled.select(*(F.col(name_sql(name)) for name in names))


def _event_schema(columns: Sequence[Column]) -> st.StructType:
    fields = [st.StructField(name, st.LongType()) for name in EVENT_COLUMNS]
    return st.StructType([*spark_schema(columns).fields, *fields])


def _comparable(value: SparkColumn, column: Column) -> SparkColumn:
    """Maps have no order of their own; as JSON of sorted entries they have."""
    kind = spark_type(column)
    if "map<" in kind.simpleString():
        return F.to_json(F.struct(value.alias("v")))
    return value
