"""Sources in the catalog: what is mirrored, how far it is, what was captured.

What a capture did commits with the snapshot that it made:

with lake.transaction() as tx:
    tx.append(table, rows)
    tx.join(store.advance(source, tables, record))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from headwater.errors import AlreadyExistsError, ConflictError
from headwater.lake.connection import Connection, Cursor
from headwater.lake.lake import Lake
from headwater.lake.own import ComponentStore, write
from headwater.lake.writing.commit import Join
from headwater.sources import catalog_tables as sql
from headwater.sources.model import (
    CaptureKind,
    Form,
    Layout,
    Source,
    SourceColumn,
    SourceStatus,
    SourceTable,
    TableStatus,
)
from headwater.typedefs import SnapshotId, TableName


@dataclass(frozen=True)
class CaptureRecord:
    """What one commit captured."""

    source: str
    batch_id: str
    kind: str
    """`copy`, `changes` or `resync`."""
    position_before: str | None
    position_after: str | None
    lsn: str | None
    transactions: int
    xids: tuple[int, ...]
    """PostgreSQL's transaction ids, the first of them."""
    changes: int
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    tables: Mapping[str, Mapping[str, int]]
    snapshot_id: SnapshotId = -1
    committed_at: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


class SourceStore(ComponentStore):
    """The sources of one lake."""

    def __init__(self, lake: Lake):
        super().__init__(lake.db, sql.COMPONENT, sql.VERSIONS)

    # -- reading ------------------------------------------------------------------------------------

    def all(self) -> list[Source]:
        """All sources, by name."""
        return [_source(row) for row in self.rows(sql.SOURCES, name=None)]

    def get(self, name: str) -> Source | None:
        """The source of that name, or None."""
        return next((_source(row) for row in self.rows(sql.SOURCES, name=name)), None)

    def captures(
        self, name: str | None = None, limit: int = 100, *, first: int | None = None, last: int | None = None
    ) -> list[CaptureRecord]:
        """Commits of captures, newest first, of one source or of all, with snapshots `first` to `last`."""
        rows = self.rows(sql.CAPTURES, name=name, limit=limit, first=first, last=last)
        return [_record(row) for row in rows]

    # -- inside a transaction of the lake ------------------------------------------------------------

    def advance(
        self, source: Source, tables: Sequence[SourceTable], record: CaptureRecord | None = None
    ) -> Join:
        """Move tables of a source on, and note what was captured.

        A conflict if somebody else moved the source on since `source` was read: then this was captured by
        them, or the source is not what it was.
        """
        lake = self.ensure()

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            given = {"lake": lake, "id": source.id, "generation": source.generation}
            cursor.execute(sql.ADVANCE.encode(), given)
            if cursor.rowcount != 1:
                raise ConflictError(
                    f"Source {source.name} was captured, changed or removed by another process.",
                    hint="Capture it again; nothing of this capture was applied.",
                    source=source.name,
                )
            rows = _json([_table_row(table) for table in tables])
            cursor.execute(sql.MOVE_TABLES.encode(), {"lake": lake, "id": source.id, "tables": rows})
            if record is not None:
                cursor.execute(
                    sql.INSERT_CAPTURE.encode(), _record_row(record) | {**given, "snapshot": snapshot}
                )

        return join

    # -- outside -------------------------------------------------------------------------------------

    def move(self, source: Source, tables: Sequence[SourceTable]) -> None:
        """The same where the lake's rows stay as they are, so that no snapshot is made."""
        join = self.advance(source, tables)

        def work(connection: Connection) -> None:
            with connection.cursor() as cursor:
                join(cursor, -1)

        write(self._db, work)

    def insert(self, source: Source) -> None:
        """Add a source with its tables."""
        lake = self.ensure()

        def work(connection: Connection) -> None:
            given = {
                "lake": lake,
                "id": source.id,
                "name": source.name,
                "dsn": source.dsn,
                "shown": source.shown,
                "capture": str(source.capture),
                "reason": source.reason,
                "status": str(source.status),
            }
            if connection.execute(sql.INSERT_SOURCE.encode(), given).rowcount != 1:
                raise AlreadyExistsError(
                    f"There is already a source {source.name!r}.",
                    hint="Give this one another name, or remove the other.",
                    source=source.name,
                )
            for table in source.tables:
                row = {
                    "lake": lake,
                    "id": source.id,
                    "number": table.number,
                    "schema": table.schema,
                    "name": table.name,
                    "lake_schema": table.lake_table.schema,
                    "lake_name": table.lake_table.name,
                    "chosen": None if table.chosen is None else _json(list(table.chosen)),
                    "where": table.where,
                    "status": str(table.status),
                }
                if connection.execute(sql.INSERT_TABLE.encode(), row).rowcount != 1:
                    raise AlreadyExistsError(
                        f"Another source already mirrors into {table.lake_table}.",
                        hint="Choose another schema (`schema=…`), or remove the other source.",
                        table=str(table.lake_table),
                    )

        write(self._db, work)

    def set_status(self, source: Source, status: SourceStatus) -> None:
        """Pause or resume; a capture under way does not commit any more."""
        self._change(sql.SET_STATUS, source, {"status": str(status)})

    def failed(self, source: Source, error: Mapping[str, Any]) -> None:
        """Note that a capture failed."""
        self._change(sql.FAILED, source, {"error": _json(error)})

    def delete(self, source: Source) -> None:
        """Forget a source. Its captures stay."""
        self._change(sql.DELETE, source, {})

    def _change(self, text: str, source: Source, given: Mapping[str, Any]) -> None:
        named = {"lake": self.ensure(), "id": source.id, **given}
        write(self._db, lambda connection: connection.execute(text.encode(), named))


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _table_row(table: SourceTable) -> dict[str, Any]:
    return {
        "number": table.number,
        "status": str(table.status),
        "layout": None if table.layout is None else asdict(table.layout),
        "position": table.position,
        "error": table.error,
    }


