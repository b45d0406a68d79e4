"""DELETE and UPDATE: Spark finds the rows, the transaction takes them out and puts the changed ones in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.lake.model import Table
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.spark.literals import name_sql
from headwater.spark.reading.native import FILE, POSITION
from headwater.spark.types import from_spark
from headwater.spark.writing.assigning import assignments
from headwater.spark.writing.conforming import fit, stored_rows
from headwater.spark.writing.located import locate, located
from headwater.spark.writing.native import ROW_ID
from headwater.spark.writing.rows import FOR_THE_DRIVER, row_bytes
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

PLACE = (FILE, POSITION)


def delete_rows(
    session: LakeSpark, tx: Transaction, name: TableName | str, where: str | SparkColumn | None
) -> int:
    """Remove the rows that meet a condition. Returns how many."""
    if where is None:
        count = session.live_rows(tx, name)
        tx.truncate(name)
        return count
    plan, rows = session.target(tx, name, where, PLACE)
    found = locate(rows.where(where).select(*(F.col(f"`{column}`") for column in PLACE)))
    return tx.remove_rows(name, plan, found.files(plan), found.inlined(plan))


def update_rows(
    session: LakeSpark,
    tx: Transaction,
    name: TableName | str,
    where: str | SparkColumn | None,
    values: Mapping[str, SparkColumn],
) -> int:
    """Change columns of the rows that meet a condition. Returns how many there were."""
    plan, rows = session.target(tx, name, where, (*PLACE, "rowid"))
    matching = rows if where is None else rows.where(where)
    table = tx.state.table(name)
    changed = matching.select(
        *assignments(table, values), *(F.col(f"`{c}`") for c in PLACE), F.col("rowid").alias(ROW_ID)
    )
    changed = checked(changed, table)
    most = sum(scan.file.record_count for scan in plan.files) + sum(i.row_count for i in plan.inlined)
    if most * row_bytes(changed) <= FOR_THE_DRIVER:
        return _small(tx, plan, table, changed)
    kept = changed.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = locate(kept)
        tx.remove_rows(name, plan, found.files(plan), found.inlined(plan))
        small = found.count * row_bytes(changed) <= FOR_THE_DRIVER
        return session.writer.write(tx, table, kept.drop(*PLACE), small=small)
    finally:
        kept.unpersist()


def checked(rows: DataFrame, table: Table) -> DataFrame:
    """Rows whose columns have the table's types, and whatever else they have."""
    fit(rows.select(*(F.col(name_sql(column.name)) for column in table.columns)), table)
    return stored_rows(rows, table)


def _small(tx: Transaction, plan: ScanPlan, table: Table, changed: DataFrame) -> int:
    rows = changed.toArrow()
    found = located(rows)
    name = str(table.name)
    tx.remove_rows(name, plan, found.files(plan), found.inlined(plan))
    values = from_spark(rows.drop_columns([*PLACE, ROW_ID]), table.columns)
    return tx.replace_rows(name, values, rows.column(ROW_ID).to_numpy())
