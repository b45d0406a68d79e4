"""The catalog as it is at one snapshot: schemas, tables, views.

A state depends only on its `schema_version`, which every schema change raises, so states are cached
by it and a commit that changes data alone costs no reading of tables and columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from psycopg import sql

from headwater.errors import InvalidInputError, NotFoundError, SnapshotError
from headwater.lake.connection import Connection, Database
from headwater.lake.model import (
    Column,
    PartitionField,
    PartitionSpec,
    SchemaInfo,
    Snapshot,
    SortField,
    Table,
    View,
)
from headwater.typedefs import SnapshotId, TableName

DEFAULT_SCHEMA = "main"


@dataclass(frozen=True)
class CatalogState:
    """Everything that exists at one snapshot. Names are found without regard to case, as in DuckDB."""

    snapshot: Snapshot
    data_path: str
    schemas: Mapping[str, SchemaInfo]
    tables: Mapping[tuple[str, str], Table]
    views: Mapping[tuple[str, str], View]

    def schema(self, name: str) -> SchemaInfo:
        """The schema of that name."""
        found = self.schemas.get(name.lower())
        if found is None:
            raise NotFoundError(
                f"There is no schema {name!r} at snapshot {self.snapshot.id}.",
                hint=_nearest(name, (s.name for s in self.schemas.values())),
                schema=name,
            )
        return found

    def find_table(self, name: TableName | str) -> Table | None:
        """The table of that name, or None."""
        return self.tables.get(key(name))

    def find_view(self, name: TableName | str) -> View | None:
        """The view of that name, or None."""
        return self.views.get(key(name))

    def table(self, name: TableName | str) -> Table:
        """The table of that name."""
        found = self.tables.get(key(name))
        if found is None:
            wanted = table_name(name)
            if key(name) in self.views:
                raise NotFoundError(f"{wanted} is a view, not a table.", table=str(wanted))
            raise NotFoundError(
                f"There is no table {wanted} at snapshot {self.snapshot.id}.",
                hint=_nearest(str(wanted), (str(t.name) for t in self.tables.values())),
                table=str(wanted),
                snapshot_id=self.snapshot.id,
            )
        return found

    def table_by_id(self, table_id: int) -> Table | None:
        """The table with that id, or None."""
        return next((t for t in self.tables.values() if t.id == table_id), None)

    def view(self, name: TableName | str) -> View:
        """The view of that name."""
        found = self.views.get(key(name))
        if found is None:
            wanted = table_name(name)
            if key(name) in self.tables:
                raise NotFoundError(f"{wanted} is a table, not a view.", view=str(wanted))
            raise NotFoundError(
                f"There is no view {wanted} at snapshot {self.snapshot.id}.",
                hint=_nearest(str(wanted), (str(v.name) for v in self.views.values())),
                view=str(wanted),
            )
        return found


def table_name(name: TableName | str | tuple[str, str]) -> TableName:
    """Read a name as a user writes it: `orders`, `sales.orders`, `sales."odd.name"`, or a pair.

    >>> table_name('sales."odd.name"')
    TableName(schema='sales', name='odd.name')
    """
    parts = list(name) if isinstance(name, tuple) else _split_name(check_text(name, "a table name"))
    if len(parts) == 1:
        parts = [DEFAULT_SCHEMA, parts[0]]
    if len(parts) != 2 or not all(parts):
        raise InvalidInputError(
            f"{name!r} is not a table name.",
            hint='Write name, schema.name, or quote parts that hold dots: schema."odd.name".',
        )
    return TableName(*parts)


def check_text(value: Any, what: str) -> str:
    """Text that PostgreSQL can store."""
    try:
        if isinstance(value, str) and b"\0" not in value.encode():
            return value
    except UnicodeEncodeError:
        pass
    raise InvalidInputError(
        f"{value!r} is not {what}.", hint="It must be text, without NUL characters and lone surrogates."
    )


def key(name: TableName | str) -> tuple[str, str]:
    """How names are compared: without regard to case."""
    schema, table = table_name(name)
    return schema.lower(), table.lower()


def _split_name(text: str) -> list[str]:
    parts: list[str] = []
    part = ""
    position = 0
    quoted_part = False
    while position < len(text):
        character = text[position]
        if character == '"' and not part and not quoted_part:
            quoted_part = True
            position += 1
            while position < len(text):
                if text[position] == '"':
                    if text[position + 1 : position + 2] == '"':
                        position += 1
                    else:
                        break
                part += text[position]
                position += 1
        elif character == ".":
            parts.append(part)
            part, quoted_part = "", False
        else:
            part += character
        position += 1
    return [*parts, part]


def _nearest(wanted: str, names: Iterable[str]) -> str | None:
    known = sorted(names)
    close = difflib.get_close_matches(wanted, known, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    if not known:
        return None
    listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    return f"There are: {listed}."


def no_column(table: Table, path: str | Sequence[str], purpose: str = "") -> NotFoundError:
    """The error for a column, or a field inside one, that a table does not have."""
    wanted = path if isinstance(path, str) else ".".join(path)
    known = {shown.lower(): shown for top in table.columns for shown in _paths(top)}
    close = difflib.get_close_matches(wanted.lower(), known, n=1)
    names = ", ".join(c.name for c in table.columns[:20]) + (", …" if len(table.columns) > 20 else "")
    return NotFoundError(
        f"Table {table.name} has no column {wanted!r}{purpose}.",
        hint=f"Did you mean {known[close[0]]!r}?" if close else f"It has: {names}.",
        table=str(table.name),
        column=wanted,
    )


def _paths(column: Column, before: str = "") -> Iterator[str]:
    shown = before + column.name
    yield shown
    for child in column.children:
        yield from _paths(child, shown + ".")


_SNAPSHOTS = (
    "SELECT s.snapshot_id, s.snapshot_time, s.schema_version, s.next_catalog_id, s.next_file_id, "
    "c.changes_made, c.author, c.commit_message, c.commit_extra_info "
    "FROM {ducklake_snapshot} s LEFT JOIN {ducklake_snapshot_changes} c USING (snapshot_id) "
)


def _snapshot_query(db: Database, tail: str) -> bytes:
    return db.text(_SNAPSHOTS + tail)


def latest_snapshot(db: Database, connection: Connection) -> Snapshot:
    """The newest snapshot."""
    row = connection.execute(_snapshot_query(db, "ORDER BY s.snapshot_id DESC LIMIT 1")).fetchone()
    if row is None:
        raise SnapshotError("The lake has no snapshot.", hint="Run `headwater doctor`.")
    return Snapshot(*row)


def list_snapshots(db: Database, connection: Connection, limit: int | None = None) -> list[Snapshot]:
    """Live snapshots, newest first."""
    rows = connection.execute(
        _snapshot_query(db, "ORDER BY s.snapshot_id DESC LIMIT %s"), (limit,)
    ).fetchall()
    return [Snapshot(*row) for row in rows]


def find_snapshot(
    db: Database,
    connection: Connection,
    *,
    version: SnapshotId | None = None,
    timestamp: datetime | str | None = None,
) -> Snapshot:
    """The snapshot with that number, or the newest one not after that time; the latest by default."""
    if version is not None and timestamp is not None:
        raise InvalidInputError("Give a version or a timestamp, not both.")
    if version is not None:
        return _by_version(db, connection, version)
    if timestamp is not None:
        return _by_time(db, connection, as_time(timestamp))
    return latest_snapshot(db, connection)


def _by_version(db: Database, connection: Connection, version: SnapshotId) -> Snapshot:
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidInputError(f"A snapshot number is an integer, not {version!r}.")
    row = connection.execute(_snapshot_query(db, "WHERE s.snapshot_id = %s"), (version,)).fetchone()
    if row is not None:
        return Snapshot(*row)
    oldest, newest = _range(db, connection)
    if version > newest:
        why = f"it is in the future: the newest is {newest}"
    else:
        why = f"it has expired: the oldest is {oldest}" if version < oldest else "it has expired"
    raise SnapshotError(
        f"Snapshot {version} does not exist; {why}.",
        hint=f"Choose one between {oldest} and {newest} (`headwater snapshots` lists them).",
        snapshot_id=version,
        oldest=oldest,
        newest=newest,
    )


def _by_time(db: Database, connection: Connection, moment: datetime) -> Snapshot:
    row = connection.execute(
        _snapshot_query(db, "WHERE s.snapshot_time <= %s ORDER BY s.snapshot_id DESC LIMIT 1"), (moment,)
    ).fetchone()
    if row is not None:
        return Snapshot(*row)
    oldest = connection.execute(_snapshot_query(db, "ORDER BY s.snapshot_id LIMIT 1")).fetchone()
    since = f"; the oldest is of {oldest[1].isoformat()}" if oldest else ""
    raise SnapshotError(
        f"There is no snapshot as old as {moment.isoformat()}{since}.",
        detail="Older ones have expired, or the lake did not exist yet.",
        timestamp=moment.isoformat(),
    )


def _range(db: Database, connection: Connection) -> tuple[int, int]:
    row = connection.execute(
        sql.SQL("SELECT min(snapshot_id), max(snapshot_id) FROM {}").format(db.name("ducklake_snapshot"))
    ).fetchall()[0]
    return row[0], row[1]


def as_time(value: datetime | str) -> datetime:
    """A point in time; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInputError(
                f"{value!r} is not a time.", hint="Write it like 2026-01-31T12:00:00+00:00."
            ) from None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


