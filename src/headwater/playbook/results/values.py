"""Values of DuckDB as JSON has them, exactly.

| DuckDB | JSON |
|---|---|
| BOOLEAN, integers of any size | true, false, numbers |
| FLOAT, DOUBLE | numbers; "NaN", "Infinity", "-Infinity" |
| DECIMAL, BIGNUM | text with all digits, "1.10" |
| VARCHAR, ENUM, UUID, JSON, BIT | text |
| BLOB | base64 |
| DATE, TIME | "2025-01-06", "10:00:00.5" |
| TIMESTAMP of any precision | "2025-01-06T10:00:00.123456" |
| TIMESTAMPTZ, TIMETZ | "2025-01-06T10:00:00+00:00", in UTC; "10:00:00+02:00" |
| INTERVAL | DuckDB's text, "1 year 2 days 03:00:00" |
| LIST, ARRAY, STRUCT | lists, objects |
| MAP | a list of {"key": …, "value": …}: keys need not be texts |
| UNION, VARIANT, others | DuckDB's text |

DuckDB itself writes the texts: results that hold more than plain values pass through it once more.
"""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa

from headwater.typedefs import quote_name

#: What Python's client gives back as it is.
_SIZES = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_PLAIN = {"boolean", "varchar", "float", "double", *_SIZES, *(f"u{size}" for size in _SIZES)}
_DAY = r"^(\d+-\d\d-\d\d) "
_ROWS = "headwater_result"


def is_plain(kind: Any) -> bool:
    """Whether values of a type need no conversion but that of floats."""
    return kind.id in _PLAIN


def fetch(
    cursor: duckdb.DuckDBPyConnection, side: duckdb.DuckDBPyConnection, most: int
) -> tuple[list[str], list[dict[str, Any]], int]:
    """The result of a statement: columns, the first `most` rows as objects, and the number of all rows."""
    description = cursor.description or []
    columns = unique_names([one[0] for one in description])
    types: list[Any] = [one[1] for one in description]
    rows: list[tuple[Any, ...]] = []
    count = 0
    if all(is_plain(kind) for kind in types):
        while batch := cursor.fetchmany(4096):
            count += len(batch)
            rows += batch[: max(0, most - len(rows))]
    else:
        for table in _tables(cursor):
            count += table.num_rows
            if len(rows) < most:
                rows += _converted(side, table.slice(0, most - len(rows)), types)
    return columns, [dict(zip(columns, map(_finite, row), strict=True)) for row in rows], count


def unique_names(names: list[str]) -> list[str]:
    """Column names as keys of an object: the second `id` is `id_1`, as DuckDB names it in a subquery."""
    taken: set[str] = set()
    found = []
    for name in names:
        chosen, number = name, 0
        while chosen in taken or (number and chosen in names):
            number += 1
            chosen = f"{name}_{number}"
        taken.add(chosen)
        found.append(chosen)
    return found


def _tables(cursor: duckdb.DuckDBPyConnection) -> Any:
    for batch in cursor.to_arrow_reader(16_384):
        # Names come twice in some results, and DuckDB wants to find columns by them.
        names = [f"c{number}" for number in range(batch.num_columns)]
        yield pa.Table.from_batches([batch]).rename_columns(names)


def _converted(side: duckdb.DuckDBPyConnection, table: pa.Table, types: list[Any]) -> list[tuple[Any, ...]]:
    parts = ", ".join(_expression(kind, f"c{number}") for number, kind in enumerate(types))
    side.register(_ROWS, table)
    try:
        return side.execute(f"SELECT {parts} FROM {_ROWS}").fetchall()
    finally:
        side.unregister(_ROWS)


def _expression(kind: Any, value: str, depth: int = 0) -> str:
    """SQL that turns a value into one that JSON has."""
    name = kind.id
    text = f"CAST({value} AS VARCHAR)"
    if is_plain(kind):
        return text if name == "varchar" else value
    if name in ("list", "array"):
        inner = f"v{depth}"
        child = dict(kind.children)["child"]
        items = f"CAST({value} AS {child}[])" if name == "array" else value
        return f"list_transform({items}, lambda {inner}: {_expression(child, inner, depth + 1)})"
    if name == "struct":
        fields = [(field, _expression(child, _field(value, field), depth)) for field, child in kind.children]
        packed = ", ".join(f"{_quoted(field)} := {part}" for field, part in fields)
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({packed}) END"
    if name == "map":
        inner = f"v{depth}"
        children = dict(kind.children)
        key = _expression(children["key"], f"{inner}.key", depth + 1)
        content = _expression(children["value"], f"{inner}.value", depth + 1)
        packed = f"struct_pack(key := {key}, value := {content})"
        return f"list_transform(map_entries({value}), lambda {inner}: {packed})"
    if name == "blob":
        return f"to_base64({value})"
    if name == "timestamp with time zone":
        return rf"regexp_replace({text}, '{_DAY}(.*)\+00$', '\1T\2+00:00')"
    if name.startswith("timestamp"):
        return rf"regexp_replace({text}, '{_DAY}', '\1T')"
    if name == "time with time zone":
        return rf"regexp_replace({text}, '([+-]\d\d)$', '\1:00')"
    return text


def _field(value: str, field: str) -> str:
    return f"struct_extract({value}, {_literal(field)})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return quote_name(name)


def _finite(value: Any) -> Any:
    """JSON has no number that is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return value
