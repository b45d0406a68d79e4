"""A dataset of the delta store, in its users' hands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.deltas.compacting import Compacting, Engine
from headwater.deltas.defining import Defining, Schema, check_key
from headwater.deltas.erasing import erasure_report
from headwater.deltas.folding import plan_rows, stored_bytes
from headwater.deltas.keys import parse_keys
from headwater.deltas.model import (
    DELTA,
    SEQUENCE,
    Backlog,
    Bound,
    CompactionPolicy,
    CompactResult,
    Dataset,
    Delta,
    Erasure,
    ErasureReport,
    bind,
)
from headwater.deltas.reading import shown_rows
from headwater.deltas.store import DatasetStore
from headwater.deltas.writing import Rows, Writing
from headwater.errors import InvalidInputError
from headwater.lake.lake import At, Lake
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import SnapshotId, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.connector import LakeSpark


@dataclass(frozen=True)
class DeltaDataset:
    """A dataset by its name; it is looked up anew whenever it is used.

    >>> customers = hw.deltas("crm.customers", key=["id"])  # doctest: +SKIP
    >>> customers.write_delta([{"id": 7, "name": "Ann"}])  # doctest: +SKIP
    >>> customers.tombstone(7, actor="dpo", reason="asked to be forgotten")  # doctest: +SKIP
    >>> customers.compact().rows_dropped_by_tombstones  # doctest: +SKIP
    1
    """

    lake: Lake
    connector: Callable[[], LakeSpark]
    name: TableName
    key: tuple[str, ...] | None = None
    #: Names what else in the lake reads a table, by the ids of tables and the name of the view.
    readers: Callable[[Iterable[int], TableName], Sequence[str]] | None = None

    @cached_property
    def store(self) -> DatasetStore:
        """What is remembered of datasets."""
        return DatasetStore(self.lake.db)

    @property
    def _defining(self) -> Defining:
        return Defining(self.lake, self.store)

    @property
    def _writing(self) -> Writing:
        return Writing(self._defining, self.connector)

    # -- what it is ---------------------------------------------------------------------------------

    def open(self, *, schema: Schema | None = None, adopt: bool = False) -> DeltaDataset:
        """Check the key of a dataset that is there; make one that is not, if its columns are known."""
        found = self.store.get(self.name)
        if found is not None:
            check_key(found, bind(found, self.lake.state()), self.key)
        elif adopt:
            self._run(lambda tx: self._defining.adopt(tx, self.name, self.key or ()), "adoption")
        elif schema is not None:
            self._run(lambda tx: self._defining.create(tx, self.name, self.key or (), schema), "creation")
        elif self.key is None:
            self._writing.existing(self.name)
        return self

    @property
    def definition(self) -> Dataset:
        """What the catalog says of it now."""
        return self._writing.existing(self.name)

    @property
    def exists(self) -> bool:
        """Whether it has been made: by a schema, by adoption, or by its first delta."""
        return self.store.get(self.name) is not None

    def _bound(self, at: At = None) -> tuple[Bound, SnapshotId]:
        state = self.lake.state(at)
        return bind(self.definition, state), state.snapshot.id

    def _run(self, work: Callable[[Transaction], object], what: str) -> None:
        self.lake.run(work, message=f"{what} of dataset {self.name}")

    # -- writing ------------------------------------------------------------------------------------

    def write_delta(self, rows: Rows, *, operation_id: str | None = None, actor: str | None = None) -> Delta:
        """Insert rows, or replace those of the same keys, as one commit. No older row is looked at.

        `rows` is a DataFrame, an Arrow table or a list of dictionaries, of whole rows: columns that are
        missing are NULL. New columns are added, types widened; what cannot be stored is refused, and nothing
        is written. Of two rows of one key the later one wins (in a DataFrame, which has no order, one of
        them). The same `operation_id` never applies twice.
        """
        return self._writing.upsert(self.name, self.key, rows, operation_id=operation_id, actor=actor)

    def tombstone(self, keys: Any, *, actor: str, reason: str, operation_id: str | None = None) -> Delta:
        """Hide the rows of some keys at once; the next compaction takes them out of the current files.

        `keys` is a value, a tuple or a dictionary for a composite key, a list of these, an Arrow table or a
        DataFrame. Values must be of the key's types, or texts as DuckDB writes them. A key that is written
        again later is visible again. Actor, reason and key stay on record.
        """
        return self._writing.tombstone(self.name, keys, operation_id=operation_id, actor=actor, reason=reason)

    def rename_column(self, old: str, new: str) -> None:
        """Give a column another name, in the dataset and in everything that is stored for it."""
        self._run(lambda tx: self._defining.rename_column(tx, self.definition, old, new), "renaming")

    def drop(self) -> None:
        """Remove the dataset. Older snapshots still have it, and the record of tombstones stays."""
        self._run(lambda tx: self._defining.drop(tx, self.definition), "removal")

    # -- reading ------------------------------------------------------------------------------------

    def read(self, version: int | None = None, timestamp: datetime | str | None = None) -> DataFrame:
        """The rows, now or at an older snapshot, as its view in DuckDB shows them."""
        from headwater.deltas.frames import shown_frame

        bound, at = self._bound(_moment(version, timestamp))
        return shown_frame(self.connector(), bound, at)

    def read_arrow(self, version: int | None = None, timestamp: datetime | str | None = None) -> pa.Table:
        """The same without Spark, in this process's memory."""
        bound, at = self._bound(_moment(version, timestamp))
        return shown_rows(self.lake, bound, at)

    def list_deltas(self, *, folded: bool = False) -> list[Delta]:
        """The deltas that wait to be folded, in the order of their commits; with `folded` all that were."""
        return self.store.deltas(self.definition, folded=folded)

    def load_deltas(self, delta_id: str | None = None) -> DataFrame:
        """The rows of the deltas that wait, of all or of one: columns, operation, delta and sequence."""
        bound, at = self._bound()
        frame = self.connector().frame(bound.log.name, at, hidden=(SEQUENCE,))
        return frame if delta_id is None else frame.where(frame[DELTA] == delta_id)

    def pending(self) -> Backlog:
        """How much waits to be folded, and for how long. Does not start Spark."""
        bound, at = self._bound()
        base, log = self.lake.scan(bound.base.name, at), self.lake.scan(bound.log.name, at)
        waiting = self.store.waiting(bound.dataset)
        return Backlog(
            deltas=waiting.deltas,
            tombstones=waiting.tombstones,
            rows=plan_rows(log),
            files=len(log.files),
            bytes=stored_bytes(log.files),
            inlined_rows=sum(one.row_count for one in log.inlined),
            oldest_at=waiting.oldest_at,
            seconds=waiting.seconds,
            base_rows=plan_rows(base),
            base_files=len(base.files),
            base_bytes=stored_bytes(base.files),
        )

    # -- compaction ---------------------------------------------------------------------------------

    def compact(
        self,
        *,
        operation_id: str | None = None,
        engine: Engine = "auto",
        policy: CompactionPolicy | None = None,
        actor: str | None = None,
    ) -> CompactResult:
        """Fold what waits now into the base, in one commit; with a `policy` only if it is due by that.

        Deltas that arrive meanwhile wait for the next time. `engine` is `driver`, `spark`, or `auto`.
        """
        if policy is not None:
            backlog = self.pending()
            if policy.reason(backlog) is None:
                rows = backlog.base_rows
                return CompactResult(str(self.name), "nothing", base_rows=rows, final_rows=rows)
        return Compacting(self.lake, self.store, self.connector).run(
            self.name, operation_id=operation_id, engine=engine, actor=actor
        )

    def compactions(self, limit: int = 20) -> list[CompactResult]:
        """Past compactions, newest first."""
        return self.store.compactions(self.definition.id, limit)

    # -- erasure ------------------------------------------------------------------------------------

    def audit(self) -> list[Erasure]:
        """Every tombstone: who asked for it, why, and what became of it."""
        return self.store.audit(self.definition)

    def erasure_report(self, key: Any) -> ErasureReport:
        """Where rows of a key are still stored: in current files, for older snapshots, or left behind.

        A report that finds nothing is noted with the key's tombstones.
        """
        bound, _ = self._bound()
        wanted = parse_keys(str(self.name), key, bound.key_columns)
        if wanted.count != 1:
            raise InvalidInputError("A report is about one key.", dataset=str(self.name))
        return erasure_report(self.lake, self.store, bound, wanted, self.readers)


def _moment(version: int | None, timestamp: datetime | str | None) -> At:
    if version is not None and timestamp is not None:
        raise InvalidInputError("Give a version or a timestamp, not both.")
    return version if version is not None else timestamp
