"""Compaction on Spark: one task for each new file, in Python workers, with the lake's own reader and writer.

So encrypted lakes, every type and every store are compacted the same way, and only names and footers come
back. What is little is done in this process, without waking Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from headwater.errors import HeadwaterError
from headwater.lake.maintenance.choosing import Move
from headwater.lake.maintenance.moving import LocalMover, Moved, attempt, in_waves
from headwater.lake.writing.staging import Stager
from headwater.spark.spreading import spread_on_spark

#: Fewer bytes than this are not worth a job; they go through this process a row group at a time.
_FOR_THE_DRIVER = 256 << 20
#: Tasks of a wave, for each that can run at once: the commit after it waits for the slowest.
_TASKS = 4
_RESULT = st.StructType([st.StructField("place", st.LongType()), st.StructField("outcome", st.BinaryType())])


class SparkMover:
    """Carries out moves on Spark's executors; `spark` is called when there is enough to do."""

    def __init__(self, spark: Callable[[], SparkSession], *, few_bytes: int = _FOR_THE_DRIVER):
        self._spark = spark
        self._few_bytes = few_bytes
        self._local = LocalMover()

    def waves(self, moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
        """As many at a time as keep all executors busy."""
        if self._is_little(moves):
            yield from self._local.waves(moves)
            return
        yield from in_waves(moves, _TASKS * self._spark().sparkContext.defaultParallelism)

    def carry_out(self, moves: Sequence[Move], stager: Stager) -> list[Moved | HeadwaterError]:
        """The outcome of each move."""
        if self._is_little(moves):
            return self._local.carry_out(moves, stager)
        whole = [move for move in moves if move.outputs == 1]
        spread = [move for move in moves if move.outputs > 1]
        found: dict[int, Moved | HeadwaterError] = {}
        if whole:
            found |= zip(map(id, whole), self._carry_out_whole(whole, stager), strict=True)
        if spread:
            done = spread_on_spark(self._spark().sparkContext, spread, stager)
            found |= zip(map(id, spread), done, strict=True)
        return [found[id(move)] for move in moves]

    def _carry_out_whole(self, moves: Sequence[Move], stager: Stager) -> list[Moved | HeadwaterError]:
        """Moves into one file each, a task for each."""
        context = pickle.dumps(stager)
        parts = [pickle.dumps(move) for move in moves]

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            own: Stager = pickle.loads(context)  # noqa: S301 - our own
            for batch in batches:
                for place in batch.column(0).to_numpy():
                    outcome = _slim(attempt(pickle.loads(parts[place]), own))  # noqa: S301 - our own
                    yield pa.record_batch(
                        [pa.array([place], pa.int64()), pa.array([pickle.dumps(outcome)], pa.binary())],
                        names=_RESULT.names,
                    )

        frame = self._spark().range(0, len(parts), 1, len(parts)).mapInArrow(work, _RESULT)
        found: dict[int, Any] = {}
        for row in frame.toArrow().to_pylist():
            found[row["place"]] = pickle.loads(row["outcome"])  # noqa: S301 - our own
        return [_whole(move, found[place]) for place, move in enumerate(moves)]

    def _is_little(self, moves: Sequence[Move]) -> bool:
        return sum(move.bytes for move in moves) <= self._few_bytes


def _slim(outcome: Moved | HeadwaterError) -> Any:
    """Without what the driver knows."""
    if isinstance(outcome, Moved):
        return outcome.staged, outcome.rows, outcome.deleted
    return outcome


def _whole(move: Move, outcome: Any) -> Moved | HeadwaterError:
    if isinstance(outcome, HeadwaterError):
        return outcome
    staged, rows, deleted = outcome
    return Moved(move, staged, rows, deleted)
