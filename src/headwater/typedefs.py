"""Names shared by every layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

SnapshotId: TypeAlias = int
TableId: TypeAlias = int
ColumnId: TypeAlias = int
FileId: TypeAlias = int

#: The schema of a lake in which Headwater stores what is behind its views: results, logs, helper tables.
STORAGE_SCHEMA = "_headwater"

#: One name for a top-level column, or the path to a field inside a struct, list or map.
ColumnPath: TypeAlias = str | Sequence[str]


class TableName(NamedTuple):
    """A schema and the name of a table or view in it."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"


#: Words of DuckDB's grammar that are no names unless they are quoted.
KEYWORDS = frozenset(
    """
    all analyse analyze and anti any array as asc asof asymmetric at authorization between bigint binary bit
    boolean both by case cast char character check coalesce collate collation column columns concurrently
    constraint create cross dec decimal default deferrable desc describe distinct do else end except exists
    extract false fetch float for foreign freeze from full generated glob group grouping grouping_id having
    ilike in initially inner inout int integer intersect interval into is isnull join lambda lateral leading
    left like limit map national natural nchar none not notnull null nullif numeric offset on only or order
    out outer overlaps overlay pivot pivot_longer pivot_wider placing position positional precision primary
    qualify real references returning right row select semi setof show similar smallint some struct substring
    summarize symmetric table tablesample then time timestamp to trailing treat trim true try_cast union
    unique unpack unpivot using values varchar variadic verbose when where window with xmlattributes xmlconcat
    xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """.split()  # noqa: SIM905  (159 words are easier to read as text)
)


def quote_name(name: str) -> str:
    """Quote an SQL identifier: always safe, and plain where plain is unambiguous.

    >>> quote_name("orders"), quote_name('o"d d'), quote_name("order")
    ('orders', '"o""d d"', '"order"')
    """
    if name.isascii() and name.isidentifier() and name == name.lower() and name not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
