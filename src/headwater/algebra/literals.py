"""Constants of SQL text as Python values, only where their value is certain.

DuckDB gives every constant a type and converts it by rules of its own; a constant that one of those rules
could read differently from the plain reading here is `UNKNOWN`, and nothing is concluded from it.
"""

from __future__ import annotations

import decimal
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from sqlglot import exp

#: A constant with the type that DuckDB gives it: `1.5` is a Decimal, `1e3` a float, `DATE '…'` a date.
Literal: TypeAlias = bool | int | Decimal | float | str | bytes | date | time | datetime | UUID | None

#: Enough digits for every DECIMAL; Python's default context would round at 28.
_EXACT = decimal.Context(prec=200)


class Unknown:
    """No constant, or one whose value is not known for certain."""


UNKNOWN = Unknown()


def alike(values: list[Literal | Unknown]) -> list[Literal] | None:
    """Constants that DuckDB compares in one common type, converted to it; None where that is not certain."""
    known = [value for value in values if not isinstance(value, Unknown)]
    kinds = {type(value) for value in known if value is not None}
    if len(known) < len(values):
        return None
    if len(kinds) > 1:
        if not kinds <= {int, Decimal, float}:
            return None
        if float in kinds:
            return [None if value is None else float(value) for value in known]  # type: ignore[arg-type]
    return known


def literal(node: exp.Expr | None) -> Literal | Unknown:
    """The value of an expression that is one constant."""
    match node:
        case exp.Paren():
            return literal(node.this)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return str(node.this) if node.is_string else _number(str(node.this))
        case exp.Neg():
            value = literal(node.this)
            if isinstance(value, Decimal):
                return value.copy_negate()
            return -value if isinstance(value, int | float) and not isinstance(value, bool) else UNKNOWN
        case exp.Cast():  # also TRY_CAST: a text that is not understood here stays unknown
            return _cast(literal(node.this), node.to)
        case _:
            return UNKNOWN


