"""What a dataset of the delta store is, and what its operations say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from headwater.errors import ConflictError, DeltaError, SnapshotError
from headwater.lake.catalog import CatalogState
from headwater.lake.model import Column, Table
from headwater.typedefs import ColumnId, SnapshotId, TableId, TableName

#: Columns that a log has after those of the dataset: what a row says, the delta it came with, and for
#: tombstones their number in it.
OPERATION, DELTA, PLACE = "_hw_op", "_hw_delta", "_hw_place"
LOG_COLUMNS = {OPERATION: "varchar", DELTA: "varchar", PLACE: "int64"}
#: What `_hw_op` says.
UPSERT, DELETE = "upsert", "delete"
#: The hidden column that numbers the rows of a table in the order of their commits.
SEQUENCE = "rowid"


@dataclass(frozen=True)
class Dataset:
    """A dataset as it was defined. Columns are known by their ids, so that renaming breaks nothing."""

    id: str
    name: TableName
    base_id: TableId
    log_id: TableId
    #: The key, by the column ids of the base.
    key: tuple[ColumnId, ...]
    #: For each column its id in the base and in the log.
    columns: tuple[tuple[ColumnId, ColumnId], ...]
    created_snapshot: SnapshotId


@dataclass(frozen=True)
class Pair:
    """A column of a dataset, as the base and as the log has it."""

    base: Column
    log: Column

    @property
    def name(self) -> str:
        """The name that users know."""
        return self.base.name


@dataclass(frozen=True)
class Bound:
    """A dataset at one snapshot: the tables and columns that its ids mean there."""

    dataset: Dataset
    base: Table
    log: Table
    columns: tuple[Pair, ...]
    key: tuple[Pair, ...]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns in the base."""
        return tuple(pair.base for pair in self.key)


def bind(dataset: Dataset, state: CatalogState) -> Bound:
    """The tables and columns of a dataset at the snapshot of `state`."""
    at = state.snapshot.id
    base, log = state.table_by_id(dataset.base_id), state.table_by_id(dataset.log_id)
    if base is None or log is None:
        if at < dataset.created_snapshot:
            raise SnapshotError(
                f"Dataset {dataset.name} does not exist at snapshot {at}; "
                f"it was made in snapshot {dataset.created_snapshot}.",
                dataset=str(dataset.name),
                snapshot_id=at,
            )
        raise DeltaError(
            f"A table of dataset {dataset.name} is not there at snapshot {at}.",
            detail=f"The dataset is stored in the tables {dataset.base_id} and {dataset.log_id}.",
            hint="Somebody dropped it: read an older snapshot, or drop the dataset.",
            dataset=str(dataset.name),
        )
    there, logged = base.by_id(), log.by_id()
    pairs = []
    for base_id, log_id in dataset.columns:
        if base_id not in there and base_id not in dataset.key:
            continue  # at this snapshot the column was not there yet, or no longer
        if base_id not in there or log_id not in logged:
            raise DeltaError(
                f"A column of dataset {dataset.name} is missing in {base.name} or in {log.name}.",
                detail=f"It has the id {base_id} in the one and {log_id} in the other.",
                hint="Columns are renamed by dataset.rename_column, and not dropped.",
                dataset=str(dataset.name),
                column_id=base_id,
            )
        pairs.append(Pair(there[base_id], logged[log_id]))
    by_id = {pair.base.id: pair for pair in pairs}
    return Bound(dataset, base, log, tuple(pairs), tuple(by_id[number] for number in dataset.key))


def bind_now(dataset: Dataset, state: CatalogState) -> Bound:
    """The same for a transaction, for which a dataset that is newer than its snapshot is a conflict."""
    if state.snapshot.id < dataset.created_snapshot:
        raise ConflictError(f"Dataset {dataset.name} was made meanwhile.", dataset=str(dataset.name))
    return bind(dataset, state)


