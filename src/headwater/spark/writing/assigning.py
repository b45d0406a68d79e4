"""Values for the columns of a table: what callers write, and what the table makes of it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.lake.catalog import no_column
from headwater.lake.model import Table
from headwater.lake.writing.transaction import Transaction
from headwater.spark.literals import name_sql
from headwater.spark.writing.conforming import fit
from headwater.typedefs import TableName

Value = SparkColumn | str | int | float | bool | None
"""A text is an expression in Spark's SQL, anything else a constant."""


def fitted(
    tx: Transaction,
    name: TableName | str,
    rows: DataFrame,
    *,
    merge_schema: bool = False,
    defaults: bool = False,
) -> Table:
    """The table, changed so that the rows fit if that is allowed."""
    found = fit(rows, tx.state.table(name), merge_schema=merge_schema, defaults=defaults)
    for column in found.new:
        tx.add_column(name, column.name, column)
    for column_name, kind in found.wider.items():
        tx.widen_column(name, column_name, kind)
    return tx.state.table(name)


def value_of(value: Value) -> SparkColumn:
    """What to assign: a text is an expression, anything else a constant."""
    if isinstance(value, SparkColumn):
        return value
    return F.expr(value) if isinstance(value, str) else F.lit(value)


def assignments(
    table: Table, values: Mapping[str, SparkColumn], alias: str | None = None
) -> list[SparkColumn]:
    """Every column of a table, assigned anew or as it is."""
    known = {column.name.lower() for column in table.columns}
    for name in values:
        if name.lower() not in known:
            raise no_column(table, name)
    new = {name.lower(): value for name, value in values.items()}
    prefix = "" if alias is None else f"{name_sql(alias)}."
    return [
        new.get(column.name.lower(), F.col(prefix + name_sql(column.name))).alias(column.name)
        for column in table.columns
    ]
