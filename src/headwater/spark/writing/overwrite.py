"""Overwriting part of a table: what a condition names, or the partitions of the new rows."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.format.partitions import split_by_partition
from headwater.lake.model import Table
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.spark.writing.assigning import fitted
from headwater.spark.writing.located import locate
from headwater.spark.writing.partitions import folder_name, partition_keys
from headwater.spark.writing.row_level import PLACE, delete_rows
from headwater.spark.writing.transactions import WriteResult
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

Values = tuple[str | None, ...]


def overwrite_where(
    session: LakeSpark, tx: Transaction, name: TableName | str, rows: DataFrame, where: str
) -> int:
    """Remove what the rows are to replace; every one of them must meet the condition too."""
    stray = rows.where(~F.coalesce(F.expr(where), F.lit(False))).limit(1).collect()
    if stray:
        raise InvalidInputError(
            f"A new row for table {name} does not meet the condition of the overwrite: {where}",
            detail=f"The row is {stray[0].asDict()}.",
            hint="Filter the new rows by the condition, or append what lies outside of it.",
            table=name,
        )
    return delete_rows(session, tx, name, where)


def overwrite_partitions(
    session: LakeSpark, tx: Transaction, name: TableName | str, rows: DataFrame
) -> WriteResult:
    """Replace the partitions that the rows are of."""
    plan = tx.scan(name)
    table = fitted(tx, name, rows)
    if table.partition is None or not table.partition.fields:
        raise InvalidInputError(
            f"Table {name} is not partitioned.",
            hint="Overwrite all of it, or what a condition names (where=…).",
            table=name,
        )
    staged = session.writer.stage(tx, table, rows)
    new = {file.partition_values for file in staged}
    whole = [
        scan.file.id
        for scan in plan.files
        if scan.file.partition_id == table.partition.id and scan.partition_values in new
    ]
    others = [s for s in plan.files if s.file.partition_id != table.partition.id]
    deleted = _inlined(session, tx, plan, table, new)
    if others:
        deleted += _elsewhere(session, tx, replace(plan, files=others, inlined=()), table, rows)
    deleted += tx.end_files(name, plan, whole)
    return WriteResult(inserted=tx.add_files(name, staged), deleted=deleted)


def _inlined(session: LakeSpark, tx: Transaction, plan: ScanPlan, table: Table, new: set[Values]) -> int:
    """Rows in the catalog that are of the new partitions."""
    fields = table.partition.fields if table.partition else ()
    gone: dict[str, list[int]] = {}
    for inlined in plan.inlined:
        one = replace(plan, files=(), inlined=(inlined,))
        rows = read_plan(one, session.lake.store, session.lake.db, hidden=["rowid"])
        ids = rows.column("rowid")
        numbered = rows.drop_columns(["rowid"]).append_column("rowid", ids)
        for values, part in split_by_partition(numbered, fields, table.columns):
            if values in new:
                gone.setdefault(inlined.table_name, []).extend(part.column("rowid").to_numpy().tolist())
    return tx.remove_rows(str(table.name), plan, {}, gone)


def _elsewhere(session: LakeSpark, tx: Transaction, plan: ScanPlan, table: Table, rows: DataFrame) -> int:
    """Rows of the new partitions in files that were written by other partition keys, or by none."""
    keys = partition_keys(session.spark, table)
    if keys is None or table.partition is None:
        raise UnsupportedError(
            f"Table {table.name} has files of other partition keys, and Spark cannot compute these.",
            hint="Overwrite by a condition instead (where=…).",
            table=str(table.name),
        )
    names = [folder_name(table, field) for field in table.partition.fields]
    named = [key.alias(name) for key, name in zip(keys, names, strict=True)]
    old = session.reader.read(plan, wanted=PLACE, replan=False).frame
    old = old.select(*named, *(F.col(f"`{place}`") for place in PLACE)).alias("old")
    new = rows.select(*named).distinct().alias("new")
    same = [F.col(f"old.`{name}`").eqNullSafe(F.col(f"new.`{name}`")) for name in names]
    found = locate(old.join(new, reduce(lambda a, b: a & b, same), "left_semi"))
    return tx.remove_rows(str(table.name), plan, found.files(plan), {})
