"""Options stored in the lake itself: for a table, else its schema, else the whole lake.

They are the options DuckDB's `set_option` knows, in its text form, so both follow the same settings.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from headwater.errors import InvalidInputError
from headwater.lake.connection import Connection, Database

DEFAULT_INLINING_LIMIT = 10
DEFAULT_TARGET_FILE_SIZE = 512 * 1000 * 1000
CODECS = ("uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw")

_UNITS = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}


def parse_size(value: Any) -> str:
    """`512MB` or a number of bytes, as the text the catalog holds.

    >>> parse_size("1GiB"), parse_size(1000)
    ('1073741824', '1000')
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
    unit = _UNITS.get(match[2].lower() or "b") if match else None
    if match is None or unit is None or isinstance(value, bool):
        raise ValueError("a size such as 512MB or 1GiB")
    return str(int(float(match[1]) * unit))


def _whole_number(value: Any) -> str:
    if isinstance(value, bool) or not re.fullmatch(r"\d+", str(value)):
        raise ValueError("a whole number, 0 or more")
    return str(int(value))


def _flag(value: Any) -> str:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text


def _codec(value: Any) -> str:
    text = {"none": "uncompressed"}.get(str(value).lower(), str(value).lower())
    if text not in CODECS:
        raise ValueError("one of " + ", ".join(CODECS))
    return text


def _parquet_version(value: Any) -> str:
    text = str(value).upper().removeprefix("V")
    if text not in ("1", "2"):
        raise ValueError("1 or 2")
    return f"V{text}"


def _share(value: Any) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= 1:
        raise ValueError("a number between 0 and 1")
    return f"{number:f}"


def _interval(value: Any) -> str:
    if not re.fullmatch(
        r"\s*\d+(\.\d+)?\s*(microsecond|millisecond|second|minute|hour|day|week|month|year)s?\s*",
        str(value),
        re.IGNORECASE,
    ):
        raise ValueError("an interval such as '7 days'")
    return str(value)


OPTIONS: Mapping[str, Callable[[Any], str]] = {
    "data_inlining_row_limit": _whole_number,
    "target_file_size": parse_size,
    "parquet_compression": _codec,
    "parquet_compression_level": _whole_number,
    "parquet_row_group_size": _whole_number,
    "parquet_row_group_size_bytes": parse_size,
    "parquet_version": _parquet_version,
    "hive_file_pattern": _flag,
    "require_commit_message": _flag,
    "rewrite_delete_threshold": _share,
    "delete_older_than": _interval,
    "expire_older_than": _interval,
    "auto_compact": _flag,
    "per_thread_output": _flag,
    "sort_on_insert": _flag,
    "write_deletion_vectors": _flag,
}


def checked(name: str, value: Any) -> tuple[str, str | None]:
    """An option's name and its value as the catalog's text; None takes the option away."""
    lowered = name.lower()
    check = OPTIONS.get(lowered)
    if check is None:
        near = difflib.get_close_matches(lowered, OPTIONS, n=1)
        raise InvalidInputError(
            f"There is no option {name!r}.",
            hint=f"Did you mean {near[0]!r}?" if near else "Options: " + ", ".join(sorted(OPTIONS)) + ".",
            option=name,
        )
    try:
        return lowered, None if value is None else check(value)
    except ValueError as error:
        raise InvalidInputError(
            f"{value!r} is not a value of option {lowered!r}.",
            hint=f"It takes {error}.",
            option=lowered,
        ) from None


@dataclass(frozen=True)
class LakeOptions:
    """All rows of `ducklake_metadata`, looked up table first, then schema, then lake."""

    values: Mapping[tuple[str, str | None, int | None], str] = field(default_factory=dict)

    def get(self, name: str, *, schema_id: int | None = None, table_id: int | None = None) -> str | None:
        """The value in force, or None where nobody set one."""
        for scope, scope_id in (("table", table_id), ("schema", schema_id), (None, None)):
            value = self.values.get((name, scope, scope_id))
            if value is not None and (scope is None or scope_id is not None):
                return value
        return None

    def number(self, name: str, default: int, **where: int | None) -> int:
        """The value as a whole number."""
        value = self.get(name, **where)
        return default if value is None else int(value)

    def flag(self, name: str, default: bool, **where: int | None) -> bool:
        """The value as true or false."""
        value = self.get(name, **where)
        return default if value is None else value.lower() == "true"

    @property
    def encrypted(self) -> bool:
        """Does every file of this lake have a key of its own?"""
        return self.flag("encrypted", False)


def load_options(db: Database, connection: Connection) -> LakeOptions:
    """Read all options of the lake."""
    rows = connection.execute(
        db.text("SELECT key, scope, scope_id, value FROM {ducklake_metadata}")
    ).fetchall()
    return LakeOptions({(name, scope, scope_id): value for name, scope, scope_id, value in rows})


def store_option(
    db: Database,
    connection: Connection,
    name: str,
    value: str | None,
    scope: str | None,
    scope_id: int | None,
) -> None:
    """Set one option, or remove it with None."""
    table = db.name("ducklake_metadata")
    connection.execute(
        sql.SQL(
            "DELETE FROM {} WHERE key = %s "
            "AND scope IS NOT DISTINCT FROM %s AND scope_id IS NOT DISTINCT FROM %s"
        ).format(table),
        (name, scope, scope_id),
    )
    if value is not None:
        connection.execute(
            sql.SQL("INSERT INTO {} (key, value, scope, scope_id) VALUES (%s, %s, %s, %s)").format(table),
            (name, value, scope, scope_id),
        )
