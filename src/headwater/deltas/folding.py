"""Folding a log into its base: what the work is, and what is the same whoever does it.

The list of what is folded is fixed: the log as it is at the transaction's snapshot. Of the base only files
that hold keys of the log are written anew. Rows that stay and rows that change keep their row ids, so that
the base's own change feed tells true changes apart; keys that are new go into files of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from headwater.deltas.model import SEQUENCE, Bound
from headwater.deltas.unmatched import Unmatched
from headwater.lake.lake import Lake
from headwater.lake.model import Column, StagedFile
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import FileId


@dataclass
class Folded:
    """What became of a log."""

    keys: int = 0
    delta_rows: int = 0
    deltas: int = 0
    #: Tombstones that took a row away, of the log or of the base.
    applied: int = 0
    #: The others, by delta and place.
    unmatched: Unmatched = field(default_factory=Unmatched)
    #: Rows of the base that got other values, that went, and keys that are new.
    updated: int = 0
    removed: int = 0
    inserted: int = 0
    #: Files of the base that are written anew.
    file_ids: list[FileId] = field(default_factory=list)
    rewritten: list[StagedFile] = field(default_factory=list)
    added: list[StagedFile] = field(default_factory=list)
    #: NULL values that the new files are to hold, by column id.
    nulls: dict[int, int] = field(default_factory=dict)

    @property
    def staged(self) -> list[StagedFile]:
        """All files that were stored."""
        return [*self.rewritten, *self.added]


@dataclass(frozen=True)
class Fold:
    """A log that is to be folded, and the base as it is at the same snapshot."""

    lake: Lake
    tx: Transaction
    bound: Bound
    base: ScanPlan
    log: ScanPlan

    def keep(self, staged: list[StagedFile]) -> list[StagedFile]:
        """Give stored files to the transaction at once, which removes them if it comes to nothing."""
        self.tx.add_files(self.bound.base.name, staged)
        return staged

    def apply(self, folded: Folded) -> None:
        """Let the transaction take out what the stored files were made of."""
        base, log = self.bound.base.name, self.bound.log.name
        if folded.staged or folded.file_ids or self.base.inlined:
            self.tx.end_files(base, self.base, folded.file_ids)
            self.tx.remove_rows(base, self.base, {}, self.inlined_ids(self.base))
        self.tx.allow_inserts(log)
        self.tx.end_files(log, self.log, [scan.file.id for scan in self.log.files])
        self.tx.remove_rows(log, self.log, {}, self.inlined_ids(self.log))

    def inlined_ids(self, plan: ScanPlan) -> dict[str, list[int]]:
        """The row ids of all inlined rows of a plan, by the table that holds them."""
        found = {}
        for one in plan.inlined:
            alone = replace(plan, files=(), inlined=(one,))
            rows = read_plan(alone, self.lake.store, self.lake.db, columns=[], hidden=(SEQUENCE,))
            found[one.table_name] = rows.column(0).to_numpy().tolist()
        return found

    def chosen(self, file_ids: Iterable[FileId]) -> list[FileScan]:
        """The scans of some files of the base."""
        wanted = set(file_ids)
        return [scan for scan in self.base.files if scan.file.id in wanted]


def live_rows(scans: Iterable[FileScan]) -> int:
    """How many rows files have, by the catalog."""
    return sum(
        scan.file.record_count
        - sum(deletes.delete_count for deletes in scan.deletes)
        - len(scan.inlined_deletes)
        for scan in scans
    )


def plan_rows(plan: ScanPlan) -> int:
    """How many rows a plan reads, by the catalog."""
    return live_rows(plan.files) + sum(inlined.row_count for inlined in plan.inlined)


def stored_bytes(scans: Iterable[FileScan]) -> int:
    """How large files are, with their delete files."""
    return sum(
        scan.file.file_size_bytes + sum(deletes.file_size_bytes for deletes in scan.deletes) for scan in scans
    )


def top_columns(columns: Sequence[Column]) -> list[Column]:
    """Columns whose NULL values a Parquet footer counts."""
    return [column for column in columns if not column.is_nested]
