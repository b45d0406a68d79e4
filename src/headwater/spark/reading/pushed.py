"""Conditions that Spark pushed down to a scan, as the lake's predicates.

The JSON is made by `jvm/Filters.java`: columns are field ids, constants are the values as Spark holds them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from headwater.algebra.literals import Literal
from headwater.algebra.predicates import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Not,
    Opaque,
    Or,
    Path,
    Predicate,
    StartsWith,
    negate,
)
from headwater.lake.model import Column, Table

_ANYTHING = Opaque("")
#: Columns whose values Spark sees in another form than the catalog's statistics have.
_OTHER_FORM = frozenset({"uuid", "timestamp_ns", "time", "timetz", "time_ns", "json", "variant", "interval"})


class _UnknownError(Exception):
    """A constant that has no certain counterpart in DuckDB."""


def predicate_of(text: str, table: Table) -> Predicate:
    """What a JSON list of conditions says about the rows of a table."""
    paths = {column.id: (path, column) for path, column in _paths(table.columns, ())}
    parts = tuple(_predicate(node, paths) for node in json.loads(text))
    return parts[0] if len(parts) == 1 else And(parts)


def _paths(columns: tuple[Column, ...], above: Path) -> list[tuple[Path, Column]]:
    found: list[tuple[Path, Column]] = []
    for column in columns:
        path = (*above, column.name)
        found.append((path, column))
        if column.type == "struct":
            found += _paths(column.children, path)
    return found


def _predicate(node: Mapping[str, Any], paths: Mapping[int, tuple[Path, Column]]) -> Predicate:
    op = node["op"]
    if op in ("and", "or"):
        parts = tuple(_predicate(part, paths) for part in node["parts"])
        return And(parts) if op == "and" else Or(parts)
    if op == "not":
        return negate(_predicate(node["parts"][0], paths))
    if op == "?" or node["column"] not in paths:
        return _ANYTHING
    path, column = paths[node["column"]]
    if op == "null":
        return IsNull(path)
    if op == "notnull":
        return Not(IsNull(path))
    if column.type in _OTHER_FORM:
        return _ANYTHING
    try:
        return _comparison(op, path, node)
    except _UnknownError:
        return _ANYTHING


def _comparison(op: str, path: Path, node: Mapping[str, Any]) -> Predicate:
    kind = node["type"]
    if op == "in":
        return In(path, tuple(_value(value, kind) for value in node["values"]))
    value = _value(node["value"], kind)
    if op == "<=>":
        return IsNull(path) if value is None else And((Not(IsNull(path)), Comparison(path, "=", value)))
    if value is None:
        return Constant(None, (path,))
    if op == "starts":
        return StartsWith(path, str(value))
    return Comparison(path, op, value)


def _value(value: Any, kind: str) -> Literal:
    if value is None:
        return None
    try:
        if kind == "date":
            return date(1970, 1, 1) + timedelta(days=value)
        if kind == "timestamp_ntz":
            return datetime(1970, 1, 1) + timedelta(microseconds=value)  # noqa: DTZ001 - that is what it is
        if kind == "timestamp":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    except OverflowError:
        raise _UnknownError from None
    if kind in ("float", "double"):
        number = float(value)
        if not math.isfinite(number):
            raise _UnknownError
        return number
    if kind.startswith("decimal"):
        return Decimal(value)
    if isinstance(value, bool | int | str):
        return value
    raise _UnknownError
