"""Numbers about the tables of a lake, for people: how many rows, files and bytes at a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from headwater.errors import CatalogError
from headwater.lake.catalog import CatalogState
from headwater.lake.connection import Connection, Database
from headwater.lake.format.changes import Change, read_changes
from headwater.lake.format.types import type_text
from headwater.lake.lake import At, Lake
from headwater.lake.model import Snapshot, Table
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import FileScan, plan_scan
from headwater.typedefs import SnapshotId, TableId, TableName, quote_name


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table or view at one snapshot."""

    kind: str
    """`table` or `view`."""
    name: TableName
    id: int
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types."""
    rows: int | None = None
    """Rows that a reader sees; None for a view."""
    files: int = 0
    file_bytes: int = 0
    deleted_rows: int = 0
    """Rows that are still in the files, but deleted."""
    inlined_rows: int = 0
    """Rows that are kept in the catalog's database."""
    path: str | None = None
    partitioned_by: tuple[str, ...] = ()
    comment: str | None = None


@dataclass
class _Count:
    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    deleted_rows: int = 0
    inlined_rows: int = 0
    needs_files: bool = False
    """Some file holds changes of several snapshots, later ones included: only the file itself knows."""


def summarize(lake: Lake, at: At = None) -> tuple[Snapshot, list[TableSummary]]:
    """Every table and view at a snapshot, with their numbers, by name."""
    state = lake.state(at)
    counts = lake.db.read(lambda connection: _counts(lake.db, connection, state, old=at is not None))
    found = [_table(lake, state, table, counts.get(table.id, _Count())) for table in state.tables.values()]
    found += [
        TableSummary("view", view.name, view.id, comment=view.tags.get("comment"))
        for view in state.views.values()
    ]
    return state.snapshot, sorted(found, key=lambda summary: summary.name)


def _table(lake: Lake, state: CatalogState, table: Table, count: _Count) -> TableSummary:
    if count.needs_files:
        count = _exact(lake, state, table, count)
    by_id = table.by_id()
    return TableSummary(
        kind="table",
        name=table.name,
        id=table.id,
        columns=tuple((column.name, type_text(column)) for column in table.columns),
        rows=count.rows - count.deleted_rows + count.inlined_rows,
        files=count.files,
        file_bytes=count.file_bytes,
        deleted_rows=count.deleted_rows,
        inlined_rows=count.inlined_rows,
        path=table.path,
        partitioned_by=tuple(
            by_id[field.column_id].name
            if field.transform == "identity"
            else f"{field.transform} of {by_id[field.column_id].name}"
            for field in (table.partition.fields if table.partition else ())
        ),
        comment=table.comment,
    )


def _exact(lake: Lake, state: CatalogState, table: Table, count: _Count) -> _Count:
    """The count, with the files read whose rows or deletes belong only partly to the snapshot."""
    plan = plan_scan(lake.db, state, table)
    mixed: list[FileScan] = []
    sure: list[FileScan] = []
    for scan in plan.files:
        (mixed if _is_mixed(scan, state.snapshot.id) else sure).append(scan)
    partial = replace(plan, files=tuple(mixed), inlined=())
    seen = read_plan(partial, lake.store, lake.db, columns=[], hidden=["rowid"]).num_rows
    deleted = sum(sum(d.delete_count for d in scan.deletes) + len(scan.inlined_deletes) for scan in sure)
    # Of the mixed files only what is seen counts: what is not there yet is neither a row nor deleted.
    rows = sum(scan.file.record_count for scan in sure) + seen
    return replace(count, rows=rows, deleted_rows=deleted)


def _is_mixed(scan: FileScan, at: SnapshotId) -> bool:
    """Whether the file or its deletes hold changes of several snapshots, perhaps later than `at`."""
    if scan.max_snapshot is not None:
        return True
    # The deletes of flushed rows have snapshots inside, and sometimes nothing says up to which.
    return any(
        d.partial_max > at if d.partial_max is not None else scan.file.partial_max is not None
        for d in scan.deletes
    )


_FILES = (
    "SELECT table_id, count(*), sum(record_count)::bigint, sum(file_size_bytes)::bigint, "
    "coalesce(bool_or(partial_max > %(at)s), false) FROM {ducklake_data_file} f WHERE {live} GROUP BY 1"
)
_DELETES = (
    "SELECT f.table_id, sum(f.delete_count)::bigint, coalesce(bool_or(f.partial_max > %(at)s "
    "OR (%(old)s AND f.partial_max IS NULL AND d.partial_max IS NOT NULL)), false) "
    "FROM {ducklake_delete_file} f JOIN {ducklake_data_file} d USING (data_file_id) "
    # The deletes of a file that is gone altogether count no more.
    "WHERE {live} AND (d.end_snapshot IS NULL OR %(at)s < d.end_snapshot) GROUP BY 1"
)
_LIVE = "f.begin_snapshot <= %(at)s AND (f.end_snapshot IS NULL OR %(at)s < f.end_snapshot)"


