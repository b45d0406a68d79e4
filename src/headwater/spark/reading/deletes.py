"""Deleted rows of a plan's files, for an anti-join with the scan.

A deleted row is one number, the file's place in the plan and the position in the file together: Spark looks a
single long up several times faster than a text and a long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.lake.model import DELETE_POS_FIELD, SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD
from headwater.lake.reading.deletes import deleted_positions
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.spark.jvm import Jvm
from headwater.spark.reading.native import FILE, POSITION
from headwater.storage.store import Store

#: Positions of one file are below this; Parquet files of a trillion rows are not made.
_BITS = 40
KEY = "headwater deleted"
#: Up to this many deleted rows the driver reads delete files itself, which takes less than a Spark job.
_FOR_THE_DRIVER = 2_000_000
#: Up to this many, every executor gets them all; beyond, Spark joins as it joins large tables.
_FOR_BROADCAST = 5_000_000
_THREADS = 8


def row_key() -> SparkColumn:
    """The number that stands for a row of a scan with `FILE` and `POSITION`."""
    return F.shiftleft(F.col(f"`{FILE}`").cast("bigint"), _BITS).bitwiseOR(F.col(f"`{POSITION}`"))


def without_deleted(rows: DataFrame, deleted: DataFrame, count: int) -> DataFrame:
    """The rows of a scan that are not among the deleted ones."""
    if count <= _FOR_BROADCAST:
        deleted = F.broadcast(deleted)
    keyed = rows.withColumn(KEY, row_key())
    return keyed.join(deleted, KEY, "left_anti").drop(KEY)


def delete_count(scans: Sequence[FileScan]) -> int:
    """How many rows are deleted at most, from the catalog alone."""
    return sum(sum(d.delete_count for d in scan.deletes) + len(scan.inlined_deletes) for scan in scans)


def deleted_rows(
    spark: SparkSession,
    jvm: Jvm,
    plan: ScanPlan,
    numbers: Sequence[int],
    store: Store,
    jvm_path: Callable[[str], str],
    for_spark: Callable[[str], bool],
) -> tuple[DataFrame, int]:
    """The deleted rows of those files, and their number at most."""
    count = delete_count([plan.files[number] for number in numbers])
    distributed: list[int] = []
    if count > _FOR_THE_DRIVER:
        # Deletion vectors are small, and only DuckDB decodes encrypted files.
        distributed = [n for n in numbers if _plain_files(plan.files[n], for_spark)]
    here = [number for number in numbers if number not in set(distributed)]
    frame = _from_driver(spark, plan, here, store)
    if distributed:
        inlined = _keys([(n, np.array(plan.files[n].inlined_deletes, np.int64)) for n in distributed])
        frame = frame.unionAll(_as_frame(spark, inlined))
        frame = frame.unionAll(_from_files(spark, jvm, plan, distributed, jvm_path))
    return frame, count


def _plain_files(scan: FileScan, for_spark: Callable[[str], bool]) -> bool:
    return bool(scan.deletes) and all(
        d.format == "parquet" and d.encryption_key is None and for_spark(d.path) for d in scan.deletes
    )


def _from_driver(spark: SparkSession, plan: ScanPlan, numbers: Sequence[int], store: Store) -> DataFrame:
    def positions(number: int) -> tuple[int, np.ndarray]:
        scan = plan.files[number]
        return number, deleted_positions(store, scan.deletes, scan.inlined_deletes, plan.snapshot.id)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-deletes") as pool:
        return _as_frame(spark, _keys(list(pool.map(positions, numbers))))


def _keys(found: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    parts = [positions + (number << _BITS) for number, positions in found]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _as_frame(spark: SparkSession, keys: np.ndarray) -> DataFrame:
    return spark.createDataFrame(pa.table({KEY: pa.array(keys, pa.int64())}))


def _from_files(
    spark: SparkSession, jvm: Jvm, plan: ScanPlan, numbers: Sequence[int], jvm_path: Callable[[str], str]
) -> DataFrame:
    listing = [
        [jvm_path(file.path), file.file_size_bytes, number]
        for number in numbers
        for file in plan.files[number].deletes
    ]
    rows = jvm.files(
        spark,
        f"deletes of {plan.table.name}@{plan.snapshot.id}",
        st.StructType([_field(POSITION, DELETE_POS_FIELD), _field(SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD)]),
        st.StructType([st.StructField(FILE, st.IntegerType())]),
        json.dumps(listing),
        None,
    )
    deleted_at = F.col(SNAPSHOT_ID_COLUMN)
    visible = rows.where(deleted_at.isNull() | (deleted_at <= F.lit(plan.snapshot.id)))
    return visible.select(row_key().alias(KEY))


def _field(name: str, field_id: int) -> st.StructField:
    return st.StructField(name, st.LongType(), True, {"parquet.field.id": field_id})
