"""Rows stored by the lake's own writer, in Spark's Python workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.lake.format.align import align_input
from headwater.lake.model import StagedFile, Table
from headwater.lake.writing.staging import Stager
from headwater.spark.types import from_spark
from headwater.spark.writing.native import ROW_ID

_BYTES_AT_ONCE = 128 << 20
_RESULT = st.StructType([st.StructField("files", st.BinaryType())])


def write_in_workers(frame: DataFrame, table: Table, stager: Stager) -> list[StagedFile]:
    """Store rows by their columns' names; `ROW_ID` among them are ids that rows keep."""
    context = pickle.dumps((table, stager))

    def store(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own_table, own_stager = pickle.loads(context)  # noqa: S301 - our own
        limit = min(_BYTES_AT_ONCE, own_stager.target_size(own_table))
        for part in _parts(batches, limit):
            found = pickle.dumps(_store(part, own_table, own_stager))
            yield pa.record_batch({"files": pa.array([found], pa.binary())})

    found = frame.mapInArrow(store, _RESULT).toArrow().column(0).to_pylist()
    return [file for files in found for file in pickle.loads(files or b"")]  # noqa: S301 - our own


def _parts(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
        if sum(b.nbytes for b in waiting) >= limit:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _store(rows: pa.Table, table: Table, stager: Stager) -> list[StagedFile]:
    row_ids: Any = None
    if ROW_ID in rows.schema.names:
        row_ids = rows.column(ROW_ID).combine_chunks()
        rows = rows.drop_columns([ROW_ID])
    return stager.stage(table, align_input(from_spark(rows, table.columns), table.columns), row_ids)