class CatalogReader:
    """Loads states, remembering the few newest by schema version."""

    def __init__(self, db: Database, data_path: str, *, remembered: int = 8):
        self._db = db
        self._data_path = data_path
        self._remembered = remembered
        self._states: dict[int, CatalogState] = {}

    def state(self, connection: Connection, snapshot: Snapshot) -> CatalogState:
        """The catalog at `snapshot`."""
        known = self._states.get(snapshot.schema_version)
        if known is None:
            known = load_state(self._db, connection, snapshot, self._data_path)
            while len(self._states) >= self._remembered:
                self._states.pop(next(iter(self._states)), None)
            self._states[snapshot.schema_version] = known
        return known if known.snapshot.id == snapshot.id else replace(known, snapshot=snapshot)

    def forget(self) -> None:
        """Drop what is remembered (after a migration or a restore from backup)."""
        self._states.clear()


_LIVE = sql.SQL("{0}.begin_snapshot <= %(at)s AND ({0}.end_snapshot IS NULL OR %(at)s < {0}.end_snapshot)")


def live(alias: str) -> sql.Composed:
    """Visibility at snapshot `%(at)s` of the rows of a versioned catalog table."""
    return _LIVE.format(sql.Identifier(alias))


def load_state(db: Database, connection: Connection, snapshot: Snapshot, data_path: str) -> CatalogState:
    """Read all schemas, tables and views of one snapshot, in one round trip."""
    at = {"at": snapshot.id}
    queries = {
        "schemas": (
            "SELECT x.schema_id, x.schema_uuid, x.schema_name, x.path, x.path_is_relative, x.begin_snapshot "
            "FROM {ducklake_schema} x WHERE {live}"
        ),
        "tables": (
            "SELECT x.table_id, x.table_uuid, x.schema_id, x.table_name, x.path, x.path_is_relative, "
            "x.begin_snapshot FROM {ducklake_table} x WHERE {live}"
        ),
        "columns": (
            "SELECT x.table_id, x.column_id, x.column_name, x.column_type, x.nulls_allowed, "
            "x.initial_default, x.default_value, x.default_value_type, x.parent_column "
            "FROM {ducklake_column} x WHERE {live} ORDER BY x.table_id, x.column_order"
        ),
        "views": (
            "SELECT x.view_id, x.view_uuid, x.schema_id, x.view_name, x.dialect, x.sql, x.column_aliases, "
            "x.begin_snapshot FROM {ducklake_view} x WHERE {live}"
        ),
        "partitions": (
            "SELECT x.table_id, x.partition_id, p.column_id, p.transform FROM {ducklake_partition_info} x "
            "LEFT JOIN {ducklake_partition_column} p USING (partition_id, table_id) WHERE {live} "
            "ORDER BY x.table_id, p.partition_key_index"
        ),
        "sorts": (
            "SELECT x.table_id, x.sort_id, e.expression, e.sort_direction, e.null_order, e.dialect "
            "FROM {ducklake_sort_info} x LEFT JOIN {ducklake_sort_expression} e USING (sort_id, table_id) "
            "WHERE {live} ORDER BY x.table_id, e.sort_key_index"
        ),
        "tags": "SELECT x.object_id, x.key, x.value FROM {ducklake_tag} x WHERE {live}",
        "column_tags": (
            "SELECT x.table_id, x.column_id, x.key, x.value FROM {ducklake_column_tag} x WHERE {live}"
        ),
    }
    names = {word: db.name(word) for text in queries.values() for word in _placeholders(text)}
    with connection.pipeline():
        cursors = {
            what: connection.execute(sql.SQL(text).format(live=live("x"), **names), at)
            for what, text in queries.items()
        }
    rows = {what: cursor.fetchall() for what, cursor in cursors.items()}
    return _assemble(snapshot, data_path, rows)


