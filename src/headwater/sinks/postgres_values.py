"""A result's types and values in PostgreSQL.

| DuckLake | PostgreSQL |
|---|---|
| boolean, int8, int16, int32, int64 | boolean, smallint, smallint, integer, bigint |
| uint8, uint16, uint32, uint64 | smallint, integer, bigint, numeric(20) |
| int128, uint128 | numeric(39) |
| float32, float64, decimal(P,S) | real, double precision, numeric(P,S) |
| date, time, timestamp, timestamptz, interval | the same |
| varchar, json, uuid, blob | text, json, uuid, bytea |
| list of one of these | an array of it |
| struct, map, list of lists or structs | jsonb |
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import csv

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.format.types import decimal_parts
from headwater.lake.model import Column

_TYPES = {
    "boolean": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "integer",
    "uint32": "bigint",
    "uint64": "numeric(20,0)",
    "int128": "numeric(39,0)",
    "uint128": "numeric(39,0)",
    "float32": "real",
    "float64": "double precision",
    "date": "date",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamp_s": "timestamp without time zone",
    "timestamp_ms": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "interval": "interval",
    "varchar": "text",
    "json": "json",
    "uuid": "uuid",
    "blob": "bytea",
}
#: Types whose values Arrow itself writes as PostgreSQL reads them.
_WHOLE = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_TIMES = {"date", "time", "timestamp", "timestamp_s", "timestamp_ms", "timestamptz"}
_PLAIN = frozenset({"boolean", "float32", "float64", "varchar"} | _WHOLE | _TIMES)
_CSV = csv.WriteOptions(include_header=False)
Convert = Callable[[Any], Any]


def postgres_type(column: Column) -> str:
    """The type of a column, as PostgreSQL itself writes it.

    >>> postgres_type(Column(1, "tags", "list", children=(Column(2, "element", "varchar"),)))
    'text[]'
    """
    found = _TYPES.get(column.type)
    if found is not None:
        return found
    decimal = decimal_parts(column.type)
    if decimal is not None:
        return f"numeric({decimal[0]},{decimal[1]})"
    if column.type == "list" and not column.children[0].is_nested:
        return f"{postgres_type(column.children[0])}[]"
    if column.is_nested:
        return "jsonb"
    raise UnsupportedError(
        f"Column {column.name!r} has the type {column.type}, which a PostgreSQL sink cannot take.",
        hint="Cast it in the query, for example to string. It takes: " + ", ".join(_TYPES) + ", and lists.",
        column=column.name,
        type=column.type,
    )


def are_plain(columns: Sequence[Column]) -> bool:
    """Whether rows of these columns can be sent as Arrow writes them, which is many times quicker."""
    return all(column.type in _PLAIN or decimal_parts(column.type) is not None for column in columns)


def postgres_csv(rows: pa.Table) -> memoryview:
    """Rows of plain columns as COPY takes them: NULL is nothing, texts are always quoted."""
    written = pa.BufferOutputStream()
    csv.write_csv(rows, written, _CSV)
    return memoryview(written.getvalue())


def postgres_rows(rows: pa.Table, columns: Sequence[Column]) -> Iterator[tuple[Any, ...]]:
    """Rows as psycopg takes them; columns after the given ones stay as they are."""
    converts: list[Convert | None] = [_convert(column) for column in columns]
    converts += [None] * (rows.num_columns - len(converts))
    try:
        values = [
            column.to_pylist() if convert is None else [convert(value) for value in column.to_pylist()]
            for column, convert in zip(rows.columns, converts, strict=True)
        ]
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            "A value of the result has no form in PostgreSQL.",
            detail=str(error),
            hint="Dates and times must lie in the years 1 to 9999.",
        ) from None
    return zip(*values, strict=True)


def _convert(column: Column) -> Convert | None:
    if postgres_type(column) == "jsonb":
        return lambda value: None if value is None else json_text(value, column)
    if column.type == "interval":
        return _interval
    if column.type in ("varchar", "json"):
        return _text
    return None


def _text(value: str | None) -> str | None:
    if value is not None and "\0" in value:
        raise ValueError("a text has a NUL character, which PostgreSQL cannot store")
    return value


def _interval(value: Any) -> str | None:
    if value is None:
        return None
    months, days, nanoseconds = value
    return f"{months} months {days} days {nanoseconds // 1000} microseconds"


def json_text(value: Any, column: Column) -> str:
    """A nested value as JSON; numbers keep all their digits.

    >>> json_text([1, None], Column(1, "a", "list", children=(Column(2, "element", "int32"),)))
    '[1, null]'
    """
    match column.type:
        case _ if value is None:
            return "null"
        case "list":
            return "[" + ", ".join(json_text(each, column.children[0]) for each in value) + "]"
        case "struct":
            fields = (f"{_quoted(c.name)}: {json_text(value[c.name], c)}" for c in column.children)
            return "{" + ", ".join(fields) + "}"
        case "map":
            kind = column.children[1]
            return "{" + ", ".join(f"{_quoted(str(k))}: {json_text(v, kind)}" for k, v in value) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    return _quoted(value.hex() if isinstance(value, bytes) else str(value))


def _quoted(text: str) -> str:
    return json.dumps(_text(text))
