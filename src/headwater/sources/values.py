"""Texts of PostgreSQL's values as Arrow, exactly or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.lake.format.texts import from_text
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import AnyArray, arrow_type, decimal_parts
from headwater.sources.model import Form, SourceColumn

_LARGEST = {"date": 2**31 - 1, "timestamp": 2**63 - 1, "timestamptz": 2**63 - 1}
#: Scalars inside JSON as their own texts.
_TEXTS = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def to_arrow(texts: AnyArray, column: SourceColumn) -> AnyArray:
    """Values of one column from their texts (a string array), in the Arrow form of the lake's type.

    What the lake's type cannot hold is an `InvalidInputError` that names the value.
    """
    if column.form is Form.LIST:
        return _lists(texts, column)
    if column.form is Form.ANY:
        texts = pa.array([_any(text) for text in texts.to_pylist()], pa.string())
    return _scalars(texts, column.lake_type, column)


def _scalars(texts: AnyArray, type_: str, column: SourceColumn) -> AnyArray:
    special = _SPECIAL.get(type_)
    if special is not None:
        return special(texts, column)
    target = arrow_type(column_from_text(column.name, type_))
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        raise _refused(texts, column, lambda text: pa.array([text], pa.string()).cast(target)) from None


def _varchar(texts: AnyArray, column: SourceColumn) -> AnyArray:
    return texts


def _json(texts: AnyArray, column: SourceColumn) -> AnyArray:
    return pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)


def _boolean(texts: AnyArray, column: SourceColumn) -> AnyArray:
    return pa.array([None if text is None else text[0] == "t" for text in texts.to_pylist()], pa.bool_())


def _uuid(texts: AnyArray, column: SourceColumn) -> AnyArray:
    values = [None if text is None else bytes.fromhex(text.replace("-", "")) for text in texts.to_pylist()]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def _blob(texts: AnyArray, column: SourceColumn) -> AnyArray:
    values = [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()]
    return pa.array(values, pa.binary())


def _time(texts: AnyArray, column: SourceColumn) -> AnyArray:
    values = [None if text is None else from_text(text, "time") for text in texts.to_pylist()]
    return pa.array(values, pa.int64()).cast(pa.time64("us"))


def _moments(type_: str) -> Callable[[AnyArray, SourceColumn], AnyArray]:
    target: Any = arrow_type(column_from_text("moment", type_))
    stored = pa.int32() if type_ == "date" else pa.int64()

    def counted(text: str) -> int:
        bare, _, era = text.partition(" BC")
        if text.endswith(" BC"):
            day, _, clock = bare.replace("T", " ").partition(" ")
            bare = f"{day} (BC) {clock}".strip()
        count = int(from_text(bare + era, type_))
        if abs(count) > _LARGEST[type_] or (abs(count) == _LARGEST[type_] and "infinity" not in text):
            raise ValueError(text)
        return count

    def convert(texts: AnyArray, column: SourceColumn) -> AnyArray:
        try:
            return texts.cast(target)
        except pa.ArrowInvalid:
            pass  # infinity, BC, or a year of more than four digits
        try:
            values = [None if text is None else counted(text) for text in texts.to_pylist()]
        except (ValueError, OverflowError):
            raise _refused(texts, column, counted) from None
        return pa.array(values, stored).cast(target)

    return convert


_SPECIAL: dict[str, Callable[[AnyArray, SourceColumn], AnyArray]] = {
    "varchar": _varchar,
    "json": _json,
    "boolean": _boolean,
    "uuid": _uuid,
    "blob": _blob,
    "time": _time,
    **{name: _moments(name) for name in _LARGEST},
}


def _lists(texts: AnyArray, column: SourceColumn) -> AnyArray:
    offsets: list[int | None] = [0]
    elements: list[str | None] = []
    missing: list[bool] = []
    for text in texts.to_pylist():
        values = [] if text is None else _TEXTS.decode(text)
        if any(isinstance(value, list) for value in values):
            raise InvalidInputError(
                f"Column {column.name!r} holds an array of several dimensions.",
                detail=f"{column.type} is a list in the lake: {_shown(text)}",
                hint="Declare the column with its dimensions (integer[][]), which mirrors it as JSON, "
                "or leave it out of `columns`.",
                column=column.name,
            )
        elements += map(_plain, values)
        missing.append(text is None)
        offsets.append(len(elements))
    element = column.lake_type.removesuffix("[]")
    inner = _scalars(pa.array(elements, pa.string()), element, column)
    kind: Any = arrow_type(column_from_text(column.name, column.lake_type))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), inner, type=kind, mask=pa.array(np.array(missing, bool))
    )


def _plain(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _any(text: str | None) -> str | None:
    return json.loads(text) if text is not None and text.startswith('"') else text


def _refused(texts: AnyArray, column: SourceColumn, check: Callable[[str], Any]) -> InvalidInputError:
    """The error about the first value that does not fit."""
    wrong = next((text for text in texts.to_pylist() if text is not None and not _fits(text, check)), "")
    decimal = decimal_parts(column.lake_type) is not None
    return InvalidInputError(
        f"Column {column.name!r} holds {_shown(wrong)}, which {column.lake_type} cannot hold.",
        detail=f"In the source it is {column.type}.",
        hint="Change the value at the source and resync the table; or leave the column out of `columns`"
        + ("; a column of plain `numeric` is mirrored as text." if decimal else "."),
        column=column.name,
        value=_shown(wrong),
    )


def _fits(text: str, check: Callable[[str], Any]) -> bool:
    try:
        check(text)
    except (ValueError, OverflowError):
        return False
    return True


def _shown(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 60 else text[:60] + "…")


def rows_to_arrow(rows: Sequence[AnyArray], columns: Sequence[SourceColumn]) -> pa.Table:
    """Texts of all columns as one table in the lake's types."""
    arrays = [to_arrow(texts, column) for texts, column in zip(rows, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])
