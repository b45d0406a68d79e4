"""From a result back to what it was made of: refresh, delta, source snapshots, PostgreSQL transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from headwater.errors import NotFoundError, SnapshotError
from headwater.lake.connection import Connection
from headwater.lake.lake import Lake
from headwater.refresh.model import SourcePosition, StreamTable
from headwater.refresh.provenance import Provenance
from headwater.refresh.store import StreamStore
from headwater.typedefs import SnapshotId, TableName

#: Provenance rows that are looked through for a snapshot.
_MANY = 100_000
_CAPTURES = """
    SELECT c.snapshot_id, c.source, c.kind, c.xids, c.transactions, c.lsn,
        coalesce((c.tables -> %(table)s ->> 'inserted')::bigint, c.rows_inserted),
        coalesce((c.tables -> %(table)s ->> 'updated')::bigint, c.rows_updated),
        coalesce((c.tables -> %(table)s ->> 'deleted')::bigint, c.rows_deleted), c.committed_at
    FROM headwater.capture c
    WHERE c.lake_id = %(lake)s AND c.snapshot_id = ANY (%(snapshots)s)
    ORDER BY c.number"""


@dataclass(frozen=True)
class Captured:
    """A commit that mirrored transactions of PostgreSQL."""

    snapshot_id: SnapshotId
    source: str
    kind: str
    #: Transaction ids, of large commits only the first; and how many transactions there were.
    xids: tuple[int, ...]
    transactions: int
    lsn: str | None
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    committed_at: datetime


@dataclass(frozen=True)
class SourceSnapshot:
    """A snapshot of the lake that changed a source."""

    snapshot_id: SnapshotId
    time: datetime
    author: str | None
    message: str | None


@dataclass(frozen=True)
class TracedSource:
    """One input of a refresh: what of it was new."""

    name: str
    table_id: int
    #: The snapshots between which it changed: the refresh before saw the first, this one the last.
    since: SnapshotId | None
    until: SnapshotId
    #: Changed rows at most; None if those snapshots are gone.
    rows: int | None
    snapshots: tuple[SourceSnapshot, ...] = ()
    captures: tuple[Captured, ...] = ()
    #: Of a stream table: the refreshes that changed it.
    refreshes: tuple[Trace, ...] = ()


@dataclass(frozen=True)
class Trace:
    """What a snapshot of a stream table was made of."""

    name: str
    snapshot_id: SnapshotId
    data_snapshot_id: SnapshotId
    author: str | None
    refresh_id: str
    wave_id: str
    action: str
    rows_inserted: int
    rows_deleted: int
    written_at: datetime
    sources: tuple[TracedSource, ...]

    def as_dict(self) -> dict[str, Any]:
        """The trace as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, depth: int = 0) -> Iterator[str]:
        """The trace for people, the result first."""
        inner = "  " * depth
        yield (
            f"{inner}{self.name} at snapshot {self.snapshot_id}: {self.action}, "
            f"+{self.rows_inserted:,} -{self.rows_deleted:,} rows, refresh {self.refresh_id}"
        )
        for source in self.sources:
            span = (
                f"up to snapshot {source.until}"
                if source.since is None
                else f"snapshots {source.since + 1} to {source.until}"
            )
            rows = "" if source.rows is None else f", {source.rows:,} changed rows at most"
            yield f"{inner}  ← {source.name}, {span}{rows}"
            for trace in source.refreshes:
                yield from trace.lines(depth + 2)
            captured = {one.snapshot_id for one in source.captures}
            for one in source.snapshots:
                if one.snapshot_id not in captured:
                    by = f" by {one.author}" if one.author else ""
                    yield f"{inner}      snapshot {one.snapshot_id}{by}"
            for capture in source.captures:
                shown = ", ".join(map(str, capture.xids[:10])) or "none"
                more = capture.transactions - min(10, len(capture.xids))
                yield (
                    f"{inner}      snapshot {capture.snapshot_id}: {capture.kind} of {capture.source}, "
                    f"transactions {shown}{f' and {more} more' if more > 0 else ''}"
                    f"{f', up to {capture.lsn}' if capture.lsn else ''}"
                )


def trace(lake: Lake, store: StreamStore, stream: StreamTable, snapshot: SnapshotId | None = None) -> Trace:
    """Walk from what a stream table showed at a snapshot (now, by default) back to its sources."""
    return _Tracer(lake, store).of(stream.name, snapshot)


