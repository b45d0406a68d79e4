"""What statements return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from headwater.spark.writing.transactions import WriteResult

_COUNTS = ("num_affected_rows", "num_inserted_rows", "num_updated_rows", "num_deleted_rows", "snapshot_id")


def written(spark: SparkSession, result: WriteResult) -> DataFrame:
    """One row that tells what a statement did."""
    changed = result.inserted + result.updated + result.deleted
    row = (changed, result.inserted, result.updated, result.deleted, result.snapshot_id)
    return spark.createDataFrame([row], st.StructType([st.StructField(n, st.LongType()) for n in _COUNTS]))


def nothing(spark: SparkSession) -> DataFrame:
    """No rows and no columns."""
    return spark.createDataFrame([], st.StructType([]))


def listed(spark: SparkSession, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> DataFrame:
    """Rows of text and truth values."""
    kinds = [st.BooleanType() if name.startswith("is") else st.StringType() for name in columns]
    schema = st.StructType([st.StructField(n, kind) for n, kind in zip(columns, kinds, strict=True)])
    return spark.createDataFrame([tuple(row) for row in rows], schema)
