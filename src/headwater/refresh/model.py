"""What a stream table is, and what a refresh says of itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from headwater.sinks.model import Sink, SinkState, sinks_of
from headwater.typedefs import TableName


class Mode(StrEnum):
    """How a stream table is to be refreshed."""

    AUTO = "auto"
    INCREMENTAL = "incremental"
    STRICT = "strict"
    FULL = "full"


class Action(StrEnum):
    """What a refresh did."""

    NO_DATA = "NO_DATA"
    INCREMENTAL = "INCREMENTAL"
    FULL = "FULL"
    REINITIALIZE = "REINITIALIZE"
    FAILED = "FAILED"


class Status(StrEnum):
    """Whether a stream table is refreshed."""

    ACTIVE = "active"
    SUSPENDED = "suspended"


@dataclass(frozen=True)
class Definition:
    """What the user asked for."""

    name: TableName
    #: The SELECT, in Spark's dialect; None if a Python function makes the rows.
    query: str | None
    #: `module:function` and the tables it is given, by parameter, of stream tables made by Python.
    function: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = Mode.AUTO
    #: `5s`, `10m`, a cron expression, `on change`, `downstream`, or None: only on request.
    schedule: str | None = None
    #: Further options by name, checked when the stream table is made.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Sinks with names of their own, each with its options.
    sinks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """The same for definitions that give the same rows in the same storage."""
        parts = [
            self.query,
            self.function,
            dict(self.inputs),
            self.options.get("nondeterministic", "refuse"),
            self.storage_path,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def published(self) -> tuple[Sink, ...]:
        """Its sinks."""
        return sinks_of(self.options, self.sinks)

    @property
    def storage_path(self) -> str | None:
        """Where the files of its result lie; None is below the lake's data path."""
        return next((sink.path for sink in self.published if sink.in_storage), None)


@dataclass(frozen=True)
class SourcePosition:
    """Up to where a stream table has seen one of its inputs."""

    table_id: int
    name: str
    #: -1 until the commit that it is part of.
    snapshot_id: int
    #: The columns in use with their Spark types.
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Frontier:
    """Up to where a stream table has seen everything it reads."""

    #: The snapshot of the lake that the result is of.
    data_snapshot_id: int
    #: The snapshot it was committed as.
    snapshot_id: int
    #: What `now()` was.
    moment: datetime
    sources: tuple[SourcePosition, ...]
    #: Whether only the result is of this snapshot: what is stored in between is older.
    behind: bool = False


@dataclass(frozen=True)
class StoredStage:
    """A stage's table in the lake."""

    source: str
    table_id: int
    table: TableName
    #: Stored columns that identify a row.
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedTable:
    """A table of the lake that one of its sinks writes to, besides the storage."""

    sink: str
    table_id: int
    table: TableName
    #: Whether the sink made it, so that it goes with it.
    own: bool


@dataclass(frozen=True)
class StreamTable:
    """A stream table as the catalog has it."""

    id: str
    definition: Definition
    status: Status
    stages: tuple[StoredStage, ...]
    #: Names users see, with their Spark types.
    columns: tuple[tuple[str, str], ...]
    #: Other stream tables it reads, by id.
    upstream: tuple[str, ...]
    frontier: Frontier | None
    failures: int = 0
    #: Whether its rows change when only time passes.
    depends_on_time: bool = False
    last_error: str | None = None
    created_at: datetime | None = None
    #: Tables of this lake that its sinks write to.
    published: tuple[PublishedTable, ...] = ()
    #: How far its sinks are.
    sink_states: tuple[SinkState, ...] = ()

    @property
    def name(self) -> TableName:
        """Its name, which is also that of its view."""
        return self.definition.name

    @property
    def storage(self) -> StoredStage:
        """The table behind its view."""
        return self.stages[-1]

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Where its result is published."""
        return self.definition.published

    def sink_state(self, sink: str) -> SinkState:
        """How far a sink is."""
        return next((state for state in self.sink_states if state.name == sink), SinkState(sink))


@dataclass(frozen=True)
class StageReport:
    """What one stage of a refresh did."""

    source: str
    strategy: str
    seconds: float
    rows_inserted: int = 0
    rows_deleted: int = 0


@dataclass(frozen=True)
class Prediction:
    """What a refresh was expected to cost either way, in seconds."""

    incremental: float | None = None
    full: float | None = None


@dataclass(frozen=True)
class RefreshResult:
    """What a refresh of one stream table did."""

    name: str
    action: Action
    #: How: `sums`, `groups`, `rows`, `first rows`, `anew`, `difference`, or several of them.
    strategy: str
    #: A word scripts can match on, and one sentence.
    reason_code: str
    reason: str
    mode: Mode = Mode.AUTO
    rows_inserted: int = 0
    rows_deleted: int = 0
    #: Changed rows of the inputs.
    rows_in: int = 0
    files_read: int = 0
    bytes_read: int = 0
    snapshot_id: int | None = None
    data_snapshot_id: int | None = None
    seconds: float = 0.0
    stages: tuple[StageReport, ...] = ()
    prediction: Prediction = field(default_factory=Prediction)
    refresh_id: str = ""
    wave_id: str = ""
    started_at: datetime | None = None
    error: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class VerifyResult:
    """Whether a stream table is what its query says, by DuckDB's own computation."""

    name: str
    ok: bool
    #: Rows compared, and how many are missing in or missing from the stream table.
    rows: int
    missing: int
    unexpected: int
    data_snapshot_id: int
    #: The first differing rows, as (`missing` or `unexpected`, row, how often).
    differences: tuple[tuple[Literal["missing", "unexpected"], Mapping[str, Any], int], ...] = ()
    detail: str = ""
    seconds: float = 0.0
