"""Logs of whole rows shortened on Spark, for those that do not fit into this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F

from headwater.deltas.folding import live_rows, stored_bytes, top_columns
from headwater.deltas.frames import column
from headwater.deltas.row_log import DELETE, INSERT, OPERATION, REFRESH_ID, SEQUENCE, TRUNCATE
from headwater.deltas.row_log_folding import Shortened, Shortening
from headwater.spark.reading.native import FILE
from headwater.spark.writing.conforming import stored_rows
from headwater.spark.writing.native import ROW_ID

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

#: Whether a row of a log stays, and whether it stands after the last beginning.
STAYS, _SINCE = "_hw_stays", "_hw_since"
_ROW_ID = "rowid"


def shorten_on_spark(work: Shortening, session: LakeSpark) -> Shortened:
    """Find and store what is left of a log, by the rule of its view."""
    rows = session.reader.read(work.plan, wanted=(FILE, _ROW_ID), replan=False).frame
    counted = counted_frame(work.log.columns, rows).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        short = _numbers(counted)
        gone = counted.where(~F.col(STAYS)).groupBy(column(FILE).alias("file")).count().collect()
        affected = {work.plan.files[row["file"]].file.id for row in gone if row["file"] >= 0}
        for number in {row["file"] for row in gone if row["file"] < 0}:
            ids = counted.where(~F.col(STAYS) & (column(FILE) == number)).select(_ROW_ID)
            name = work.plan.inlined[-1 - number].table_name
            short.inlined[name] = ids.toArrow().column(0).to_numpy().tolist()
        chosen = work.rewritten(affected, bool(short.inlined))
        short.file_ids = [scan.file.id for scan in chosen]
        if short.file_ids:
            counts = {row["file"]: row["count"] for row in gone}
            numbers = work.numbers(short.file_ids)
            short.rows_left = live_rows(chosen) - sum(counts.get(number, 0) for number in numbers)
            _store(work, session, counted, short, stored_bytes(chosen))
        return short
    finally:
        counted.unpersist()


def shown_log(columns: Sequence[str], log: DataFrame) -> DataFrame:
    """The rows that a log shows."""
    shown = counted_frame(columns, log).where(F.col(STAYS) & (F.col(OPERATION) == INSERT))
    return shown.select(*(column(name) for name in columns))


def counted_frame(columns: Sequence[str], rows: DataFrame) -> DataFrame:
    """The rows with whether they stay, and whether they stand after the last beginning."""
    begins = rows.where(F.col(OPERATION) == TRUNCATE).agg(F.max(SEQUENCE)).collect()[0][0]
    since = (F.col(SEQUENCE) > F.lit(-1 if begins is None else begins)) & (F.col(OPERATION) != TRUNCATE)
    equal = [column(name) for name in columns]
    weight = F.when(~F.col(_SINCE), 0).when(F.col(OPERATION) == DELETE, -1).otherwise(1)
    copies = F.sum(weight).over(Window.partitionBy(*equal))
    place = F.row_number().over(Window.partitionBy(*equal, OPERATION, _SINCE).orderBy(column(SEQUENCE)))
    left = F.when(F.col(OPERATION) == INSERT, copies).otherwise(-copies)
    return rows.withColumn(_SINCE, since).withColumn(STAYS, F.col(_SINCE) & (place <= left))


def _numbers(counted: DataFrame) -> Shortened:
    insert, delete = F.col(OPERATION) == INSERT, F.col(OPERATION) == DELETE
    row = counted.agg(
        F.count_if(insert).alias("inserts"),
        F.count_if(delete).alias("deletes"),
        F.count_distinct(REFRESH_ID).alias("deltas"),
        F.count_if(insert & F.col(STAYS)).alias("inserts_left"),
        F.count_if(delete & F.col(STAYS)).alias("deletes_left"),
        F.count_if(delete & F.col(_SINCE)).alias("counting"),
    ).collect()[0]
    return Shortened(
        row["inserts"],
        row["deletes"],
        row["deltas"],
        row["inserts_left"],
        row["deletes_left"],
        row["counting"] - row["deletes_left"],
    )


def _store(work: Shortening, session: LakeSpark, counted: DataFrame, short: Shortened, size: int) -> None:
    table = work.table
    left = counted.where(F.col(STAYS) & column(FILE).isin(work.numbers(short.file_ids)))
    names = [column(one.name) for one in table.columns]
    rows = left.select(*names, F.col(_ROW_ID).alias(ROW_ID))
    count = max(1, -(-size // max(1, work.tx.stager.target_size(table))))
    laid_out = rows.repartitionByRange(int(count), column(ROW_ID)).sortWithinPartitions(column(ROW_ID))
    seen, watched = Observation(), top_columns(table.columns)
    nulls = [F.sum(column(one.name).isNull().cast("long")).alias(f"n{one.id}") for one in watched]
    observed = stored_rows(laid_out, table).observe(seen, *nulls)
    short.staged = session.writer.stage(work.tx, table, observed)
    found = seen.get
    short.nulls = {one.id: int(found[f"n{one.id}"] or 0) for one in watched}