def _number(text: str) -> Literal | Unknown:
    if re.fullmatch(r"\d+", text) and int(text) < 2**127:
        return int(text)
    if re.fullmatch(r"\d*\.\d*", text) and 1 < len(text) <= 38:
        return Decimal(text)
    if re.fullmatch(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        number = float(text)
        return number if math.isfinite(number) else UNKNOWN
    return UNKNOWN


_INTEGERS = {
    exp.DType.TINYINT: (-(2**7), 2**7),
    exp.DType.SMALLINT: (-(2**15), 2**15),
    exp.DType.INT: (-(2**31), 2**31),
    exp.DType.BIGINT: (-(2**63), 2**63),
    exp.DType.INT128: (-(2**127), 2**127),
    exp.DType.UTINYINT: (0, 2**8),
    exp.DType.USMALLINT: (0, 2**16),
    exp.DType.UINT: (0, 2**32),
    exp.DType.UBIGINT: (0, 2**64),
}


def _cast(value: Literal | Unknown, target: exp.DataType) -> Literal | Unknown:
    """What the constant is after the cast, for casts that lose nothing; UNKNOWN for all others."""
    kind = target.this
    if value is None:
        return None
    if isinstance(value, str):
        parse = _TEXT_CASTS.get(kind)
        if parse is not None:
            return parse(value)
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        number = parse_int(value) if isinstance(value, str) else value
        fits = isinstance(number, int) and not isinstance(number, bool) and low <= number < high
        return number if fits else UNKNOWN
    if kind is exp.DType.BOOLEAN:
        return value if isinstance(value, bool) else UNKNOWN
    if isinstance(value, str):
        value = parse_decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        return UNKNOWN
    if kind is exp.DType.DOUBLE:
        return float(value)
    if kind is exp.DType.FLOAT:
        return _float32(float(value))
    if kind is exp.DType.DECIMAL and not isinstance(value, float):
        sizes = [int(size.name) for size in target.expressions] or [18, 3]
        fitting = fitted(Decimal(value), sizes[0], sizes[1] if len(sizes) > 1 else 0)
        return UNKNOWN if fitting is None else fitting
    return UNKNOWN


def _float32(value: float) -> float | Unknown:
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return UNKNOWN
    return float(rounded)


def fitted(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """The value as DECIMAL(precision, scale), or None where digits would be lost."""
    scaled = value.scaleb(scale, _EXACT)
    if scaled != scaled.to_integral_value() or abs(scaled) >= 10**precision:
        return None
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)


def parse_int(text: str) -> int | Unknown:
    """An integer in the plainest notation, which every cast reads alike."""
    return int(text) if re.fullmatch(r"-?\d{1,38}", text, re.ASCII) else UNKNOWN


def parse_decimal(text: str) -> Decimal | Unknown:
    """A decimal number in the plainest notation."""
    return Decimal(text) if re.fullmatch(r"-?\d{1,38}(\.\d{1,38})?", text, re.ASCII) else UNKNOWN


def parse_date(text: str) -> date | Unknown:
    """`YYYY-MM-DD`, from year 1 to 9999."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        return UNKNOWN
    try:
        return date.fromisoformat(text)
    except ValueError:
        return UNKNOWN


def parse_time(text: str) -> time | Unknown:
    """`HH:MM:SS`, with up to six digits of a second."""
    if not re.fullmatch(r"\d{2}:\d{2}:\d{2}(\.\d{1,6})?", text, re.ASCII):
        return UNKNOWN
    try:
        return time.fromisoformat(text)
    except ValueError:
        return UNKNOWN


def parse_timestamp(text: str) -> datetime | Unknown:
    """A date, or a date and a time, without a zone."""
    day, _, rest = text.replace("T", " ", 1).partition(" ")
    parsed_day, parsed_time = parse_date(day), parse_time(rest) if rest else time()
    if isinstance(parsed_day, Unknown) or isinstance(parsed_time, Unknown):
        return UNKNOWN
    return datetime.combine(parsed_day, parsed_time)


def parse_timestamptz(text: str) -> datetime | Unknown:
    """A date and a time with an explicit offset, as UTC. (Without one it would depend on the session.)"""
    found = re.fullmatch(r"(.{10}[ T].+?)(?:(Z)|([+-])(\d{2}):?(\d{2})?)", text, re.ASCII)
    local = parse_timestamp(found[1]) if found else UNKNOWN
    if found is None or isinstance(local, Unknown):
        return UNKNOWN
    offset = timedelta(hours=int(found[4] or 0), minutes=int(found[5] or 0))
    if offset >= timedelta(hours=16):
        return UNKNOWN
    try:
        return local.replace(tzinfo=timezone(-offset if found[3] == "-" else offset)).astimezone(UTC)
    except OverflowError:
        return UNKNOWN


def parse_uuid(text: str) -> UUID | Unknown:
    """Thirty-two hexadecimal digits with the usual hyphens."""
    canonical = re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)
    return UUID(text) if canonical else UNKNOWN


def _parse_blob(text: str) -> bytes | Unknown:
    """DuckDB's text form of a BLOB: ASCII, with `\\xAA` for any other byte."""
    if not re.fullmatch(r"(?:[^\\]|\\x[0-9a-fA-F]{2})*", text, re.DOTALL) or not text.isascii():
        return UNKNOWN
    return re.sub(r"\\x(..)", lambda found: chr(int(found[1], 16)), text).encode("latin-1")


_TEXT_CASTS: dict[exp.DType, Callable[[str], Literal | Unknown]] = {
    exp.DType.DATE: parse_date,
    exp.DType.TIME: parse_time,
    exp.DType.TIMESTAMP: parse_timestamp,
    exp.DType.TIMESTAMPNTZ: parse_timestamp,
    exp.DType.TIMESTAMPTZ: parse_timestamptz,
    exp.DType.UUID: parse_uuid,
    exp.DType.VARBINARY: _parse_blob,
    exp.DType.VARCHAR: str,
    exp.DType.TEXT: str,
}


def literal_sql(value: Literal) -> str:
    """The constant as DuckDB SQL."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case float():
            return f"{value!r}::DOUBLE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"{kind} '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return f"TIME '{value.isoformat()}'"
        case UUID():
            return f"'{value}'::UUID"
