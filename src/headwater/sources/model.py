"""What a PostgreSQL source is: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from headwater.typedefs import TableName, quote_name


class CaptureKind(StrEnum):
    """How changes are found."""

    TRIGGERS = "triggers"
    REPLICATION = "replication"


class SourceStatus(StrEnum):
    """Whether a source is captured."""

    ACTIVE = "active"
    PAUSED = "paused"


class TableStatus(StrEnum):
    """How far a table of a source is."""

    NEW = "new"
    """To be copied, or copied again, at the next capture."""
    ACTIVE = "active"
    STOPPED = "stopped"
    """It cannot be followed; `error` says why and what to do."""


class Form(StrEnum):
    """How the text of a value is to be read."""

    PLAIN = "plain"
    """As PostgreSQL prints the value."""
    DOCUMENT = "document"
    """JSON, kept as it is."""
    LIST = "list"
    """A JSON array of plain values."""
    ANY = "any"
    """JSON: a string stands for its text, anything else for itself."""


@dataclass(frozen=True)
class SourceColumn:
    """A mirrored column. `number` is PostgreSQL's, which stays when the column is renamed."""

    name: str
    number: int
    type: str
    """As PostgreSQL writes it: `numeric(10,2)`."""
    lake_type: str
    """As DuckLake writes it: `decimal(10,2)`, `int32[]`."""
    form: Form = Form.PLAIN
    missing: str | None = None
    """What rows hold that are older than the column."""


@dataclass(frozen=True)
class Layout:
    """A source table as it was when its rows were last understood."""

    oid: int
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...] = ()
    """Columns that identify a row; empty where nothing does, and rows are counted."""
    storage: str = ""
    """Which files of PostgreSQL hold the rows: another one after a rewrite, or with other partitions."""

    def column(self, name: str) -> SourceColumn | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True)
class SourceTable:
    """A table of a source and the table of the lake that mirrors it."""

    number: int
    schema: str
    name: str
    lake_table: TableName
    chosen: tuple[str, ...] | None = None
    """Columns that were asked for; None for all, and for those to come."""
    where: str | None = None
    status: TableStatus = TableStatus.NEW
    layout: Layout | None = None
    position: str | None = None
    """What of the source the lake's rows are: a PostgreSQL snapshot, or an LSN."""
    error: Mapping[str, Any] | None = None

    @property
    def source_name(self) -> str:
        """Schema and name in the source."""
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "table": self.source_name,
            "lake_table": str(self.lake_table),
            "columns": None if self.chosen is None else list(self.chosen),
            "where": self.where,
            "key": list(self.layout.key) if self.layout else [],
            "status": str(self.status),
            "error": None if self.error is None else dict(self.error),
        }


@dataclass(frozen=True)
class Source:
    """A PostgreSQL database some tables of which are mirrored."""

    id: str
    name: str
    dsn: str
    """A reference: the address itself is kept encrypted."""
    shown: str
    """The address without anything secret."""
    capture: CaptureKind
    reason: str
    """Why the changes are captured in this way."""
    status: SourceStatus
    tables: tuple[SourceTable, ...]
    generation: int = 0
    """Grows with everything that is captured: who read another one is too late to commit."""
    failures: int = 0
    last_error: Mapping[str, Any] | None = None
    captured_at: datetime | None = None
    created_at: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for people and tools."""
        return {
            "name": self.name,
            "address": self.shown,
            "capture": str(self.capture),
            "reason": self.reason,
            "status": str(self.status),
            "tables": [table.as_dict() for table in self.tables],
            "failures": self.failures,
            "last_error": None if self.last_error is None else dict(self.last_error),
            "captured_at": self.captured_at,
        }


@dataclass(frozen=True)
class Captured:
    """What one pass over a source did. `error` is an error's plain data; then nothing was committed by it."""

    source: str
    snapshot_id: int | None = None
    """The newest snapshot of the lake that it made; None if there was nothing to do."""
    transactions: int = 0
    changes: int = 0
    """Row changes that were read."""
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_copied: int = 0
    copied: tuple[str, ...] = ()
    """Tables that were copied, for the first time or again."""
    stopped: tuple[str, ...] = ()
    """Tables that could not be followed any further; `Source.tables` has their errors."""
    seconds: float = 0.0
    error: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


@dataclass
class Counts:
    """Rows of the lake that a capture changed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    tables: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, table: str, inserted: int, updated: int, deleted: int) -> None:
        """Count one table's changes."""
        self.inserted += inserted
        self.updated += updated
        self.deleted += deleted
        if inserted or updated or deleted:
            self.tables[table] = {"inserted": inserted, "updated": updated, "deleted": deleted}

    @property
    def total(self) -> int:
        """All of them."""
        return self.inserted + self.updated + self.deleted
