"""Statements of a commit, kept as data until they are sent together in one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from psycopg import sql

from headwater.lake.connection import Connection, Database


class Statement(NamedTuple):
    """SQL text and the parameter rows to run it with."""

    text: bytes
    rows: Sequence[Sequence[Any]]
    expected: int | None = None
    """Rows it must change in all; anything else means that another writer was there."""


@lru_cache(maxsize=512)
def _insert_text(schema: str, table: str, columns: tuple[str, ...]) -> bytes:
    return (
        sql.SQL("INSERT INTO {} ({}) VALUES ({})")
        .format(
            sql.Identifier(schema, table),
            # A % in a name is a placeholder to psycopg unless it is doubled.
            sql.SQL(", ").join(sql.Identifier(name.replace("%", "%%")) for name in columns),
            sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
        )
        .as_bytes()
    )


def insert(
    db: Database, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> list[Statement]:
    """Insert rows, always with an explicit column list: later format versions add columns."""
    listed = list(rows)
    return [Statement(_insert_text(db.schema, table, tuple(columns)), listed)] if listed else []


@lru_cache(maxsize=512)
def _end_text(schema: str, table: str, keys: tuple[str, ...]) -> bytes:
    conditions = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in keys)
    return (
        sql.SQL("UPDATE {} SET end_snapshot = %s WHERE {} AND end_snapshot IS NULL")
        .format(sql.Identifier(schema, table), conditions)
        .as_bytes()
    )


def end(
    db: Database,
    table: str,
    keys: Sequence[str],
    snapshot_id: int,
    rows: Iterable[Sequence[Any]],
    expected: int | None = None,
) -> list[Statement]:
    """End live rows of a versioned table."""
    listed = [(snapshot_id, *row) for row in rows]
    return [Statement(_end_text(db.schema, table, tuple(keys)), listed, expected)] if listed else []


def statement(query: sql.Composed, *rows: Sequence[Any], expected: int | None = None) -> list[Statement]:
    """Any other statement."""
    return [Statement(query.as_bytes(), list(rows), expected)]


def send(connection: Connection, statements: Iterable[Statement]) -> list[tuple[Statement, int]]:
    """Send all statements in one round trip; returns how many rows each checked one changed."""
    checked = []
    with connection.pipeline():
        for one in statements:
            cursor = connection.cursor()
            if len(one.rows) <= 1:
                cursor.execute(one.text, one.rows[0] if one.rows else None)
            else:
                cursor.executemany(one.text, one.rows)
            if one.expected is not None:
                checked.append((one, cursor))
    return [(one, cursor.rowcount) for one, cursor in checked]
