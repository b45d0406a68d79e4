"""In which order rows are sorted, and where each file is on that order, told by its statistics.

On one axis for all values of a key: NULL and NaN have their place at one of its ends, the one that Arrow's
sort puts them at. Two files that share no more than an end are apart: a value of many rows may span files.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headwater.errors import InvalidInputError
from headwater.lake.connection import Connection, Database
from headwater.lake.format.layout import parse_sort_by, sort_keys
from headwater.lake.format.texts import from_text
from headwater.lake.format.values import STAT_BYTES, UNBOUNDED
from headwater.lake.model import Column, DataFile, Table
from headwater.typedefs import ColumnId, FileId

#: Nobody prunes files by bounds of these.
_NOT_PRUNED = UNBOUNDED | {"blob"}
#: A longer bound was cut, and an upper one rounded up; up to here both ends of a value read the same.
_SURE_BYTES = STAT_BYTES - 56
_NAN, _NULL = 1, 2


class SortKey(NamedTuple):
    """A column that rows are sorted by, in Arrow's terms."""

    column: Column
    order: str
    nulls: str

    @property
    def arrow(self) -> tuple[str, str, str]:
        """As `sort_indices` takes it."""
        return self.column.name, self.order, self.nulls

    @property
    def is_pruned(self) -> bool:
        """Whether files can be told apart by it."""
        return self.column.type not in _NOT_PRUNED


class KeyStats(NamedTuple):
    """What the catalog says of one column of a file."""

    values: int | None
    nulls: int | None
    low: str | None
    high: str | None
    contains_nan: bool | None


class Span(NamedTuple):
    """From where to where the values of a file reach."""

    low: tuple[Any, ...]
    high: tuple[Any, ...]


_ANYWHERE = Span((-3,), (3,))


def sorted_as(table: Table, sort_by: Sequence[str] | None) -> Table:
    """The table with the order that is asked for, if one is."""
    if sort_by is None:
        return table
    found = replace(table, sort=parse_sort_by(table, sort_by))
    if sort_by and not sort_keys(found):
        raise InvalidInputError(
            f"The rows of {table.name} cannot be sorted by {', '.join(sort_by)}.",
            hint="Compaction sorts by plain columns, of types that have an order.",
            table=str(table.name),
        )
    return found


def order_in(layout: Table, table: Table) -> tuple[SortKey, ...]:
    """The table's order for rows of other columns: names may differ, and what is missing is constant."""
    there = {column.id: column for column in layout.columns}
    found = []
    for name, order, nulls in sort_keys(table):
        column = table.column(name)
        if column is not None and column.id in there:  # and not a second time
            found.append(SortKey(there.pop(column.id), order, nulls))
    return tuple(found)


def key_stats(db: Database, connection: Connection, table: Table) -> dict[tuple[FileId, ColumnId], KeyStats]:
    """Statistics of the columns that the table is sorted by, of its live files."""
    ids = [key.column.id for key in order_in(table, table) if key.is_pruned]
    if not ids:
        return {}
    rows = connection.execute(
        db.text(
            "SELECT s.data_file_id, s.column_id, s.value_count, s.null_count, s.min_value, s.max_value, "
            "s.contains_nan FROM {ducklake_file_column_stats} s JOIN {ducklake_data_file} f "
            "ON f.data_file_id = s.data_file_id AND f.end_snapshot IS NULL "
            "WHERE s.table_id = %(table)s AND s.column_id = ANY(%(ids)s)"
        ),
        {"table": table.id, "ids": ids},
    ).fetchall()
    return {(row[0], row[1]): KeyStats(*row[2:]) for row in rows}


def spans(
    file: DataFile, order: Sequence[SortKey], stats: Mapping[tuple[FileId, ColumnId], KeyStats]
) -> tuple[Span, ...]:
    """Where a file is, key by key, up to the first by which files cannot be told apart."""
    leading = itertools.takewhile(lambda key: key.is_pruned, order)
    return tuple(_span(key, stats.get((file.id, key.column.id))) for key in leading)


def _span(key: SortKey, stats: KeyStats | None) -> Span:
    if stats is None:
        return _ANYWHERE
    side = 1 if (key.order == "ascending") == (key.nulls == "at_end") else -1
    reached: list[tuple[Any, ...]] = []
    if stats.nulls:
        reached.append((side * _NULL,))
    if stats.contains_nan:
        reached.append((side * _NAN,))
    only_nan = stats.contains_nan and stats.low is None and stats.high is None
    if stats.values != 0 and not only_nan:
        try:
            reached += [(0, _value(text, key.column.type)) for text in (stats.low, stats.high)]
        except (ValueError, OverflowError):
            return _ANYWHERE
    return Span(min(reached), max(reached)) if reached else _ANYWHERE


def _value(text: str | None, type_: str) -> Any:
    if text is None:
        raise ValueError("no bound")
    if type_ in ("varchar", "json"):
        return text.encode()[:_SURE_BYTES]
    value = from_text(text, type_)
    if value != value:
        raise ValueError("NaN is no bound")
    return value
