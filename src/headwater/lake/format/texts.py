"""Plain values of every scalar type, and the text DuckDB writes for them.

A plain value is what fits a type without loss, where Python's own classes would not: days since 1970 for
dates (Python has no year 0 and no infinity), a count in the type's own unit for times and timestamps,
`(months, days, microseconds)` for intervals. The rest are bool, int, float, Decimal, str, bytes and UUID.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.lake.format.casting import cast_leaf
from headwater.lake.format.types import AnyArray, arrow_type, decimal_parts
from headwater.lake.model import Column

INTEGERS = frozenset(
    {"int8", "int16", "int32", "int64", "int128", "uint8", "uint16", "uint32", "uint64", "uint128"}
)
FLOATS = frozenset({"float32", "float64"})
#: Ticks per second of the types that count time.
TICKS = {
    "time": 10**6,
    "timetz": 10**6,
    "time_ns": 10**9,
    "timestamp": 10**6,
    "timestamp_s": 1,
    "timestamp_ms": 10**3,
    "timestamp_ns": 10**9,
    "timestamptz": 10**6,
}
#: Python's default context would round decimals of more than 28 digits.
_EXACT = Context(prec=200)
_DAY = 86400
_EPOCH = dt.date(1970, 1, 1).toordinal()
_INFINITE_DAYS = 2**31 - 1
_INFINITE_TICKS = 2**63 - 1

_DATE = re.compile(r"(\d{1,7})-(\d{1,2})-(\d{1,2})(?: (\(BC\)))?")
_CLOCK = re.compile(r"(-?)(\d{1,9}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?")
_ZONE = re.compile(r"([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?$")
_SPAN = re.compile(r"([+-]?\d+) (year|mon|month|day)s?\b ?")


def to_text(value: Any, type_: str) -> str:
    """The text DuckDB gives when it casts this plain value to VARCHAR."""
    if type_ == "boolean":
        return "true" if value else "false"
    if type_ in INTEGERS:
        return str(int(value))
    if type_ in FLOATS:
        return _float_text(value, single=type_ == "float32")
    if type_ == "date":
        return _date_text(value)
    if type_ in ("time", "time_ns"):
        return _clock_text(value, TICKS[type_])
    if type_ == "timetz":
        return _clock_text(value, TICKS[type_]) + "+00"
    if type_ in TICKS:
        return _timestamp_text(value, type_)
    if type_ == "interval":
        return _interval_words(*value)
    if type_ == "blob":
        return "".join(chr(b) if 32 <= b < 127 and b not in b"\\\"'" else f"\\x{b:02X}" for b in value)
    decimal = decimal_parts(type_)
    if decimal is not None:
        return format(Decimal(value).quantize(Decimal(1).scaleb(-decimal[1]), context=_EXACT), "f")
    return str(value)


def from_text(text: str, type_: str) -> Any:
    """The plain value that DuckDB's text stands for; ValueError where it stands for none."""
    if type_ == "boolean":
        lowered = text.strip().lower()
        if lowered in ("true", "t", "1", "yes", "y"):
            return True
        if lowered in ("false", "f", "0", "no", "n"):
            return False
        raise ValueError(text)
    if type_ in INTEGERS:
        return int(text)
    if type_ in FLOATS:
        return float(text)
    if type_ == "date":
        return _parse_date(text)
    if type_ == "timetz":
        return parse_timetz(text)
    if type_ in ("time", "time_ns"):
        return _parse_clock(text, TICKS[type_])
    if type_ in TICKS:
        return _parse_timestamp(text, type_)
    if type_ == "interval":
        return parse_interval(text)
    if type_ == "uuid":
        return UUID(text)
    if type_ == "blob":
        return _parse_blob(text)
    if decimal_parts(type_) is not None:
        return _number(text)
    return text


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise ValueError(text) from error


def _float_text(value: float, *, single: bool) -> str:
    if not single or value == 0 or not math.isfinite(value):
        return repr(float(value))
    short = _shortest_single(abs(value))
    return repr(math.copysign(float(value if short is None else short), value))


