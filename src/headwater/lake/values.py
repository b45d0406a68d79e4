"""Values as the catalog holds them: statistics, inlined rows, defaults."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.lake.model import ROW_ID_COLUMN, SNAPSHOT_ID_COLUMN, Column
from headwater.lake.nested_text import parse_nested
from headwater.lake.texts import (
    FLOATS,
    INTEGERS,
    TICKS,
    from_text,
    interval_text,
    parse_interval,
    parse_timetz,
    plain_array,
    plain_values,
    to_text,
)
from headwater.lake.types import AnyArray, arrow_schema, arrow_type, decimal_parts

#: DuckDB cuts the bounds of longer strings.
STAT_BYTES = 256
#: DuckDB keeps no bounds for these.
UNBOUNDED = frozenset({"int128", "uint128", "timetz", "time_ns", "interval", "variant", "geometry"})
#: Bounds that are stored but that no reader may prune by.
_NOT_FOR_PRUNING = UNBOUNDED | {"blob"}

# --- statistics -------------------------------------------------------------------------------------------


def stat_text(value: Any, type_: str, *, upper: bool = False) -> str | None:
    """A bound in the text form of file statistics; None where DuckLake keeps none for it.

    `value` is a plain value (see `texts`). With `upper` a string that is too long is cut and rounded up,
    so that it still bounds.
    """
    if value is None or type_ in UNBOUNDED:
        return None
    if type_ == "boolean":
        return "1" if value else "0"
    if type_ == "blob":
        return bytes(value).hex().upper()
    if type_ in ("varchar", "json"):
        return _string_bound(value, upper=upper)
    if type_ in FLOATS:
        # Minus zero equals zero, but as text it would not.
        return to_text(value + 0.0, type_)
    return to_text(value, type_)


def _string_bound(value: str, *, upper: bool) -> str | None:
    if "\x00" in value:
        return None  # PostgreSQL's text cannot hold it
    raw = value.encode()
    if len(raw) <= STAT_BYTES:
        return value
    kept = raw[:STAT_BYTES].decode(errors="ignore")
    if not upper:
        return kept
    # Raise the last character that can be raised and drop the rest: greater than all strings with the prefix.
    for end in range(len(kept), 0, -1):
        successor = _next_character(kept[end - 1])
        if successor is not None:
            return kept[: end - 1] + successor
    return None


def _next_character(character: str) -> str | None:
    code = ord(character) + 1
    if 0xD800 <= code <= 0xDFFF:
        code = 0xE000
    return chr(code) if code <= 0x10FFFF else None


def parse_stat(text: str | None, type_: str) -> Any:
    """A stored bound as a value that compares as DuckDB compares; None where it says nothing.

    Dates, times and timestamps become counts (see `texts`), NaN becomes infinity because DuckDB sorts it
    above everything. Compare only with what `comparable` gives.
    """
    if text is None or type_ in _NOT_FOR_PRUNING:
        return None
    try:
        value = from_text(text, type_)
    except (ValueError, OverflowError):
        return None
    if type_ in FLOATS and value != value:
        return float("inf")
    return value


def comparable(value: Any, type_: str) -> Any:
    """A Python value in the terms of `parse_stat`; None where it cannot be compared with such bounds."""
    if value is None or type_ in _NOT_FOR_PRUNING:
        return None
    if isinstance(value, str):
        return parse_stat(value, type_)
    if isinstance(value, bool):
        return value if type_ == "boolean" else None
    if type_ == "boolean" or type_ in ("varchar", "json"):
        return None
    if isinstance(value, int | float | Decimal):
        numeric = type_ in INTEGERS or type_ in FLOATS or decimal_parts(type_) is not None
        return value if numeric and value == value else None
    if isinstance(value, UUID):
        return value if type_ == "uuid" else None
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return _comparable_time(value, type_)
    return None


def _comparable_time(value: dt.datetime | dt.date | dt.time, type_: str) -> int | None:
    if isinstance(value, dt.time):
        return from_text(value.isoformat(), type_) if type_ == "time" and value.tzinfo is None else None
    if isinstance(value, dt.datetime):
        aware = value.tzinfo is not None
        if aware != (type_ == "timestamptz") or not type_.startswith("timestamp"):
            return None
        if aware:
            value = value.astimezone(dt.UTC).replace(tzinfo=None)
        ticks = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
        per_second = TICKS[type_]
        if ticks * per_second % 10**6:
            return None  # finer than the column's unit: no bound of it can equal this
        return ticks * per_second // 10**6
    days = value.toordinal() - dt.date(1970, 1, 1).toordinal()
    if type_ == "date":
        return days
    if type_.startswith("timestamp") and type_ != "timestamptz":
        return days * 86400 * TICKS[type_]
    return None


# --- inlined rows -----------------------------------------------------------------------------------------

_PG_TYPES = {
    "boolean": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint8": "integer",
    "uint16": "integer",
    "uint32": "bigint",
    "float32": "real",
    "float64": "double precision",
    "time": "time",
    "timetz": "timetz",
    "interval": "interval",
    "varchar": "bytea",
    "json": "bytea",
    "blob": "bytea",
    "uuid": "uuid",
}
_RESERVED = frozenset({"row_id", "begin_snapshot", "end_snapshot", ROW_ID_COLUMN, SNAPSHOT_ID_COLUMN})
#: Types that psycopg's own classes would bend (months become days, 24:00 fails), so they travel as text.
_AS_TEXT = frozenset({"time", "timetz", "interval"})


def inlined_pg_type(column: Column) -> str:
    """The PostgreSQL type of this column in an inlined table, as DuckDB creates it."""
    decimal = decimal_parts(column.type)
    if decimal is not None:
        return f"numeric({decimal[0]},{decimal[1]})"
    return _PG_TYPES.get(column.type, "varchar")


def inlined_select_cast(column: Column) -> str | None:
    """The type to cast an inlined column to when selecting it for `from_inlined_rows`; None for no cast."""
    return "text" if column.type in _AS_TEXT else None


def can_have_inlined_table(columns: Iterable[Column]) -> bool:
    """Whether DuckDB makes an inlined table for these columns (and needs a new one after each ALTER)."""
    for column in columns:
        if column.name.lower() in _RESERVED or len(column.name.encode()) > 63:
            return False
        if any(inner.type in ("variant", "geometry") for inner in column.walk()):
            return False
    return True


def can_inline(columns: Sequence[Column]) -> bool:
    """Whether we store small inserts as inlined rows.

    Not for nested columns, although DuckDB does: the text it stores for them does not always read back.
    """
    return can_have_inlined_table(columns) and not any(column.is_nested for column in columns)


def to_inlined_rows(table: pa.Table, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """The rows as parameters for psycopg, one value per column."""
    parts = []
    for column, data in zip(columns, table.columns, strict=True):
        if column.is_nested or column.type in ("variant", "geometry"):
            raise InvalidInputError(
                f"column {column.name!r} of type {column.type} cannot be stored as inlined rows",
                hint="write a Parquet file instead",
                column=column.name,
            )
        values = [value for chunk in data.chunks for value in plain_values(chunk, column)]
        parts.append([None if value is None else _inlined(value, column.type) for value in values])
    return list(zip(*parts, strict=True))


def _inlined(value: Any, type_: str) -> Any:
    if type_ in ("varchar", "json"):
        return value.encode()
    if type_ == "interval":
        return interval_text(*value)
    if type_ in TICKS or type_ in ("date", "uint64", "int128", "uint128"):
        return to_text(value, type_)
    return value


def from_inlined_rows(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> pa.Table:
    """Inlined rows, as psycopg returns them, in the Arrow form of these columns.

    Columns for which `inlined_select_cast` names a type must have been selected with that cast.
    """
    parts = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [_from_inlined(list(values), column) for values, column in zip(parts, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns, field_ids=False))


def _from_inlined(values: list[Any], column: Column) -> AnyArray:
    if column.is_nested:
        return parse_nested(values, column)
    return plain_array([None if v is None else _from_one(v, column) for v in values], column)


def _from_one(value: Any, column: Column) -> Any:
    type_ = column.type
    if isinstance(value, memoryview):
        value = bytes(value)
    if isinstance(value, bytes):
        return value if type_ == "blob" else value.decode()
    if not isinstance(value, str):
        return value
    if type_ == "timetz":
        return parse_timetz(value)
    if type_ == "interval":
        return parse_interval(value)
    plain = from_text(value, type_)
    if type_ in ("int128", "uint128") and abs(plain) >= 10**38:
        raise InvalidInputError(
            f"column {column.name!r}: {plain} has more than 38 digits",
            detail="Arrow has no 128-bit integers; Headwater reads them as decimal(38,0)",
            hint="read the table with DuckDB",
            column=column.name,
        )
    return plain


# --- defaults ---------------------------------------------------------------------------------------------


class DefaultText(NamedTuple):
    """A default as `ducklake_column` stores it."""

    initial_default: str | None
    """What rows written before the column existed have; None for NULL."""
    default_value: str | None
    """What later rows get; None for no default."""
    default_type: str
    """`literal` or `expression`."""


def default_text(value: Any, column: Column) -> DefaultText:
    """A constant default as DuckDB stores it; the value may be anything that fits the column's Arrow type."""
    if value is None:
        return DefaultText(None, None, "literal")
    if column.is_nested:
        raise InvalidInputError(
            f"column {column.name!r}: a {column.type} cannot have a default",
            detail="DuckDB supports none",
            column=column.name,
        )
    plain = _plain(value, column)
    text = " ".join(_interval_words(plain)) if column.type == "interval" else to_text(plain, column.type)
    if column.type == "blob" or text.upper() == "NULL":
        # As a literal, DuckDB would take the text NULL for no default, and refuses a blob.
        quoted = text.replace("'", "''")
        return DefaultText(text, f"CAST('{quoted}' AS {column.type.upper()})", "expression")
    return DefaultText(text, text, "literal")


