"""Row images: JSON objects as PostgreSQL's `row_to_json` writes them, taken apart without losing a digit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.sources.model import Form, SourceColumn
from headwater.sources.values import rows_to_arrow

_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def reader(columns: Sequence[SourceColumn]) -> Callable[[Sequence[str]], list[dict[str, str | None]]]:
    """What takes images apart: the quick way, if no column needs its JSON as it was written."""
    raw = frozenset(column.name for column in columns if column.form is not Form.PLAIN)
    if raw:
        return lambda images: [_fields(image, raw) for image in images]
    booleans = [column.name for column in columns if column.lake_type == "boolean"]

    def read(images: Sequence[str]) -> list[dict[str, str | None]]:
        # All of them as one text: a call for each costs more than what it does.
        rows: list[dict[str, Any]] = _DECODER.decode("[" + ",".join(images) + "]")
        for name in booleans:
            for row in rows:
                value = row.get(name)
                if value is True or value is False:
                    row[name] = "true" if value else "false"
        return rows

    return read


def _fields(text: str, raw: frozenset[str]) -> dict[str, str | None]:
    """The members of an object; those of `raw` columns as the text they are written as."""
    found: dict[str, str | None] = {}
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        value, end = _DECODER.raw_decode(text, at)
        if value is None and text.startswith("null", at):
            found[name] = None
        elif name in raw or not isinstance(value, str):
            found[name] = text[at:end]
        else:
            found[name] = value
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at


def to_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[SourceColumn]) -> pa.Table:
    """Rows of texts in the lake's types."""
    texts = [pa.array([row[column.name] for row in rows], pa.string()) for column in columns]
    return rows_to_arrow(texts, columns)
