"""Columns as operations are given them: built from types in anybody's words, and checked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headwater.errors import InvalidInputError, NotFoundError
from headwater.lake.catalog import check_text
from headwater.lake.format.expressions import compute, parse_expression
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import columns_from_arrow, type_text
from headwater.lake.format.values import DefaultText, default_text
from headwater.lake.model import Column
from headwater.typedefs import TableName

#: Names DuckDB keeps for itself in tables whose rows may be inlined.
RESERVED_COLUMNS = {"row_id", "begin_snapshot", "end_snapshot"}

TableColumns = pa.Schema | Mapping[str, Any] | Sequence[tuple[str, Any]]


class SqlExpression(str):
    """A default that is computed for each row, such as `SqlExpression("now()")`."""


def check_name(name: str, what: str) -> None:
    """Names may hold anything but NUL, and may not be empty."""
    if not check_text(name, f"a name for a {what}"):
        raise InvalidInputError(f"{name!r} is not a name for a {what}.", hint="Names are non-empty text.")


def check_columns(table: TableName, columns: tuple[Column, ...], inlining: bool) -> None:
    """At least one column, no name twice, none of DuckDB's own names."""
    if not columns:
        raise InvalidInputError(f"Table {table} needs at least one column.", table=str(table))
    seen: set[str] = set()
    for column in columns:
        check_name(column.name, "column")
        lowered = column.name.lower()
        if lowered in seen:
            raise InvalidInputError(f"Table {table} has the column {column.name!r} twice.", table=str(table))
        seen.add(lowered)
        if lowered.startswith("_ducklake_internal_") or (inlining and lowered in RESERVED_COLUMNS):
            raise InvalidInputError(
                f"The column name {column.name!r} is reserved by DuckLake.",
                hint="Choose another name"
                + (", or set data_inlining_row_limit to 0." if lowered in RESERVED_COLUMNS else "."),
                table=str(table),
            )


def build_columns(columns: TableColumns) -> tuple[Column, ...]:
    """Columns with ids, from an Arrow schema or from names and types."""
    if isinstance(columns, pa.Schema):
        return columns_from_arrow(columns)
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    built: list[Column] = []
    next_id = 1
    for name, type_ in pairs:
        check_name(name, "column")
        column = build_column(name, type_, next_id)
        next_id = max(c.id for c in column.walk()) + 1
        built.append(column)
    return tuple(built)


def build_column(name: str, type_: Any, first_id: int) -> Column:
    """One column from a type in DuckLake's or DuckDB's words, or an Arrow type."""
    if isinstance(type_, pa.Field):
        return columns_from_arrow(pa.schema([type_.with_name(name)]), first_id)[0]
    if isinstance(type_, pa.DataType):
        return columns_from_arrow(pa.schema([pa.field(name, type_)]), first_id)[0]
    if isinstance(type_, str):
        return column_from_text(name, type_, first_id)
    raise InvalidInputError(
        f"{type_!r} is not a type for column {name!r}.",
        hint='Use text such as "int64" or "decimal(10,2)", or an Arrow type.',
    )


def with_details(
    columns: tuple[Column, ...], defaults: Mapping[str, Any], not_null: Iterable[str]
) -> tuple[Column, ...]:
    """The columns with their defaults and NOT NULLs."""
    names = {c.name.lower() for c in columns}
    required = {name.lower() for name in not_null}
    given = {name.lower(): value for name, value in defaults.items()}
    for name in (*given, *required):
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            raise NotFoundError(
                f"There is no column {name!r} to set a default or NOT NULL on.",
                hint=f"Did you mean {close[0]!r}?" if close else None,
                column=name,
            )
    result = []
    for column in columns:
        if column.name.lower() in required:
            column = replace(column, nulls_allowed=False)
        if given.get(column.name.lower()) is not None:
            column = replace(column, **column_default(given[column.name.lower()], column)._asdict())
        result.append(column)
    return tuple(result)


def column_default(value: Any, column: Column) -> DefaultText:
    """A default as the catalog keeps it."""
    if isinstance(value, SqlExpression):
        expression = parse_expression(value)
        compute(expression, type_text(column))
        return DefaultText(None, expression.text, "expression")
    return default_text(value, column)
