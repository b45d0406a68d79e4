"""RETURNING, which DuckLake's extension does not have yet, within the statement's own transaction.

INSERT   rows go into a temporary table of the same columns first, which has RETURNING
DELETE   the rows are read, then deleted
UPDATE   the ids of the rows are read, then the rows are changed, then read by their ids
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from headwater.algebra.duckdb_text import Piece, dotted_name, sees, statements
from headwater.playbook.ducklake.statements import Statement
from headwater.typedefs import quote_name

_STAGE = "headwater_returning"

Fetch = Callable[[duckdb.DuckDBPyConnection], Any]


def run_returning(cursor: duckdb.DuckDBPyConnection, statement: Statement, fetch: Fetch) -> Any:
    """Run a statement with RETURNING; what `fetch` makes of its rows. Other forms are DuckDB's to judge."""
    piece = statements(statement.text)[0]
    if statement.insert is not None and not statement.insert.on_conflict:
        return _insert(cursor, statement, fetch)
    simple = _simple_change(piece)
    if simple is None:
        cursor.execute(statement.text)
        return fetch(cursor)
    verb, target, condition, change, columns = simple
    if verb == "DELETE":
        cursor.execute(f"SELECT {columns} FROM {target} {condition}")
        found = fetch(cursor)
        cursor.execute(change)
        return found
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE {_STAGE} AS SELECT rowid AS id FROM {target} {condition}")
    cursor.execute(change)
    cursor.execute(f"SELECT {columns} FROM {target} WHERE rowid IN (SELECT id FROM {_STAGE})")
    found = fetch(cursor)
    cursor.execute(f"DROP TABLE {_STAGE}")
    return found


def _insert(cursor: duckdb.DuckDBPyConnection, statement: Statement, fetch: Fetch) -> Any:
    insert = statement.insert
    if insert is None:
        raise TypeError("not an INSERT")
    columns = cursor.execute(f"DESCRIBE {insert.table_text}").fetchall()
    definitions = ", ".join(
        f"{quote_name(name)} {kind}" + ("" if default is None else f" DEFAULT {default}")
        for name, kind, _, _, default, *_ in columns
    )
    names = f" ({', '.join(map(quote_name, insert.columns))})" if insert.columns else ""
    by_name = " BY NAME" if insert.by_name else ""
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE {_STAGE} ({definitions})")
    cursor.execute(
        f"{insert.before}INSERT INTO {_STAGE}{by_name}{names} {insert.source} RETURNING {insert.returning}"
    )
    found = fetch(cursor)
    cursor.execute(f"INSERT INTO {insert.table_text} FROM {_STAGE}")
    cursor.execute(f"DROP TABLE {_STAGE}")
    return found


def _simple_change(piece: Piece) -> tuple[str, str, str, str, str] | None:
    """DELETE FROM t … or UPDATE t SET … of one table: its parts; None for anything else."""
    found, sql = piece.words, piece.text
    verb = found[0].text.upper()
    start = 2 if sees(found, 0, "DELETE", "FROM") else 1 if sees(found, 0, "UPDATE") else 0
    returning = next((n for n, word in enumerate(found) if not word.depth and word.reads("RETURNING")), 0)
    if not start or not returning or returning + 1 >= len(found):
        return None
    name, after = dotted_name(found, start)
    if not name:
        return None
    outer = [n for n in range(after, returning) if found[n].depth == 0]
    if any(found[n].reads("USING", "FROM") for n in outer):
        return None
    where = next((n for n in outer if found[n].reads("WHERE")), returning)
    head = next((n for n in outer if found[n].reads("SET", "WHERE")), returning)
    target = sql[found[start].start : found[head - 1].end]
    condition = sql[found[where].start : found[returning - 1].end] if where < returning else ""
    change = sql[: found[returning - 1].end]
    columns = sql[found[returning + 1].start : found[-1].end]
    return verb, target, condition, change, columns
