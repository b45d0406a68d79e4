"""Files of any age, read as the table's columns are now.

A file is matched by field id at every level, so columns that were renamed, moved, dropped or dropped and
added again under the old name come out right. Files that were registered with a name mapping are matched
by name, files without any ids by position, as DuckDB does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

import duckdb
import pyarrow as pa

from headwater.errors import CorruptFileError
from headwater.lake.format.align import align_input
from headwater.lake.format.casting import Picker, by_name, cast_column, cast_leaf
from headwater.lake.format.partitions import NULL_FOLDER
from headwater.lake.format.texts import FLOATS, from_text, plain_array
from headwater.lake.format.types import (
    FIELD_ID_KEY,
    AnyArray,
    AnyField,
    AnyType,
    arrow_field,
    arrow_schema,
    arrow_type,
    type_text,
)
from headwater.lake.format.values import default_array
from headwater.lake.model import Column, NameMapping
from headwater.storage.duckdb_engine import sandbox
from headwater.typedefs import ColumnId

__all__ = ["NameMapping", "align_input", "conform", "field_id", "hive_values", "name_mapping"]


def name_mapping(rows: Iterable[tuple[int, str, int, int | None, bool | None]]) -> tuple[NameMapping, ...]:
    """The tree behind rows of `ducklake_name_mapping`.

    A row is (column_id, source_name, target_field_id, parent_column, is_partition).
    """
    known = list(rows)

    def below(parent: int | None) -> tuple[NameMapping, ...]:
        return tuple(
            NameMapping(source, target, below(own), bool(is_partition))
            for own, source, target, of, is_partition in known
            if of == parent
        )

    return below(None)


def hive_values(path: str) -> dict[str, str | None]:
    """Keys and values of the `key=value` folders of a path."""
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if equals:
            found[unquote(key)] = None if value == NULL_FOLDER else unquote(value)
    return found


def field_id(field: AnyField) -> ColumnId | None:
    """The field id that Parquet gave an Arrow field."""
    raw = (field.metadata or {}).get(FIELD_ID_KEY)
    return int(raw) if raw is not None else None


def conform(
    table: pa.Table,
    columns: Sequence[Column],
    *,
    mapping: Sequence[NameMapping] | None = None,
    path: str = "",
) -> pa.Table:
    """A file's rows with exactly `arrow_schema(columns)`; zero-copy where the file already has it.

    `path` is the file's location, needed only for mappings that take values from the folders' names.
    What the file does not have gets its `initial_default`. Fields that the table does not have are dropped.
    """
    target = arrow_schema(columns)
    if mapping is None and table.schema.equals(target, check_metadata=True):
        return table
    fields = [table.schema.field(i) for i in range(table.num_columns)]
    if mapping is not None:
        return _by_mapping(table, fields, columns, mapping, path)
    ids = [field_id(field) for field in fields]
    if any(found is not None for found in ids):
        places: list[int | None] = _places(columns, ids)
        pick: Picker = _by_id
    else:
        places, pick = [i if i < len(fields) else None for i in range(len(columns))], by_name
    arrays = [
        default_array(column, table.num_rows)
        if place is None
        else _cast(table.column(place), fields[place], column, pick)
        for column, place in zip(columns, places, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=target)


def _places(columns: Sequence[Column], ids: Sequence[ColumnId | None]) -> list[int | None]:
    at = {found: place for place, found in enumerate(ids) if found is not None}
    return [at.get(column.id) for column in columns]


def _by_id(column: Column, fields: Sequence[AnyField]) -> list[int | None]:
    ids = [field_id(field) for field in fields]
    if not any(found is not None for found in ids):
        # Some writers give ids to the top level only. DuckDB then reads NULL; names are the better guess.
        return by_name(column, fields)
    return _places(column.children, ids)


def _cast(data: AnyArray, field: AnyField, column: Column, pick: Picker) -> AnyArray:
    if column.is_nested and field.type.equals(
        arrow_field(column).type, check_metadata=True
    ):  # the same ids in the same order: nothing to rebuild
        return data
    # Places are looked up in the schema's type: that of the arrays may have lost its field ids on the way.
    places: dict[ColumnId, list[int | None]] = {}
    _look_up(column, field.type, pick, places)
    try:
        return cast_column(data, column, lambda inner, _: places[inner.id], default_array, _read_leaf)
    except (pa.ArrowException, ValueError, duckdb.Error) as error:
        raise CorruptFileError(
            f"column {column.name!r} of a file cannot be read as {column.type}",
            detail=str(error).partition("\n")[0],
            column=column.name,
            type=column.type,
        ) from error


def _read_leaf(array: AnyArray, column: Column) -> AnyArray:
    """A leaf in the column's type now; DuckDB lets types change in more ways than Arrow can follow."""
    kind = array.type
    is_text = isinstance(kind, pa.JsonType) or pa.types.is_null(kind)
    if column.type == "json":
        is_text = is_text or pa.types.is_string(kind)
    if column.type in ("json", "variant") and not is_text:
        return _by_duckdb(array, column)
    if pa.types.is_decimal(kind) and column.type in FLOATS:
        return _by_duckdb(array, column)  # the last digit differs
    try:
        return cast_leaf(array, column)
    except (pa.ArrowException, ValueError):
        return _by_duckdb(array, column)


