"""Names shared by every layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

SnapshotId: TypeAlias = int
TableId: TypeAlias = int
ColumnId: TypeAlias = int
FileId: TypeAlias = int

#: One name for a top-level column, or the path to a field inside a struct, list or map.
ColumnPath: TypeAlias = str | Sequence[str]


class TableName(NamedTuple):
    """A schema and the name of a table or view in it."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"


def quote_name(name: str) -> str:
    """Quote an SQL identifier: always safe, and plain where plain is unambiguous.

    >>> quote_name("orders"), quote_name('o"d d')
    ('orders', '"o""d d"')
    """
    if name.isascii() and name.isidentifier() and name == name.lower():
        return name
    return '"' + name.replace('"', '""') + '"'
