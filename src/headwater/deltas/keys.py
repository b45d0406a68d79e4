"""Keys: which columns can be one, values parsed to its types, and how they are written down.

Two keys are equal as DuckDB's and Spark's `IS NOT DISTINCT FROM` means it: NULL equals NULL, NaN equals NaN,
and -0.0 equals 0.0.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from headwater.errors import DeltaError, InvalidInputError
from headwater.lake.format.texts import FLOATS, INTEGERS, from_text, plain_array, plain_values, to_text
from headwater.lake.format.types import arrow_type, decimal_parts, type_text
from headwater.lake.model import Column

#: More tombstones than this are not taken at once: each is a row of the audit record.
MOST_KEYS = 1_000_000
_KEY_TYPES = (
    INTEGERS
    | FLOATS
    | {"boolean", "varchar", "blob", "uuid", "date", "time", "timetz"}
    | {"timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz"}
)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})
_TIMES: dict[str, Any] = {"date": dt.date, "time": dt.time, "timetz": dt.time}
_EXACT = Context(prec=200)


def check_key_types(dataset: str, columns: Iterable[Column]) -> None:
    """Refuse columns whose values have no equality that every reader shares."""
    for column in columns:
        if column.type not in _KEY_TYPES and decimal_parts(column.type) is None:
            raise DeltaError(
                f"Column {column.name!r} of dataset {dataset} is {type_text(column)}, which cannot be a key.",
                detail="DuckDB and Spark do not agree on which of its values are equal.",
                hint="Use another column, or store a text of it.",
                dataset=dataset,
                column=column.name,
            )


@dataclass(frozen=True)
class Keys:
    """Keys that were given, in the types of a dataset's key columns; each of them once."""

    columns: tuple[Column, ...]
    table: pa.Table

    @property
    def count(self) -> int:
        """How many there are."""
        return self.table.num_rows

    def texts(self) -> list[tuple[str | None, ...]]:
        """The values of each key as DuckDB writes them."""
        columns = [
            [
                _text(value, column)
                for value in plain_values(self.table.column(place).combine_chunks(), column)
            ]
            for place, column in enumerate(self.columns)
        ]
        return list(zip(*columns, strict=True))

    def records(self) -> list[dict[str, Any]]:
        """The keys for the audit record."""
        names = [column.name for column in self.columns]
        types = [type_text(column) for column in self.columns]
        return [
            {
                "place": place,
                "hash": key_hash(values),
                "key": {
                    name: None if value is None else f"{value}::{kind}"
                    for name, value, kind in zip(names, values, types, strict=True)
                },
            }
            for place, values in enumerate(self.texts())
        ]


def key_hash(values: Sequence[str | None]) -> str:
    """What a key is found by in the audit record; it does not change when its columns are widened."""
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()


def parse_keys(dataset: str, given: Any, columns: Sequence[Column]) -> Keys:
    """Keys as callers have them: a value, a tuple, a mapping, a list of these, or an Arrow table.

    A text is taken for another type only if it is how that type is written: "007" and " 7" are no 7.
    """
    columns = tuple(columns)
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        table = _from_arrow(dataset, given, columns)
    else:
        rows = [_row(dataset, one, columns) for one in _listed(given, columns)]
        arrays = [
            _array(dataset, [row[place] for row in rows], column) for place, column in enumerate(columns)
        ]
        table = pa.Table.from_arrays(arrays, names=[column.name for column in columns])
    if table.num_rows > MOST_KEYS:
        raise DeltaError(
            f"{table.num_rows} tombstones for dataset {dataset} are too many for one call.",
            hint=f"Write at most {MOST_KEYS} at once: each of them is put on record.",
            dataset=dataset,
        )
    return _distinct(Keys(columns, table))


def _listed(given: Any, columns: Sequence[Column]) -> list[Any]:
    if isinstance(given, Mapping | str | bytes | tuple) or not isinstance(given, Iterable):
        return [given]
    return list(given)


def _row(dataset: str, given: Any, columns: Sequence[Column]) -> tuple[Any, ...]:
    names = [column.name for column in columns]
    if isinstance(given, Mapping):
        found = {str(name).lower(): value for name, value in given.items()}
        if set(found) != {name.lower() for name in names}:
            raise _misfit(dataset, names, f"{', '.join(map(str, given)) or 'nothing'} is given")
        return tuple(_plain(dataset, found[column.name.lower()], column) for column in columns)
    if isinstance(given, tuple | list):
        if len(given) != len(columns):
            raise _misfit(dataset, names, f"{len(given)} values are given")
        return tuple(_plain(dataset, value, column) for value, column in zip(given, columns, strict=True))
    if len(columns) != 1:
        raise _misfit(dataset, names, "one value is given")
    return (_plain(dataset, given, columns[0]),)


def _misfit(dataset: str, names: Sequence[str], what: str) -> InvalidInputError:
    return InvalidInputError(
        f"The key of dataset {dataset} is ({', '.join(names)}), but {what}.",
        hint="Pass {" + ", ".join(f"{name!r}: …" for name in names) + "}, or a tuple in this order.",
        dataset=dataset,
    )


