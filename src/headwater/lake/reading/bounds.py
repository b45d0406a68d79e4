"""How the text of statistics and partition values is compared with constants, type by type.

Numbers are compared as PostgreSQL's `numeric`. Dates, times and timestamps are compared as text: in
DuckDB's form that is their order, once years before 1 and after 9999 are set apart. A constant becomes
a pair of bounds, so that where equal values can have different texts, or where DuckDB rounds before it
compares, the comparison errs on the side of "may match".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg import sql

from headwater.algebra.literals import (
    Literal,
    Unknown,
    fitted,
    parse_date,
    parse_decimal,
    parse_int,
    parse_time,
    parse_timestamp,
    parse_timestamptz,
    parse_uuid,
)
from headwater.lake.format.types import decimal_parts
from headwater.lake.format.values import comparable

#: Doubles that DuckDB made from a literal, and literals read as doubles here, agree to far more digits.
_DOUBLE_SLACK = Decimal("1e-14")
#: A float32 that became a float64 column keeps statistics in float32's few digits: 1.1 for 1.10000002384.
_FLOAT_SLACK = Decimal("1e-6")
_SMALLEST_FLOAT = Decimal("2e-45")
#: From here on an upper bound of text may have been cut off.
_CUT_BYTES = 250

_PLAIN_NUMBER = r"^-?[0-9]+([.][0-9]*)?(e[+-]?[0-9]{1,3})?$"
_LATE_YEAR = r"^[0-9]{5,}-"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A constant as it is compared: nothing below `least` and nothing above `most` equals it."""

    least: Any
    most: Any
    exact: bool

    @classmethod
    def of(cls, value: Any) -> Bounds:
        """Bounds of a value that has one text, and that DuckDB compares without rounding."""
        return cls(value, value, exact=True)


@dataclass(frozen=True, slots=True)
class Kind:
    """Types whose texts are compared alike."""

    name: str
    parameter_type: str
    expression: str
    guarded_expression: str | None = None

    def key(self, text: sql.Composable, *, guarded: bool) -> sql.Composed:
        """What to compare instead of the text; NULL where the text says nothing."""
        template = self.guarded_expression if guarded and self.guarded_expression else self.expression
        return sql.SQL(template).format(text)

    def order(self, value: Any) -> Any:
        """Sorts constants as PostgreSQL sorts them."""
        return value.encode() if isinstance(value, str) else value


_BIGINT = "{0}::bigint"
_GUARDED_BIGINT = "CASE WHEN {0} ~ '^-?[0-9]{{1,18}}$' THEN {0}::bigint END"
_NUMERIC = "{0}::numeric"
_GUARDED_NUMERIC = (
    f"CASE WHEN {{0}} ~ '{_PLAIN_NUMBER.replace('{1,3}', '{{1,3}}')}' AND length({{0}}) < 1000 "
    "THEN {0}::numeric WHEN {0} IN ('inf', '-inf') THEN {0}::numeric END"
)
_EDGES = (
    "WHEN {0} LIKE '%%(BC)%%' OR {0} = '-infinity' THEN '' "
    f"WHEN {{0}} = 'infinity' OR {{0}} ~ '{_LATE_YEAR.replace('{5,}', '{{5,}}')}' THEN '~' END COLLATE \"C\""
)
#: One LIKE tells that the year has four digits and that no (BC) follows; several substr() cost more.
_DATE = "CASE WHEN {0} LIKE '____-__-__' THEN {0} " + _EDGES
_TIMESTAMP = "CASE WHEN {0} LIKE '____-__-__ __:%%' THEN {0} " + _EDGES
_TIMESTAMPTZ = "CASE WHEN {0} LIKE '____-__-__ __:%%+00' THEN {0} " + _EDGES
_TIME = "CASE WHEN {0} LIKE '__:__:%%' THEN {0} END COLLATE \"C\""
_TEXT = f'CASE WHEN octet_length({{0}}) < {_CUT_BYTES} THEN {{0}} END COLLATE "C"'
_UUID = 'CASE WHEN length({0}) = 36 THEN lower({0}) END COLLATE "C"'
_BOOLEAN = "CASE {0} WHEN '0' THEN 0 WHEN 'false' THEN 0 WHEN '1' THEN 1 WHEN 'true' THEN 1 END"

_INTEGER_KIND = Kind("integer", "numeric", _NUMERIC, _GUARDED_NUMERIC)
#: The same for constants that are 64-bit integers too, at half the cost.
_BIGINT_KIND = Kind("integer", "bigint", _BIGINT, _GUARDED_BIGINT)
_DECIMAL_KIND = Kind("decimal", "numeric", _NUMERIC, _GUARDED_NUMERIC)
_FLOAT_KIND = Kind("float", "numeric", _NUMERIC, _GUARDED_NUMERIC)
_TIMESTAMP_KIND = Kind("timestamp", "text", _TIMESTAMP)

_KINDS = {
    **dict.fromkeys(
        ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), _INTEGER_KIND
    ),
    "float32": _FLOAT_KIND,
    "float64": _FLOAT_KIND,
    "date": Kind("date", "text", _DATE),
    "time": Kind("time", "text", _TIME),
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"), _TIMESTAMP_KIND),
    "timestamptz": Kind("timestamptz", "text", _TIMESTAMPTZ),
    "varchar": Kind("text", "text", _TEXT),
    "uuid": Kind("uuid", "text", _UUID),
    "boolean": Kind("boolean", "int", _BOOLEAN),
}

_PARSERS: dict[str, Callable[[str], Literal | Unknown]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), parse_int),
    "date": parse_date,
    "time": parse_time,
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"), parse_timestamp),
    "timestamptz": parse_timestamptz,
    "uuid": parse_uuid,
}

