"""Partition and sort definitions as users write them: `bucket(8, id)`, `ts desc nulls first`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headwater.errors import InvalidInputError
from headwater.lake.catalog import no_column
from headwater.lake.format.expressions import Expression, bind, parse_expression
from headwater.lake.format.types import type_text
from headwater.lake.model import PartitionField, SortField, Table

CALENDAR = ("year", "month", "day", "hour")
_CALL = re.compile(r"\s*(?P<function>[A-Za-z_]+)\s*\((?P<arguments>.*)\)\s*", re.DOTALL)
_SORT = re.compile(
    r"(?P<expression>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE | re.DOTALL,
)
#: Types whose values Arrow cannot sort. (A sort order is advice; rows without it are as good.)
_UNSORTED = ("interval", "variant", "geometry")
_TEMPORAL = ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz")


def parse_partition_by(table: Table, fields: Iterable[str]) -> tuple[PartitionField, ...]:
    """Partition keys from `"region"`, `"year(ts)"`, `"bucket(8, id)"`."""
    return tuple(_partition_field(table, text) for text in fields)


def _partition_field(table: Table, text: str) -> PartitionField:
    if table.column(text) is not None:
        return _checked(table, text, "identity", text)
    call = _CALL.fullmatch(text)
    if call is None:
        return _checked(table, _unquoted(text), "identity", text)
    function = call["function"].lower()
    arguments = call["arguments"]
    if function in ("identity", *CALENDAR):
        return _checked(table, _unquoted(arguments), function, text)
    if function == "bucket":
        first, _, second = arguments.partition(",")
        count, column = (first, second) if first.strip().isdigit() else (second, first)
        if count.strip().isdigit() and int(count) > 0:
            return _checked(table, _unquoted(column), f"bucket({int(count)})", text)
    raise InvalidInputError(
        f"{text!r} is not a partition key.",
        hint="Write a column, year(c), month(c), day(c), hour(c) or bucket(N, c).",
        table=str(table.name),
    )


def _checked(table: Table, name: str, transform: str, text: str) -> PartitionField:
    column = table.column(name)
    if column is None:
        raise no_column(table, name, " to partition by")
    if column.is_nested or column.type in ("variant", "geometry"):
        raise InvalidInputError(
            f"Table {table.name} cannot be partitioned by {name!r}: it is a {column.type}.",
            table=str(table.name),
        )
    if transform in CALENDAR and column.type not in _TEMPORAL:
        raise InvalidInputError(
            f"{text!r} needs a date or timestamp, but {name!r} is {column.type}.", table=str(table.name)
        )
    if transform == "hour" and column.type == "date":
        raise InvalidInputError(f"{text!r}: a date has no hour.", table=str(table.name))
    return PartitionField(column.id, transform)


def parse_sort_by(table: Table, fields: Iterable[str]) -> tuple[SortField, ...]:
    """Sort keys from `"ts"`, `"ts desc"`, `"lower(name) asc nulls first"`."""
    parsed = []
    for text in fields:
        match = _SORT.fullmatch(text)
        if match is None:
            raise InvalidInputError(f"{text!r} is not a sort key.", table=str(table.name))
        column = table.column(_unquoted(match["expression"]))
        expression = parse_expression(match["expression"] if column is None else _quoted(column.name))
        for names in expression.columns:
            if table.column(names[0]) is None:
                raise no_column(table, names, " to sort by")
            if len(names) > 1:
                raise InvalidInputError(
                    f"{text!r}: a table is sorted by columns, not by fields inside one.",
                    detail="DuckDB could no longer insert into it.",
                    table=str(table.name),
                )
        bind(expression, {c.name: type_text(c) for c in table.columns})
        parsed.append(
            SortField(
                expression.text,
                (match["direction"] or "asc").upper(),
                f"NULLS_{(match['nulls'] or 'last').upper()}",
            )
        )
    return tuple(parsed)


def is_sorted_by(table: Table, path: Sequence[str]) -> bool:
    """Does a sort key name that column, that field, or a field inside it?"""
    wanted = [name.lower() for name in path]
    return any(
        [name.lower() for name in names[: len(wanted)]] == wanted
        for field in table.sort
        for names in _parsed(field).columns
    )


def rename_in_sort(table: Table, path: Sequence[str], new_name: str) -> tuple[SortField, ...]:
    """The sort keys after the column or field at `path` got another name."""
    return tuple(
        replace(field, expression=_parsed(field).renamed(path, new_name).text)
        if is_sorted_by(replace(table, sort=(field,)), path)
        else field
        for field in table.sort
    )


def _parsed(field: SortField) -> Expression:
    try:
        return parse_expression(field.expression)
    except InvalidInputError:  # of another dialect
        return Expression(field.expression, None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


def sort_keys(table: Table) -> list[tuple[str, str, str]]:
    """The sort order in Arrow's terms; empty where a key is more than a plain column."""
    keys = []
    for sort_field in table.sort:
        column = table.column(_unquoted(sort_field.expression))
        if column is None or column.is_nested or column.type in _UNSORTED:
            return []
        order = "descending" if sort_field.direction.upper() == "DESC" else "ascending"
        nulls = "at_start" if sort_field.null_order.upper() == "NULLS_FIRST" else "at_end"
        keys.append((column.name, order, nulls))
    return keys