def _shortest_single(value: float) -> Decimal | None:
    """The shortest decimal that is still this float32, as DuckDB prints it.

    None where DuckDB gives up and prints the double of the same value: where that decimal is on the very edge
    of what rounds to the float, or where two are equally near.
    """
    [bits] = struct.unpack("<I", struct.pack("<f", value))
    below, above = (_single(bits + step) for step in (-1, 1))
    exact = Decimal(value)
    low, high = (_EXACT.divide(_EXACT.add(exact, other), Decimal(2)) for other in (below, above))
    for digits in range(1, 10):
        step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        floor = _EXACT.multiply(_EXACT.divide_int(exact, step), step)
        inside = [near for near in (floor, _EXACT.add(floor, step)) if low <= near <= high]
        if inside:
            gaps = [abs(_EXACT.subtract(near, exact)) for near in inside]
            best = inside[gaps.index(min(gaps))]
            return None if best in (low, high) or (len(gaps) == 2 and gaps[0] == gaps[1]) else best
    return None


def _single(bits: int) -> Decimal:
    # One step above the largest float is where it would be, were there no infinity.
    if bits >= 0x7F800000:
        return Decimal(2**128)
    return Decimal(struct.unpack("<f", struct.pack("<I", bits))[0])


def _date_text(days: int) -> str:
    if abs(days) == _INFINITE_DAYS:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = civil_from_days(days)
    if year > 0:
        return f"{year:04d}-{month:02d}-{day:02d}"
    return f"{1 - year:04d}-{month:02d}-{day:02d} (BC)"


def _clock_text(ticks: int, per_second: int) -> str:
    seconds, fraction = divmod(ticks, per_second)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if fraction:
        width = len(str(per_second)) - 1
        text += "." + f"{fraction:0{width}d}".rstrip("0")
    return text


def _timestamp_text(ticks: int, type_: str) -> str:
    if abs(ticks) == _INFINITE_TICKS:
        return "infinity" if ticks > 0 else "-infinity"
    days, rest = divmod(ticks, TICKS[type_] * _DAY)
    text = f"{_date_text(days)} {_clock_text(rest, TICKS[type_])}"
    return text + "+00" if type_ == "timestamptz" else text


