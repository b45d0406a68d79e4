"""What a sink is: where a stream table's result goes, and how, as its options say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from headwater.errors import SettingsError

#: Options that hold passwords or keys: kept encrypted, never shown.
SECRET_OPTIONS = frozenset(
    {"ducklake_sink_catalog", "ducklake_sink_s3_secret_access_key", "postgres_sink_dsn"}
)
#: Options that say where and how results are published.
SINK_OPTIONS = (
    "sink",
    "ducklake_sink_mode",
    "ducklake_sink_path",
    "ducklake_sink_table_id",
    "ducklake_sink_table",
    "ducklake_sink_compression",
    "ducklake_sink_catalog",
    "ducklake_sink_s3_region",
    "ducklake_sink_s3_endpoint",
    "ducklake_sink_s3_access_key_id",
    "ducklake_sink_s3_secret_access_key",
    "postgres_sink_dsn",
    "postgres_sink_table",
)
_S3 = "ducklake_sink_s3_"


class SinkKind(StrEnum):
    """What a sink writes to."""

    DUCKLAKE = "ducklake"
    POSTGRES = "postgres"


class SinkMode(StrEnum):
    """What a DuckLake sink holds."""

    #: The current result, kept by deltas.
    MERGE = "merge"
    #: A log of deltas, with tombstones for rows that went.
    ACCUMULATE = "accumulate"
    #: The current result, written anew each time it changed.
    REPLACE = "replace"


@dataclass(frozen=True)
class Sink:
    """One place that a result is published to. Addresses and keys are references (see `Secrets`)."""

    name: str
    kind: SinkKind
    mode: SinkMode = SinkMode.MERGE
    path: str | None = None
    table_id: int | None = None
    table: str | None = None
    compression: str | None = None
    #: The catalog of another lake; None is the lake that the stream table is in.
    catalog: str | None = None
    #: Of a sink in PostgreSQL.
    dsn: str | None = None
    s3: Mapping[str, str] = field(default_factory=dict)

    @property
    def remote(self) -> bool:
        """Whether it is outside the stream table's own lake, so that it is served after the commit."""
        return self.kind is SinkKind.POSTGRES or self.catalog is not None

    @property
    def in_storage(self) -> bool:
        """Whether the table that refreshes work on is all that this sink needs."""
        plain = self.mode is SinkMode.MERGE and self.table_id is None and self.table is None
        return not self.remote and self.name == SinkKind.DUCKLAKE and plain

    @property
    def behind_view(self) -> bool:
        """Whether the view of the stream table's name reads what this sink writes."""
        return not self.remote and self.name == SinkKind.DUCKLAKE and self.table_id is None


@dataclass(frozen=True)
class SinkState:
    """How far a sink is, as the stream table's own lake remembers it."""

    name: str
    #: The table that deltas were taken from, and the snapshot up to which they were; None before the first.
    storage_table_id: int | None = None
    snapshot_id: int | None = None
    refresh_id: str | None = None
    #: The number of the next row of a log.
    sequence: int = 0
    #: Whether something is missing, so that everything has to be written again.
    behind: bool = False
    delivered_at: datetime | None = None
    failures: int = 0
    last_error: str | None = None
    failing_since: datetime | None = None
    next_try_at: datetime | None = None


@dataclass(frozen=True)
class Delivered:
    """What became of one sink."""

    stream_table: str
    sink: str
    kind: SinkKind
    #: What was written; `waiting` for one that failed, and is left alone for a while.
    outcome: Literal["changes", "everything", "nothing", "failed", "waiting"]
    rows_inserted: int = 0
    rows_deleted: int = 0
    #: The snapshot of the stream table's lake that the sink now shows.
    snapshot_id: int | None = None
    seconds: float = 0.0
    error: Mapping[str, Any] | None = None


def sinks_of(options: Mapping[str, str], named: Mapping[str, Mapping[str, str]]) -> tuple[Sink, ...]:
    """The sinks that options ask for: those of the option `sink`, and those that have names of their own.

    >>> found = sinks_of({"sink": "ducklake, postgres", "postgres_sink_dsn": "dbname=game"}, {})
    >>> [sink.name for sink in found]
    ['ducklake', 'postgres']
    """
    return (*_listed(options), *(_sink(name, given) for name, given in sorted(named.items())))


def _listed(options: Mapping[str, str]) -> Iterator[Sink]:
    for kind in options.get("sink", SinkKind.DUCKLAKE).split(","):
        yield _of_kind(kind.strip(), SinkKind(kind.strip()), options)


def _sink(name: str, options: Mapping[str, str]) -> Sink:
    kinds = [kind.strip() for kind in options.get("sink", SinkKind.DUCKLAKE).split(",")]
    if len(kinds) > 1:
        raise SettingsError(
            f"Sink {name!r} is of several kinds: {', '.join(kinds)}.",
            hint="A sink with a name of its own is one; add another for the other.",
            sink=name,
        )
    return _of_kind(name, SinkKind(kinds[0]), options)


def _of_kind(name: str, kind: SinkKind, options: Mapping[str, str]) -> Sink:
    if kind is SinkKind.POSTGRES:
        dsn = options.get("postgres_sink_dsn")
        if dsn is None:
            raise SettingsError(
                f"Sink {name!r} has no address.",
                hint="Set postgres_sink_dsn: 'postgresql://user@host/database', or 'env:NAME'.",
                sink=name,
                option="postgres_sink_dsn",
            )
        return Sink(name, kind, dsn=dsn, table=options.get("postgres_sink_table"))
    table_id = options.get("ducklake_sink_table_id")
    sink = Sink(
        name,
        kind,
        SinkMode(options.get("ducklake_sink_mode", SinkMode.MERGE)),
        path=options.get("ducklake_sink_path"),
        table_id=None if table_id is None else int(table_id),
        table=options.get("ducklake_sink_table"),
        compression=options.get("ducklake_sink_compression"),
        catalog=options.get("ducklake_sink_catalog"),
        s3={
            option.removeprefix("ducklake_sink_"): value
            for option, value in options.items()
            if option.startswith(_S3)
        },
    )
    _check(sink)
    return sink


def _check(sink: Sink) -> None:
    if sink.table_id is not None and sink.table is not None:
        raise SettingsError(
            f"Sink {sink.name!r} has both ducklake_sink_table_id and ducklake_sink_table.",
            hint="Keep one: the id of a table that is there, or the name of one to be made.",
            sink=sink.name,
        )
    if sink.table_id is not None and sink.path is not None and not sink.remote:
        raise SettingsError(
            f"Sink {sink.name!r} has both ducklake_sink_table_id and ducklake_sink_path.",
            detail="The files of a table that is there lie where that table says.",
            hint="Leave one of them out.",
            sink=sink.name,
        )
    if bool(sink.s3.get("s3_access_key_id")) != bool(sink.s3.get("s3_secret_access_key")):
        raise SettingsError(
            f"Of the S3 credentials of sink {sink.name!r} only one half is given.",
            hint="Give ducklake_sink_s3_access_key_id and ducklake_sink_s3_secret_access_key, or neither.",
            sink=sink.name,
        )
