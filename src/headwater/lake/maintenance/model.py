"""What maintenance did, or would do, and what kept it from doing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headwater.errors import InvalidInputError
from headwater.typedefs import SnapshotId

#: A moment, or how long ago it was.
Age = datetime | timedelta


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody needs a snapshot."""

    snapshot_id: SnapshotId
    reason: str
    """Who, in words that finish "kept 12 snapshots: …"."""
    onwards: bool = True
    """Every later snapshot too: who follows changes needs all that come after the one they are at."""

    def needs(self, snapshot_id: SnapshotId) -> bool:
        """Whether a snapshot must stay."""
        return snapshot_id >= self.snapshot_id if self.onwards else snapshot_id == self.snapshot_id


@dataclass(frozen=True, slots=True)
class Kept:
    """Snapshots that were to expire and stayed."""

    count: int
    reason: str
    snapshot_id: SnapshotId
    """The snapshot that is needed."""

    def __str__(self) -> str:
        many = "1 snapshot" if self.count == 1 else f"{self.count} snapshots"
        return f"kept {many}: {self.reason} is at {self.snapshot_id}"


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """Snapshots that expired (or, in a dry run, would), and what went with them."""

    expired: tuple[SnapshotId, ...]
    remaining: int
    """Live snapshots that are left."""
    kept: tuple[Kept, ...] = ()
    tables: int = 0
    """Tables that no snapshot has any more."""
    files: int = 0
    """Files that no snapshot names any more; `cleanup` removes them."""
    bytes: int = 0
    inlined_rows: int = 0
    """Dead rows removed from the catalog's own database."""
    dry_run: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """Files that were removed from storage (or, in a dry run, would be)."""

    files: int = 0
    bytes: int = 0
    """As far as it is known: object stores are asked for sizes in a dry run only."""
    locations: tuple[str, ...] = ()
    """The first of them, for people."""
    waiting: int = 0
    """Files that are not old enough yet, or that a running reader may still need."""
    failed: tuple[str, ...] = ()
    """Files that could not be removed; they are tried again next time."""
    left: tuple[str, ...] = ()
    """Files that are not the lake's to remove."""
    uploads: int = 0
    """Unfinished uploads that were ended."""
    dry_run: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TableCompaction:
    """What compaction did to one table, or would do."""

    table: str
    merged_files: int = 0
    """Small files whose rows are now in others."""
    rewritten_files: int = 0
    """Files with deleted rows that were written again without them."""
    files_written: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    """Of the table's live files, all in all."""
    rows_moved: int = 0
    deleted_rows: int = 0
    """Deleted rows that the new files no longer hold."""
    flushed: int = 0
    """Inlined rows and deletes that became files."""
    skipped: int = 0
    """Files that another writer changed meanwhile; next time."""
    snapshots: tuple[SnapshotId, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.merged_files or self.rewritten_files or self.flushed)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What compaction did to the tables it was asked for."""

    tables: tuple[TableCompaction, ...] = ()
    complete: bool = True
    """False if the limit of time or bytes was reached first."""
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def changed(self) -> tuple[TableCompaction, ...]:
        """The tables that something was done to."""
        return tuple(table for table in self.tables if table.changed)

    def total(self, name: str) -> int:
        """A number of `TableCompaction`, over all tables."""
        return sum(int(getattr(table, name)) for table in self.tables)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one pass may do."""

    seconds: float | None = None
    bytes: int | None = None
    stopped: Callable[[], bool] | None = None
    """Asked between steps whether to leave the rest."""

    def reached(self, seconds: float) -> bool:
        """Whether, after so many seconds, the rest is for the next time."""
        late = self.seconds is not None and seconds >= self.seconds
        return late or (self.stopped is not None and self.stopped())


def moment(age: Age | None, now: datetime) -> datetime | None:
    """The time that is meant by a time, or by how long ago it was."""
    if age is None:
        return None
    if isinstance(age, timedelta):
        if age < timedelta(0):
            raise InvalidInputError(f"An age cannot be negative: {age}.")
        try:
            return now - age
        except OverflowError:  # older than time itself: nothing is
            return datetime.min.replace(tzinfo=UTC)
    return age if age.tzinfo is not None else age.replace(tzinfo=UTC)