def _placeholders(text: str) -> list[str]:
    return [part.split("}")[0] for part in text.split("{")[1:] if part.split("}")[0] != "live"]


def _assemble(snapshot: Snapshot, data_path: str, rows: Mapping[str, list[tuple[Any, ...]]]) -> CatalogState:
    schemas = {row[0]: SchemaInfo(*row) for row in rows["schemas"]}
    tags: dict[int, dict[str, str | None]] = {}
    for object_id, tag, value in rows["tags"]:
        tags.setdefault(object_id, {})[tag] = value
    columns = nested_columns(rows["columns"], rows["column_tags"])
    partitions = _partitions(rows["partitions"])
    sorts: dict[int, tuple[int, list[SortField]]] = {}
    for table_id, sort_id, expression, direction, null_order, dialect in rows["sorts"]:
        fields = sorts.setdefault(table_id, (sort_id, []))[1]
        if expression is not None:
            fields.append(SortField(expression, direction, null_order, dialect))

    tables = {}
    for table_id, uuid, schema_id, name, path, path_is_relative, begin in rows["tables"]:
        schema = schemas[schema_id]
        sort_id, sort = sorts.get(table_id, (None, []))
        tables[schema.name.lower(), name.lower()] = Table(
            id=table_id,
            uuid=uuid,
            schema_id=schema_id,
            name=TableName(schema.name, name),
            path=folder(data_path, schema, path, path_is_relative),
            columns=columns.get(table_id, ()),
            begin_snapshot=begin,
            partition=partitions.get(table_id),
            sort=tuple(sort),
            sort_id=sort_id,
            tags=tags.get(table_id, {}),
            stored_path=path,
            path_is_relative=path_is_relative,
        )
    views = {}
    for view_id, uuid, schema_id, name, dialect, text, aliases, begin in rows["views"]:
        schema = schemas[schema_id]
        views[schema.name.lower(), name.lower()] = View(
            id=view_id,
            uuid=uuid,
            schema_id=schema_id,
            name=TableName(schema.name, name),
            dialect=dialect,
            sql=text,
            column_aliases=aliases,
            begin_snapshot=begin,
            tags=tags.get(view_id, {}),
        )
    return CatalogState(snapshot, data_path, {s.name.lower(): s for s in schemas.values()}, tables, views)


