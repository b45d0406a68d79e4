"""What PostgreSQL's catalog says about the tables of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import HeadwaterError, InvalidInputError, NotFoundError
from headwater.lake.connection import Connection
from headwater.lake.reading.row_filter import HIDDEN
from headwater.sources.model import Form, Layout, SourceColumn, SourceTable
from headwater.sources.types import PgType, lake_type

#: (Nothing here waits for a lock: a table that is being altered must not hold up the others.)
_TABLES = """
WITH RECURSIVE wanted AS (
    SELECT w.number, c.oid, c.relkind, c.relfilenode, c.relowner, c.reltuples, c.relpages, c.relreplident,
           c.relpersistence
    FROM unnest(%(numbers)s::int[], %(schemas)s::text[], %(names)s::text[]) AS w(number, schema, name)
    JOIN pg_namespace n ON n.nspname = w.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name),
tree AS (
    SELECT w.oid AS root, w.oid FROM wanted w WHERE w.relkind = 'p'
    UNION ALL
    SELECT t.root, i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid),
leaves AS (
    SELECT t.root, md5(string_agg(c.oid::text || ':' || c.relfilenode::text, ',' ORDER BY c.oid)) AS storage
    FROM tree t JOIN pg_class c ON c.oid = t.oid WHERE c.relkind <> 'p' GROUP BY t.root)
SELECT w.number, w.oid::bigint, w.relkind::text, pg_has_role(w.relowner, 'USAGE'), w.relreplident::text,
    (SELECT array_agg(a.attname::text ORDER BY k.place)
     FROM (SELECT i.indkey, i.indnkeyatts FROM pg_index i
           WHERE i.indrelid = w.oid AND (i.indisprimary OR i.indisreplident)
             AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
           ORDER BY i.indisprimary DESC LIMIT 1) AS i
     CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
     JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum = k.attnum
     WHERE k.place <= i.indnkeyatts),
    CASE WHEN w.relkind = 'p' THEN coalesce((SELECT l.storage FROM leaves l WHERE l.root = w.oid), '')
    ELSE w.relfilenode::text END,
    EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = w.oid AND i.indisprimary AND i.indimmediate),
    w.relpersistence = 'p', row_security_active(w.oid),
    (SELECT count(*) FROM pg_trigger t
     WHERE t.tgrelid = w.oid AND t.tgname = ANY(%(triggers)s::text[]) AND t.tgenabled <> 'D')