def _interval_words(months: int, days: int, micros: int) -> str:
    years, months = divmod(abs(months), 12) if months >= 0 else (-(-months // 12), -(-months % 12))
    words = [
        f"{amount} {unit}{'' if abs(amount) == 1 else 's'}"
        for amount, unit in ((years, "year"), (months, "month"), (days, "day"))
        if amount
    ]
    if micros or not words:
        words.append(("-" if micros < 0 else "") + _clock_text(abs(micros), 10**6))
    return " ".join(words)


def interval_text(months: int, days: int, micros: int) -> str:
    """An interval as both DuckDB and PostgreSQL read it, whatever their settings."""
    return f"{months} months {days} days {micros} microseconds"


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year (0 is 1 BC), month and day of a count of days since 1970-01-01."""
    # Counting from 0000-03-01 puts the leap day at the end of a year, and 400 years are one cycle.
    cycle, day_of_cycle = divmod(days + 719468, 146097)
    year = (day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36524 - day_of_cycle // 146096) // 365
    day_of_year = day_of_cycle - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + cycle * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def days_from_civil(year: int, month: int, day: int) -> int:
    """The count of days since 1970-01-01; the inverse of `civil_from_days`."""
    year -= month <= 2
    cycle, of_cycle = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return cycle * 146097 + of_cycle * 365 + of_cycle // 4 - of_cycle // 100 + day_of_year - 719468


def _parse_date(text: str) -> int:
    try:
        return dt.date.fromisoformat(text).toordinal() - _EPOCH
    except ValueError:
        pass
    lowered = text.strip().lower()
    if lowered.lstrip("-") == "infinity":
        return -_INFINITE_DAYS if lowered.startswith("-") else _INFINITE_DAYS
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    year = 1 - int(match[1]) if match[4] else int(match[1])
    return days_from_civil(year, int(match[2]), int(match[3]))


def _parse_clock(text: str, per_second: int) -> int:
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    seconds = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
    width = len(str(per_second)) - 1
    fraction = (match[5] or "").ljust(width, "0")
    if fraction[width:].strip("0"):
        raise ValueError(text)
    ticks = seconds * per_second + int(fraction[:width] or 0)
    return -ticks if match[1] else ticks


def _parse_zone(text: str) -> tuple[str, int]:
    """Split a trailing offset off; the offset in seconds."""
    match = _ZONE.search(text)
    if match is None:
        return text.removesuffix("Z"), 0
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    return text[: match.start()], -seconds if match[1] == "-" else seconds


def _parse_timestamp(text: str, type_: str) -> int:
    per_second = TICKS[type_]
    lowered = text.strip().lower()
    if lowered.lstrip("-") == "infinity":
        return -_INFINITE_TICKS if lowered.startswith("-") else _INFINITE_TICKS
    match = _DATE.match(text.strip())
    if match is None:
        raise ValueError(text)
    days = _parse_date(match[0])
    rest, offset = text.strip()[match.end() :].lstrip(" T"), 0
    if type_ == "timestamptz":
        rest, offset = _parse_zone(rest)
    ticks = _parse_clock(rest, per_second) if rest else 0
    return (days * _DAY - offset) * per_second + ticks


def parse_timetz(text: str) -> int:
    """Microseconds since midnight in UTC."""
    clock, offset = _parse_zone(text.strip())
    return (_parse_clock(clock, 10**6) - offset * 10**6) % (_DAY * 10**6)


def parse_interval(text: str) -> tuple[int, int, int]:
    """Months, days and microseconds of an interval as DuckDB or PostgreSQL prints it."""
    months = days = 0
    rest = text.strip()
    while match := _SPAN.match(rest):
        amount = int(match[1])
        if match[2] == "day":
            days += amount
        else:
            months += amount * (12 if match[2] == "year" else 1)
        rest = rest[match.end() :]
    rest = rest.lstrip("+")
    if match := re.fullmatch(r"([+-]?\d+) microseconds", rest):
        return months, days, int(match[1])
    return months, days, _parse_clock(rest, 10**6) if rest else 0


def _parse_blob(text: str) -> bytes:
    """DuckDB's text of a blob: printable bytes as they are, others as \\xAA."""
    if not text.isascii():
        raise ValueError("a blob's text has only ASCII characters")
    parts = re.split(r"\\x([0-9A-Fa-f]{2})", text)
    return b"".join(bytes.fromhex(p) if i % 2 else p.encode() for i, p in enumerate(parts))


def plain_values(array: AnyArray, column: Column) -> list[Any]:
    """The values of an Arrow array of the column's type, as plain values."""
    type_ = column.type
    array = cast_leaf(array, column)
    if type_ == "date":
        return list(array.cast(pa.int32()).to_pylist())
    if type_ in TICKS:
        return list(array.cast(pa.int64()).to_pylist())
    if type_ == "json":
        return list(array.storage.to_pylist())
    values = array.to_pylist()
    if type_ in ("int128", "uint128"):
        return [None if v is None else int(v) for v in values]
    if type_ == "interval":
        return [None if v is None else _whole_micros(v, column) for v in values]
    return list(values)


def _whole_micros(value: Any, column: Column) -> tuple[int, int, int]:
    if value.nanoseconds % 1000:
        raise InvalidInputError(
            f"column {column.name!r}: an interval of {value.nanoseconds} ns does not fit",
            detail="intervals have microseconds, not nanoseconds",
            column=column.name,
        )
    return value.months, value.days, value.nanoseconds // 1000


def plain_array(values: list[Any], column: Column) -> AnyArray:
    """An Arrow array of the column's type from plain values."""
    type_, target = column.type, arrow_type(column)
    if type_ == "date":
        return pa.array(values, pa.int32()).cast(target)
    if type_ in TICKS:
        return pa.array(values, pa.int64()).cast(target)
    if type_ == "uuid":
        return pa.array([None if v is None else v.bytes for v in values], pa.binary(16)).cast(target)
    if type_ == "json":
        return pa.array(values, pa.string()).cast(target)
    if type_ == "interval":
        return pa.array([None if v is None else (v[0], v[1], v[2] * 1000) for v in values], target)
    if type_ in ("int128", "uint128"):
        return pa.array([None if v is None else Decimal(v) for v in values], target)
    return pa.array(values, target)
