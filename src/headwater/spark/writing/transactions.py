"""One operation of a table, one snapshot, tried again when another writer was in the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from headwater.lake.writing.transaction import Transaction
from headwater.spark.progress import progress
from headwater.typedefs import SnapshotId

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark


@dataclass(frozen=True)
class Note:
    """What a snapshot says about itself; the same `operation_id` never applies twice."""

    author: str | None = None
    message: str | None = None
    extra_info: str | None = None
    operation_id: str | None = None


@dataclass(frozen=True)
class WriteResult:
    """What an operation did."""

    snapshot_id: SnapshotId | None = None
    """The snapshot it became; where nothing changed, the latest there was."""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    already_applied: bool = False
    """Its `operation_id` had been applied before, so that it did nothing."""


def in_transaction(
    session: LakeSpark, work: Callable[[Transaction], WriteResult], note: Note, what: str = "write"
) -> WriteResult:
    """Run `work` and commit it; where that takes long, a line says how far `what` is."""
    used: list[Transaction] = []

    def attempt(tx: Transaction) -> WriteResult:
        used[:] = [tx]
        return WriteResult() if tx.already_applied else work(tx)

    with progress(session.spark.sparkContext, what):
        done = session.lake.run(attempt, **asdict(note))
    (tx,) = used
    if tx.already_applied:
        return WriteResult(tx.snapshot_id, already_applied=True)
    return replace(done, snapshot_id=tx.snapshot_id)