FROM wanted w"""

_COLUMNS = """
WITH RECURSIVE typed AS (
    SELECT a.attrelid, a.attnum, a.atttypid AS typid, a.atttypmod AS typmod, a.attndims::int AS dims
    FROM pg_attribute a WHERE a.attrelid = ANY(%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT r.attrelid, r.attnum, t.typbasetype, CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE r.typmod END,
           greatest(r.dims, t.typndims::int)
    FROM typed r JOIN pg_type t ON t.oid = r.typid WHERE t.typtype = 'd')
SELECT a.attrelid::bigint, a.attnum, a.attname::text, format_type(a.atttypid, a.atttypmod),
    a.attgenerated::text, a.atthasdef OR a.attidentity <> '', a.atthasmissing,
    CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END,
    t.oid::bigint, t.typname::text, t.typtype::text, y.typmod, y.dims::int,
    e.oid::bigint, e.typname::text, e.typtype::text
FROM pg_attribute a
JOIN typed y ON y.attrelid = a.attrelid AND y.attnum = a.attnum
JOIN pg_type t ON t.oid = y.typid AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
ORDER BY a.attrelid, a.attnum"""


@dataclass(frozen=True)
class Described:
    """A table of a source as it is now."""

    number: int
    layout: Layout
    partitioned: bool
    owned: bool
    """Whether we may do what only its owner may."""
    replica_identity: str
    installed: int
    """How many of the parts that capture it are there: of triggers, those that fire."""
    primary: bool
    """Whether the key is the primary key."""
    logged: bool
    """Whether the write-ahead log has its changes."""
    generated: bool
    """Whether a mirrored column is computed from others."""
    defaulted: frozenset[int]
    """Numbers of columns the rows of which may hold anything since the column was added."""


def describe(
    connection: Connection,
    tables: Sequence[SourceTable],
    triggers: Sequence[str] = (),
    problems: dict[int, HeadwaterError] | None = None,
) -> dict[int, Described]:
    """The tables that are there, by number. All at the moment that the connection's transaction reads.

    With `problems`, a table that cannot be mirrored is put there with the reason, instead of raising it.
    """
    given = {
        "numbers": [table.number for table in tables],
        "schemas": [table.schema for table in tables],
        "names": [table.name for table in tables],
        "triggers": list(triggers),
    }
    found = connection.execute(_TABLES.encode(), given).fetchall()
    oids = [row[1] for row in found]
    columns = connection.execute(_COLUMNS.encode(), {"oids": oids}).fetchall() if oids else []
    by_number = {table.number: table for table in tables}
    described = {}
    for row in found:
        try:
            described[row[0]] = _described(row, columns, by_number[row[0]])
        except HeadwaterError as error:
            if problems is None:
                raise
            problems[row[0]] = error
    return described


def _described(row: tuple[Any, ...], columns: list[tuple[Any, ...]], table: SourceTable) -> Described:
    number, oid, kind, owned, identity, key, storage, primary, logged, hidden, triggers = row
    if kind not in ("r", "p"):
        raise InvalidInputError(
            f"{table.source_name} is no table.",
            hint="Name a table or a partitioned table; what a view shows is a query for a stream table.",
            table=table.source_name,
        )
    if hidden:
        raise InvalidInputError(
            f"Row security hides rows of {table.source_name} from the source's user.",
            hint="Use a user with BYPASSRLS, or the owner of the table.",
            table=table.source_name,
        )
    rows = [each for each in columns if each[0] == oid]
    mine = [_column(each) for each in rows]
    defaulted = frozenset(column.number for column, default in mine if default)
    layout = Layout(
        oid, chosen_columns(table, [column for column, _ in mine]), storage=str(storage), key=tuple(key or ())
    )
    names = {column.name for column in layout.columns}
    if not names.issuperset(layout.key):
        layout = replace(layout, key=())  # without its key a row is only one of those that look like it
    return Described(
        number,
        layout,
        partitioned=kind == "p",
        owned=bool(owned),
        replica_identity=identity,
        installed=int(triggers),
        primary=bool(primary),
        logged=bool(logged),
        generated=any(each[4] and each[2] in names for each in rows),
        defaulted=defaulted,
    )


def _column(row: tuple[Any, ...]) -> tuple[SourceColumn, bool]:
    """A column; and whether rows may have had other values in it than the one it was added with."""
    _, number, name, shown, generated, has_default, has_missing, missing = row[:8]
    oid, type_name, kind, modifier, dimensions, element_oid, element_name, element_kind = row[8:]
    element = None if element_oid is None else PgType(element_oid, element_name, element_kind, modifier)
    type_, form = lake_type(PgType(oid, type_name, kind, modifier, dimensions, element))
    if generated == "v":
        form = Form.PLAIN
        type_ = ""  # nobody stores it, so no trigger sees it
    # (The value of arrays and documents is kept in a form of its own.)
    has_missing = has_missing and form is Form.PLAIN
    column = SourceColumn(name, number, shown, type_, form, missing if has_missing else None)
    return column, bool(generated) or (has_default and not has_missing)


def chosen_columns(table: SourceTable, columns: Sequence[SourceColumn]) -> tuple[SourceColumn, ...]:
    """The columns that are mirrored: those asked for, or all that are stored."""
    by_name = {column.name: column for column in columns}
    if table.chosen is None:
        chosen = [column for column in columns if column.lake_type]
    else:
        chosen = []
        for name in table.chosen:
            column = by_name.get(name)
            if column is None:
                raise NotFoundError(
                    f"{table.source_name} has no column {name!r}.",
                    hint="There are: " + ", ".join(by_name) + ".",
                    table=table.source_name,
                    column=name,
                )
            if not column.lake_type:
                raise InvalidInputError(
                    f"Column {name!r} of {table.source_name} is computed when it is read, and cannot be "
                    "mirrored.",
                    hint="Make it STORED, or compute it in a stream table.",
                    table=table.source_name,
                    column=name,
                )
            chosen.append(column)
    _check_names(table, chosen)
    return tuple(chosen)


def _check_names(table: SourceTable, columns: Sequence[SourceColumn]) -> None:
    if not columns:
        raise InvalidInputError(f"{table.source_name} has no columns to mirror.", table=table.source_name)
    seen: dict[str, str] = {}
    for column in columns:
        lowered = column.name.lower()
        if lowered in HIDDEN:
            raise InvalidInputError(
                f"A column named {column.name!r} cannot be mirrored: every table of the lake has one.",
                hint="Name the columns to mirror in `columns`, without it.",
                table=table.source_name,
                column=column.name,
            )
        if lowered in seen:
            raise InvalidInputError(
                f"Columns {seen[lowered]!r} and {column.name!r} differ only in case.",
                detail="DuckDB compares names without regard to case.",
                hint="Name the columns to mirror in `columns`, with one of the two.",
                table=table.source_name,
                column=column.name,
            )
        seen[lowered] = column.name
