"""A lake in a Spark session: what everything in this layer shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession

from headwater.algebra.predicates import Predicate, says_something
from headwater.lake.lake import At, Lake
from headwater.lake.model import Table
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.dml import as_arrow
from headwater.lake.writing.transaction import Transaction
from headwater.spark.jvm import Jvm
from headwater.spark.reading.columns import NativeColumn
from headwater.spark.reading.deletes import delete_count
from headwater.spark.reading.frame import FrameReader
from headwater.spark.reading.kept import KeptRelations
from headwater.spark.reading.pushed import predicate_of
from headwater.spark.session import attach_session
from headwater.spark.stores import JvmStores
from headwater.spark.types import in_pieces, to_spark
from headwater.spark.writing.rows import RowWriter
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.sql.calling import Procedure
    from headwater.spark.table import LakeTable


class LakeSpark:
    """One lake and the Spark session that reads and writes it."""

    def __init__(self, lake: Lake, spark: SparkSession):
        self.lake = lake
        self.spark = attach_session(spark)
        self.jvm = Jvm(spark)
        self.stores = JvmStores(spark, lake.store.options)
        self.writer = RowWriter(self.stores)
        self.kept = KeptRelations()
        """Plans of tables that statements named."""
        self.procedures: Mapping[str, Procedure] = {}
        """What `CALL lake.system.…` can call, by name."""

    @cached_property
    def reader(self) -> FrameReader:
        """Makes DataFrames of scan plans."""
        return FrameReader(self.spark, self.lake, self.jvm, self.stores)

    def table(self, name: TableName | str) -> LakeTable:
        """A handle on a table, which need not exist yet."""
        from headwater.spark.table import LakeTable

        return LakeTable(self, name)

    def frame(
        self,
        name: TableName | str,
        at: At = None,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        hidden: Collection[str] = (),
    ) -> DataFrame:
        """The rows of a table at a snapshot."""
        predicate = None
        if where is not None:
            predicate = self.predicate(self.lake.table(name, at), where)
        plan = self.lake.scan(name, at, predicate)
        request = Request.of(plan.table, None, None, hidden)
        frame = self.reader.read(plan, wanted=request.hidden).frame
        if where is not None:
            frame = frame.where(where)
        if columns is None:
            return frame
        chosen = Request.of(plan.table, columns, None, ()).columns
        return frame.select(*(frame[f"`{c.name}`"] for c in chosen), *request.hidden)

    def predicate(self, table: Table, where: str | SparkColumn) -> Predicate | None:
        """What a condition in Spark's SQL says about files; None if nothing.

        Spark itself reads the condition, so that its meaning (types, time zone, functions) is Spark's own.
        """
        columns = [NativeColumn(column, column.name) for column in table.columns]
        empty = self.jvm.empty(self.spark, [column.field() for column in columns])
        predicate = predicate_of(self.jvm.conditions(empty.where(where)), table)
        return predicate if says_something(predicate) else None

    def target(
        self, tx: Transaction, name: TableName | str, where: str | SparkColumn | None, wanted: Collection[str]
    ) -> tuple[ScanPlan, DataFrame]:
        """The rows of a table that a transaction is about to change, pruned but not filtered by `where`."""
        table = tx.state.table(name)
        predicate = None if where is None else self.predicate(table, where)
        # Inlined rows that are flushed meanwhile are a conflict, and the transaction runs again.
        found = self.reader.read(tx.scan(name, predicate), wanted=wanted, replan=False)
        return found.plan, found.frame

    def live_rows(self, tx: Transaction, name: TableName | str) -> int:
        """How many rows a table has for a transaction that has not changed them, from the catalog alone."""
        return live_rows(tx.scan(name))

    def local_frame(self, rows: Any, table: Table) -> DataFrame:
        """Rows that are in this process as a DataFrame."""
        data: pa.Table = as_arrow(rows, table)
        return self.spark.createDataFrame(in_pieces(to_spark(data, table.columns)))


def live_rows(plan: ScanPlan) -> int:
    """How many rows a plan reads, from the catalog alone."""
    stored = sum(scan.file.record_count for scan in plan.files) - delete_count(plan.files)
    return stored + sum(inlined.row_count for inlined in plan.inlined)
