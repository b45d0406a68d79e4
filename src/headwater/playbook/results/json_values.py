"""Python's values as JSON has them, by the same rules as DuckDB's (`values.py`)."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Set
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID


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
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
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


def _finite(value: float) -> Any:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
