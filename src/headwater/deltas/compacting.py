"""Compaction: a fixed list of deltas and tombstones folded into the base, verified, in one commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from headwater.deltas import verifying
from headwater.deltas.driver_folding import DriverFold
from headwater.deltas.folding import Fold, Folded, plan_rows, stored_bytes
from headwater.deltas.model import CompactResult, Dataset, bind_now
from headwater.deltas.store import DatasetStore
from headwater.errors import NotFoundError
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

#: Who folds: this process, Spark, or whoever suits what is to be done.
Engine = Literal["auto", "driver", "spark"]


@dataclass(frozen=True)
class Compacting:
    """Compacts datasets of one lake."""

    lake: Lake
    store: DatasetStore
    connector: Callable[[], LakeSpark]

    def run(
        self,
        name: TableName,
        *,
        operation_id: str | None = None,
        engine: Engine = "auto",
        actor: str | None = None,
    ) -> CompactResult:
        """Fold what the log holds now.

        Deltas that arrive meanwhile stay in the log. If another compaction was faster, what is left is
        planned anew, and usually nothing is.
        """
        begun = time.monotonic()
        used: list[Transaction] = []

        def attempt(tx: Transaction) -> CompactResult | None:
            used[:] = [tx]
            if tx.already_applied:
                return None
            return self._fold(tx, self._dataset(name), operation_id, engine, begun)

        done = self.lake.run(
            attempt,
            author=actor,
            message=f"compaction of dataset {name}",
            operation_id=None if operation_id is None else f"compact/{name}/{operation_id}",
        )
        snapshot = used[0].snapshot_id
        if done is None:
            known = self.store.compaction_at(self._dataset(name).id, snapshot)
            if known is None:
                return CompactResult(str(name), "already_applied", snapshot_id=snapshot)
            return replace(known, outcome="already_applied")
        return replace(done, snapshot_id=snapshot) if done.outcome == "compacted" else done

    def _dataset(self, name: TableName) -> Dataset:
        found = self.store.get(name)
        if found is None:
            raise NotFoundError(f"There is no dataset {name}.", dataset=str(name))
        return found

    def _fold(
        self, tx: Transaction, dataset: Dataset, operation_id: str | None, engine: Engine, begun: float
    ) -> CompactResult:
        bound = bind_now(dataset, tx.state)
        fold = Fold(self.lake, tx, bound, tx.scan(bound.base.name), tx.scan(bound.log.name))
        rows = plan_rows(fold.base)
        if not fold.log.files and not fold.log.inlined:
            return CompactResult(str(dataset.name), "nothing", base_rows=rows, final_rows=rows)
        folded = None
        who: Literal["driver", "spark"] = "driver"
        if engine != "spark":
            folded = DriverFold(fold, spark_too=engine == "auto").run()
            if folded is not None:
                fold.apply(folded)
                verifying.verify(fold, folded)
        if folded is None:
            from headwater.deltas.spark_folding import SparkFold

            who = "spark"
            with SparkFold(fold, self.connector()) as work:
                folded = work.run()
                fold.apply(folded)
                verifying.verify(fold, folded, work.twins)
        result = self._result(fold, folded, operation_id)
        result = replace(result, engine=who, seconds=round(time.monotonic() - begun, 3))
        tx.join(self.store.fold(dataset.id, result, folded.unmatched))
        return result

    def _result(self, fold: Fold, folded: Folded, operation_id: str | None) -> CompactResult:
        before = plan_rows(fold.base)
        old = [*fold.chosen(folded.file_ids), *fold.log.files]
        return CompactResult(
            str(fold.bound.dataset.name),
            "compacted",
            base_rows=before,
            final_rows=before - folded.removed + folded.inserted,
            delta_rows=folded.delta_rows,
            deltas_merged=folded.deltas,
            tombstones_applied=folded.applied,
            rows_dropped_by_tombstones=folded.applied,
            tombstones_matched=folded.applied,
            tombstones_unmatched=len(folded.unmatched),
            keys=folded.keys,
            rows_updated=folded.updated,
            rows_inserted=folded.inserted,
            base_files_rewritten=len(folded.file_ids),
            base_files_kept=len(fold.base.files) - len(folded.file_ids),
            log_files=len(fold.log.files),
            files_out=len(folded.staged),
            bytes_in=stored_bytes(old),
            bytes_out=sum(file.file_size_bytes for file in folded.staged),
            read_snapshot_id=fold.log.snapshot.id,
            operation_id=operation_id,
        )
