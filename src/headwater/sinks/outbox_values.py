"""Values of the lake in JSON, exactly: what JSON's own types cannot hold is text.

| type | in JSON |
|---|---|
| boolean, text | as they are |
| whole numbers of up to 64 bits | numbers |
| floats | numbers; `"NaN"`, `"Infinity"`, `"-Infinity"` |
| decimals, 128-bit numbers | text: `"12.50"` |
| dates, times | `"2026-03-01"`, `"08:30:00.25"`; years outside 1 to 9999 with a sign: `"-0043-03-15"` |
| timestamps | `"2026-03-01T08:30:00"`; with a time zone in UTC: `"…Z"`; `"infinity"`, `"-infinity"` |
| intervals | `"P1M2DT3.5S"`: months, days and seconds as they are stored |
| binary | base64 |
| uuid, JSON | text |
| lists; structs; maps | arrays; objects; arrays of `{"key": …, "value": …}` |
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyarrow as pa

from headwater.lake.format.texts import civil_from_days

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_INFINITE_DAYS = 2**31 - 1
_INFINITE_TICKS = 2**63 - 1


def json_values(array: Any) -> list[Any]:
    """The values of an Arrow array as JSON has them; None for NULL.

    >>> from decimal import Decimal
    >>> json_values(pa.array([Decimal("1.50"), None]))
    ['1.50', None]
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            return [value for chunk in array.chunks for value in json_values(chunk)]
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        stored = array.storage
        if kind.extension_name == "arrow.uuid":
            return [None if raw is None else str(UUID(bytes=raw)) for raw in stored.to_pylist()]
        return json_values(stored)
    is_ = pa.types
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return [json_values(scalar.values) if scalar.is_valid else None for scalar in array]
    if is_.is_map(kind):
        return [_map(scalar) if scalar.is_valid else None for scalar in array]
    if is_.is_struct(kind):
        return _structs(array)
    return _plain(array, kind)


def _structs(array: Any) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [json_values(child) for child in array.flatten()]
    valid = array.is_valid().to_pylist()
    return [
        {name: column[place] for name, column in zip(names, columns, strict=True)} if there else None
        for place, there in enumerate(valid)
    ]


def _map(scalar: Any) -> list[dict[str, Any]]:
    keys, values = (json_values(child) for child in scalar.values.flatten())
    return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]


def _plain(array: Any, kind: Any) -> list[Any]:
    is_ = pa.types
    if is_.is_date32(kind):
        return _each(array.view(pa.int32()), date_text)
    if is_.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return _each(
            array.view(pa.int64()), lambda ticks: timestamp_text(ticks, _PER_SECOND[kind.unit], zone)
        )
    if is_.is_time64(kind):
        return _each(array.view(pa.int64()), lambda ticks: _clock(ticks, _PER_SECOND[kind.unit]))
    if is_.is_decimal(kind):
        return _each(array, lambda number: format(number, "f"))
    if is_.is_floating(kind):
        return _each(array, _float)
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return _each(array, lambda raw: base64.b64encode(raw).decode())
    if kind == pa.month_day_nano_interval():
        return _each(array, _interval)
    found: list[Any] = array.to_pylist()
    return found


def _each(array: Any, change: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else change(value) for value in array.to_pylist()]


def _float(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def date_text(days: int) -> str:
    """A count of days since 1970 in ISO 8601.

    >>> date_text(0), date_text(-719529)
    ('1970-01-01', '-0001-12-31')
    """
    if abs(days) == _INFINITE_DAYS:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = civil_from_days(days)
    shown = f"{year:04d}" if 0 < year < 10_000 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{day:02d}"


def timestamp_text(ticks: int, per_second: int, zone: str = "") -> str:
    """A count of fractions of a second since 1970 in ISO 8601."""
    if abs(ticks) == _INFINITE_TICKS:
        return "infinity" if ticks > 0 else "-infinity"
    days, rest = divmod(ticks, per_second * _DAY)
    return f"{date_text(days)}T{_clock(rest, per_second)}{zone}"


def _clock(ticks: int, per_second: int) -> str:
    seconds, fraction = divmod(ticks, per_second)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return text if not fraction else f"{text}.{fraction:0{len(str(per_second)) - 1}d}".rstrip("0")


def _interval(value: Any) -> str:
    months, days, nanoseconds = value
    seconds, fraction = divmod(abs(nanoseconds), 10**9)
    sign = "-" if nanoseconds < 0 else ""
    rest = f"{seconds}.{fraction:09d}".rstrip("0").rstrip(".")
    return f"P{months}M{days}DT{sign}{rest}S"
