"""The log of a sink of the mode `accumulate`, as a dataset that refreshes write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headwater.deltas.compacting import Engine
from headwater.deltas.folding import plan_rows, stored_bytes
from headwater.deltas.model import Backlog, CompactionPolicy, CompactResult
from headwater.deltas.row_log import DELETE, OPERATION
from headwater.deltas.row_log_folding import RowLog, RowLogCompaction
from headwater.deltas.store import DatasetStore
from headwater.errors import DeltaError, InvalidInputError, NotFoundError
from headwater.lake.lake import At, Lake
from headwater.lake.model import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.connector import LakeSpark


@dataclass(frozen=True)
class AccumulatedLog:
    """What a stream table's `accumulate` sink has written: read and compacted here, written by refreshes.

    >>> hw.deltas("game.leaderboard").compact().rows_dropped_by_tombstones  # doctest: +SKIP
    12
    """

    lake: Lake
    connector: Callable[[], LakeSpark]
    log: RowLog

    @property
    def name(self) -> str:
        """The stream table's name."""
        return self.log.name

    @property
    def store(self) -> DatasetStore:
        """What is remembered of compactions."""
        return DatasetStore(self.lake.db)

    def read(self, version: int | None = None, timestamp: datetime | str | None = None) -> DataFrame:
        """The rows that the log shows, now or at an older snapshot."""
        from headwater.deltas.spark_row_log import shown_log

        at: At = version if version is not None else timestamp
        if version is not None and timestamp is not None:
            raise InvalidInputError("Give a version or a timestamp, not both.")
        snapshot = self.lake.snapshot(at).id
        return shown_log(self.log.columns, self.connector().frame(self._table(at).name, snapshot))

    def load_deltas(self) -> DataFrame:
        """The rows of the log as they were written."""
        return self.connector().frame(self._table().name)

    def pending(self) -> Backlog:
        """How long the log is. How much of it cancels is known when it is read."""
        plan = self.lake.scan(self._table().name)
        gone = self.lake.read(self._table().name, columns=[OPERATION], where=f"{OPERATION} = '{DELETE}'")
        return Backlog(
            deltas=0,
            tombstones=gone.num_rows,
            rows=plan_rows(plan),
            files=len(plan.files),
            bytes=stored_bytes(plan.files),
            inlined_rows=sum(one.row_count for one in plan.inlined),
            oldest_at=None,
            seconds=0.0,
            base_rows=0,
            base_files=0,
            base_bytes=0,
        )

    def compact(
        self,
        *,
        operation_id: str | None = None,
        engine: Engine = "auto",
        policy: CompactionPolicy | None = None,
        actor: str | None = None,
    ) -> CompactResult:
        """Take out rows that came and went again, in one commit, while refreshes go on.

        With a `policy` only if as many tombstones wait as it says.
        """
        if policy is not None and self.pending().tombstones < policy.rows:
            return CompactResult(self.name, "nothing")
        compaction = RowLogCompaction(self.lake, self.store, self.connector)
        return compaction.run(self.log, operation_id=operation_id, engine=engine, actor=actor)

    def compactions(self, limit: int = 20) -> list[CompactResult]:
        """Past compactions, newest first."""
        return self.store.compactions(self.log.owner_id, limit)

    def write_delta(self, rows: Any, **_: Any) -> Any:
        """Refused: what a stream table shows is what its query says."""
        raise self._refused("written to")

    def tombstone(self, keys: Any, **_: Any) -> Any:
        """Refused: rows go when they go from what the query reads."""
        raise self._refused("erased from")

    def _refused(self, what: str) -> DeltaError:
        return DeltaError(
            f"{self.name} is a stream table, and cannot be {what} by hand.",
            hint="Change the tables that its query reads, and refresh it.",
            stream_table=self.name,
        )

    def _table(self, at: At = None) -> Table:
        found = self.lake.state(at).table_by_id(self.log.table_id)
        if found is None:
            raise NotFoundError(f"The log of {self.name} is not there.", stream_table=self.name)
        return found
