"""Assignments on rows in memory, evaluated by DuckDB itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import duckdb
import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.lake.format.casting import cast_column
from headwater.lake.format.types import AnyArray, arrow_field, arrow_schema, no_rows, type_text
from headwater.lake.model import Column
from headwater.storage.duckdb_engine import sandbox


def assign(rows: pa.Table, columns: Sequence[Column], values: Mapping[str, Any]) -> pa.Table:
    """The rows with some columns set: texts are SQL over the row, anything else is a value."""
    by_name = {c.name.lower(): (i, c) for i, c in enumerate(columns)}
    selected, parameters = [], []
    for name, value in values.items():
        column = by_name[name.lower()][1]
        text = value if isinstance(value, str) else "?"
        if not isinstance(value, str):
            parameters.append(value)
        selected.append(f"CAST(({text}\n) AS {type_text(column)})")
    with sandbox() as connection:
        connection.register("headwater_rows", rows)
        try:
            result = connection.execute(
                f"SELECT {', '.join(selected)} FROM headwater_rows", parameters
            ).to_arrow_table()
        except duckdb.Error as error:
            raise bad_expression(", ".join(map(str, values.values())), error) from None
    for place, name in enumerate(values):
        index, column = by_name[name.lower()]
        rows = rows.set_column(
            index,
            arrow_field(column, field_ids=False).with_nullable(True).with_name(rows.schema.names[index]),
            cast_column(result.column(place), column),  # DuckDB hands out UUIDs and JSON as text
        )
    return rows


def rows_to_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> pa.Table:
    """Dictionaries as Arrow, with the table's own types where it knows the column."""
    known = {c.name.lower(): c for c in columns}
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    arrays = [_array(name, [row.get(name) for row in rows], known.get(name.lower())) for name in names]
    if not names:
        return no_rows(arrow_schema(columns, field_ids=False))
    return pa.Table.from_arrays(arrays, names=list(names))


def _array(name: str, values: list[Any], column: Column | None) -> AnyArray:
    """Values in the column's type or, where Arrow refuses that ("9.50" as a decimal), in their own."""
    if column is not None and column.is_nested:
        values = [_named(value, column) for value in values]
    kinds = [arrow_field(column, field_ids=False).type] if column is not None else []
    problem: Exception | None = None
    for kind in (*kinds, None):
        try:
            return pa.array(values, cast(Any, kind))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            problem = problem or error
    raise InvalidInputError(
        f"Values of column {name!r} do not fit its type {column.type if column else 'unknown'}.",
        detail=str(problem),
        column=name,
    )


def _named(value: Any, column: Column) -> Any:
    """A nested value with the names of fields as the table has them; Arrow would drop others silently."""
    if value is None:
        return None
    if column.type == "struct" and isinstance(value, Mapping):
        fields = {child.name.lower(): child for child in column.children}
        for name in value:
            if str(name).lower() not in fields:
                raise InvalidInputError(
                    f"A value of column {column.name!r} has a field {name!r} that the table has not.",
                    hint="It has: " + ", ".join(child.name for child in column.children) + ".",
                    column=column.name,
                )
        given = {fields[str(name).lower()].name: inner for name, inner in value.items()}
        return {child.name: _named(given.get(child.name), child) for child in column.children}
    if column.type == "list" and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_named(inner, column.children[0]) for inner in value]
    if column.type == "map" and isinstance(value, Mapping | Sequence):
        key, item = column.children
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_named(k, key), _named(v, item)) for k, v in pairs]
    return value


def bad_expression(text: str, error: duckdb.Error) -> InvalidInputError:
    """The error for SQL that DuckDB does not accept."""
    return InvalidInputError(
        f"The expression cannot be evaluated: {text.strip()}",
        detail=str(error).split("\n\nLINE")[0].strip(),
    )
