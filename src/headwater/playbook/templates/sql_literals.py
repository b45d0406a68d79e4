"""Values as literals of SQL, in the spelling of each engine."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from headwater.playbook.templates.sandbox import to_json
from headwater.playbook.templates.sql_scanner import Dialect


def literal(value: Any, dialect: Dialect = "duckdb") -> str:
    """A value as a literal of SQL; raises ValueError for what has none.

    >>> literal("x'); DROP TABLE t; --"), literal([1, None, True])
    ("'x''); DROP TABLE t; --'", '[1, NULL, TRUE]')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value, dialect)
    if isinstance(value, Decimal):
        return f"{value:f}" if value.is_finite() else _float(float(value), dialect)
    if isinstance(value, str):
        return _text(value, dialect)
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None or dialect == "spark" else " WITH TIME ZONE"
        return f"TIMESTAMP{zone} '{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, bytes | bytearray):
        form = {"duckdb": "from_hex('{}')", "postgres": "decode('{}', 'hex')", "spark": "X'{}'"}[dialect]
        return form.format(value.hex())
    if isinstance(value, Mapping):
        return _mapping(value, dialect)
    if isinstance(value, list | tuple):
        inner = ", ".join(literal(one, dialect) for one in value)
        return {"duckdb": f"[{inner}]", "postgres": f"ARRAY[{inner}]", "spark": f"array({inner})"}[dialect]
    raise ValueError(f"a {type(value).__name__} has no literal in SQL.")


def name(text: str, dialect: Dialect = "duckdb") -> str:
    """A quoted name; raises ValueError where there can be none.

    >>> name('my "t" x'), name("t", "spark")
    ('"my ""t"" x"', '`t`')
    """
    if not text or "\0" in text:
        raise ValueError("a name must have characters, and no NUL among them.")
    if dialect == "spark" and "{" in text:
        raise ValueError("a name in Spark's SQL cannot have a `{`, which may begin a variable there.")
    quote = "`" if dialect == "spark" else '"'
    return quote + text.replace(quote, quote * 2) + quote


def escape_spark(text: str) -> str:
    """Text inside quotes in Spark's SQL.

    Before it parses, Spark puts settings and environment variables in the place of `${…}`, in texts too; so
    neither character may stand there as it is.

    >>> escape_spark("it's ${env:HOME}")
    "it\\\\'s \\\\u0024\\\\u007benv:HOME}"
    """
    quoted = re.sub(r"([\\'\"])", r"\\\1", text)
    return quoted.replace("$", "\\u0024").replace("{", "\\u007b")


def _float(value: float, dialect: Dialect) -> str:
    if not math.isfinite(value):
        kind = "DOUBLE PRECISION" if dialect == "postgres" else "DOUBLE"
        return f"CAST('{value}' AS {kind})"
    return repr(value) if "e" in repr(value) else f"{value!r}e0"  # a double, not a decimal


def _text(value: str, dialect: Dialect) -> str:
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("the text has half of a character (a lone surrogate), which is no UTF-8.")
    if dialect == "spark":
        return "'" + escape_spark(value) + "'"
    if "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    if dialect == "postgres":
        raise ValueError("the text has a NUL character, which PostgreSQL cannot store.")
    return "(" + " || chr(0) || ".join(_text(piece, dialect) for piece in value.split("\0")) + ")"


def _mapping(value: Mapping[str, Any], dialect: Dialect) -> str:
    if dialect == "postgres":
        return f"CAST({_text(to_json(value), dialect)} AS jsonb)"
    if not value:
        raise ValueError("an empty mapping has no literal in SQL.")
    parts = [(_text(str(key), dialect), literal(inner, dialect)) for key, inner in value.items()]
    if dialect == "spark":
        return "named_struct(" + ", ".join(f"{key}, {inner}" for key, inner in parts) + ")"
    return "{" + ", ".join(f"{key}: {inner}" for key, inner in parts) + "}"
