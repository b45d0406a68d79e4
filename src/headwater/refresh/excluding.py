"""Rows that no condition lets pass, or that say nothing new: left out before anything is computed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.literals import Literal
from headwater.algebra.predicates import (
    And,
    Comparison,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
)

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


#: A number is among a sample if the first six bits of its product with this one are zero …
_MIX, _SHARE = np.uint64(0x9E3779B97F4A7C15), np.uint64(58)
#: … and a sample of so many rows tells how often they repeat.
_TELLING = 200


def without_excluded(rows: pa.Table, condition: Predicate, part: float = 1.0) -> pa.Table:
    """The rows for which a condition may be true: what is not understood of it may always be.

    All rows, if more than a part of them would be left.
    """
    mask = _mask(condition, rows)
    if mask is None or (pc.sum(mask).as_py() or 0) > part * rows.num_rows:
        return rows
    return rows.filter(mask)


def distinct_values(rows: pa.Table, columns: Collection[str]) -> pa.Table:
    """A row for each combination of values that some columns have; what other columns say then means nothing.

    All rows, if values of one of the columns are told apart otherwise by Spark, or if they hardly repeat.
    """
    named = [name for name in rows.schema.names if name in columns]
    if not named or not rows.num_rows or any(not _told_apart(rows.schema.field(name).type) for name in named):
        return rows
    sample = _sample(rows.select(named))
    if sample.num_rows >= _TELLING and 2 * sample.group_by(named).aggregate([]).num_rows > sample.num_rows:
        return rows
    found = rows.select(named).group_by(named).aggregate([])
    arrays = [
        found.column(name) if name in columns else pa.repeat(rows.column(name)[0], found.num_rows)
        for name in rows.schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=rows.schema)


def _sample(rows: pa.Table) -> pa.Table:
    """Some of the rows; of those that are the same either all or none."""
    for column in rows.columns:
        if pa.types.is_int64(column.type) and not column.null_count:
            mixed = column.to_numpy().astype(np.uint64) * _MIX
            return rows.filter(pa.array(mixed >> _SHARE == 0))
    return rows.slice(0, 0)


def _told_apart(kind: pa.DataType) -> bool:
    """Whether Arrow calls two values of a type equal exactly when Spark does."""
    is_ = pa.types
    return is_.is_signed_integer(kind) or is_.is_string(kind) or is_.is_date32(kind) or is_.is_decimal(kind)


def _mask(predicate: Predicate, rows: pa.Table) -> Any:
    """Where a predicate may be true; None if that can be anywhere."""
    match predicate:
        case And(parts):
            known = [mask for part in parts if (mask := _mask(part, rows)) is not None]
            return reduce(pc.and_, known) if known else None
        case Or(parts):
            masks = [_mask(part, rows) for part in parts]
            return None if any(mask is None for mask in masks) else reduce(pc.or_, masks)
        case Comparison((name,), op, value):
            values = rows.column(name)
            constant = _constant(value, values.type)
            return None if constant is None else _true(_COMPARE[op](values, constant))
        case In((name,), several):
            values = rows.column(name)
            constants = [_constant(value, values.type) for value in several if value is not None]
            if any(constant is None for constant in constants):
                return None
            members = pa.array([constant.as_py() for constant in constants], values.type)
            return _true(pc.is_in(values, members, skip_nulls=True))
        case IsNull((name,)):
            return pc.is_null(rows.column(name))
        case Not(IsNull((name,))):
            return pc.is_valid(rows.column(name))
        case StartsWith((name,)) | Like((name,)) if pa.types.is_string(rows.schema.field(name).type):
            return _true(_matches(predicate, rows))
        case Not(StartsWith((name,)) | Like((name,)) as part) if pa.types.is_string(
            rows.schema.field(name).type
        ):
            return _true(pc.invert(_matches(part, rows)))
    return None


def _matches(predicate: StartsWith | Like, rows: pa.Table) -> Any:
    values = rows.column(predicate.column[0])
    if isinstance(predicate, StartsWith):
        return pc.starts_with(values, predicate.prefix)
    return pc.match_like(values, predicate.pattern)


def _true(mask: Any) -> Any:
    return pc.fill_null(mask, False)


def _constant(value: Literal, kind: pa.DataType) -> Any:
    """A constant as a column's type has it; None unless the two are surely compared as they are."""
    if isinstance(value, str):
        return pa.scalar(value, kind) if pa.types.is_string(kind) else None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        if pa.types.is_signed_integer(kind) and isinstance(value, int):
            return pa.scalar(value, kind) if abs(value) < 2 ** (kind.bit_width - 1) else None
        if pa.types.is_decimal(kind):
            return _decimal(Decimal(value), kind)
        return None
    a_day = isinstance(value, date) and not isinstance(value, datetime)
    return pa.scalar(value, kind) if a_day and pa.types.is_date32(kind) else None


def _decimal(value: Decimal, kind: Any) -> Any:
    try:
        return pa.scalar(value, kind)
    except pa.ArrowInvalid:
        return None


__all__ = ["distinct_values", "without_excluded"]