def _interval_words(plain: tuple[int, int, int]) -> list[str]:
    return [interval_text(*plain)]


def _plain(value: Any, column: Column) -> Any:
    try:
        if isinstance(value, str) and column.type not in ("varchar", "json", "variant"):
            return from_text(value, column.type)
        if column.type in FLOATS:
            value = float(value)
        elif column.type == "uuid" and isinstance(value, UUID):
            return value
        elif decimal_parts(column.type) is not None:
            value = Decimal(str(value))
        return plain_values(pa.array([value], _storage_type(column)), column)[0]
    except (pa.ArrowException, ValueError, ArithmeticError, TypeError) as error:
        raise InvalidInputError(
            f"column {column.name!r}: {value!r} is no default for the type {column.type}",
            detail=str(error),
            column=column.name,
            type=column.type,
        ) from error


def _storage_type(column: Column) -> Any:
    target = arrow_type(column)
    return target.storage_type if isinstance(target, pa.BaseExtensionType) else target


def default_array(column: Column, length: int) -> AnyArray:
    """The column's values in rows of files that do not have it: its `initial_default`, or NULL."""
    if column.initial_default is None:
        return pa.nulls(length, arrow_type(column))
    if column.is_nested:
        value = parse_nested([column.initial_default], column)
    else:
        value = plain_array([from_text(column.initial_default, column.type)], column)
    return value.take(pa.array([0] * length, pa.int32())) if length != 1 else value
