"""A lake in a Spark session: what everything in this layer shares."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from headwater.algebra.predicates import Predicate
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.spark.jvm import Jvm
from headwater.spark.reading.columns import NativeColumn
from headwater.spark.reading.frame import FrameReader
from headwater.spark.reading.pushed import predicate_of, says_something
from headwater.spark.session import attach_session
from headwater.spark.stores import JvmStores


class LakeSpark:
    """One lake and the Spark session that reads and writes it."""

    def __init__(self, lake: Lake, spark: SparkSession):
        self.lake = lake
        self.spark = attach_session(spark)
        self.jvm = Jvm(spark)
        self.stores = JvmStores(spark, lake.store.options)

    @cached_property
    def reader(self) -> FrameReader:
        """Makes DataFrames of scan plans."""
        return FrameReader(self.spark, self.lake, self.jvm, self.stores)

    def predicate(self, table: Table, where: str) -> Predicate | None:
        """What a condition in Spark's SQL says about files; None if nothing.

        Spark itself reads the condition, so that its meaning (types, time zone, functions) is Spark's own.
        """
        columns = [NativeColumn(column, column.name) for column in table.columns]
        empty = self.jvm.empty(self.spark, [column.field() for column in columns])
        frame: DataFrame = empty.where(where)
        predicate = predicate_of(self.jvm.conditions(frame), table)
        return predicate if says_something(predicate) else None