def _by_duckdb(array: AnyArray, column: Column) -> AnyArray:
    with sandbox() as duck:
        duck.register("stored", pa.table({"v": array}))
        wanted = f"CAST(v AS {type_text(column)})"
        if column.type == "variant":
            wanted = "CASE WHEN v IS NOT NULL THEN CAST(CAST(v AS VARIANT) AS JSON) END"
        found = duck.execute(f"SELECT {wanted} AS v FROM stored").to_arrow_table().column(0)
        duck.unregister("stored")
    return cast_leaf(pa.concat_arrays(found.chunks) if found.num_chunks else array.slice(0, 0), column)


def _look_up(column: Column, kind: AnyType, pick: Picker, places: dict[ColumnId, list[int | None]]) -> None:
    if column.type == "struct" and pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        places[column.id] = pick(column, fields)
        for child, place in zip(column.children, places[column.id], strict=True):
            if place is not None:
                _look_up(child, fields[place].type, pick, places)
    elif column.type == "map" and pa.types.is_map(kind):
        _look_up(column.children[0], kind.key_type, pick, places)
        _look_up(column.children[1], kind.item_type, pick, places)
    elif column.type == "list" and hasattr(kind, "value_type"):
        _look_up(column.children[0], kind.value_type, pick, places)


def _by_mapping(
    table: pa.Table,
    fields: Sequence[AnyField],
    columns: Sequence[Column],
    mapping: Sequence[NameMapping],
    path: str,
) -> pa.Table:
    folders = {key.lower(): value for key, value in hive_values(path).items()}
    by_target = {entry.target_id: entry for entry in mapping}
    names = {field.name.lower(): place for place, field in enumerate(fields)}
    arrays = []
    for column in columns:
        entry = by_target.get(column.id)
        place = names.get(entry.source_name.lower()) if entry is not None else None
        if entry is not None and entry.is_partition:
            arrays.append(_constant(folders.get(entry.source_name.lower()), column, table.num_rows))
        elif entry is None or place is None:
            arrays.append(default_array(column, table.num_rows))
        else:
            pick = partial(_by_source, {found.id: found for found in _entries(column, entry)})
            arrays.append(_cast(table.column(place), fields[place], column, pick))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))


@dataclass(frozen=True, slots=True)
class _Entry:
    id: ColumnId
    children: Mapping[ColumnId, str]


def _entries(column: Column, entry: NameMapping) -> list[_Entry]:
    """For every struct below: the source names of its children, by target id."""
    found = [_Entry(column.id, {child.target_id: child.source_name for child in entry.children})]
    by_target = {child.target_id: child for child in entry.children}
    for child in column.children:
        if child.id in by_target:
            found += _entries(child, by_target[child.id])
    return found


def _by_source(
    entries: Mapping[ColumnId, _Entry], column: Column, fields: Sequence[AnyField]
) -> list[int | None]:
    entry = entries.get(column.id)
    places = {field.name.lower(): place for place, field in enumerate(fields)}
    if entry is None:
        return [None] * len(column.children)
    return [places.get(entry.children.get(child.id, "").lower()) for child in column.children]


def _constant(text: str | None, column: Column, length: int) -> AnyArray:
    if text is None:
        return pa.nulls(length, arrow_type(column))
    value = plain_array([from_text(text, column.type)], column)
    return value.take(pa.array([0] * length, pa.int32()))