def _record_row(record: CaptureRecord) -> dict[str, Any]:
    return {
        "name": record.source,
        "batch": record.batch_id,
        "kind": record.kind,
        "before": record.position_before,
        "after": record.position_after,
        "lsn": record.lsn,
        "transactions": record.transactions,
        "xids": _json(list(record.xids)),
        "changes": record.changes,
        "inserted": record.rows_inserted,
        "updated": record.rows_updated,
        "deleted": record.rows_deleted,
        "tables": _json(record.tables),
    }


def _record(row: tuple[Any, ...]) -> CaptureRecord:
    return CaptureRecord(
        source=row[0],
        batch_id=row[1],
        snapshot_id=row[2],
        kind=row[3],
        position_before=row[4],
        position_after=row[5],
        lsn=row[6],
        transactions=row[7],
        xids=tuple(row[8]),
        changes=row[9],
        rows_inserted=row[10],
        rows_updated=row[11],
        rows_deleted=row[12],
        tables=row[13],
        committed_at=row[14],
    )


def _source(row: tuple[Any, ...]) -> Source:
    return Source(
        id=row[0],
        name=row[1],
        dsn=row[2],
        shown=row[3],
        capture=CaptureKind(row[4]),
        reason=row[5],
        status=SourceStatus(row[6]),
        generation=row[7],
        failures=row[8],
        last_error=row[9],
        captured_at=row[10],
        created_at=row[11],
        tables=tuple(_table(table) for table in row[12]),
    )


def _table(given: Mapping[str, Any]) -> SourceTable:
    layout = given["layout"]
    return SourceTable(
        number=given["number"],
        schema=given["schema"],
        name=given["name"],
        lake_table=TableName(given["lake_schema"], given["lake_name"]),
        chosen=None if given["chosen"] is None else tuple(given["chosen"]),
        where=given["where"],
        status=TableStatus(given["status"]),
        layout=None if layout is None else _layout(layout),
        position=given["position"],
        error=given["error"],
    )


def _layout(given: Mapping[str, Any]) -> Layout:
    columns = tuple(SourceColumn(**{**column, "form": Form(column["form"])}) for column in given["columns"])
    return Layout(given["oid"], columns, tuple(given["key"]), given["storage"])
