"""Sinks outside the lake: served after the commit, each by itself, again until it holds the result."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headwater.algebra.stages import SHOWN
from headwater.errors import ConflictError, HeadwaterError, NotFoundError, SnapshotError
from headwater.lake.catalog import CatalogState, key, table_name
from headwater.lake.lake import Lake
from headwater.lake.secrets import Secrets
from headwater.refresh.model import Definition, StreamTable
from headwater.refresh.store import StreamStore
from headwater.refresh.viewing import fresh_tags, lasting_tags, written_by
from headwater.sinks.failing import failed, is_due
from headwater.sinks.model import Delivered, Sink, SinkKind, SinkState
from headwater.sinks.other_lake import LakeTarget, open_lake
from headwater.sinks.postgres import PostgresTarget
from headwater.sinks.result import Result
from headwater.sinks.target import Target

log = logging.getLogger("headwater.sinks")


class Publisher:
    """Brings stream tables to their sinks in other lakes and in PostgreSQL. Spark is not needed."""

    def __init__(self, lake: Lake, store: StreamStore):
        self.lake = lake
        self.store = store
        self._secrets = Secrets(lake)
        self._lakes: dict[tuple[str, ...], Lake] = {}

    def names(self) -> list[str]:
        """All sinks outside the lake, as `schema.table/sink`."""
        return [_name(stream, sink) for stream in self.store.all() for sink in _outside(stream)]

    def behind(self) -> list[str]:
        """Those that do not hold the newest result and may be tried now, by one short query."""
        return [
            _name(stream, sink)
            for stream in self.store.all()
            for sink in _outside(stream)
            if _behind(stream, sink) and is_due(stream.sink_state(sink.name))
        ]

    def pending(self) -> bool:
        """Whether a sink is behind its stream table and may be tried now."""
        return bool(self.behind())

    def deliver(
        self,
        names: Iterable[str] | None = None,
        *,
        sinks: Collection[str] | None = None,
        force: bool = False,
    ) -> list[Delivered]:
        """Serve the sinks that are behind, of the named stream tables or of all.

        `sinks` are those that `names()` lists, if not all are meant. One that fails is noted and warned of,
        and does not stop the others; it is left alone for a while, unless with `force`.
        """
        wanted = None if names is None else {key(table_name(name)) for name in names}
        if wanted is not None and not wanted:
            return []
        return [
            self._served(stream, sink, force)
            for stream in self.store.all()
            if wanted is None or key(stream.name) in wanted
            for sink in _outside(stream)
            if _behind(stream, sink) and (sinks is None or _name(stream, sink) in sinks)
        ]

    def withdraw(self, stream: StreamTable, definition: Definition | None) -> None:
        """Take back what sinks hold that a stream table has no more; what cannot be reached stays."""
        kept = set(map(_place, () if definition is None else definition.published))
        lake_id = None
        for sink in _outside(stream):
            if _place(sink) in kept:
                continue
            lake_id = lake_id or self.store.ensure()
            try:
                self._target(sink).withdraw(lake_id, stream.id)
            except HeadwaterError as error:
                log.warning(
                    "what sink %s of %s wrote stays where it is: %s", sink.name, stream.name, error.message
                )
            if definition is not None and sink.name in {one.name for one in definition.published}:
                self.store.record_sink(stream.id, SinkState(sink.name))

    def close(self) -> None:
        """Close connections to other lakes."""
        while self._lakes:
            self._lakes.popitem()[1].close()

    # -- one sink -----------------------------------------------------------------------------------

    def _served(self, stream: StreamTable, sink: Sink, force: bool) -> Delivered:
        state = stream.sink_state(sink.name)
        found = Delivered(str(stream.name), sink.name, sink.kind, "waiting", snapshot_id=state.snapshot_id)
        if not force and not is_due(state):
            return found
        began = time.monotonic()
        try:
            found, state = self._delivered(stream, sink, state)
        except HeadwaterError as error:
            self._lakes.pop(self._lake_key(sink), None)
            state = failed(str(stream.name), state, error)
            found = replace(found, outcome="failed", error=error.as_dict())
        self.store.record_sink(stream.id, state)
        return replace(found, seconds=time.monotonic() - began)

    def _delivered(self, stream: StreamTable, sink: Sink, state: SinkState) -> tuple[Delivered, SinkState]:
        result = self._result(stream)
        at = SinkState(
            sink.name,
            result.storage.id,
            result.snapshot_id,
            result.refresh_id,
            state.sequence,
            delivered_at=datetime.now(UTC),
        )
        found = Delivered(str(stream.name), sink.name, sink.kind, "nothing", snapshot_id=result.snapshot_id)
        same = state.storage_table_id == result.storage.id and state.snapshot_id is not None
        if same and not state.failures and result.changed_rows(state.snapshot_id or 0) == 0:
            return found, replace(at, delivered_at=state.delivered_at)
        applied = self._target(sink).deliver(result)
        return (
            replace(
                found,
                outcome=applied.outcome,
                rows_inserted=applied.rows_inserted,
                rows_deleted=applied.rows_deleted,
            ),
            replace(at, sequence=applied.sequence),
        )

    def _result(self, stream: StreamTable) -> Result:
        """What a stream table shows now."""
        if stream.frontier is None:
            raise NotFoundError(f"Stream table {stream.name} holds no result yet.")
        state = self._state(stream.frontier.snapshot_id)
        storage = state.table_by_id(stream.storage.table_id)
        if storage is None:
            raise ConflictError(f"Stream table {stream.name} was built anew meanwhile.")
        columns = {column.name: column for column in storage.columns}
        names = [name for name, _ in stream.columns]
        shown_key = all(name in names for name in stream.storage.key)
        refresh_id = self.store.refresh_at(stream)
        sources = [source.table_id for source in stream.frontier.sources]
        return Result(
            lake=self.lake,
            lake_id=self.store.ensure(),
            stream_id=stream.id,
            name=stream.name,
            storage=storage,
            columns=tuple(columns[name] for name in names),
            key=stream.storage.key if shown_key else None,
            shown=SHOWN if SHOWN in columns else None,
            snapshot_id=state.snapshot.id,
            refresh_id=refresh_id,
            moment=stream.frontier.moment,
            tags={
                **lasting_tags(stream, sources),
                **fresh_tags(stream.frontier.moment, stream.frontier.data_snapshot_id, refresh_id),
                "author": written_by(str(stream.name), refresh_id),
            },
        )

    def _state(self, snapshot_id: int) -> CatalogState:
        try:
            return self.lake.state(snapshot_id)
        except SnapshotError:
            # Expired; what is stored has not changed since, or the newest snapshot is newer and as right.
            return self.lake.state()

    # -- where it goes ------------------------------------------------------------------------------

    def _target(self, sink: Sink) -> Target:
        if sink.kind is SinkKind.POSTGRES:
            return PostgresTarget(self._secrets.get(sink.dsn or ""), sink)
        place = self._lake_key(sink)
        if place not in self._lakes:
            s3 = {name: self._secrets.get(value) for name, value in sink.s3.items()}
            self._lakes[place] = open_lake(sink, self._secrets.get(sink.catalog or ""), s3)
        return LakeTarget(self._lakes[place], sink)

    def _lake_key(self, sink: Sink) -> tuple[str, ...]:
        return (sink.catalog or "", sink.path or "", *(f"{name}={sink.s3[name]}" for name in sorted(sink.s3)))


def _name(stream: StreamTable, sink: Sink) -> str:
    return f"{stream.name}/{sink.name}"


def _outside(stream: StreamTable) -> Sequence[Sink]:
    return [sink for sink in stream.sinks if sink.remote]


def _behind(stream: StreamTable, sink: Sink) -> bool:
    """Whether a sink may not hold the newest result."""
    if stream.frontier is None:
        return False
    state = stream.sink_state(sink.name)
    if state.failures or state.storage_table_id != stream.storage.table_id or state.snapshot_id is None:
        return True
    return state.snapshot_id < stream.frontier.snapshot_id


def _place(sink: Sink) -> tuple[str, ...]:
    """Where a sink writes, and in which form."""
    parts = (sink.name, sink.kind, sink.mode, sink.catalog, sink.dsn, sink.table, sink.table_id)
    return tuple(str(part) for part in parts)
