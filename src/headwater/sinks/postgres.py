"""A sink in PostgreSQL: a table that applications read, kept by deltas in one transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import conninfo, sql

from headwater.errors import (
    CatalogUnavailableError,
    HeadwaterError,
    SinkError,
)
from headwater.lake.catalog import table_name
from headwater.lake.connection import CONNECTION_LOST, Connection, Database
from headwater.lake.format.equality import Key, row_keys
from headwater.lake.model import Column
from headwater.sinks.model import Sink
from headwater.sinks.positions import (
    Position,
    ensure_positions,
    forget_position,
    read_position,
    write_position,
)
from headwater.sinks.postgres_values import are_plain, postgres_csv, postgres_rows, postgres_type
from headwater.sinks.result import ROW_ID, Result
from headwater.sinks.target import Applied
from headwater.typedefs import TableName

_CONNECT_SECONDS = 5
#: A table that others have locked is not waited for longer than this.
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '10s'"
_GONE, _CHANGED = "_hw_gone", "_hw_changed"
#: From so many rows on PostgreSQL is told what a temporary table holds.
_WORTH_ANALYZING = 5000
_ROW_ID = Column(0, ROW_ID, "int64")


class _Differs(Exception):  # noqa: N818  (a signal, not an error)
    """The table is not what the last delivery left."""


@dataclass(frozen=True)
class PostgresTarget:
    """Writes a result into a table of PostgreSQL."""

    dsn: str
    sink: Sink

    def deliver(self, result: Result) -> Applied:
        """Bring the table to a result, in one transaction that remembers it."""
        with self._connected() as connection:
            ensure_positions(connection)
            with connection.transaction():
                connection.execute(_LOCK_TIMEOUT)
                # One delivery at a time: who comes second finds the first one's position.
                place = f"{result.lake_id}/{result.stream_id}/{self.sink.name}"
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (place,))
                return self._deliver(connection, result)

    def withdraw(self, lake_id: str, stream_id: str) -> None:
        """Forget the position. The table stays: applications may be reading it."""
        with self._connected() as connection, connection.transaction():
            forget_position(connection, lake_id, stream_id, self.sink.name)

    def _deliver(self, connection: Connection, result: Result) -> Applied:
        before = read_position(connection, result, self.sink.name)
        if before is not None and before.holds(result):
            return Applied("nothing")
        table = _Table(connection, result, self._name(result), self.sink.name)
        own, new = table.prepare(before)
        applied = self._applied(connection, table, result, before)
        if new:
            table.index()  # after its first rows, which is quicker
        after = Position(str(table.name), own, result.storage.id, result.snapshot_id, result.refresh_id)
        with connection.cursor() as cursor:
            write_position(cursor, result, self.sink.name, before, after)
        return applied

    def _applied(
        self, connection: Connection, table: _Table, result: Result, before: Position | None
    ) -> Applied:
        if before is not None and before.follows(result) and before.target == str(table.name):
            delta = result.changes(before.snapshot_id, row_ids=result.key is None)
            if delta is not None:
                try:
                    with connection.transaction():
                        return table.apply(*delta)
                except _Differs:
                    pass  # somebody changed the table: everything is written again
        return table.replace(before is None)

    def _name(self, result: Result) -> TableName:
        if self.sink.table is not None:
            return table_name(self.sink.table)
        return TableName("public" if result.name.schema == "main" else result.name.schema, result.name.name)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        parameters = conninfo.conninfo_to_dict(self.dsn)
        parameters.setdefault("application_name", "headwater")
        parameters.setdefault("connect_timeout", str(_CONNECT_SECONDS))
        try:
            with psycopg.connect(
                conninfo.make_conninfo("", **{k: str(v) for k, v in parameters.items()}), autocommit=True
            ) as connection:
                connection.execute("SET TIME ZONE 'UTC'")
                yield connection
        except psycopg.Error as error:
            raise self._explained(error) from None
        except pa.ArrowException as error:
            name = self.sink.name
            raise SinkError(f"Sink {name} cannot take the result.", detail=str(error), sink=name) from None

    def _explained(self, error: psycopg.Error) -> HeadwaterError:
        """The failure without anything secret in it."""
        database = Database(self.dsn)
        if isinstance(error, CONNECTION_LOST) or error.sqlstate is None:
            return database.explain(error)
        known = database.explain(error)
        if isinstance(known, CatalogUnavailableError):
            return known
        return SinkError(
            f"PostgreSQL refused what sink {self.sink.name} sent ({database.shown}).",
            detail=known.detail,
            hint="Grant the user what is missing."
            if isinstance(error, psycopg.errors.InsufficientPrivilege)
            else None,
            sink=self.sink.name,
            sqlstate=error.sqlstate,
        )


@dataclass(frozen=True)
class _Table:
    """The table that a result is written to, inside one transaction."""

    connection: Connection
    result: Result
    name: TableName
    sink: str

    @property
    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.name)

    @property
    def _columns(self) -> list[Column]:
        """The result's columns, and the row's number where nothing else tells rows apart."""
        return [*self.result.columns, *([_ROW_ID] if self.result.key is None else [])]

    @property
    def _key(self) -> Sequence[str]:
        return (ROW_ID,) if self.result.key is None else self.result.key

    # -- the table itself ---------------------------------------------------------------------------

    def prepare(self, before: Position | None) -> tuple[bool, bool]:
        """Make the table, or see that it fits; whether the sink made it, and whether just now."""
        mine = before is not None and before.target == str(self.name)
        own = before is not None and mine and before.own
        there = self._there()
        if there is None:
            self._create()
            return True, True
        if not mine and self._has_rows():
            raise SinkError(
                f"Table {self.name} in PostgreSQL has rows, and they are not of {self.result.name}.",
                detail="The sink would replace them.",
                hint="Empty the table, or choose another with postgres_sink_table.",
                sink=self.sink,
                table=str(self.name),
            )
        wanted = {column.name: postgres_type(column) for column in self._columns}
        if own:
            self._align(there, wanted)
        else:
            self._check(there, wanted)
        return own, False

    def _there(self) -> dict[str, tuple[str, bool]] | None:
        """The table's columns: type, and whether a row needs a value for it; None if there is no table."""
        found = self.connection.execute(
            "SELECT to_regclass(%s)::oid", (self._identifier.as_string(self.connection),)
        ).fetchone()
        if found is None or found[0] is None:
            return None
        rows = self.connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef "
            "AND attidentity = '' FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
            (found[0],),
        ).fetchall()
        return {name: (kind, needed) for name, kind, needed in rows}

    def _has_rows(self) -> bool:
        found = self.connection.execute(
            sql.SQL("SELECT EXISTS (SELECT FROM {})").format(self._identifier)
        ).fetchone()
        return bool(found and found[0])

    def _create(self) -> None:
        self.connection.execute(
            sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.name.schema))
        )
        self.connection.execute(
            sql.SQL("CREATE TABLE {} ({})").format(
                self._identifier, sql.SQL(", ").join(map(_definition, self._columns))
            )
        )

    def index(self) -> None:
        """Let rows be found by their key. Not a primary key: a group can be that of NULL."""
        if self._key:
            self.connection.execute(
                sql.SQL("CREATE UNIQUE INDEX ON {} ({})").format(self._identifier, _names(self._key))
            )

    def _align(self, there: dict[str, tuple[str, bool]], wanted: dict[str, str]) -> None:
        """Bring a table that the sink made to the columns of another query, without rows."""
        changed = {name for name, (kind, _) in there.items() if wanted.get(name) != kind}
        new = [c for c in self._columns if c.name not in there or c.name in changed]
        if not changed and not new:
            return
        self.connection.execute(sql.SQL("DELETE FROM {}").format(self._identifier))
        steps = [sql.SQL("DROP COLUMN {}").format(sql.Identifier(name)) for name in sorted(changed)]
        steps += [sql.SQL("ADD COLUMN {}").format(_definition(column)) for column in new]
        self.connection.execute(
            sql.SQL("ALTER TABLE {} {}").format(self._identifier, sql.SQL(", ").join(steps))
        )
        if {*changed, *(column.name for column in new)} & set(self._key):
            self.index()

    def _check(self, there: dict[str, tuple[str, bool]], wanted: dict[str, str]) -> None:
        problems = [
            f"it has no column {name!r} ({kind})"
            if name not in there
            else f"its column {name!r} is {there[name][0]}, not {kind}"
            for name, kind in wanted.items()
            if name not in there or there[name][0] != kind
        ]
        problems += [
            f"its column {name!r} must have a value, and the result has none for it"
            for name, (_, needed) in there.items()
            if needed and name not in wanted
        ]
        if problems:
            raise SinkError(
                f"Table {self.name} in PostgreSQL does not fit the result of {self.result.name}.",
                detail="; ".join(problems),
                hint="Change the table, or let the sink make one: name one that is not there.",
                sink=self.sink,
                table=str(self.name),
            )

    # -- its rows -----------------------------------------------------------------------------------

    def replace(self, first: bool) -> Applied:
        """Write all rows, piece by piece, in the place of those that are there."""
        deleted = 0
        if not first:
            deleted = self.connection.execute(sql.SQL("DELETE FROM {}").format(self._identifier)).rowcount
        rows = self.result.batches(row_ids=self.result.key is None)
        inserted = self._copy(self._identifier, self._columns, map(_table, rows))
        return Applied("everything", inserted, deleted)

    def apply(self, came: pa.Table, went: pa.Table) -> Applied:
        """Remove, change and add rows, each found by its key."""
        if self.result.key is None:
            self._delete(went)
            self._copy(self._identifier, self._columns, [came])
            return Applied("changes", came.num_rows, went.num_rows)
        old = {key: place for place, key in enumerate(self._keys(went))}
        new = self._keys(came)
        again = [key in old for key in new]
        kept = {old[key] for key in new if key in old}
        places = set(range(went.num_rows)) - kept
        gone = went.take(pa.array(sorted(places), pa.int64()))
        self._delete(gone)
        self._update(came.filter(pa.array(again, pa.bool_())))
        added = came.filter(pa.array([not known for known in again], pa.bool_()))
        self._copy(self._identifier, self._columns, [added])
        return Applied("changes", came.num_rows, went.num_rows)

    def _keys(self, rows: pa.Table) -> list[Key]:
        return row_keys(rows.select(list(self._key)))

    def _delete(self, gone: pa.Table) -> None:
        if not gone.num_rows:
            return
        # Whether the number of a row still means that row is seen by its values.
        compared = [column for column in self._columns if self.result.key is None or column.name in self._key]
        rows = gone.select([column.name for column in compared])
        self._fill(_GONE, compared, rows)
        others = [_same(column) for column in compared if column.name not in self._key]
        count = 0
        for match in self._matches(rows):
            count += self.connection.execute(
                sql.SQL("DELETE FROM {} t USING {} n WHERE {}").format(
                    self._identifier, _temporary(_GONE), sql.SQL(" AND ").join([match, *others])
                )
            ).rowcount
        if count != gone.num_rows:
            raise _Differs

    def _update(self, changed: pa.Table) -> None:
        if not changed.num_rows:
            return
        self._fill(_CHANGED, self._columns, changed)
        others = [column.name for column in self._columns if column.name not in self._key]
        # A key can stay the same for equality and be written otherwise (0.0 and -0.0): all columns are set.
        assigned = sql.SQL(", ").join(
            sql.SQL("{0} = n.{0}").format(sql.Identifier(name)) for name in (*others, *self._key)
        )
        count = 0
        for match in self._matches(changed):
            count += self.connection.execute(
                sql.SQL("UPDATE {} t SET {} FROM {} n WHERE {}").format(
                    self._identifier, assigned, _temporary(_CHANGED), match
                )
            ).rowcount
        if count != changed.num_rows:
            raise _Differs

    def _matches(self, rows: pa.Table) -> Iterator[sql.Composable]:
        """How rows are found: by an index where no part of the key is NULL."""
        if not self._key:
            yield sql.SQL("true")
            return
        names = [sql.Identifier(name) for name in self._key]
        yield sql.SQL(" AND ").join(sql.SQL("t.{0} = n.{0}").format(name) for name in names)
        if any(rows.column(name).null_count for name in self._key):
            some = sql.SQL(" OR ").join(sql.SQL("n.{} IS NULL").format(name) for name in names)
            same = sql.SQL(" AND ").join(
                sql.SQL("t.{0} IS NOT DISTINCT FROM n.{0}").format(name) for name in names
            )
            yield sql.SQL("({}) AND {}").format(some, same)

    def _fill(self, name: str, columns: Sequence[Column], rows: pa.Table) -> None:
        place = _temporary(name)
        self.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(place))
        defined = sql.SQL(", ").join(map(_definition, columns)) if columns else sql.SQL("_one int")
        self.connection.execute(
            sql.SQL("CREATE TEMP TABLE {} ({}) ON COMMIT DROP").format(sql.Identifier(name), defined)
        )
        if not columns:
            self.connection.execute(sql.SQL("INSERT INTO {} VALUES (1)").format(place))
            return
        self._copy(place, columns, [rows])
        if rows.num_rows >= _WORTH_ANALYZING:
            self.connection.execute(sql.SQL("ANALYZE {}").format(place))

    def _copy(self, place: sql.Identifier, columns: Sequence[Column], pieces: Iterable[pa.Table]) -> int:
        count = 0
        listed = [column.name for column in columns]
        plain = are_plain(columns)
        form = sql.SQL(" (FORMAT csv)" if plain else "")
        text = sql.SQL("COPY {} ({}) FROM STDIN{}").format(place, _names(listed), form)
        with self.connection.cursor() as cursor, cursor.copy(text) as copy:
            for piece in pieces:
                ordered = piece.select(listed)
                count += ordered.num_rows
                if plain:
                    copy.write(postgres_csv(ordered))
                    continue
                for row in postgres_rows(ordered, columns):
                    copy.write_row(row)
        return count


def _temporary(name: str) -> sql.Identifier:
    return sql.Identifier("pg_temp", name)


def _definition(column: Column) -> sql.Composable:
    # The type is one of ours, never a user's text.
    return sql.SQL("{} {}").format(sql.Identifier(column.name), _type_sql(postgres_type(column)))


def _type_sql(kind: Any) -> sql.SQL:
    return sql.SQL(kind)


def _same(column: Column) -> sql.Composable:
    """Two values are the same; of JSON, which has no equality, the texts."""
    text = sql.SQL("::text") if postgres_type(column) in ("json", "json[]") else sql.SQL("")
    return sql.SQL("t.{0}{1} IS NOT DISTINCT FROM n.{0}{1}").format(sql.Identifier(column.name), text)


def _names(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
