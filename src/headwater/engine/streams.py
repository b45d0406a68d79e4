"""How people speak to stream tables: the calls of `Headwater`, and the SQL statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.algebra.statement_reader import Given
from headwater.algebra.statements import (
    AddSink,
    AlterStream,
    CreateStream,
    DropSink,
    DropStream,
    ExplainStream,
    RefreshStream,
    ShowSinks,
    ShowStreams,
    StreamStatement,
    moved_error,
    placed_error,
)
from headwater.errors import HeadwaterError, InvalidInputError, QueryError, StreamTableError
from headwater.lake.catalog import table_name
from headwater.lake.lake import Lake
from headwater.lake.secrets import Secrets
from headwater.refresh.functions import function_inputs, function_path
from headwater.refresh.model import Action, Definition, Mode, RefreshResult, Status, VerifyResult
from headwater.refresh.options import Settled, settle, settle_sink
from headwater.refresh.sink_status import SinkStatus, sink_statuses
from headwater.refresh.status import StreamStatus, status_of
from headwater.refresh.store import StreamStore
from headwater.refresh.stream_file import stream_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.refresh.lineage import Lineage
    from headwater.refresh.provenance import Provenance
    from headwater.refresh.publishing import Publisher
    from headwater.refresh.streams import Streams
    from headwater.refresh.tracing import Trace
    from headwater.sinks.model import Delivered
    from headwater.spark.connector import LakeSpark
    from headwater.spark.sql.fetching import QueryResult

_REFRESHED = (
    ("name", "string"),
    ("action", "string"),
    ("strategy", "string"),
    ("reason", "string"),
    ("rows_inserted", "bigint"),
    ("rows_deleted", "bigint"),
    ("snapshot_id", "bigint"),
    ("seconds", "double"),
)
_STATUS = (
    ("name", "string"),
    ("status", "string"),
    ("mode", "string"),
    ("schedule", "string"),
    ("last_action", "string"),
    ("last_reason", "string"),
    ("refreshed_at", "timestamp"),
    ("data_snapshot_id", "bigint"),
    ("pending_rows", "bigint"),
    ("lag_seconds", "double"),
    ("failures", "int"),
    ("last_error", "string"),
    ("catch_up_due", "boolean"),
)
_SINKS = (
    ("stream_table", "string"),
    ("sink", "string"),
    ("kind", "string"),
    ("mode", "string"),
    ("target", "string"),
    ("current", "boolean"),
    ("snapshot_id", "bigint"),
    ("refresh_id", "string"),
    ("delivered_at", "timestamp"),
    ("failures", "int"),
    ("last_error", "string"),
    ("failing_since", "timestamp"),
)


@dataclass(frozen=True)
class Answer:
    """What a statement returns: (name, Spark type) of its columns, and its rows."""

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()

    def frame(self, spark: SparkSession) -> DataFrame:
        """The answer as a DataFrame."""
        schema = "struct<" + ", ".join(f"{name}: {kind}" for name, kind in self.columns) + ">"
        return spark.createDataFrame(list(self.rows), schema)

    def result(self, limit: int) -> QueryResult:
        """The answer as plain data."""
        from headwater.spark.sql.fetching import QueryResult

        names = tuple(name for name, _ in self.columns)
        types = tuple(kind for _, kind in self.columns)
        return QueryResult(names, types, self.rows[:limit], len(self.rows) > limit)


class StreamTables:
    """The stream tables of a lake. What only looks at the catalog does not even import Spark."""

    def __init__(self, lake: Lake, connector: Callable[[], LakeSpark]):
        self._lake = lake
        self._connector = connector

    @cached_property
    def store(self) -> StreamStore:
        """Definitions, history and provenance in the catalog."""
        return StreamStore(self._lake)

    @cached_property
    def publisher(self) -> Publisher:
        """What serves the sinks outside the lake."""
        from headwater.refresh.publishing import Publisher

        return Publisher(self._lake, self.store)

    @cached_property
    def streams(self) -> Streams:
        """Everything that may need Spark."""
        from headwater.refresh.streams import Streams

        return Streams(self._lake, self._connector)

    # -- calls --------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        query: str | Callable[..., Any],
        *,
        inputs: Mapping[str, str] | None,
        if_not_exists: bool,
        or_replace: bool,
        options: Mapping[str, Any],
    ) -> RefreshResult:
        """Make a stream table and fill it."""
        if if_not_exists and or_replace:
            raise InvalidInputError("if_not_exists and or_replace exclude each other.")
        settled = settle(_given(options))
        mode, schedule = settled.mode or Mode.AUTO, settled.schedule
        if isinstance(query, str):
            if inputs:
                raise InvalidInputError("`inputs` are for functions; a query names its tables itself.")
            definition = Definition(
                table_name(name), query, mode=mode, schedule=schedule, options=settled.options
            )
        else:
            definition = Definition(
                table_name(name),
                None,
                function=function_path(query),
                inputs=function_inputs(query, inputs),
                mode=mode,
                schedule=schedule,
                options=settled.options,
            )
        return self._created(definition, if_not_exists, or_replace)

    def _created(self, definition: Definition, if_not_exists: bool, or_replace: bool) -> RefreshResult:
        from headwater.refresh.spark_errors import spark_errors

        with spark_errors(definition.name):
            return self.streams.create(definition, if_not_exists=if_not_exists, or_replace=or_replace)

    def alter(
        self, name: str, *, query: str | None, status: Status | str | None, options: Mapping[str, Any]
    ) -> RefreshResult | None:
        """Change some of a stream table."""
        return self._altered(name, query, settle(_texts(options)), _status(status))

    def _altered(
        self, name: Any, query: str | None, settled: Settled, status: Status | None
    ) -> RefreshResult | None:
        from headwater.refresh.spark_errors import spark_errors
        from headwater.refresh.streams import UNCHANGED

        with spark_errors(name):
            return self.streams.alter(
                name,
                query=query,
                mode=settled.mode,
                schedule=settled.schedule if settled.schedule_given else UNCHANGED,
                options=settled.options,
                removed=settled.removed,
                status=status,
            )

    def add_sink(self, name: Any, sink: str, options: Mapping[str, str | None]) -> RefreshResult:
        """Publish a stream table to one more place."""
        from headwater.refresh.spark_errors import spark_errors

        with spark_errors(name):
            return self.streams.add_sink(name, sink, settle_sink(options))

    def drop_sink(self, name: Any, sink: str, *, if_exists: bool) -> bool:
        """No longer publish a stream table to a place that was added."""
        return self.streams.drop_sink(name, sink, if_exists=if_exists)

    def sinks(self, name: Any = None) -> list[SinkStatus]:
        """How the sinks of one stream table, or of all, are."""
        streams = self.store.all() if name is None else [self.streams.get(name)]
        secrets = Secrets(self._lake)
        return [status for stream in streams for status in sink_statuses(secrets, stream)]

    def deliver(self, names: str | Sequence[str] | None, *, force: bool) -> list[Delivered]:
        """Serve the sinks outside the lake that are behind."""
        wanted = [names] if isinstance(names, str) else names
        return self.publisher.deliver(wanted, force=force)

    def refresh(self, names: str | Sequence[str] | None, *, full: bool) -> list[RefreshResult]:
        """Bring stream tables up to date."""
        return self.streams.refresh([names] if isinstance(names, str) else names, full=full)

    def verify(self, name: str, limit: int) -> VerifyResult:
        """Compare a stream table with what DuckDB computes."""
        return self.streams.verify(name, limit=limit)

    def status(self) -> list[StreamStatus]:
        """How all stream tables are, from the catalog alone."""
        state = self._lake.state()
        return [status_of(self._lake, self.store, stream, state) for stream in self.store.all()]

    def history(self, name: str | None, limit: int) -> Sequence[RefreshResult]:
        """Past refreshes, newest first."""
        found = self.store.history(None if name is None else table_name(name), limit)
        self._must_exist(name if not found else None)
        return found

    def provenance(self, name: str | None, limit: int) -> Sequence[Provenance]:
        """Which snapshots hold which refreshes, newest first."""
        found = self.store.provenance(None if name is None else table_name(name), limit)
        self._must_exist(name if not found else None)
        return found

    def trace(self, name: str, snapshot: int | None) -> Trace:
        """What a result was made of."""
        from headwater.refresh.tracing import trace

        return trace(self._lake, self.store, self.streams.get(name), snapshot)

    def _must_exist(self, name: str | None) -> None:
        """What has no history is perhaps not there at all."""
        if name is not None and self.store.get(table_name(name)) is None:
            self.streams.get(name)

    def lineage(self, name: str, column: str | None) -> Lineage:
        """Where columns come from."""
        from headwater.refresh.lineage import lineage
        from headwater.refresh.lineage_edges import edges_outside

        streams = self.store.all()
        beyond = edges_outside(self._lake, streams)
        return lineage(self.streams.get(name), streams, self._lake.state(), column, beyond)

    # -- statements ---------------------------------------------------------------------------------

    def run(self, statement: StreamStatement) -> Answer:
        """Run a statement about stream tables."""
        if isinstance(statement, ShowStreams):
            rows = [status.as_dict() for status in self.status()]
            return Answer(_STATUS, tuple(tuple(_plain(row[name]) for name, _ in _STATUS) for row in rows))
        if isinstance(statement, ShowSinks):
            found = self.sinks(None if statement.name is None else stream_name(statement.name))
            rows = [status.as_dict() for status in found]
            return Answer(_SINKS, tuple(tuple(_plain(row[name]) for name, _ in _SINKS) for row in rows))
        name = stream_name(statement.name)
        try:
            return self._run(statement, name)
        except QueryError as error:
            place = getattr(statement, "query_place", None)
            if place is None:
                raise
            raise moved_error(error, statement.text, place.start) from error

    def _run(self, statement: StreamStatement, name: Any) -> Answer:
        match statement:
            case CreateStream():
                settled = _settled(statement)
                definition = Definition(
                    name,
                    statement.query,
                    mode=settled.mode or Mode.AUTO,
                    schedule=settled.schedule,
                    options=settled.options,
                )
                return _refreshed(self._created(definition, statement.if_not_exists, statement.or_replace))
            case AlterStream():
                altered = self._altered(name, statement.query, _settled(statement), _status(statement.status))
                return Answer() if altered is None else _refreshed(altered)
            case AddSink():
                for option in statement.options:
                    _check(statement.text, option)
                given = {option.name: option.value for option in statement.options}
                self.add_sink(name, statement.sink, given)
                return Answer()
            case DropSink():
                self.drop_sink(name, statement.sink, if_exists=statement.if_exists)
                return Answer()
            case DropStream():
                self.streams.drop(name, if_exists=statement.if_exists)
                return Answer()
            case RefreshStream():
                wanted = str(self.streams.get(name).name)
                results = self.streams.refresh([name], full=statement.full)
                return _refreshed(*sorted(results, key=lambda result: result.name != wanted))
            case ExplainStream():
                return Answer((("plan", "string"),), ((str(self.streams.explain(name)),),))
        raise AssertionError(statement)


def _settled(statement: CreateStream | AlterStream) -> Settled:
    """The options of a statement; what is wrong with one is shown at its place."""
    for option in statement.options:
        _check(statement.text, option)
    return settle({option.name: option.value for option in statement.options})


def _check(text: str, option: Given) -> None:
    try:
        settle({option.name: option.value})
    except HeadwaterError as error:
        raise placed_error(error, text, option.place) from None


def _texts(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Values as options have them."""
    texts: dict[str, str | None] = {}
    for name, value in options.items():
        if value is None or isinstance(value, str):
            texts[name] = value
        elif isinstance(value, int):
            texts[name] = str(value).lower()
        else:
            raise InvalidInputError(f"{value!r} is no value of {name}.", hint="It is a text or a number.")
    return texts


def _given(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Options without those left at None."""
    return {name: value for name, value in _texts(options).items() if value is not None}


def _status(text: Status | str | None) -> Status | None:
    if text is None:
        return None
    try:
        return Status(str(text).lower())
    except ValueError:
        known = " or ".join(repr(status.value) for status in Status)
        raise InvalidInputError(f"{text!r} is no status.", hint=f"It is {known}.") from None


def _refreshed(*results: RefreshResult) -> Answer:
    """Refreshes as rows; one that failed is an error, since a statement either works or does not."""
    for result in results:
        if result.action is Action.FAILED:
            error = dict(result.error or {})
            raise StreamTableError(
                f"Stream table {result.name} could not be refreshed: {result.reason}",
                detail=error.get("detail"),
                hint=error.get("hint"),
                stream_table=result.name,
                reason_code=result.reason_code,
            )
    rows = tuple(tuple(_plain(getattr(result, name)) for name, _ in _REFRESHED) for result in results)
    return Answer(_REFRESHED, rows)


def _plain(value: Any) -> Any:
    """Enumerations as their text."""
    return str(value) if isinstance(value, str) else value
