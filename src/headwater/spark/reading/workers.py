"""Files of a plan through the lake's own reader, in Spark's Python workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from headwater.lake.model import Column
from headwater.lake.reading.file_reader import read_file
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import ScanPlan
from headwater.spark.reading.native import FILE, POSITION
from headwater.spark.types import spark_schema, to_spark
from headwater.storage.store import Store

_BYTES_PER_TASK = 64 << 20
_SPARK_HIDDEN = {"rowid": st.LongType(), "snapshot_id": st.LongType(), "filename": st.StringType()}
_TYPES: dict[str, st.DataType] = {
    **_SPARK_HIDDEN,
    "file_row_number": st.LongType(),
    FILE: st.IntegerType(),
    POSITION: st.LongType(),
}


def read_in_workers(
    spark: SparkSession,
    plan: ScanPlan,
    numbers: Sequence[int],
    columns: Sequence[Column],
    wanted: Sequence[str],
    store: Store,
) -> DataFrame:
    """Rows of those files that are not deleted, with the columns and hidden columns that are wanted."""
    tasks = _tasks(plan, numbers)
    # Without the pruned files and everything else that a task does not need.
    bare = replace(plan, files=(), inlined=(), where=None)
    context = pickle.dumps((bare, tuple(columns), tuple(wanted), store))
    parts = [pickle.dumps([(number, plan.files[number]) for number in task]) for task in tasks]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_numpy():
                yield from _read(pickle.loads(context), pickle.loads(parts[task]))  # noqa: S301 - our own

    schema = output_schema(columns, wanted)
    return spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(read, schema)


def output_schema(columns: Sequence[Column], wanted: Sequence[str]) -> st.StructType:
    """The columns of a scan, then the hidden ones."""
    fields = [st.StructField(name, _TYPES[name]) for name in wanted]
    return st.StructType([*spark_schema(columns).fields, *fields])


def with_hidden(
    rows: pa.Table, columns: Sequence[Column], wanted: Sequence[str], number: int, position: str
) -> pa.Table:
    """The rows' columns, then what else is wanted, `FILE` and `POSITION` among that."""
    own = [column.name for column in columns]
    arrays: list[Any] = [rows.column(name) for name in own]
    for name in wanted:
        if name == FILE:
            arrays.append(pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
        else:
            arrays.append(rows.column(position if name == POSITION else name))
    return pa.Table.from_arrays(arrays, names=[*own, *wanted])


def hidden_needed(wanted: Sequence[str], position: str) -> list[str]:
    """The lake's hidden columns from which those that are wanted are made."""
    names = [position if name == POSITION else name for name in wanted if name != FILE]
    return list(dict.fromkeys(names))


def _tasks(plan: ScanPlan, numbers: Sequence[int]) -> list[list[int]]:
    """Files together in one task, up to a good size."""
    tasks: list[list[int]] = []
    room = 0
    for number in numbers:
        size = plan.files[number].file.file_size_bytes
        if not tasks or size > room:
            tasks.append([])
            room = _BYTES_PER_TASK
        tasks[-1].append(number)
        room -= size
    return tasks


def _read(context: tuple[Any, ...], files: list[tuple[int, Any]]) -> Iterator[pa.RecordBatch]:
    plan, columns, wanted, store = context
    hidden = hidden_needed(wanted, "file_row_number")
    names = [column.name for column in columns]
    request = Request.of(plan.table, names, None, hidden or ([] if columns else ["rowid"]))
    for number, scan in files:
        for piece in read_file(store, plan, scan, request, rows_at_once=1):
            rows = with_hidden(to_spark(piece, columns), columns, wanted, number, "file_row_number")
            yield from rows.to_batches(max_chunksize=65_536)
