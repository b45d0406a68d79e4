"""Values as the catalog holds them: statistics, inlined rows, defaults."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from uuid import UUID

import duckdb
import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.lake.format.nested_text import parse_nested
from headwater.lake.format.texts import (
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
from headwater.lake.format.types import AnyArray, arrow_schema, arrow_type, decimal_parts, type_text
from headwater.lake.model import ROW_ID_COLUMN, SNAPSHOT_ID_COLUMN, Column
from headwater.storage.duckdb_codec import sandbox

#: DuckDB cuts the bounds of longer strings.
STAT_BYTES = 256
#: DuckDB keeps no bounds for these.
UNBOUNDED = frozenset({"int128", "uint128", "timetz", "time_ns", "interval", "variant", "geometry"})
#: Bounds that are stored but that no reader may prune by.
_NOT_FOR_PRUNING = UNBOUNDED | {"blob"}

# --- statistics -------------------------------------------------------------------------------------------


def stat_text(value: Any, type_: str, *, upper: bool = False) -> str | None:
    """A bound in the text form of file statistics; None where DuckLake keeps none for it.

    `value` is a plain value (see `texts`). With `upper` a string or blob that is too long is cut and
    rounded up, so that it still bounds.
    """
    if value is None or type_ in UNBOUNDED:
        return None
    if type_ == "boolean":
        return "1" if value else "0"
    if type_ == "blob":
        cut = _cut_blob(bytes(value), upper=upper)
        return None if cut is None else cut.hex().upper()
    if type_ in ("varchar", "json"):
        return _cut_string(value, upper=upper)
    if type_ in FLOATS:
        # Minus zero equals zero, but as text it would not.
        return to_text(value + 0.0, type_)
    return to_text(value, type_)


def _cut_string(value: str, *, upper: bool) -> str | None:
    raw = value.encode()
    if len(raw) <= STAT_BYTES:
        kept: str | None = value
    else:
        kept = raw[:STAT_BYTES].decode(errors="ignore")
        if upper:
            # DuckDB raises the last ASCII character that can be raised, and gives up where there is none.
            # Where it gives up, any other character serves.
            kept = _raised(kept, 0x7E) or _raised(kept, 0x10FFFE)
    # PostgreSQL's text cannot hold a NUL.
    return None if kept is None or "\x00" in kept else kept


def _raised(text: str, highest: int) -> str | None:
    """The text cut behind its last character up to `highest`, and that character replaced by the next."""
    for end in range(len(text), 0, -1):
        code = ord(text[end - 1])
        if code <= highest:
            return text[: end - 1] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None


def _cut_blob(value: bytes, *, upper: bool) -> bytes | None:
    if len(value) <= STAT_BYTES:
        return value
    kept = value[:STAT_BYTES]
    if not upper:
        return kept
    kept = kept.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def parse_stat(text: str | None, type_: str, bound: Literal["min", "max"] | None = None) -> Any:
    """A stored bound as a value that compares as DuckDB compares; None where it says nothing.

    Dates, times and timestamps become counts (see `texts`), NaN becomes infinity because DuckDB sorts it
    above everything. Compare only with what `comparable` gives.

    `bound` matters for float64: a bound written while the column was still float32 reads `19.1`, but the
    value in the file is 19.100000381…; told which bound it is, the result is moved outwards to cover that.
    """
    if text is None or type_ in _NOT_FOR_PRUNING:
        return None
    try:
        value = from_text(text, type_)
    except (ValueError, OverflowError):
        return None
    if type_ not in FLOATS:
        return value
    if value != value:
        return float("inf")
    if type_ == "float64" and bound is not None:
        return (min if bound == "min" else max)(value, _as_single(value))
    return value


def _as_single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return value


def widen_stat(text: str | None, old_type: str, new_type: str) -> str | None:
    """A stored bound after the column's type was widened: the same value, in the text of the new type.

    Only float32 to float64 changes it: the shortest text of a float is not that of the same double.
    """
    if text is None or old_type != "float32" or new_type != "float64":
        return text
    return to_text(_as_single(float(text)), new_type)


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
    if column.is_nested or column.type in ("variant", "geometry"):
        raise InvalidInputError(
            f"column {column.name!r}: a {column.type} cannot have a default",
            detail="DuckDB supports none",
            column=column.name,
        )
    plain = _plain(value, column)
    text = to_text(plain, column.type)
    if "\0" in text:
        raise InvalidInputError(
            f"column {column.name!r}: a default cannot hold a NUL character",
            detail="PostgreSQL, which keeps it, has none",
            column=column.name,
        )
    if column.type == "blob" or text.upper() == "NULL":
        # As a literal, DuckDB would take the text NULL for no default, and refuses a blob.
        quoted = text.replace("'", "''")
        return DefaultText(text, f"CAST('{quoted}' AS {column.type.upper()})", "expression")
    return DefaultText(text, text, "literal")


def _plain(value: Any, column: Column) -> Any:
    try:
        if isinstance(value, str) and column.type not in ("varchar", "json", "variant"):
            return from_text(value, column.type)
        if isinstance(value, UUID) and column.type == "uuid":
            return value
        return plain_values(_typed_array(value, column.type), column)[0]
    except (pa.ArrowException, ValueError, ArithmeticError, TypeError) as error:
        raise InvalidInputError(
            f"column {column.name!r}: {value!r} is no default for the type {column.type}",
            detail=str(error),
            column=column.name,
            type=column.type,
        ) from error


def _typed_array(value: Any, type_: str) -> AnyArray:
    """The value in its own Arrow type, so that the cast to the column's type can notice a loss."""
    if type_ in FLOATS:
        return pa.array([float(value)])
    if type_ in ("int128", "uint128") or decimal_parts(type_) is not None:
        return pa.array([Decimal(str(value))])
    if type_ == "interval":
        return pa.array([value], pa.month_day_nano_interval())
    if type_ == "uint64" and isinstance(value, int):
        return pa.array([value], pa.uint64())
    return pa.array([value])


def default_array(column: Column, length: int) -> AnyArray:
    """The column's values in rows of files that do not have it: its `initial_default`, or NULL."""
    if column.initial_default is None:
        return pa.nulls(length, arrow_type(column))
    return literal_array(column.initial_default, column, length)


def literal_array(text: str, column: Column, length: int) -> AnyArray:
    """An array of one constant, given as the text of a literal default."""
    if column.is_nested:
        value = parse_nested([text], column)
    else:
        value = plain_array([_literal(text, column)], column)
    return value.take(pa.array([0] * length, pa.int32()))


def _literal(text: str, column: Column) -> Any:
    """A literal's plain value. The text is as the user typed it: `1.7` for an integer column means 2."""
    try:
        value = from_text(text, column.type)
    except ValueError:
        return cast_text(text, column)
    decimal = decimal_parts(column.type)
    if decimal is not None and value.as_tuple().exponent < -decimal[1]:
        return cast_text(text, column)
    return value


def cast_text(text: str, column: Column) -> Any:
    """The plain value DuckDB gets when it casts the text to the column's type."""
    with sandbox() as duck:
        try:
            found = duck.execute(
                f"SELECT CAST(? AS {type_text(column)}) AS v", [_typed(text)]
            ).to_arrow_table()
        except duckdb.Error as error:
            raise InvalidInputError(
                f"column {column.name!r}: {text!r} is no value of type {column.type}",
                detail=str(error).split("\n")[0],
                column=column.name,
                type=column.type,
            ) from error
    return plain_values(found.column(0).combine_chunks(), column)[0]


def _typed(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:
        return text