class _Tracer:
    """Looks things up once."""

    def __init__(self, lake: Lake, store: StreamStore):
        self._lake = lake
        self._store = store
        self._streams = {stream.storage.table_id: stream for stream in store.all()}
        self._provenance: dict[TableName, list[Provenance]] = {}
        self._snapshots = {snapshot.id: snapshot for snapshot in lake.snapshots()}

    def of(self, name: TableName, snapshot: SnapshotId | None) -> Trace:
        rows = self._rows(name)
        places = [n for n, row in enumerate(rows) if snapshot is None or row.snapshot_id <= snapshot]
        if not places:
            raise NotFoundError(
                f"Nothing of {name} was written"
                + ("." if snapshot is None else f" up to snapshot {snapshot}."),
                hint=f"`headwater provenance {name}` lists what was.",
                stream_table=str(name),
                snapshot_id=snapshot,
            )
        return self._trace(rows, places[0])

    def _rows(self, name: TableName) -> list[Provenance]:
        if name not in self._provenance:
            self._provenance[name] = self._store.provenance(name, _MANY)
        return self._provenance[name]

    def _trace(self, rows: Sequence[Provenance], place: int) -> Trace:
        row = rows[place]
        before = _before(rows[place + 1 :], row)
        found = self._snapshots.get(row.snapshot_id)
        return Trace(
            row.name,
            row.snapshot_id,
            row.data_snapshot_id,
            None if found is None else found.author,
            row.refresh_id,
            row.wave_id,
            row.action,
            row.rows_inserted,
            row.rows_deleted,
            row.written_at,
            tuple(self._source(position, before.get(position.table_id)) for position in row.sources),
        )

    def _source(self, position: SourcePosition, since: SnapshotId | None) -> TracedSource:
        until = position.snapshot_id
        above = self._streams.get(position.table_id)
        rows, changed = self._changed(position, since)
        made = TracedSource(position.name, position.table_id, since, until, rows)
        if above is not None:
            listed = self._rows(above.name)
            refreshes = tuple(
                self._trace(listed, place)
                for place, row in enumerate(listed)
                if row.snapshot_id <= until and (since is None or row.snapshot_id > since)
            )
            return replace(made, refreshes=refreshes if since is not None else refreshes[:1])
        captures = self._captures(position, [one.snapshot_id for one in changed])
        return replace(made, snapshots=tuple(changed), captures=captures)

    def _changed(
        self, position: SourcePosition, since: SnapshotId | None
    ) -> tuple[int | None, list[SourceSnapshot]]:
        """How many rows of a source changed, and the snapshots that say they changed it."""
        first = 0 if since is None else since + 1
        tokens = {f"{token}:{position.table_id}" for token in _ROW_CHANGES}
        named = [
            SourceSnapshot(one.id, one.time, one.author, one.message)
            for one in sorted(self._snapshots.values(), key=lambda one: one.id)
            if first <= one.id <= position.snapshot_id and tokens & set((one.changes or "").split(","))
        ]
        if since is None or first > position.snapshot_id:
            return (None if since is None else 0), named
        table = self._lake.state().table_by_id(position.table_id)
        if table is None:
            return None, named
        try:
            return self._lake.plan_changes(table.name, first, position.snapshot_id).rows_at_most, named
        except SnapshotError:
            return None, named

    def _captures(self, position: SourcePosition, snapshots: Sequence[SnapshotId]) -> tuple[Captured, ...]:
        if not snapshots:
            return ()

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            there = connection.execute("SELECT to_regclass('headwater.capture')").fetchone()
            if there is None or there[0] is None:
                return []
            given = {"lake": lake, "table": position.name, "snapshots": list(snapshots)}
            return connection.execute(_CAPTURES.encode(), given).fetchall()

        lake = self._store.ensure()
        return tuple(
            Captured(row[0], row[1], row[2], tuple(int(xid) for xid in row[3]), *row[4:])
            for row in self._lake.db.read(work)
        )


#: Tokens of `changes_made` that change a table's rows.
_ROW_CHANGES = ("inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete")


def _before(earlier: Sequence[Provenance], row: Provenance) -> Mapping[int, SnapshotId]:
    """Where the refresh before had seen the sources, unless the result was built from nothing since."""
    if row.action in ("REINITIALIZE",) or not earlier or earlier[0].stream_id != row.stream_id:
        return {}
    return {position.table_id: position.snapshot_id for position in earlier[0].sources}


__all__ = ["Captured", "SourceSnapshot", "Trace", "TracedSource", "trace"]
