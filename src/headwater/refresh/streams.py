"""Stream tables of a lake: made, changed, dropped, refreshed, looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

from headwater.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StreamTableError
from headwater.lake.catalog import CatalogState, key, table_name
from headwater.lake.lake import Lake
from headwater.lake.secrets import Secrets
from headwater.lake.writing.transaction import Transaction
from headwater.refresh.binding import parse_type
from headwater.refresh.compiling import Compiled, compile_definition, read_query
from headwater.refresh.computing import Computation
from headwater.refresh.defining import (
    built_stream,
    changed_options,
    name_ddl,
    refuse_cycle,
    refuse_if_strict,
    refuse_name,
    same_rows,
    sink_options,
    storage_name,
)
from headwater.refresh.explaining import Explanation, explain
from headwater.refresh.fitting import retyped_column
from headwater.refresh.home_sinks import check_store
from headwater.refresh.inputs import WaveState
from headwater.refresh.model import (
    Action,
    Definition,
    Mode,
    RefreshResult,
    Status,
    StoredStage,
    StreamTable,
    VerifyResult,
)
from headwater.refresh.presenting import Presenting
from headwater.refresh.provenance import Provenance
from headwater.refresh.publishing import Publisher
from headwater.refresh.sealing import Sealing
from headwater.refresh.shared_changes import SharedChanges
from headwater.refresh.sources import Sources
from headwater.refresh.spark_errors import spark_errors
from headwater.refresh.status import StreamStatus, status_of
from headwater.refresh.store import StreamStore
from headwater.refresh.verifying import verify
from headwater.refresh.viewing import fresh_tags, written_by
from headwater.refresh.wave import THIS_COMMIT, Wave, frontier_of
from headwater.sinks.model import SinkKind
from headwater.spark.connector import LakeSpark
from headwater.spark.types import columns_of
from headwater.typedefs import STORAGE_SCHEMA, TableName


class _Unchanged:
    """Stands for an argument that was not given, where None means something."""


UNCHANGED = _Unchanged()


@dataclass(frozen=True)
class PlannedChange:
    """What making a stream table would do to one that may be there already."""

    name: TableName
    kind: Literal["create", "nothing", "alter", "rebuild"]
    #: One sentence each.
    reasons: tuple[str, ...] = ()


class Streams:
    """The stream tables of one lake. Spark is only asked for when there is something to compute."""

    def __init__(self, lake: Lake, connector: Callable[[], LakeSpark]):
        self.lake = lake
        self.connector = connector
        self.store = StreamStore(lake)
        self.publisher = Publisher(lake, self.store)
        self._presenting = Presenting(lake, self.store, connector)
        self._sealing = Sealing(Secrets(lake))
        self._compiled: dict[tuple[str, str, int], Compiled] = {}
        self._shared = SharedChanges()

    # -- looking ------------------------------------------------------------------------------------

    def all(self) -> list[StreamTable]:
        """All stream tables, by name."""
        return self.store.all()

    def get(self, name: TableName | str) -> StreamTable:
        """One stream table."""
        wanted = table_name(name)
        return self.store.get(wanted) or _named(self.all(), wanted)

    def explain(self, name: TableName | str) -> Explanation:
        """How a stream table follows its inputs and what the next refresh would do, without doing it."""
        stream = self.get(name)
        session, state = self.connector(), self.lake.state()
        return explain(session, self.store, stream, self._compile(session, stream, state, self.all()), state)

    def explain_definition(self, definition: Definition) -> Explanation:
        """The same for a stream table that is not there yet."""
        session, state = self.connector(), self.lake.state()
        compiled = compile_definition(session, definition, state, self.all())
        return explain(session, self.store, None, compiled, state, name=str(definition.name))

    def verify(self, name: TableName | str, *, limit: int = 10) -> VerifyResult:
        """Let DuckDB compute the query at the same snapshot, and compare."""
        return verify(self.lake, self.store, self.get(name), limit=limit)

    def status(self) -> list[StreamStatus]:
        """How each stream table is."""
        state = self.lake.state()
        return [status_of(self.lake, self.store, stream, state) for stream in self.all()]

    def history(self, name: TableName | str | None = None, limit: int = 20) -> Sequence[RefreshResult]:
        """Past refreshes, newest first."""
        return self.store.history(None if name is None else table_name(name), limit)

    def provenance(self, name: TableName | str, limit: int = 20) -> Sequence[Provenance]:
        """Which snapshots hold which refreshes, newest first."""
        return self.store.provenance(table_name(name), limit)

    # -- making -------------------------------------------------------------------------------------

    def plan(self, definition: Definition) -> PlannedChange:
        """What `create(…, or_replace=True)` would do."""
        existing = self.store.get(definition.name)
        if existing is None:
            read_query(definition, Sources(self.lake.state(), self.all()))
            return PlannedChange(definition.name, "create", ("It is not there yet.",))
        return self._planned(existing, definition)

    def _planned(self, existing: StreamTable, definition: Definition) -> PlannedChange:
        name, old = definition.name, existing.definition
        definition = self._sealing.known(definition, old)
        state = self.lake.state()
        outdated = retyped_column(existing, lambda position: state.table_by_id(position.table_id))
        if outdated is None and same_rows(old, definition):
            changed = [
                f"{what} changes from {before or 'none'} to {after or 'none'}."
                for what, before, after in (
                    ("The mode", old.mode, definition.mode),
                    ("The schedule", old.schedule, definition.schedule),
                )
                if before != after
            ]
            changed += changed_options(old, definition)
            if old.query != definition.query:
                changed.append("The query is written otherwise, and means the same.")
            return PlannedChange(name, "alter" if changed else "nothing", tuple(changed))
        read_query(definition, Sources(state, self.all()))
        what = "The query" if old.storage_path == definition.storage_path else "The folder of its files"
        why = f"{what} is another" if outdated is None else f"Of what it reads, {outdated}"
        reasons = [f"{why}: the result is built beside the old one and put in its place."]
        readers = [str(s.name) for s in self.all() if existing.id in s.upstream]
        if readers:
            reasons.append(f"{', '.join(readers)} read it, and will be computed anew.")
        return PlannedChange(name, "rebuild", tuple(reasons))

    def create(
        self, definition: Definition, *, if_not_exists: bool = False, or_replace: bool = False
    ) -> RefreshResult:
        """Make a stream table and fill it, as one snapshot."""
        existing = self.store.get(definition.name)
        if existing is not None and not or_replace:
            if if_not_exists:
                return self._nothing(existing, "exists", "It is there already.")
            raise AlreadyExistsError(
                f"There is already a stream table {definition.name}.",
                hint="IF NOT EXISTS leaves it; OR REPLACE changes it.",
                stream_table=str(definition.name),
            )
        if existing is not None:
            # Sinks with names of their own are added and dropped by themselves.
            definition = replace(definition, sinks={**existing.definition.sinks, **definition.sinks})
        return self._define(definition, existing)

    def _define(self, definition: Definition, existing: StreamTable | None) -> RefreshResult:
        """Make a stream table what a definition says, and serve its sinks."""
        for sink in definition.published:
            check_store(sink, self.lake)
        known = self._sealing.known(definition, None if existing is None else existing.definition)
        sealed, new = self._sealing.seal(known)
        try:
            done = self._build(sealed, None) if existing is None else self._redefined(existing, sealed)
        except BaseException:
            for reference in new:
                self._sealing.secrets.delete(reference)
            raise
        if existing is not None:
            self.publisher.withdraw(existing, sealed)
            self._sealing.forget(existing.definition, sealed)
        if any(sink.remote for sink in sealed.published):
            self.publisher.deliver([str(definition.name)], force=True)
        return done

    def _redefined(self, existing: StreamTable, definition: Definition) -> RefreshResult:
        planned = self._planned(existing, definition)
        if planned.kind == "nothing":
            return self._nothing(existing, "same_definition", "It is defined like that already.")
        if planned.kind == "rebuild":
            return self._build(definition, existing)
        if sink_options(existing.definition) == sink_options(definition):
            self.store.update_definition(existing.id, definition)
        else:
            self._change_sinks(existing, definition)
        return self._nothing(existing, "altered", " ".join(planned.reasons))

    def alter(
        self,
        name: TableName | str,
        *,
        query: str | None = None,
        mode: Mode | None = None,
        schedule: str | _Unchanged | None = UNCHANGED,
        options: Mapping[str, str] | None = None,
        removed: Collection[str] = (),
        status: Status | None = None,
    ) -> RefreshResult | None:
        """Change some of a stream table; what is not given stays, and `removed` options lose their values."""
        stream = self.get(name)
        kept = {option: value for option, value in stream.definition.options.items() if option not in removed}
        definition = replace(
            stream.definition,
            query=query if query is not None else stream.definition.query,
            mode=mode if mode is not None else stream.definition.mode,
            schedule=stream.definition.schedule if isinstance(schedule, _Unchanged) else schedule,
            options={**kept, **(options or {})},
        )
        done = None
        if definition != stream.definition:
            self._check_mode(definition)
            done = self.create(definition, or_replace=True)
        if status is not None and status is not stream.status:
            self.store.set_status(stream.id, status)
        return done

    def add_sink(self, name: TableName | str, sink: str, options: Mapping[str, str]) -> RefreshResult:
        """Publish a stream table to one more place, under a name of its own."""
        stream = self.get(name)
        taken = {one.name.lower() for one in stream.sinks}
        if not sink.isidentifier() or sink.lower() in taken or sink.lower() in set(SinkKind):
            raise InvalidInputError(
                f"{sink!r} cannot be the name of another sink of {stream.name}.",
                detail=f"It has {', '.join(sorted(taken))}." if sink.lower() in taken else None,
                hint="Choose a name of letters, digits and _ that is neither taken nor a kind of sink.",
                sink=sink,
            )
        named = {**stream.definition.sinks, sink: options}
        return self._define(replace(stream.definition, sinks=named), stream)

    def drop_sink(self, name: TableName | str, sink: str, *, if_exists: bool = False) -> bool:
        """No longer publish a stream table to a place that was added; False if there is none."""
        stream = self.get(name)
        found = next((one for one in stream.definition.sinks if one.lower() == sink.lower()), None)
        if found is None:
            if if_exists:
                return False
            known = ", ".join(stream.definition.sinks) or "none"
            raise NotFoundError(
                f"Stream table {stream.name} has no sink {sink!r} that was added.",
                hint=f"Added were: {known}. The option `sink` says which others there are.",
                sink=sink,
            )
        named = {one: given for one, given in stream.definition.sinks.items() if one != found}
        self._define(replace(stream.definition, sinks=named), stream)
        return True

    def _change_sinks(self, existing: StreamTable, definition: Definition) -> None:
        """Publish the same rows in another way: tables of sinks and the view, as one snapshot."""
        refresh_id = uuid4().hex
        self.lake.run(
            lambda tx: self._presenting.change(tx, existing.id, definition, refresh_id),
            author=written_by(str(definition.name), refresh_id),
            message=f"sinks of stream table {definition.name}",
        )

    def _check_mode(self, definition: Definition) -> None:
        if definition.mode is Mode.STRICT:
            compiled = compile_definition(self.connector(), definition, self.lake.state(), self.all())
            refuse_if_strict(definition, compiled)

    def drop(self, name: TableName | str, *, if_exists: bool = False) -> bool:
        """Remove a stream table, its view and all that is stored for it, as one snapshot."""
        wanted = table_name(name)
        stream = self.store.get(wanted)
        if stream is None:
            if if_exists:
                return False
            self.get(wanted)
            return False
        readers = [str(other.name) for other in self.all() if stream.id in other.upstream]
        if readers:
            raise StreamTableError(
                f"Stream table {wanted} is read by {', '.join(readers)}.",
                hint="Drop those first.",
                stream_table=str(wanted),
            )

        def work(tx: Transaction) -> None:
            self._presenting.remove(tx, stream)
            tx.join(self.store.delete(stream.id))

        self.lake.run(
            work, author=written_by(str(wanted), uuid4().hex), message=f"drop stream table {wanted}"
        )
        self.publisher.withdraw(stream, None)
        self._sealing.forget(stream.definition, None)
        return True

    # -- refreshing ---------------------------------------------------------------------------------

    def refresh(
        self, names: Sequence[TableName | str] | None = None, *, full: bool = False
    ) -> list[RefreshResult]:
        """Bring stream tables up to date, and everything they read; all active ones if none is named.

        With `full` the named ones are computed anew, and what differs is committed.
        """
        streams = self.all()
        if names is None:
            wanted = [stream.id for stream in streams if stream.status is Status.ACTIVE]
        else:
            wanted = [_named(streams, table_name(name)).id for name in names]
        if not wanted:
            return []
        done = Wave(self.lake, self.store, self.connector, self._compile, streams, full, self._shared).run(
            wanted
        )
        served = {str(stream.name) for stream in streams if any(sink.remote for sink in stream.sinks)}
        if served:
            self.publisher.deliver([result.name for result in done if result.name in served])
        return done

    # -- helpers ------------------------------------------------------------------------------------

    def _compile(
        self, session: LakeSpark, stream: StreamTable, state: CatalogState, streams: Sequence[StreamTable]
    ) -> Compiled:
        place = (stream.id, stream.definition.fingerprint, state.snapshot.schema_version)
        if place not in self._compiled:
            self._compiled = {of: value for of, value in self._compiled.items() if of[0] != stream.id}
            others = [other for other in streams if other.id != stream.id]
            self._compiled[place] = compile_definition(session, stream.definition, state, others)
            self._shared.want(self._compiled[place])
        return self._compiled[place]

    def _build(self, definition: Definition, existing: StreamTable | None) -> RefreshResult:
        """Compute a stream table from nothing, in the place of another if there is one."""
        session = self.connector()
        refresh_id = uuid4().hex
        began = time.monotonic()
        held: list[Transaction] = []

        def work(tx: Transaction) -> RefreshResult:
            held[:] = [tx]
            return self._built(session, tx, definition, existing, refresh_id)

        with spark_errors(definition.name):
            result = self.lake.run(
                work,
                author=written_by(str(definition.name), refresh_id),
                message=f"{'create' if existing is None else 'replace'} stream table {definition.name}",
            )
        return replace(result, snapshot_id=held[0].snapshot_id, seconds=time.monotonic() - began)

    def _built(
        self,
        session: LakeSpark,
        tx: Transaction,
        definition: Definition,
        existing: StreamTable | None,
        refresh_id: str,
    ) -> RefreshResult:
        began = time.monotonic()
        others = [stream for stream in self.all() if existing is None or stream.id != existing.id]
        refuse_name(definition)
        compiled = compile_definition(session, definition, tx.state, others)
        refuse_if_strict(definition, compiled)
        refuse_cycle(definition, existing, compiled, others)
        if existing is not None:
            self._presenting.remove(tx, existing, sinks=False)
        codec = next((s.compression for s in definition.published if not s.remote and s.compression), None)
        if codec is not None:
            tx.stager.codec = codec  # the option of a table counts from the next transaction on
        for schema in (definition.name.schema, STORAGE_SCHEMA):
            tx.create_schema(schema, if_not_exists=True)
        stages = []
        for stage in compiled.program.stages:
            name = storage_name(definition.name, stage.source)
            schema_of = parse_type(
                "struct<" + ", ".join(f"{name_ddl(n)}: {t}" for n, t in stage.types.items()) + ">"
            )
            path = definition.storage_path if stage.source == "@" else None
            tx.create_table(name, columns_of(schema_of), path=path)  # type: ignore[arg-type]
            stages.append(StoredStage(stage.source, tx.state.table(name).id, name, stage.key))
        tables = {stage.source: tx.state.table(stage.table) for stage in stages}
        inputs = {source.table.id: name for name, source in compiled.sources.items()}
        wave = WaveState(session, tx)
        moment = datetime.now(UTC)
        try:
            outcome = Computation(wave, str(definition.name), compiled, tables, None, moment).load()
            stream, states = self._presenting.fill(
                tx,
                built_stream(definition, existing, compiled, stages, moment),
                tables["@"],
                refresh_id,
                inputs,
                lambda: wave.made[tables["@"].id],
            )
        finally:
            wave.release()
        fresh = fresh_tags(moment, tx.base_snapshot_id, refresh_id)
        self._presenting.show(tx, stream, tables["@"], inputs, fresh)
        result = RefreshResult(
            str(definition.name),
            Action.REINITIALIZE if existing is not None else Action.FULL,
            "anew",
            "replaced" if existing is not None else "created",
            "It was built anew for its new definition." if existing else "It was made and filled.",
            mode=definition.mode,
            rows_inserted=outcome.rows_inserted,
            files_read=outcome.files_read,
            bytes_read=outcome.bytes_read,
            snapshot_id=THIS_COMMIT,
            data_snapshot_id=tx.base_snapshot_id,
            seconds=time.monotonic() - began,
            stages=outcome.stages,
            refresh_id=refresh_id,
            wave_id=refresh_id,
            started_at=moment,
        )
        tx.join(self.store.insert(stream) if existing is None else self.store.replace(stream))
        frontier = frontier_of(wave, stream, compiled, moment)
        tx.join(self.store.commit_refresh(stream.id, frontier, result))
        if states:
            tx.join(self.store.note_sinks([(stream.id, state) for state in states]))
        return result

    def _nothing(self, stream: StreamTable, code: str, reason: str) -> RefreshResult:
        return RefreshResult(
            str(stream.name), Action.NO_DATA, "nothing", code, reason, mode=stream.definition.mode
        )


def _named(streams: Sequence[StreamTable], name: TableName) -> StreamTable:
    """The stream table of a name."""
    for stream in streams:
        if key(stream.name) == key(name):
            return stream
    known = ", ".join(str(stream.name) for stream in streams[:10])
    raise NotFoundError(
        f"There is no stream table {name}.",
        hint=f"There are: {known}." if known else "Make one with create_stream_table.",
        stream_table=str(name),
    )


__all__ = ["UNCHANGED", "PlannedChange", "Streams"]
