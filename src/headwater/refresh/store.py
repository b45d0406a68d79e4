"""Stream tables in the catalog: what they are, how far they are, what was done.

Everything that belongs to a result commits with the result's snapshot:

with lake.transaction() as tx:
    tx.append(storage, rows)
    tx.join(store.commit_refresh(stream.id, frontier, result))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from headwater.errors import AlreadyExistsError, ConflictError, NotFoundError
from headwater.lake.catalog import table_name
from headwater.lake.connection import Connection, Cursor
from headwater.lake.lake import Lake
from headwater.lake.own import ComponentStore, write
from headwater.lake.writing.commit import Join
from headwater.refresh import catalog_tables as sql
from headwater.refresh.catalog_rows import (
    Recorded,
    as_json,
    definition_json,
    failure_text,
    known_sinks,
    provenance_of,
    recorded_of,
    refresh_row,
    settled,
    sink_row,
    sources_data,
    stream_of,
    stream_row,
    traits_json,
)
from headwater.refresh.model import Definition, Frontier, RefreshResult, Status, StreamTable
from headwater.refresh.provenance import Provenance
from headwater.sinks.model import SinkState
from headwater.typedefs import SnapshotId, TableName


@dataclass(frozen=True)
class Refreshed:
    """One stream table of a wave, for `StreamStore.commit_refreshes`."""

    stream_id: str
    frontier: Frontier
    result: RefreshResult
    #: The frontier this refresh began at; None if there was none. Another one at the commit is a conflict.
    before: Frontier | None = None
    #: Whether `before` is compared.
    checked: bool = True
    #: The stream table when this refresh began: other options or sinks at the commit are a conflict.
    stream: StreamTable | None = None


class StreamStore(ComponentStore):
    """The stream tables of one lake."""

    def __init__(self, lake: Lake):
        super().__init__(lake.db, sql.COMPONENT, sql.VERSIONS)

    # -- reading ------------------------------------------------------------------------------------

    def all(self) -> list[StreamTable]:
        """All stream tables, by name."""
        return [stream_of(row) for row in self._rows(sql.STREAMS, None)]

    def get(self, name: TableName) -> StreamTable | None:
        """The stream table of that name, or None."""
        return next((stream_of(row) for row in self._rows(sql.STREAMS, name)), None)

    def history(self, name: TableName | None = None, limit: int = 100) -> list[Recorded]:
        """Refreshes, newest first, of one stream table or of all."""
        return [recorded_of(row) for row in self._rows(sql.HISTORY, name, limit)]

    def provenance(self, name: TableName | None = None, limit: int = 100) -> list[Provenance]:
        """What wrote which snapshot, newest first."""
        return [provenance_of(row) for row in self._rows(sql.PROVENANCE, name, limit)]

    def _rows(self, text: str, name: TableName | None, limit: int = 0) -> list[tuple[Any, ...]]:
        schema, table = (None, None) if name is None else name
        return self.rows(text, schema=schema, name=table, limit=limit)

    # -- inside a transaction of the lake ------------------------------------------------------------

    def insert(self, stream: StreamTable) -> Join:
        """Add a stream table, with its frontier if it has one.

        Tables of its stages that the same transaction creates are found by their names.
        """

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            ids = self._table_ids(cursor, [stream])
            cursor.execute(sql.INSERT.encode(), {"lake": lake, **stream_row(stream, ids)})
            if cursor.rowcount != 1:
                raise AlreadyExistsError(
                    f"There is already a stream table {stream.name}.", stream_table=str(stream.name)
                )
            self._set_frontier(cursor, stream, snapshot, ids)

        lake = self.ensure()
        return join

    def replace(self, stream: StreamTable) -> Join:
        """Change everything of a stream table but its id and its name; the frontier becomes the given one."""

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            ids = self._table_ids(cursor, [stream])
            cursor.execute(sql.REPLACE.encode(), {"lake": lake, **stream_row(stream, ids)})
            _check_found(cursor.rowcount, stream.id)
            self._set_frontier(cursor, stream, snapshot, ids)

        lake = self.ensure()
        return join

    def change_sinks(self, stream: StreamTable, states: Sequence[SinkState]) -> Join:
        """Change a stream table's options and the tables of its sinks, and note how far those are.

        If it was refreshed since it was read, that is a conflict. Sinks it has no more are forgotten.
        """

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            ids = self._table_ids(cursor, [stream])
            given = {
                "lake": lake,
                "id": stream.id,
                "definition": definition_json(stream.definition),
                "traits": traits_json(stream, ids),
                "before": None if stream.frontier is None else stream.frontier.snapshot_id,
                "names": [sink.name for sink in stream.sinks],
            }
            cursor.execute(sql.SET_SINKS.encode(), given)
            if cursor.rowcount != 1:
                raise ConflictError(
                    f"Stream table {stream.name} was refreshed, changed or dropped meanwhile.",
                    stream_table=str(stream.name),
                )
            cursor.execute(sql.FORGET_SINKS.encode(), given)
            note(cursor, snapshot)

        lake = self.ensure()
        note = self.note_sinks([(stream.id, state) for state in states])
        return join

    def note_sinks(self, states: Sequence[tuple[str, SinkState]]) -> Join:
        """Note how far sinks of this lake are, with the snapshot that they are written in."""

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            rows = [sink_row(stream_id, state, snapshot) for stream_id, state in states]
            if rows:
                cursor.execute(sql.NOTE_SINKS.encode(), {"lake": lake, "rows": as_json(rows)})

        lake = self.ensure()
        return join

    def delete(self, stream_id: str) -> Join:
        """Remove a stream table and its frontier. History and provenance stay."""

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            cursor.execute(sql.DELETE.encode(), {"lake": lake, "id": stream_id})
            _check_found(cursor.rowcount, stream_id)

        lake = self.ensure()
        return join

    def commit_refresh(
        self,
        stream_id: str,
        frontier: Frontier,
        result: RefreshResult,
        *,
        before: Frontier | None = None,
        checked: bool = False,
    ) -> Join:
        """Move a frontier and write history and provenance; failures are forgotten.

        Snapshot numbers of -1 become that of the commit. With `checked`, a frontier other than `before`
        at the commit is a conflict: somebody else refreshed the stream table meanwhile.
        """
        return self.commit_refreshes([Refreshed(stream_id, frontier, result, before, checked)])

    def commit_refreshes(self, refreshed: Sequence[Refreshed]) -> Join:
        """The same for all stream tables of a wave, in one statement."""

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            ids = self._ids(cursor, _new_sources(each.frontier for each in refreshed))
            rows = [_refreshed_row(each, snapshot, ids) for each in refreshed]
            given = {"lake": lake, "rows": as_json(rows), "snapshot": snapshot}
            cursor.execute(self._db.text(sql.COMMIT), given)
            met = {str(row[0]) for row in cursor.fetchall()}
            for each in refreshed:
                if each.stream_id not in met:
                    raise ConflictError(
                        f"Stream table {each.result.name} was refreshed, changed or dropped meanwhile.",
                        hint="Refresh it again; nothing of this refresh was applied.",
                        stream_table=each.result.name,
                    )

        lake = self.ensure()
        return join

    def _set_frontier(
        self, cursor: Cursor, stream: StreamTable, snapshot: SnapshotId, ids: Mapping[TableName, int]
    ) -> None:
        given: dict[str, Any] = {"lake": self._lake_id, "id": stream.id}
        if stream.frontier is None:
            cursor.execute(sql.DROP_FRONTIER.encode(), given)
            return
        frontier = settled(stream.frontier, snapshot, ids)
        given |= {
            "data_snapshot_id": frontier.data_snapshot_id,
            "snapshot_id": frontier.snapshot_id,
            "moment": frontier.moment,
            "sources": as_json(sources_data(frontier)),
            "behind": frontier.behind,
        }
        cursor.execute(sql.SET_FRONTIER.encode(), given)

    def _table_ids(self, cursor: Cursor, streams: Iterable[StreamTable]) -> dict[TableName, int]:
        listed = list(streams)
        new = {stage.table for stream in listed for stage in stream.stages if stage.table_id < 0}
        new |= {one.table for stream in listed for one in stream.published if one.table_id < 0}
        new |= _new_sources(stream.frontier for stream in listed if stream.frontier is not None)
        return self._ids(cursor, new)

    def _ids(self, cursor: Cursor, names: set[TableName]) -> dict[TableName, int]:
        """Catalog ids of tables that this commit creates: until now they had none."""
        if not names:
            return {}
        wanted = sorted({name.name for name in names})
        cursor.execute(self._db.text(sql.TABLE_IDS), (wanted,))
        found = {TableName(schema, name): int(number) for schema, name, number in cursor.fetchall()}
        for name in names - set(found):
            raise NotFoundError(f"There is no table {name}, and this commit creates none.", table=str(name))
        return found

    # -- outside -------------------------------------------------------------------------------------

    def record(self, result: RefreshResult, stream_id: str) -> int:
        """Note a refresh that made no snapshot; returns how many have failed in a row."""
        return self.record_all([(result, stream_id)]).get(stream_id, 0)

    def record_all(self, results: Sequence[tuple[RefreshResult, str]]) -> dict[str, int]:
        """The same for many stream tables, in one round trip; gives the failures in a row, by id."""
        rows = [
            refresh_row(result, stream_id) | {"last_error": failure_text(result)}
            for result, stream_id in results
        ]
        given = {"lake": self.ensure(), "rows": as_json(rows)}
        if not rows:
            return {}

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            # A note that a crash of the server takes back is not worth the wait for its disk.
            connection.execute("SET LOCAL synchronous_commit = off")
            return connection.execute(sql.RECORD.encode(), given).fetchall()

        found = write(self._db, work)
        return {str(identity): int(failures) for identity, failures in found if failures}

    def move_on(self, moved: Sequence[tuple[StreamTable, Frontier]]) -> None:
        """Note that results are those of a later snapshot too."""
        rows = [
            {
                "stream_id": stream.id,
                "snapshot_id": frontier.snapshot_id,
                "before": stream.frontier.data_snapshot_id,
                "data_snapshot_id": frontier.data_snapshot_id,
                "sources": sources_data(frontier),
            }
            for stream, frontier in moved
            if stream.frontier is not None
        ]
        if rows:
            given = {"lake": self.ensure(), "rows": as_json(rows)}
            write(self._db, lambda connection: connection.execute(sql.MOVE_ON.encode(), given))

    def record_sink(self, stream_id: str, state: SinkState) -> None:
        """Note how far a sink of another lake or database is, or why it failed."""
        given = {"lake": self.ensure(), "rows": as_json([sink_row(stream_id, state)])}
        write(self._db, lambda connection: connection.execute(sql.NOTE_SINKS.encode(), given))

    def refresh_at(self, stream: StreamTable) -> str:
        """The id of the refresh that wrote what a stream table shows; empty if that is not known."""
        if stream.frontier is None:
            return ""
        given = {"lake": self.ensure(), "id": stream.id, "snapshot": stream.frontier.snapshot_id}
        rows = self._db.read(lambda connection: connection.execute(sql.REFRESH_AT.encode(), given).fetchall())
        return str(rows[0][0]) if rows else ""

    def set_status(self, stream_id: str, status: Status) -> None:
        """Suspend or resume; resuming forgets earlier failures."""
        given = {"status": status.value, "resumed": status is Status.ACTIVE}
        self._change(sql.SET_STATUS, stream_id, given)

    def update_definition(self, stream_id: str, definition: Definition) -> None:
        """Change what does not touch the stored rows: schedule, mode, options."""
        self._change(sql.SET_DEFINITION, stream_id, {"definition": definition_json(definition)})

    def _change(self, text: str, stream_id: str, given: Mapping[str, Any]) -> None:
        named = {"lake": self.ensure(), "id": stream_id, **given}
        count = write(self._db, lambda connection: connection.execute(text.encode(), named).rowcount)
        _check_found(count, stream_id)


def new_stream_id() -> str:
    """An id for a new stream table."""
    return str(uuid4())


def _refreshed_row(each: Refreshed, snapshot: SnapshotId, ids: Mapping[TableName, int]) -> dict[str, Any]:
    frontier = settled(each.frontier, snapshot, ids)
    return refresh_row(each.result, each.stream_id, snapshot) | {
        "frontier_data": frontier.data_snapshot_id,
        "frontier_snapshot": frontier.snapshot_id,
        "moment": frontier.moment,
        "sources": sources_data(frontier),
        "behind": frontier.behind,
        "checked": each.checked,
        "before": None if each.before is None else each.before.snapshot_id,
        "known": None if each.stream is None else known_sinks(each.stream),
    }


def _new_sources(frontiers: Iterable[Frontier]) -> set[TableName]:
    return {table_name(source.name) for each in frontiers for source in each.sources if source.table_id < 0}


def _check_found(count: int, stream_id: str) -> None:
    if count != 1:
        raise NotFoundError(
            "The stream table is not there any more.",
            detail=f"Nothing has the id {stream_id}.",
            stream_id=stream_id,
        )
