"""Python's values as JSON has them, by the same rules as DuckDB's (`values.py`)."""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections.abc import Mapping, Set
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

#: Zeros at the end of a second's fraction.
_ZEROS = re.compile(r"(\.\d*?)0+(?=$|[+-])")


def json_value(value: Any) -> Any:
    """A value in JSON's terms; TypeError where JSON has none for it.

    >>> json_value({"price": Decimal("1.10"), "at": date(2025, 1, 6), "raw": b"x", "n": float("nan")})
    {'price': '1.10', 'at': '2025-01-06', 'raw': 'eA==', 'n': 'NaN'}
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Enum):
        return json_value(value.value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, datetime):
        return _iso(value.astimezone(UTC) if value.tzinfo else value)
    if isinstance(value, date | time):
        return _iso(value)
    if isinstance(value, Decimal | UUID | PurePath | timedelta):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | Set | range):
        return [json_value(inner) for inner in value]
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a number of numpy's
        return json_value(value.item())
    raise TypeError(f"JSON has no value for {type(value).__name__}.")


def _iso(value: date | time) -> str:
    """As DuckDB writes it: with no more digits of a second than say something.

    >>> _iso(datetime(2025, 1, 6, 10, 0, 0, 450_100, UTC)), _iso(time(10, 0))
    ('2025-01-06T10:00:00.4501+00:00', '10:00:00')
    """
    return _ZEROS.sub(r"\1", value.isoformat())


def _finite(value: float) -> Any:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