#: Digits of a second that a text keeps when DuckDB casts it to the type.
_DIGITS = {"timestamp_s": 0, "timestamp_ms": 3, "timestamp": 6, "timestamp_ns": 6}


def kind_of(type_: str, constants: Iterable[Literal] = ()) -> Kind | None:
    """How statistics of a type are compared with the constants; None where they say nothing."""
    if decimal_parts(type_) is not None:
        return _DECIMAL_KIND
    kind = _KINDS.get(type_)
    if kind is _INTEGER_KIND and type_ != "uint64" and all(map(_is_int64, constants)):
        return _BIGINT_KIND
    return kind


def _is_int64(value: Literal) -> bool:
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)


def bounds(type_: str, value: Literal) -> Bounds | None:
    """The constant as a column of that type is compared with it; None where DuckDB's rule is not certain."""
    kind = kind_of(type_)
    if kind is None or value is None:
        return None
    return _BOUNDS[kind.name](type_, value)


def _number(value: Literal) -> int | Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        return None
    return Decimal(value) if isinstance(value, float) else value


def _widened(value: int | Decimal, slack: Decimal, least: Decimal = Decimal(0)) -> Bounds:
    number = Decimal(value)
    margin = abs(number) * slack + least
    return Bounds(number - margin, number + margin, exact=False)


def _exact_or_widened(value: Literal) -> Bounds | None:
    number = _number(value)
    if number is None:
        return None
    return _widened(number, _DOUBLE_SLACK) if isinstance(value, float) else Bounds.of(number)


def _integer(_: str, value: Literal) -> Bounds | None:
    return _exact_or_widened(_known(parse_int(value)) if isinstance(value, str) else value)


def _decimal(type_: str, value: Literal) -> Bounds | None:
    if isinstance(value, str):
        parsed, parts = _known(parse_decimal(value)), decimal_parts(type_)
        # The text becomes a DECIMAL of the column's own scale, which may round it.
        value = fitted(parsed, *parts) if isinstance(parsed, Decimal) and parts is not None else None
    return _exact_or_widened(value)


def _float(_: str, value: Literal) -> Bounds | None:
    number = _number(_known(parse_decimal(value)) if isinstance(value, str) else value)
    return None if number is None else _widened(number, _FLOAT_SLACK, _SMALLEST_FLOAT)


def _date(_: str, value: Literal) -> Bounds | None:
    if isinstance(value, str):
        value = _known(parse_date(value))
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return None
        day = value.date()
        if value.time() == time():
            return Bounds.of(day.isoformat())
        if day == date.max:
            return None
        # A date is compared as the midnight it begins with.
        return Bounds((day + timedelta(days=1)).isoformat(), day.isoformat(), exact=False)
    return Bounds.of(value.isoformat()) if isinstance(value, date) else None


def _timestamp(type_: str, value: Literal) -> Bounds | None:
    if isinstance(value, str):
        digits = len(value.partition(".")[2])
        value = _known(parse_timestamp(value)) if digits <= _DIGITS[type_] else None
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime) or value.tzinfo is not None:
        return None
    return _with_fraction(value)


def _timestamptz(_: str, value: Literal) -> Bounds | None:
    if isinstance(value, str):
        value = _known(parse_timestamptz(value))
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None  # without a zone the instant depends on the session
    return _with_fraction(value.astimezone(UTC).replace(tzinfo=None))


def _time(_: str, value: Literal) -> Bounds | None:
    if isinstance(value, str):
        value = _known(parse_time(value))
    return _with_fraction(value) if isinstance(value, time) else None


def _with_fraction(value: datetime | time) -> Bounds:
    """Bounds around every way to write the fraction: `10:00:00`, `10:00:00.0`, …"""
    whole = value.replace(microsecond=0)
    text = whole.isoformat(sep=" ") if isinstance(whole, datetime) else whole.isoformat()
    fraction = f"{value.microsecond:06d}"
    shortest = fraction.rstrip("0")
    return Bounds(f"{text}.{shortest}" if shortest else text, f"{text}.{fraction:0<9}", exact=False)


def _text(_: str, value: Literal) -> Bounds | None:
    return Bounds.of(value) if isinstance(value, str) and "\0" not in value else None


def _uuid(_: str, value: Literal) -> Bounds | None:
    if isinstance(value, str):
        value = _known(parse_uuid(value))
    return Bounds.of(str(value)) if isinstance(value, UUID) else None


def _boolean(_: str, value: Literal) -> Bounds | None:
    return Bounds.of(int(value)) if isinstance(value, bool) else None


def constant(type_: str, value: Literal) -> Any:
    """The one value of the column's type that equals the constant, in plain form; None where that is unclear.

    For hashes and calendar parts, where a neighbouring value is of no use.
    """
    if isinstance(value, str) and type_ != "varchar":
        parse = _PARSERS.get(type_)
        value = _known(parse(value)) if parse else None
    if isinstance(value, float) or type_ in ("float32", "float64"):
        return None
    parts = decimal_parts(type_)
    if parts is not None:
        number = _number(value)
        return None if number is None else fitted(Decimal(number), *parts)
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else None
    if type_ == "varchar":
        return value if isinstance(value, str) else None
    return comparable(value, type_)


def _known(value: Literal | Unknown) -> Literal:
    return None if isinstance(value, Unknown) else value


_BOUNDS: dict[str, Callable[[str, Literal], Bounds | None]] = {
    "integer": _integer,
    "decimal": _decimal,
    "float": _float,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "text": _text,
    "uuid": _uuid,
    "boolean": _boolean,
}
