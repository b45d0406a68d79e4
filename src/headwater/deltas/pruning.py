"""Conditions on the first column of a key, by which files that cannot hold it are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.algebra.predicates import Predicate, parse_predicate
from headwater.lake.format.texts import INTEGERS, to_text
from headwater.lake.model import Column
from headwater.typedefs import quote_name

#: Of more values only the smallest and the greatest are asked for.
_MOST_VALUES = 500
_EVERYTHING = "true"
#: Types whose literals and statistics are compared in one way by everybody.
_PRUNED = INTEGERS - {"int128", "uint128"} | {"varchar", "date", "timestamp"}


def among(column: Column, values: Sequence[Any]) -> Predicate:
    """That a column may have one of some plain values; of types that are not compared safely, anything."""
    return parse_predicate(_condition(column, values, _MOST_VALUES))


def between(column: Column, low: Any, high: Any) -> Predicate:
    """That a column may have a value from `low` to `high` (none if they are None), or be NULL."""
    return parse_predicate(_condition(column, [low, high, None], 0))


def _condition(column: Column, values: Sequence[Any], most: int) -> str:
    if column.type not in _PRUNED:
        return _EVERYTHING
    name = quote_name(column.name)
    known = sorted({value for value in values if value is not None})
    parts = [f"{name} IS NULL"] if len(known) < len(values) else []
    if len(known) > most:
        low, high = _literal(known[0], column), _literal(known[-1], column)
        parts.append(f"({name} >= {low} AND {name} <= {high})")
    elif known:
        parts.append(f"{name} IN ({', '.join(_literal(value, column) for value in known)})")
    return " OR ".join(parts) or "false"


def _literal(value: Any, column: Column) -> str:
    text = to_text(value, column.type)
    if column.type in INTEGERS:
        return text
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if column.type == "varchar" else f"{column.type.upper()} {quoted}"
