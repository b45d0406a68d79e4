"""Constants of the lake in Spark's SQL."""

from __future__ import annotations

from dataclasses import replace

from headwater.lake.format.types import decimal_parts
from headwater.lake.format.values import literal_array
from headwater.lake.model import Column

_NUMBERS = {
    "boolean": "{}",
    "int8": "{}Y",
    "int16": "{}S",
    "int32": "{}",
    "int64": "{}L",
    "uint8": "{}S",
    "uint16": "{}",
    "uint32": "{}L",
}


def default_sql(column: Column, text: str) -> str | None:
    """A default, as the catalog writes it, as a constant of Spark's SQL; None where that is not certain."""
    value = literal_array(text, replace(column, nulls_allowed=True), 1)[0].as_py()
    if value is None:
        return "NULL"
    kind = column.type
    if kind in _NUMBERS:
        return _NUMBERS[kind].format(str(value).lower())
    if kind in ("varchar", "json"):
        return text_sql(str(value))
    if kind == "blob":
        return f"X'{value.hex()}'"
    if kind == "date":
        return f"DATE'{value.isoformat()}'"
    if kind in ("timestamp", "timestamp_s", "timestamp_ms"):
        return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'"
    decimal = decimal_parts(kind)
    if decimal is not None:
        return f"CAST('{value}' AS DECIMAL({decimal[0]},{decimal[1]}))"
    if kind in ("float32", "float64"):
        return f"CAST('{value!r}' AS {'FLOAT' if kind == 'float32' else 'DOUBLE'})"
    return None


def text_sql(text: str) -> str:
    """A text as Spark's SQL quotes it.

    >>> text_sql("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def name_sql(name: str) -> str:
    """A name as Spark's SQL quotes it.

    >>> name_sql("a b")
    '`a b`'
    """
    return "`" + name.replace("`", "``") + "`"