@dataclass(frozen=True)
class Delta:
    """Rows, or tombstones, that were written to a dataset as one commit."""

    id: str
    kind: Literal["upsert", "tombstone"]
    rows: int
    actor: str | None
    reason: str | None
    operation_id: str | None
    #: The snapshot that it became; None if it had no rows.
    snapshot_id: SnapshotId | None
    written_at: datetime | None
    #: The snapshot in which a compaction folded it into the base.
    folded_snapshot: SnapshotId | None = None
    #: Whether its operation id had been applied before, so that nothing was written.
    already_applied: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The delta as plain data."""
        return asdict(self) | {"written_at": _moment(self.written_at)}


@dataclass(frozen=True)
class Backlog:
    """What waits to be folded into a base, and what reading it costs meanwhile."""

    deltas: int
    tombstones: int
    rows: int
    files: int
    bytes: int
    inlined_rows: int
    oldest_at: datetime | None
    seconds: float
    base_rows: int
    base_files: int
    base_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """The backlog as plain data."""
        return asdict(self) | {"oldest_at": _moment(self.oldest_at)}


@dataclass(frozen=True)
class CompactionPolicy:
    """When a backlog is worth folding."""

    files: int = 100
    rows: int = 1_000_000
    #: The rows that wait, as a share of those in the base (of at least a thousand).
    share: float = 0.1
    seconds: float = 86_400.0

    def reason(self, backlog: Backlog) -> str | None:
        """Why a backlog is due; None if it is not.

        >>> CompactionPolicy(rows=10).reason(Backlog(1, 0, 12, 1, 900, 0, None, 0.0, 1000, 1, 9000))
        '12 rows wait, and 10 are the limit'
        """
        if not backlog.rows:
            return None
        if backlog.files >= self.files:
            return f"{backlog.files} files wait, and {self.files} are the limit"
        if backlog.rows >= self.rows:
            return f"{backlog.rows} rows wait, and {self.rows} are the limit"
        if backlog.rows > self.share * max(backlog.base_rows, 1000):
            return f"{backlog.rows} rows wait beside {backlog.base_rows} of the base"
        if backlog.seconds >= self.seconds:
            return (
                f"the oldest delta waits for {backlog.seconds:.0f} s, and {self.seconds:.0f} s are the limit"
            )
        return None


@dataclass(frozen=True)
class CompactResult:
    """What a compaction did. Every number counts what its name says, and nothing else."""

    dataset: str
    outcome: Literal["compacted", "nothing", "already_applied"]
    #: Rows of the base before, and after.
    base_rows: int = 0
    final_rows: int = 0
    #: Rows that deltas brought, and the deltas that they came with.
    delta_rows: int = 0
    deltas_merged: int = 0
    #: Tombstones that took a row away, and the rows that they took.
    tombstones_applied: int = 0
    rows_dropped_by_tombstones: int = 0
    tombstones_matched: int = 0
    #: Tombstones for keys that no older row had.
    tombstones_unmatched: int = 0
    #: Distinct keys in what was folded.
    keys: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    #: Files of the base that were written anew, files that the log had, and files that there are instead.
    base_files_rewritten: int = 0
    base_files_kept: int = 0
    log_files: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    #: The snapshot that was read, and the one that this became.
    read_snapshot_id: SnapshotId | None = None
    snapshot_id: SnapshotId | None = None
    operation_id: str | None = None
    engine: Literal["driver", "spark"] | None = None
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Finding:
    """One store that a key was looked for in."""

    store: Literal["base", "log", "older snapshot", "inlined", "scheduled", "orphan", "reader", "audit"]
    place: str
    #: How many rows with the key are stored there; None where it was not looked.
    rows: int | None
    detail: str = ""
    #: What removes them.
    next_step: str = ""

    @property
    def found(self) -> bool:
        """Whether something is there."""
        return bool(self.rows)


@dataclass(frozen=True)
class Erasure:
    """The record of one tombstone: who asked for it, why, and what became of it."""

    key: Mapping[str, str | None]
    actor: str | None
    reason: str | None
    at: datetime
    snapshot_id: SnapshotId
    #: Whether there was a row; None until a compaction has folded the tombstone.
    matched: bool | None
    folded_snapshot: SnapshotId | None
    #: When a report last found no trace of the key.
    verified_at: datetime | None

    def as_dict(self) -> dict[str, Any]:
        """The record as plain data."""
        return asdict(self) | {"at": _moment(self.at), "verified_at": _moment(self.verified_at)}


@dataclass(frozen=True)
class ErasureReport:
    """Where rows of a key are still stored, store by store, and who asked for them to be erased."""

    dataset: str
    key: Mapping[str, str | None]
    snapshot_id: SnapshotId
    findings: tuple[Finding, ...]
    audit: tuple[Erasure, ...]
    #: What is not looked into, because it is not the lake's.
    not_covered: tuple[str, ...] = field(
        default=("backups and versions that the object store keeps", "PostgreSQL's own log and backups")
    )

    @property
    def erased(self) -> bool:
        """Whether no store of the lake holds a row of the key."""
        return not any(finding.found for finding in self.findings)

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What is left to do, in order."""
        steps = [finding.next_step for finding in self.findings if finding.found and finding.next_step]
        return tuple(dict.fromkeys(steps))

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "dataset": self.dataset,
            "key": dict(self.key),
            "snapshot_id": self.snapshot_id,
            "erased": self.erased,
            "findings": [asdict(finding) | {"found": finding.found} for finding in self.findings],
            "next_steps": list(self.next_steps),
            "audit": [record.as_dict() for record in self.audit],
            "not_covered": list(self.not_covered),
        }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
