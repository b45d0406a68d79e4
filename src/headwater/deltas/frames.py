"""Datasets as Spark sees them: the same rules as the view's, as DataFrames."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headwater.deltas.folding import plan_rows, stored_bytes
from headwater.deltas.matching import fold_log
from headwater.deltas.model import DELTA, OPERATION, PLACE, SEQUENCE, UPSERT, Bound, Pair
from headwater.deltas.reading import log_rows
from headwater.lake.model import Column
from headwater.spark.connector import LakeSpark
from headwater.spark.literals import name_sql
from headwater.spark.types import in_pieces, spark_schema, to_spark
from headwater.spark.writing.rows import FOR_THE_DRIVER
from headwater.typedefs import SnapshotId

#: How many newer rows of its key a row of the log has, counted from 1; and the operation before it.
BACK, BEFORE = "_hw_back", "_hw_before"
#: A log of no more rows is read by the driver when a dataset is.
_FEW_ROWS = 100_000


def column(name: str, alias: str | None = None) -> SparkColumn:
    """A column by its exact name."""
    return F.col(name_sql(name) if alias is None else f"{alias}.{name_sql(name)}")


def log_frame(bound: Bound, rows: DataFrame, operation: str, delta: str) -> DataFrame:
    """Rows with the columns that a log has; what the base must have and they lack stops the job."""
    given = {name.lower() for name in rows.columns}
    chosen = []
    for pair in bound.columns:
        if pair.name.lower() in given:
            value = column(pair.name)
            if not pair.base.nulls_allowed:
                wrong = f"Column {pair.name!r} of dataset {bound.dataset.name} must have a value."
                value = F.when(value.isNull(), F.raise_error(F.lit(wrong))).otherwise(value)
            chosen.append(value.alias(pair.log.name))
    return rows.select(
        *chosen,
        F.lit(operation).alias(OPERATION),
        F.lit(delta).alias(DELTA),
        F.lit(None).cast("bigint").alias(PLACE),
    )


def shown_frame(session: LakeSpark, bound: Bound, at: SnapshotId) -> DataFrame:
    """The rows of a dataset at a snapshot."""
    base = session.frame(bound.base.name, at)
    base = base.select(*(column(pair.base.name).alias(pair.name) for pair in bound.columns))
    plan = session.lake.scan(bound.log.name, at)
    if not plan.files and not plan.inlined:
        return base
    if plan_rows(plan) <= _FEW_ROWS and stored_bytes(plan.files) <= FOR_THE_DRIVER:
        local, keys, upserts = _folded_here(session, bound, at)
        keys = F.broadcast(keys)
        same = same_key(bound.key, "b", "l", named=True, never_null=local)
    else:
        keys = session.reader.read(plan, wanted=(SEQUENCE,)).frame
        newest = ordered(keys, bound.key).where((F.col(BACK) == 1) & (F.col(OPERATION) == UPSERT))
        upserts = newest.select(*(column(pair.log.name) for pair in bound.columns))
        same = same_key(bound.key, "b", "l", named=True)
    kept = base.alias("b").join(keys.alias("l"), same, "left_anti")
    return kept.unionAll(upserts.toDF(*(pair.name for pair in bound.columns)))


def _folded_here(session: LakeSpark, bound: Bound, at: SnapshotId) -> tuple[set[str], DataFrame, DataFrame]:
    """The keys of a short log, and the rows that it says last, read by the driver: no job has to.

    Key columns that are never NULL in it come first: they are compared faster.
    """
    log = log_rows(session.lake, bound, at)
    keys = log.select([pair.log.name for pair in bound.key])
    newest = fold_log(keys, log.column(OPERATION), log.column(SEQUENCE)).newest
    operations = log.column(OPERATION).to_pylist()
    shown = [place for place in newest.tolist() if operations[place] == UPSERT]
    rows = log.select([pair.log.name for pair in bound.columns]).take(np.array(shown, np.int64))
    return (
        {name for name in keys.schema.names if not keys.column(name).null_count},
        _local(session, keys.take(newest), [pair.log for pair in bound.key]),
        _local(session, rows, [pair.log for pair in bound.columns]),
    )


def _local(session: LakeSpark, rows: pa.Table, columns: Sequence[Column]) -> DataFrame:
    return session.spark.createDataFrame(in_pieces(to_spark(rows, columns)), spark_schema(columns))


def ordered(log: DataFrame, key: Sequence[Pair]) -> DataFrame:
    """The log with, for each row, how many newer ones there are, and what was said of its key before."""
    window = Window.partitionBy(*(column(pair.log.name) for pair in key))
    return log.withColumns(
        {
            BACK: F.row_number().over(window.orderBy(F.col(SEQUENCE).desc())),
            BEFORE: F.lag(OPERATION).over(window.orderBy(F.col(SEQUENCE))),
        }
    )


def same_key(
    key: Sequence[Pair], base: str, log: str, *, named: bool = False, never_null: Collection[str] = ()
) -> SparkColumn:
    """Equal keys of two aliased frames; with `named` the first has the names that users know.

    Where the log's side is never NULL, a plain comparison finds the same rows.
    """
    condition = F.lit(True)
    for pair in key:
        one = column(pair.name if named else pair.base.name, base)
        other = column(pair.log.name, log)
        condition = condition & (one == other if pair.log.name in never_null else one.eqNullSafe(other))
    return condition
