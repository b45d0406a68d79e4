"""Where a file that somebody else wrote holds the columns of a table.

Found by field id, or by the names of a mapping, never by place: such files may have their columns in any
order, and more of them than the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import pyarrow as pa

from headwater.errors import InvalidInputError
from headwater.lake.format.conform import field_id
from headwater.lake.format.statistics import LeafPlace
from headwater.lake.format.types import AnyField, AnyType
from headwater.lake.model import Column, NameMapping

_BY_NAMES = "Give the file a name mapping (names_in_file), or field ids at every level."


@dataclass
class FileMatch:
    """What of a table's columns is in a file."""

    leaves: list[LeafPlace] = field(default_factory=list)
    missing: list[Column] = field(default_factory=list)
    """Columns and fields of structs that the file does not have."""
    names: dict[int, str] = field(default_factory=dict)
    """What the file calls the top-level columns that it has, by column id."""


def match_file(
    schema: pa.Schema, columns: Sequence[Column], mapping: Sequence[NameMapping] | None
) -> FileMatch:
    """Find the columns in a file of that schema; an error says what no reader would find there."""
    matching = _Matching(FileMatch())
    fields = list(schema)
    if mapping is None and not any(field_id(one) is not None for one in fields):
        raise InvalidInputError(
            "The file has no field ids.",
            detail="DuckDB would take its columns by their order.",
            hint=_BY_NAMES,
        )
    matching.fields(columns, fields, mapping, 0, "")
    return matching.result


class _Matching:
    def __init__(self, result: FileMatch):
        self.result = result

    def fields(
        self,
        columns: Sequence[Column],
        fields: Sequence[AnyField],
        mapping: Sequence[NameMapping] | None,
        first: int,
        path: str,
    ) -> None:
        """Match columns (or the fields of a struct) whose values begin at the file's column `first`."""
        places = [first]
        for one in fields:
            places.append(places[-1] + _width(one.type))
        entries = {entry.target_id: entry for entry in mapping or ()}
        by_id = {field_id(one): number for number, one in enumerate(fields)}
        by_name = {one.name.lower(): number for number, one in enumerate(fields)}
        for column in columns:
            entry = entries.get(column.id)
            number = by_id.get(column.id) if mapping is None else None
            if entry is not None and not entry.is_partition:
                number = by_name.get(entry.source_name.lower())
            if number is None:
                self.result.missing.append(column)
                continue
            if not path:
                self.result.names[column.id] = fields[number].name
            inner = None if mapping is None else (entry.children if entry else ())
            self.one(column, fields[number], inner, places[number], f"{path}{column.name}")

    def one(
        self, column: Column, found: AnyField, mapping: Sequence[NameMapping] | None, place: int, path: str
    ) -> None:
        """Match what is inside one column."""
        kind = _storage(found.type)
        if column.type == "struct":
            if not pa.types.is_struct(kind):
                _misfit(path, column, kind)
            inside = [kind.field(i) for i in range(kind.num_fields)]
            if mapping is None and not any(field_id(one) is not None for one in inside):
                _nameless(path)
            self.fields(column.children, inside, mapping, place, path + ".")
        elif column.type == "map":
            if not pa.types.is_map(kind):
                _misfit(path, column, kind)
            self.parts(column, [kind.key_field, kind.item_field], mapping, place, path)
        elif column.type == "list":
            if not _is_list(kind):
                _misfit(path, column, kind)
            self.parts(column, [kind.value_field], mapping, place, path)
        elif column.type == "variant":
            self.result.leaves.append((column, place, _width(kind)))
        else:
            if pa.types.is_nested(kind):
                _misfit(path, column, kind)
            _check_zone(path, column, kind)
            self.result.leaves.append((column, place, 1))

    def parts(
        self,
        column: Column,
        inside: Sequence[AnyField],
        mapping: Sequence[NameMapping] | None,
        place: int,
        path: str,
    ) -> None:
        """Match the element of a list, or key and value of a map."""
        entries = {entry.target_id: entry for entry in mapping or ()}
        for child, one in zip(column.children, inside, strict=True):
            entry = entries.get(child.id)
            if entry is None and (mapping is not None or field_id(one) != child.id):
                _nameless(path)
            self.one(child, one, None if entry is None else entry.children, place, f"{path}.{child.name}")
            place += _width(one.type)


def _storage(kind: AnyType) -> AnyType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: AnyType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _width(kind: AnyType) -> int:
    """How many columns of a Parquet file hold a value of this type."""
    kind = _storage(kind)
    if pa.types.is_map(kind):
        return _width(kind.key_type) + _width(kind.item_type)
    if _is_list(kind):
        return _width(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_width(kind.field(i).type) for i in range(kind.num_fields))
    return 1


def _check_zone(path: str, column: Column, kind: AnyType) -> None:
    """Times with and without a zone turn into each other by the zone of whoever reads them."""
    if not pa.types.is_timestamp(kind):
        return
    if (column.type == "timestamptz") != (kind.tz is not None) and column.type.startswith("timestamp"):
        _misfit(path, column, kind)


def _misfit(path: str, column: Column, kind: AnyType) -> NoReturn:
    raise InvalidInputError(
        f"Column {path!r} is of type {column.type}, but the file has {kind}.",
        hint="Write the file in the table's types.",
        column=path,
        type=column.type,
    )


def _nameless(path: str) -> NoReturn:
    raise InvalidInputError(
        f"What is inside column {path!r} has no field ids in the file, and no mapping names it.",
        detail="DuckDB would read NULL there, or fail.",
        hint=_BY_NAMES,
        column=path,
    )
