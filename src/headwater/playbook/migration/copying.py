"""The tables of a DuckDB database file, copied into a lake.

All of them in one transaction: tables with their rows, keys and comments, and views. What DuckLake has no
room for is named, and nothing is left out in silence. A table that was copied before carries a tag that says
so, and is not copied again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headwater.errors import InvalidInputError, PlaybookError, UnsupportedError
from headwater.lake.format.type_text import column_from_text
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.playbook.ducklake.keys import tag_key
from headwater.typedefs import TableName, quote_name

#: Under this tag a table says which file it was copied from.
SOURCE_TAG = "headwater_copied_from"
_BATCH_ROWS = 50_000

_FIXED_SIZE = re.compile(r"\[\d+\]")
_CONSTANT = re.compile(
    r"""'(?:[^']|'')*' | -?\d+(?:\.\d+)? | CAST\('(?:[^']|'')*'\ AS\ ["\w ]+\)""", re.VERBOSE
)
_NAME = r'(?:"(?:[^"]|"")*"|\w+)'
_VIEW = re.compile(
    rf"CREATE VIEW {_NAME}(?:\.{_NAME})*\s*(?P<columns>\((?:{_NAME}|[ ,])*\))?\s+AS\s+(?P<select>.*?);?\s*",
    re.DOTALL | re.IGNORECASE,
)

_TABLES = """
    SELECT schema_name, table_name, comment, sql FROM duckdb_tables()
    WHERE NOT internal AND NOT temporary AND database_name = current_database() ORDER BY 1, 2"""
_COLUMNS = """
    SELECT schema_name, table_name, column_name, data_type, is_nullable, column_default, comment
    FROM duckdb_columns() WHERE NOT internal AND database_name = current_database() ORDER BY column_index"""
_CONSTRAINTS = """
    SELECT schema_name, table_name, constraint_type, constraint_text, constraint_column_names
    FROM duckdb_constraints() WHERE database_name = current_database() ORDER BY constraint_index"""
_VIEWS = """
    SELECT schema_name, view_name, sql, comment FROM duckdb_views()
    WHERE NOT internal AND NOT temporary AND database_name = current_database() ORDER BY view_oid"""
_OTHERS = """
    SELECT 'index', schema_name, index_name FROM duckdb_indexes() WHERE database_name = current_database()
    UNION ALL SELECT 'sequence', schema_name, sequence_name FROM duckdb_sequences()
        WHERE database_name = current_database() AND NOT temporary
    UNION ALL SELECT DISTINCT 'macro', schema_name, function_name FROM duckdb_functions()
        WHERE database_name = current_database() AND NOT internal AND function_type LIKE '%macro%'
    ORDER BY ALL"""


@dataclass(frozen=True, slots=True)
class OldColumn:
    """A column of the database file, and what it becomes."""

    name: str
    type: str
    """The lake's type."""
    select: str
    """How its values are read."""
    not_null: bool
    default: Any
    comment: str | None


@dataclass(frozen=True, slots=True)
class OldTable:
    """A table of the database file."""

    name: TableName
    columns: tuple[OldColumn, ...]
    key: tuple[str, ...]
    comment: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class OldView:
    """A view of the database file."""

    name: TableName
    select: str
    columns: tuple[str, ...]
    comment: str | None


@dataclass(frozen=True, slots=True)
class OldDatabase:
    """What is in a database file, in the lake's terms."""

    file: Path
    tables: tuple[OldTable, ...]
    views: tuple[OldView, ...]
    notes: tuple[str, ...]
    """What does not come along, or not as it was."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of a table or view."""

    name: str
    kind: str
    rows: int | None
    action: str
    """`copied`, or `there` if it was copied before."""

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain data."""
        return {"name": self.name, "kind": self.kind, "rows": self.rows, "action": self.action}


@contextmanager
def opened_file(file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database file, for reading."""
    try:
        connection = duckdb.connect(str(file), read_only=True)
    except duckdb.Error as error:
        text = str(error).splitlines()[0]
        locked = "lock" in text.lower()
        raise PlaybookError(
            f"The database {file} cannot be opened.",
            detail=text,
            hint="Another process has it open; end that first." if locked else None,
            file=str(file),
        ) from None
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def describe(file: Path, catalog: str) -> OldDatabase:
    """What is in a database file, and what the lake called `catalog` will make of it."""
    notes: list[str] = []
    with opened_file(file) as connection:
        columns: dict[TableName, list[tuple[Any, ...]]] = {}
        for schema, table, *rest in connection.execute(_COLUMNS).fetchall():
            columns.setdefault(TableName(schema, table), []).append(tuple(rest))
        keys = _keys(connection, notes)
        tables = []
        for schema, table, comment, sql in connection.execute(_TABLES).fetchall():
            name = TableName(schema, table)
            if "GENERATED ALWAYS" in sql:
                notes.append(f"{name}: generated columns become plain ones, with the values they have.")
            read = tuple(_column(connection, notes, name, *one) for one in columns[name])
            rows = connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]
            tables.append(OldTable(name, read, keys.get(name, ()), comment, rows))
        views = [
            OldView(TableName(schema, view), match["select"], _aliases(match, columns, schema, view), comment)
            for schema, view, sql, comment in connection.execute(_VIEWS).fetchall()
            if (match := _VIEW.fullmatch(sql)) is not None
        ]
        for kind, schema, name in connection.execute(_OTHERS).fetchall():
            notes.append(f"{kind} {TableName(schema, name)} is not copied: DuckLake has none.")
    usable, unusable = _usable_views(catalog, tables, views)
    notes += unusable
    for view in usable:
        if re.search(rf'\b{re.escape(quote_name(catalog))}"?\.', view.select):
            notes.append(
                f"view {view.name} names the catalog {catalog}: it works where the lake is attached so."
            )
    return OldDatabase(file, tuple(tables), tuple(usable), tuple(notes))


def _keys(connection: duckdb.DuckDBPyConnection, notes: list[str]) -> dict[TableName, tuple[str, ...]]:
    keys: dict[TableName, tuple[str, ...]] = {}
    unique: dict[TableName, tuple[str, ...]] = {}
    for schema, table, kind, text, names in connection.execute(_CONSTRAINTS).fetchall():
        name = TableName(schema, table)
        if kind == "PRIMARY KEY":
            keys[name] = tuple(names)
        elif kind == "UNIQUE":
            unique.setdefault(name, tuple(names))
        elif kind != "NOT NULL":
            notes.append(f"{name}: {text} is not kept.")
    return {**unique, **keys}


def _aliases(
    match: re.Match[str], columns: dict[TableName, list[tuple[Any, ...]]], schema: str, view: str
) -> tuple[str, ...]:
    return tuple(one[0] for one in columns[TableName(schema, view)]) if match["columns"] else ()


def _column(
    connection: duckdb.DuckDBPyConnection,
    notes: list[str],
    table: TableName,
    name: str,
    type_: str,
    nullable: bool,
    default: str | None,
    comment: str | None,
) -> OldColumn:
    quoted = quote_name(name)
    new_type, select = type_, quoted
    try:
        kind = column_from_text(name, type_).type
        if kind == "variant":
            select = f"CAST(CAST({quoted} AS JSON) AS VARCHAR) AS {quoted}"
    except (InvalidInputError, UnsupportedError):
        new_type = _nearest_type(name, type_)
        select = f"CAST({quoted} AS {new_type}) AS {quoted}"
        notes.append(
            f"{table}.{quoted}: {_short(type_)} becomes {new_type}, because DuckLake has no such type."
        )
    value = None
    if default is not None and default.upper() != "NULL":
        if _CONSTANT.fullmatch(default):
            value = connection.execute(f"SELECT CAST({default} AS {new_type})").fetchall()[0][0]
        elif "GENERATED" not in default:
            notes.append(
                f"{table}.{quoted}: the default {_short(default)} is not kept, as it is no constant."
            )
    return OldColumn(name, new_type, select, not nullable, value, comment)


def _nearest_type(name: str, type_: str) -> str:
    """A type that the lake has and that holds the same values: lists for arrays, else text."""
    listed = _FIXED_SIZE.sub("[]", type_)
    try:
        column_from_text(name, listed)
    except (InvalidInputError, UnsupportedError):
        return "VARCHAR"
    return listed


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"


def _usable_views(
    catalog: str, tables: Sequence[OldTable], views: Sequence[OldView]
) -> tuple[list[OldView], list[str]]:
    """The views that work on the copied tables, in an order in which each finds what it reads.

    Tried out on empty tables of the same names, in a database in memory that is called as the lake will be.
    """
    usable: list[OldView] = []
    waiting = list(views)
    problems: dict[TableName, str] = {}
    with duckdb.connect() as trial:
        trial.execute(f"ATTACH ':memory:' AS {quote_name(catalog)}; USE {quote_name(catalog)}")
        schemas = {table.name.schema for table in tables} | {view.name.schema for view in views}
        for schema in sorted(schemas - {"main"}):
            trial.execute(f"CREATE SCHEMA {quote_name(schema)}")
        for table in tables:
            columns = ", ".join(f"{quote_name(one.name)} {one.type}" for one in table.columns)
            trial.execute(f"CREATE TABLE {table.name} ({columns})")
        while waiting:
            left = []
            for view in waiting:
                names = f" ({', '.join(map(quote_name, view.columns))})" if view.columns else ""
                try:
                    trial.execute(f"CREATE VIEW {view.name}{names} AS {view.select}")
                    usable.append(view)
                except duckdb.Error as error:
                    problems[view.name] = str(error).splitlines()[0]
                    left.append(view)
            if len(left) == len(waiting):
                break
            waiting = left
        else:
            left = []
    return usable, [f"view {view.name} is not copied: {problems[view.name]}" for view in left]


def copy(database: OldDatabase, lake: Lake) -> tuple[Copied, ...]:
    """Copy everything into a lake, once: what is there already is left as it is."""
    source = str(database.file.absolute())
    began: list[Transaction] = []
    with opened_file(database.file) as connection:

        def work(tx: Transaction) -> tuple[Copied, ...]:
            began.append(tx)
            done = [_copy_table(tx, connection, one, source) for one in database.tables]
            return (*done, *(_copy_view(tx, one, source) for one in database.views))

        done = lake.run(work, author="headwater", message=f"copied from {database.file.name}")
    _verify(database, lake, began[-1].snapshot_id, done)
    return done


def _copy_table(
    tx: Transaction, connection: duckdb.DuckDBPyConnection, table: OldTable, source: str
) -> Copied:
    there = tx.state.find_table(table.name)
    if there is not None:
        _check_source(there.tags.get(SOURCE_TAG), "table", table.name, source)
        return Copied(str(table.name), "table", table.rows, "there")
    tx.create_schema(table.name.schema, if_not_exists=True)
    tx.create_table(
        table.name,
        {one.name: one.type for one in table.columns},
        defaults={one.name: one.default for one in table.columns if one.default is not None},
        not_null=[one.name for one in table.columns if one.not_null],
        comment=table.comment,
        tags={SOURCE_TAG: source},
    )
    for one in table.columns:
        if one.comment:
            tx.set_tag(table.name, "comment", one.comment, column=one.name)
    if table.key:
        tag_key(tx, table.name, table.key)
    selected = ", ".join(one.select for one in table.columns)
    try:
        stored = connection.execute(f"SELECT {selected} FROM {table.name}")
        rows = tx.append(table.name, stored.to_arrow_reader(_BATCH_ROWS))
    except (duckdb.Error, pa.ArrowException) as error:  # a value that its column cannot hold in the lake
        raise PlaybookError(
            f"{table.name} cannot be copied; nothing was.",
            detail=str(error).splitlines()[0],
            table=str(table.name),
        ) from None
    if rows != table.rows:
        raise PlaybookError(f"{table.name}: {rows:,} of {table.rows:,} rows were read; nothing was copied.")
    return Copied(str(table.name), "table", rows, "copied")


def _copy_view(tx: Transaction, view: OldView, source: str) -> Copied:
    there = tx.state.find_view(view.name)
    if there is not None:
        _check_source(there.tags.get(SOURCE_TAG), "view", view.name, source)
        return Copied(str(view.name), "view", None, "there")
    tx.create_schema(view.name.schema, if_not_exists=True)
    tx.create_view(
        view.name,
        view.select,
        column_aliases=view.columns,
        comment=view.comment,
        tags={SOURCE_TAG: source},
    )
    return Copied(str(view.name), "view", None, "copied")


def _check_source(tag: str | None, kind: str, name: TableName, source: str) -> None:
    if tag is None:
        raise PlaybookError(
            f"The lake has a {kind} {name} already, which did not come from {source}; nothing was copied.",
            hint="Rename or drop it, or pass --no-copy.",
            table=str(name),
        )
    if tag != source:
        raise PlaybookError(
            f"The lake's {kind} {name} was copied from {tag}, not from {source}; nothing was copied.",
            hint="Give the two files different names: a file's name is its catalog's.",
            table=str(name),
        )


def _verify(database: OldDatabase, lake: Lake, snapshot_id: int | None, done: Sequence[Copied]) -> None:
    """DuckDB must find as many rows in the lake as in the file."""
    fresh = {one.name for one in done if one.action == "copied" and one.kind == "table"}
    if not fresh or snapshot_id is None:
        return
    with lake.duckdb() as session:
        for table in database.tables:
            if str(table.name) not in fresh:
                continue
            counted = session.execute(f"SELECT count(*) FROM {table.name} AT (VERSION => {snapshot_id:d})")
            found = counted.fetchall()[0][0]
            if found != table.rows:
                raise PlaybookError(
                    f"{table.name}: the lake shows {found:,} rows, the file {table.rows:,}.",
                    table=str(table.name),
                )