def _counts(db: Database, connection: Connection, state: CatalogState, *, old: bool) -> dict[TableId, _Count]:
    at = state.snapshot.id
    counts: dict[TableId, _Count] = {}

    def count(table_id: TableId) -> _Count:
        return counts.setdefault(table_id, _Count())

    for table_id, files, rows, size, mixed in _rows(db, connection, _FILES, at=at):
        found = count(table_id)
        found.files, found.rows, found.file_bytes, found.needs_files = files, rows, size, mixed
    for table_id, rows, mixed in _rows(db, connection, _DELETES, at=at, old=old):
        count(table_id).deleted_rows = rows
        count(table_id).needs_files |= mixed
    ids = [table.id for table in state.tables.values()]
    for table_id, name in _inlined_tables(db, connection, ids):
        count(table_id).inlined_rows += _number(db, connection, _INLINED, name, at)
    for table_id, name in _inlined_delete_tables(db, connection, ids):
        count(table_id).deleted_rows += _number(db, connection, _INLINED_DELETES, name, at)
    return counts


_INLINED = (
    "SELECT count(*) FROM {0} WHERE begin_snapshot <= %(at)s "
    "AND (end_snapshot IS NULL OR %(at)s < end_snapshot)"
)
_INLINED_DELETES = (
    "SELECT count(*) FROM {0} d JOIN {1} f ON f.data_file_id = d.file_id "
    f"WHERE d.begin_snapshot <= %(at)s AND {_LIVE}"
)


def _rows(db: Database, connection: Connection, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
    names = {name: db.name(name) for name in ("ducklake_data_file", "ducklake_delete_file")}
    return connection.execute(sql.SQL(text).format(live=sql.SQL(_LIVE), **names), parameters).fetchall()


def _number(db: Database, connection: Connection, text: str, table: str, at: SnapshotId) -> int:
    query = sql.SQL(text).format(db.name(table), db.name("ducklake_data_file"))
    return int(connection.execute(query, {"at": at}).fetchall()[0][0])


def _inlined_tables(
    db: Database, connection: Connection, ids: Sequence[TableId]
) -> list[tuple[TableId, str]]:
    rows = connection.execute(
        sql.SQL(
            "SELECT table_id, table_name FROM {} WHERE table_id = ANY(%s) "
            "AND to_regclass(format('%%I.%%I', %s::text, table_name)) IS NOT NULL"
        ).format(db.name("ducklake_inlined_data_tables")),
        (list(ids), db.schema),
    ).fetchall()
    return [(table_id, name) for table_id, name in rows]


def _inlined_delete_tables(
    db: Database, connection: Connection, ids: Sequence[TableId]
) -> list[tuple[TableId, str]]:
    rows = connection.execute(
        "SELECT t, 'ducklake_inlined_delete_' || t FROM unnest(%s::bigint[]) t "
        "WHERE to_regclass(format('%%I.%%I', %s::text, 'ducklake_inlined_delete_' || t)) IS NOT NULL",
        (list(ids), db.schema),
    ).fetchall()
    return [(table_id, name) for table_id, name in rows]


def changes_in_words(lake: Lake, snapshots: Iterable[Snapshot]) -> dict[SnapshotId, list[str]]:
    """What each snapshot did, with names instead of ids.

    A list of changes that cannot be read is shown as it is; `headwater doctor` says more.
    """
    names = lake.db.read(lambda connection: _names(lake.db, connection))
    return {snapshot.id: _in_words(snapshot.changes, names) for snapshot in snapshots}


def _in_words(text: str | None, names: dict[int, str]) -> list[str]:
    try:
        return [_word(change, names) for change in read_changes(text)]
    except CatalogError:
        return [text or ""]


def _word(change: Change, names: dict[int, str]) -> str:
    verb = change.token.replace("_", " ")
    if isinstance(change.target, int):
        return f"{verb} {names.get(change.target, change.target)}"
    return f"{verb} " + ".".join(quote_name(part) for part in change.target)


def _names(db: Database, connection: Connection) -> dict[int, str]:
    """The newest name of everything that has an id."""
    rows = connection.execute(
        sql.SQL(
            "SELECT schema_id, schema_name, NULL, begin_snapshot FROM {schemas} "
            "UNION ALL SELECT t.table_id, s.schema_name, t.table_name, t.begin_snapshot "
            "FROM {tables} t JOIN {schemas} s USING (schema_id) "
            "UNION ALL SELECT v.view_id, s.schema_name, v.view_name, v.begin_snapshot "
            "FROM {views} v JOIN {schemas} s USING (schema_id) ORDER BY 4"
        ).format(
            schemas=db.name("ducklake_schema"),
            tables=db.name("ducklake_table"),
            views=db.name("ducklake_view"),
        )
    ).fetchall()
    return {
        id_: quote_name(schema) if name is None else str(TableName(schema, name))
        for id_, schema, name, _ in rows
    }