def _plain(dataset: str, value: Any, column: Column) -> Any:
    """A value as the plain value of its column's type (see `lake.format.texts`)."""
    if value is None:
        return None
    try:
        return _parsed(value, column)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"{value!r} is no {type_text(column)}, which key column {column.name!r} of dataset {dataset} is.",
            detail=str(error) or None,
            hint="Values are not guessed: pass the value in the column's own type, or as DuckDB writes it.",
            dataset=dataset,
            column=column.name,
        ) from None


def _parsed(value: Any, column: Column) -> Any:
    kind = column.type
    if kind == "varchar":
        if not isinstance(value, str):
            raise TypeError(f"a {type(value).__name__} is no text")
        return value
    if isinstance(value, str):
        return _from_text(value, column)
    if kind == "boolean":
        if not isinstance(value, bool):
            raise TypeError(f"a {type(value).__name__} is neither true nor false")
        return value
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    if kind in INTEGERS:
        return operator.index(value)
    if kind in FLOATS:
        return float(value) + 0.0
    decimal = decimal_parts(kind)
    if decimal is not None:
        if not isinstance(value, Decimal | int):
            raise TypeError(f"a {type(value).__name__} is not exact")
        return _exact(Decimal(value), decimal[1])
    if kind == "uuid":
        if not isinstance(value, UUID):
            raise TypeError(f"a {type(value).__name__} is no UUID")
        return value
    if kind == "blob":
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a {type(value).__name__} is no sequence of bytes")
        return bytes(value)
    return _time(value, column)


def _from_text(text: str, column: Column) -> Any:
    kind = column.type
    if text != text.strip():
        raise ValueError("there is white space around it")
    if kind in FLOATS or decimal_parts(kind) is not None:
        if _NUMBER.fullmatch(text) is None and not (kind in FLOATS and text.lower() in _NOT_FINITE):
            raise ValueError("it is not written as a number is")
        decimal = decimal_parts(kind)
        return float(text) + 0.0 if decimal is None else _exact(Decimal(text), decimal[1])
    value = from_text(text, kind)
    if kind in INTEGERS or kind in ("boolean", "uuid", "blob"):
        written = to_text(value, kind)
        if written.lower() != text.lower() or (kind == "blob" and written != text):
            raise ValueError(f"it would be written {written!r}")
    if kind == "timestamptz" and re.search(r"[+-]\d\d(:?\d\d)?$", text) is None:
        raise ValueError("it names no time zone")
    return value


def _exact(value: Decimal, scale: int) -> Decimal:
    if not value.is_finite():
        raise ValueError("it is not finite")
    fitted = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if fitted != value:
        raise ValueError(f"it has more than {scale} digits after the point")
    return fitted


def _time(value: Any, column: Column) -> Any:
    wanted = _TIMES.get(column.type, dt.datetime)
    if not isinstance(value, wanted) or (wanted is dt.date and isinstance(value, dt.datetime)):
        raise TypeError(f"a {type(value).__name__} is no {wanted.__name__}")
    if wanted is dt.datetime and (value.tzinfo is not None) is not (column.type == "timestamptz"):
        raise ValueError("a zone is missing" if column.type == "timestamptz" else "it has a time zone")
    array = pa.array([value], arrow_type(column))
    if array[0].as_py() != value:
        raise ValueError("it has more digits of a second than the column keeps")
    return plain_values(array, column)[0]


def _array(dataset: str, values: list[Any], column: Column) -> Any:
    try:
        return plain_array(values, column)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"A value does not fit key column {column.name!r} ({type_text(column)}) of dataset {dataset}.",
            detail=str(error),
            dataset=dataset,
            column=column.name,
        ) from None


def _from_arrow(dataset: str, given: pa.Table, columns: Sequence[Column]) -> pa.Table:
    names = {name.lower() for name in given.schema.names}
    if names != {column.name.lower() for column in columns}:
        listed = ", ".join(given.schema.names) or "nothing"
        raise _misfit(dataset, [column.name for column in columns], f"{listed} is given")
    arrays = []
    for column in columns:
        values = next(given.column(n) for n in given.schema.names if n.lower() == column.name.lower())
        if not values.type.equals(arrow_type(column)):
            # One rule for what a value of another type may mean, whatever it comes in.
            plain = [_plain(dataset, value, column) for value in values.to_pylist()]
            values = _array(dataset, plain, column)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns]).combine_chunks()


def _distinct(keys: Keys) -> Keys:
    seen: dict[tuple[str | None, ...], int] = {}
    for place, values in enumerate(keys.texts()):
        seen.setdefault(values, place)
    if len(seen) == keys.count:
        return keys
    return Keys(keys.columns, keys.table.take(pa.array(list(seen.values()), pa.int64())))


def _text(value: Any, column: Column) -> str | None:
    if value is None:
        return None
    return to_text(value + 0.0 if column.type in FLOATS else value, column.type)
