"""Keys of tables. DuckLake has none, so Headwater keeps them as a tag of the table.

A tag travels with the table: it stays when the table is renamed, goes when it is dropped, and an old snapshot
shows the old one. It says which rows are the same to MERGE, INSERT OR REPLACE and ON CONFLICT; a plain INSERT
is not checked against it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from headwater.errors import InvalidInputError
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import TableName

KEY_TAG = "headwater_key"


def record_key(lake: Lake, table: TableName | str, columns: Sequence[str]) -> None:
    """Say which columns identify a row of a table. Nothing is written if that is known already."""
    if key_of(lake, table) != tuple(columns):
        lake.run(lambda tx: tag_key(tx, table, columns), author="headwater", message="key of a table")


def tag_key(tx: Transaction, table: TableName | str, columns: Sequence[str]) -> None:
    """The same inside a transaction."""
    found = tx.state.table(table)
    named = [found.column(name) for name in columns]
    missing = [name for name, column in zip(columns, named, strict=True) if column is None]
    if missing or not columns:
        raise InvalidInputError(
            f"Table {found.name} has no column {missing[0]!r} that could be part of its key."
            if missing
            else "A key has at least one column.",
            table=str(found.name),
        )
    tx.set_tag(found.name, KEY_TAG, json.dumps([column.name for column in named if column is not None]))


def key_of(lake: Lake, table: TableName | str) -> tuple[str, ...] | None:
    """The columns that identify a row of a table, or None if nobody said."""
    return read_key(lake.table(table))


def read_key(table: Table) -> tuple[str, ...] | None:
    """The key among the tags of a table; None also where a column of it is gone."""
    text = table.tags.get(KEY_TAG)
    if not text:
        return None
    names = [str(name) for name in json.loads(text)]
    return tuple(names) if all(table.column(name) is not None for name in names) else None