def folder(data_path: str, schema: SchemaInfo, path: str, path_is_relative: bool) -> str:
    """Where a table's files are: plain concatenation, as DuckDB does it."""
    if not path_is_relative:
        return path
    return (data_path + schema.path if schema.path_is_relative else schema.path) + path


def _partitions(rows: list[tuple[Any, ...]]) -> dict[int, PartitionSpec]:
    specs: dict[int, tuple[int, list[PartitionField]]] = {}
    for table_id, partition_id, column_id, transform in rows:
        fields = specs.setdefault(table_id, (partition_id, []))[1]
        if column_id is not None:  # RESET PARTITIONED BY leaves a spec without fields
            fields.append(PartitionField(column_id, transform))
    return {table_id: PartitionSpec(spec, tuple(fields)) for table_id, (spec, fields) in specs.items()}


def nested_columns(
    rows: list[tuple[Any, ...]], tag_rows: list[tuple[Any, ...]]
) -> dict[int, tuple[Column, ...]]:
    """The columns of each table, from rows of `ducklake_column` and `ducklake_column_tag`."""
    tags: dict[tuple[int, int], dict[str, str | None]] = {}
    for table_id, column_id, tag, value in tag_rows:
        tags.setdefault((table_id, column_id), {})[tag] = value

    children: dict[tuple[int, int | None], list[tuple[Any, ...]]] = {}
    for row in rows:
        children.setdefault((row[0], row[8]), []).append(row)

    def build(table_id: int, parent: int | None) -> tuple[Column, ...]:
        return tuple(
            Column(
                id=column_id,
                name=name,
                type=kind,
                # DuckDB calls a field NOT NULL once ALTER has touched it, and goes on storing NULL in it.
                nulls_allowed=nulls_allowed or parent is not None,
                initial_default=initial,
                # "No default" is the literal text NULL; a column whose default is the *word* NULL
                # cannot be told apart, in DuckDB neither.
                default_value=None if default == "NULL" and default_type != "expression" else default,
                default_type=default_type or "literal",
                children=build(table_id, column_id) if kind in ("struct", "list", "map") else (),
                tags=tags.get((table_id, column_id), {}),
            )
            for _, column_id, name, kind, nulls_allowed, initial, default, default_type, _ in children.get(
                (table_id, parent), ()
            )
        )

    return {table_id: build(table_id, None) for table_id, parent in children if parent is None}


def table_history(db: Database, connection: Connection, name: TableName) -> str | None:
    """In words, when a table (or view) of that name existed; None if it never did."""
    rows = connection.execute(
        sql.SQL(
            "SELECT t.begin_snapshot, t.end_snapshot FROM {} t JOIN {} s USING (schema_id) "
            "WHERE lower(t.table_name) = lower(%s) AND lower(s.schema_name) = lower(%s) ORDER BY 1"
        ).format(db.name("ducklake_table"), db.name("ducklake_schema")),
        (name.name, name.schema),
    ).fetchall()
    if not rows:
        return None
    spans = [f"created at {begin}" + (f", gone at {end}" if end is not None else "") for begin, end in rows]
    return "it was " + "; ".join(spans)
