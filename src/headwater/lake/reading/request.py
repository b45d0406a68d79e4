"""What a caller wants of the rows that are read."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import InvalidInputError, NotFoundError
from headwater.lake.format.types import AnyArray, arrow_schema
from headwater.lake.model import Column, Table
from headwater.lake.reading.row_filter import HIDDEN, RowFilter


@dataclass(frozen=True, slots=True)
class Request:
    """Columns, hidden columns and condition of a read, checked against the table."""

    columns: tuple[Column, ...]
    hidden: tuple[str, ...]
    filter: RowFilter | None
    needed: tuple[Column, ...]
    """What must be read: the columns, and those of the condition."""
    needed_hidden: tuple[str, ...]

    @classmethod
    def of(
        cls, table: Table, columns: Sequence[str] | None, where: str | None, hidden: Collection[str]
    ) -> Request:
        """Find the columns by name; raises for names that are not there."""
        wanted = table.columns if columns is None else tuple(_column(table, name) for name in columns)
        if len({column.id for column in wanted}) < len(wanted):
            raise InvalidInputError(
                f"A column of {table.name} is asked for twice: {', '.join(columns or ())}.",
                table=str(table.name),
            )
        for name in hidden:
            _check_hidden(table, name)
        if not wanted and not hidden:
            raise InvalidInputError(
                "No column is asked for.", hint="Name at least one.", table=str(table.name)
            )
        condition = None if where is None else RowFilter.of(where, table)
        also = () if condition is None else condition.columns
        ids = {column.id for column in (*wanted, *also)}
        return cls(
            columns=wanted,
            hidden=tuple(hidden),
            filter=condition,
            needed=tuple(column for column in table.columns if column.id in ids),
            needed_hidden=tuple(dict.fromkeys((*hidden, *(condition.hidden if condition else ())))),
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        schema = arrow_schema(self.columns, field_ids=False)
        for name in self.hidden:
            schema = schema.append(pa.field(name, HIDDEN[name]))
        return schema

    def finish(self, rows: pa.Table, hidden: Callable[[str], AnyArray]) -> pa.Table:
        """The result of rows that have the needed columns; `hidden` gives the values of a hidden column."""
        if self.needed_hidden:
            # Not one after the other: a table without any column does not know how many rows it has.
            added = [pa.field(name, HIDDEN[name]) for name in self.needed_hidden]
            arrays = [*rows.columns, *map(hidden, self.needed_hidden)]
            rows = pa.Table.from_arrays(arrays, schema=pa.schema([*rows.schema, *added]))
        if self.filter is not None:
            matches = self.filter.matches(rows)
            if not matches.all():
                rows = rows.filter(pa.array(matches))
        chosen = rows.select([*(column.name for column in self.columns), *self.hidden])
        return pa.Table.from_arrays(chosen.columns, schema=self.schema)


def _column(table: Table, name: str) -> Column:
    column = table.column(name)
    if column is None:
        names = [c.name for c in table.columns]
        close = difflib.get_close_matches(name, names, n=1)
        raise NotFoundError(
            f"Table {table.name} has no column {name!r}.",
            hint=f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(names)}.",
            table=str(table.name),
            column=name,
        )
    return column


def _check_hidden(table: Table, name: str) -> None:
    if name not in HIDDEN:
        raise NotFoundError(
            f"There is no hidden column {name!r}.", hint=f"There are: {', '.join(HIDDEN)}.", column=name
        )
    if table.column(name) is not None:
        raise InvalidInputError(
            f"Table {table.name} has a column {name!r} of its own, which hides the hidden one.",
            table=str(table.name),
            column=name,
        )
