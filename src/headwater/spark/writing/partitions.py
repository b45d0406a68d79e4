"""Partition keys of a table as Spark computes them, wherever it computes them as DuckDB does."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.lake.format.types import decimal_parts
from headwater.lake.model import Column, PartitionField, Table
from headwater.spark.literals import name_sql

#: Types of which equal values are equal for both, and have one form.
_IDENTITY = frozenset(
    {"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "varchar", "date"}
)
_PARTS = {"year": F.year, "month": F.month, "day": F.dayofmonth, "hour": F.hour}
_NAIVE = frozenset({"date", "timestamp", "timestamp_s", "timestamp_ms"})


def partition_keys(spark: SparkSession, table: Table) -> list[SparkColumn] | None:
    """Expressions that tell the partitions of rows apart; None where only the lake's own code can.

    Rows that these tell apart may still be of one partition (two files, then), never the other way round.
    """
    if table.partition is None:
        return []
    by_id = table.by_id()
    keys = [_key(spark, key, by_id[key.column_id]) for key in table.partition.fields]
    known = [key for key in keys if key is not None]
    return known if len(known) == len(keys) else None


def _key(spark: SparkSession, key: PartitionField, column: Column) -> SparkColumn | None:
    value = F.col(name_sql(column.name))
    if key.transform == "identity":
        plain = column.type in _IDENTITY or decimal_parts(column.type) is not None
        return value if plain else None
    if key.transform not in _PARTS:
        return None
    # Spark takes the parts of an instant in the session's time zone, DuckLake in UTC.
    in_utc = column.type == "timestamptz" and spark.conf.get("spark.sql.session.timeZone") == "UTC"
    return _PARTS[key.transform](value) if column.type in _NAIVE or in_utc else None


def folder_name(table: Table, key: PartitionField) -> str:
    """The folder's key: not the column's own name, for Spark would then leave the column out of the file."""
    name = table.by_id()[key.column_id].name
    return f"{'key' if key.transform == 'identity' else key.transform}_{name}"
