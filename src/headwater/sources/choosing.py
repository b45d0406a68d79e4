"""What a new source is made of: names, checks, and the way in which its changes are captured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from headwater.errors import InvalidInputError, SourceError
from headwater.lake.catalog import DEFAULT_SCHEMA, key, table_name
from headwater.lake.connection import Connection
from headwater.sources.model import CaptureKind, SourceTable
from headwater.typedefs import TableName

Columns = Sequence[str] | Mapping[str, Sequence[str]] | None
Where = str | Mapping[str, str] | None
#: PostgreSQL's schema for everything that has no other.
_PUBLIC = "public"


def source_name(text: str) -> TableName:
    """A table of a source as a user writes it; `orders` is `public.orders`.

    >>> source_name("orders"), source_name('sales."Odd.Name"')
    (TableName(schema='public', name='orders'), TableName(schema='sales', name='Odd.Name'))
    """
    try:
        return TableName(_PUBLIC, table_name(f"x.{text}").name)
    except InvalidInputError:
        return table_name(text)


def source_tables(
    names: Sequence[str], schema: str | None, columns: Columns, where: Where
) -> tuple[SourceTable, ...]:
    """The tables of a new source.

    In the lake they have their own names, in `schema`, or else in the schema they are in at the source;
    PostgreSQL's default schema `public` is the lake's default schema `main`.
    """
    if isinstance(names, str) or not names:
        raise InvalidInputError("A source needs a list of tables.", hint="tables=['public.orders', …]")
    tables = []
    for number, text in enumerate(names):
        name = source_name(text)
        target = schema or (DEFAULT_SCHEMA if name.schema == _PUBLIC else name.schema)
        chosen = _of_table("columns", columns, text, name, len(names))
        if isinstance(chosen, str):
            raise InvalidInputError("`columns` is a list of names.", hint=f"columns=[{chosen!r}]")
        condition = _of_table("where", where, text, name, len(names))
        tables.append(
            SourceTable(
                number,
                name.schema,
                name.name,
                TableName(target, name.name),
                chosen=None if chosen is None else tuple(chosen),
                where=condition,
            )
        )
    for given in (columns, where):
        if isinstance(given, Mapping):
            _check_known(given, tables)
    targets = [key(table.lake_table) for table in tables]
    for table in tables:
        if targets.count(key(table.lake_table)) > 1:
            raise InvalidInputError(
                f"Two tables would be mirrored into {table.lake_table}.",
                hint="Make them two sources, with a schema each.",
                table=str(table.lake_table),
            )
    return tuple(tables)


def _of_table(what: str, given: Any, text: str, name: TableName, count: int) -> Any:
    if isinstance(given, Mapping):
        found = [value for known, value in given.items() if known == text or source_name(known) == name]
        return found[0] if found else None
    if given is not None and count > 1:
        raise InvalidInputError(
            f"`{what}` is for one table, but there are {count}.",
            hint=f"Say which: {what}={{'{text}': …}}.",
        )
    return given


def _check_known(given: Mapping[str, Any], tables: Sequence[SourceTable]) -> None:
    known = {TableName(table.schema, table.name) for table in tables}
    for text in given:
        if source_name(text) not in known:
            raise InvalidInputError(
                f"{text!r} is none of the tables of this source.",
                hint="They are: " + ", ".join(table.source_name for table in tables) + ".",
            )


def check_source_name(name: str) -> str:
    """A name for a source: it becomes part of authors of snapshots."""
    if not re.fullmatch(r"[\w.-]{1,100}", name):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a source.",
            hint="Use letters, digits, dots, dashes and underscores.",
            source=name,
        )
    return name


def check_condition(connection: Connection, table: SourceTable) -> None:
    """Refuse a condition that PostgreSQL would not take for a partial index.

    That is what mirroring needs: it says the same of a row at any time, and looks at nothing but the row.
    """
    if table.where is None:
        return
    name = sql.Identifier(table.name)
    with connection.transaction(force_rollback=True):
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {})").format(
                name, sql.Identifier(table.schema, table.name)
            )
        )
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        text = sql.SQL("CREATE INDEX ON pg_temp.{} ((1)) WHERE ({}\n)").format(name, sql.SQL(table.where))
        try:
            # Prepared: so it is one statement, whatever the text says.
            connection.execute(text, prepare=True)
        except psycopg.errors.InsufficientPrivilege:
            raise
        except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError) as error:
            raise InvalidInputError(
                f"The condition of {table.source_name} cannot be used: {table.where.strip()}",
                detail=str(error.diag.message_primary or error).strip(),
                hint="Write what PostgreSQL takes for a partial index: columns of the row, constants and "
                "immutable functions; functions of your own with their schema.",
                table=table.source_name,
            ) from None


def check_triggers(connection: Connection, tables: Sequence[SourceTable]) -> None:
    """Refuse tables on which we may not make triggers, before anything is installed."""
    for table in tables:
        row = connection.execute(
            "SELECT has_table_privilege(%s, 'TRIGGER') AND has_table_privilege(%s, 'SELECT'), "
            "has_database_privilege(current_database(), 'CREATE') "
            "OR to_regnamespace('headwater_capture') IS NOT NULL",
            (_quoted(table), _quoted(table)),
        ).fetchone()
        if row is None or not row[0]:
            raise SourceError(
                f"The source's user may not make triggers on {table.source_name}.",
                hint=f"GRANT SELECT, TRIGGER ON {table.source_name} TO that user.",
                table=table.source_name,
            )
        if not row[1]:
            raise SourceError(
                "The source's user may not create a schema in the source's database.",
                hint="GRANT CREATE ON DATABASE … TO that user.",
            )


def _quoted(table: SourceTable) -> str:
    return sql.Identifier(table.schema, table.name).as_string()


def choose_capture(wanted: str) -> CaptureKind | None:
    """What the user asked for; None to choose.

    >>> choose_capture("triggers")
    <CaptureKind.TRIGGERS: 'triggers'>
    """
    if wanted == "auto":
        return None
    try:
        return CaptureKind(wanted)
    except ValueError:
        known = ", ".join(["auto", *CaptureKind])
        raise InvalidInputError(f"{wanted!r} is no way to capture.", hint=f"There are: {known}.") from None
