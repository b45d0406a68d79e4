"""Deleted rows of a plan's files, and how a scan leaves them out.

| deleted rows, up to | how |
|---|---|
| 20 million, of 30 million rows in all | an array with a bit for each row, which a condition looks into |
| 2 million, of more rows | an anti-join with bitmaps of spans of rows in which any is deleted |
| more than the driver reads | an anti-join with the delete files, which Spark reads |

In joins a row is one number, the file's place in the plan and the position in the file together: Spark looks
a single long up several times faster than a text and a long. Bitmaps are a few hundred rows instead of one
for each deleted row, and a bit of an array that stays in the processor's cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.lake.model import DELETE_POS_FIELD, SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD
from headwater.lake.reading.deletes import deleted_positions
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.recent import Recent
from headwater.spark.jvm import Jvm
from headwater.spark.reading.native import FILE, FIRST_WORD, POSITION
from headwater.storage.store import Store

#: Positions of one file are below this; Parquet files of a trillion rows are not made.
_BITS = 40
KEY = "headwater deleted"
_BITMAP = "headwater deleted bits"
#: Bits of one word of a bitmap, as a power of two; and words of a bitmap, where rows are deleted all over.
_WORD = 6
_WORDS = 512
#: Where fewer rows than this are deleted in the span of such a bitmap, bitmaps are single words.
_DENSE = 64
#: Up to this many deleted rows the driver reads delete files itself, which takes less than a Spark job …
_FOR_THE_DRIVER = 2_000_000
#: … and up to this many for an array: reading a million takes 30 ms, and a join with them far more than that.
_FOR_BITS = 20_000_000
#: Up to this many numbers, every executor gets them all; beyond, Spark joins as it joins large tables.
_FOR_BROADCAST = 5_000_000
#: Up to this many words the bits of all rows of the files are one array, which every task gets; so many of
#: them are kept.
_FOR_AN_ARRAY = 1 << 19
_ARRAYS = 8
_ARRAY = "headwater deleted words"
#: Rows that the array says nothing about are there.
_NOT_IN_ARRAY = (
    f"NOT (getbit(get(`{_ARRAY}`, CAST(`{FIRST_WORD}` + shiftright(`{POSITION}`, {_WORD}) AS int)), "
    f"CAST(`{POSITION}` & {(1 << _WORD) - 1} AS int)) <=> 1)"
)
_THREADS = 8


def row_key() -> SparkColumn:
    """The number that stands for a row of a scan with `FILE` and `POSITION`."""
    return F.shiftleft(F.col(f"`{FILE}`").cast("bigint"), _BITS).bitwiseOR(F.col(f"`{POSITION}`"))


@dataclass(frozen=True)
class Bitmaps:
    """Deleted rows as bitmaps: `KEY` is the number of a span of rows, `_BITMAP` has a bit for each."""

    frame: DataFrame
    words: int
    count: int
    """How many bitmaps there are."""


@dataclass(frozen=True)
class Deleted:
    """The deleted rows of some files: those that the driver knows, and those that Spark reads."""

    kept: SparkColumn | None = None
    """Says of a row with `FIRST_WORD` and `POSITION` that it is not deleted."""
    first_words: Mapping[int, int] = field(default_factory=dict)
    """`FIRST_WORD` by the number of the file."""
    bitmaps: Bitmaps | None = None
    keys: DataFrame | None = None
    count: int = 0
    """How many rows they are at most."""

    @property
    def needs(self) -> tuple[str, ...]:
        """What a scan must have besides its columns."""
        if self.kept is not None:
            return FIRST_WORD, POSITION
        return () if self.bitmaps is None and self.keys is None else (FILE, POSITION)


def without_deleted(rows: DataFrame, deleted: Deleted) -> DataFrame:
    """The rows of a scan that are not among the deleted ones."""
    if deleted.kept is not None:
        rows = rows.where(deleted.kept)
    if deleted.bitmaps is not None:
        rows = _without_bits(rows, deleted.bitmaps)
    if deleted.keys is not None:
        keys = F.broadcast(deleted.keys) if deleted.count <= _FOR_BROADCAST else deleted.keys
        rows = rows.withColumn(KEY, row_key()).join(keys, KEY, "left_anti").drop(KEY)
    return rows


def _without_bits(rows: DataFrame, bitmaps: Bitmaps) -> DataFrame:
    span = "headwater span"
    keyed = rows.withColumn(span, F.shiftright(row_key(), _shift(bitmaps.words)))
    position = F.col(f"`{POSITION}`")
    place = F.shiftright(position, _WORD).bitwiseAND(F.lit(bitmaps.words - 1)).cast("int")
    word = F.get(F.col(f"`{_BITMAP}`"), place)
    bit = F.getbit(word, position.bitwiseAND(F.lit((1 << _WORD) - 1)).cast("int"))
    small = bitmaps.count * bitmaps.words <= _FOR_BROADCAST
    frame = F.broadcast(bitmaps.frame) if small else bitmaps.frame
    # An anti-join, not an outer one with a filter: Spark then knows that the rows do not become more.
    return keyed.join(frame, (F.col(f"`{span}`") == F.col(f"`{KEY}`")) & (bit == 1), "left_anti").drop(span)


def _shift(words: int) -> int:
    """By how many bits the number of a row is shifted to be that of its span."""
    return _WORD + words.bit_length() - 1


def delete_count(scans: Sequence[FileScan]) -> int:
    """How many rows are deleted at most, from the catalog alone."""
    return sum(sum(d.delete_count for d in scan.deletes) + len(scan.inlined_deletes) for scan in scans)


class DeletedRows:
    """Finds the deleted rows of files; those of the same files at one snapshot are read once."""

    def __init__(
        self,
        spark: SparkSession,
        jvm: Jvm,
        store: Store,
        jvm_path: Callable[[str], str],
        for_spark: Callable[[str], bool],
    ):
        self.spark = spark
        self.jvm = jvm
        self.store = store
        self.jvm_path = jvm_path
        self.for_spark = for_spark
        self._arrays: Recent[Any, Deleted] = Recent(_ARRAYS)

    def of(self, plan: ScanPlan, numbers: Sequence[int]) -> Deleted:
        """The deleted rows of some files of a plan, not all of which need have any."""
        numbers = [n for n in numbers if plan.files[n].deletes or plan.files[n].inlined_deletes]
        count = delete_count([plan.files[number] for number in numbers])
        words = _first_words(plan, numbers)[-1]
        if count <= _FOR_BITS and words <= _FOR_AN_ARRAY:
            files = tuple((number, plan.files[number]) for number in numbers)
            return self._arrays.get((files, plan.snapshot.id), lambda: self._array(plan, numbers, count))
        return self._joined(plan, numbers, count)

    def _array(self, plan: ScanPlan, numbers: Sequence[int], count: int) -> Deleted:
        first_words = _first_words(plan, numbers)
        words = _words(plan, numbers, self.store, first_words)
        kept = self.jvm.words_condition(self.spark, _NOT_IN_ARRAY, _ARRAY, words)
        return Deleted(kept, dict(zip(numbers, first_words, strict=False)), count=count)

    def _joined(self, plan: ScanPlan, numbers: Sequence[int], count: int) -> Deleted:
        distributed: list[int] = []
        if count > _FOR_THE_DRIVER:
            # Deletion vectors are small, and only DuckDB decodes encrypted files.
            distributed = [n for n in numbers if _plain_files(plan.files[n], self.for_spark)]
        rest = set(distributed)
        here = [number for number in numbers if number not in rest]
        known = _from_driver(plan, here, self.store)
        known += [(number, np.array(plan.files[number].inlined_deletes, np.int64)) for number in distributed]
        keys = _from_files(self.spark, self.jvm, plan, distributed, self.jvm_path) if distributed else None
        return Deleted(bitmaps=_bitmaps(self.spark, _keys(known)), keys=keys, count=count)


def _first_words(plan: ScanPlan, numbers: Sequence[int]) -> list[int]:
    """Where the bits of each file begin, and where the last ones end."""
    sizes = [-(-plan.files[number].file.record_count // (1 << _WORD)) for number in numbers]
    return [0, *accumulate(sizes)]


def _words(plan: ScanPlan, numbers: Sequence[int], store: Store, first_words: Sequence[int]) -> bytes:
    """A bit for each row of the files, as words of 64 bits, the lowest first."""
    bits = np.zeros(first_words[-1] << _WORD, np.bool_)

    def mark(number: int, first: int, end: int) -> None:
        own = bits[first << _WORD : end << _WORD]
        positions = _positions(plan, number, store)
        own[positions[: np.searchsorted(positions, len(own))]] = True

    with _threads() as pool:
        list(pool.map(mark, numbers, first_words, first_words[1:]))
    return np.packbits(bits, bitorder="little").tobytes()


def _plain_files(scan: FileScan, for_spark: Callable[[str], bool]) -> bool:
    return bool(scan.deletes) and all(
        d.format == "parquet" and d.encryption_key is None and for_spark(d.path) for d in scan.deletes
    )


def _from_driver(plan: ScanPlan, numbers: Sequence[int], store: Store) -> list[tuple[int, np.ndarray]]:
    with _threads() as pool:
        return list(zip(numbers, pool.map(lambda n: _positions(plan, n, store), numbers), strict=True))


def _positions(plan: ScanPlan, number: int, store: Store) -> np.ndarray:
    scan = plan.files[number]
    return deleted_positions(store, scan.deletes, scan.inlined_deletes, plan.snapshot.id)


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-deletes")


def _keys(found: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    parts = [positions + (number << _BITS) for number, positions in found]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _bitmaps(spark: SparkSession, keys: np.ndarray) -> Bitmaps | None:
    if not len(keys):
        return None
    if not (keys[1:] > keys[:-1]).all():
        keys = np.sort(keys)
    words = _WORDS
    spans, _ = _runs(keys >> _shift(words))
    if len(keys) < len(spans) * _DENSE:
        words = 1
        spans, _ = _runs(keys >> _shift(words))
    used, begins = _runs(keys >> _WORD)
    ones = np.uint64(1) << (keys & ((1 << _WORD) - 1)).astype(np.uint64)
    bits = np.zeros(len(spans) * words, np.uint64)
    places = np.searchsorted(spans, used >> (_shift(words) - _WORD)) * words + (used & (words - 1))
    bits[places] = np.bitwise_or.reduceat(ones, begins)
    ends = pa.array(np.arange(len(spans) + 1) * words, pa.int32())
    lists = pa.ListArray.from_arrays(ends, pa.array(bits.view(np.int64)))
    table = pa.table({KEY: pa.array(spans, pa.int64()), _BITMAP: lists})
    return Bitmaps(spark.createDataFrame(table), words, len(spans))


def _runs(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different numbers of an ascending array, and where each begins."""
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[begins], begins


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
