"""DuckLake's types, their Arrow form, and their name in DuckDB's SQL.

| DuckLake | Arrow | why this form |
|---|---|---|
| boolean, int8 … int64, uint8 … uint64 | the same | |
| float32, float64 | float, double | |
| decimal(P,S) | decimal128(P, S) | |
| int128, uint128 | decimal128(38, 0) | what DuckDB exports; in files too (its own DOUBLE loses digits) |
| date | date32 | |
| time | time64[us] | |
| time_ns | time64[ns] | read only: DuckDB cannot write it |
| timetz | time64[us], in UTC | files keep no offset |
| timestamp, timestamp_s, _ms, _ns | timestamp[us], [s], [ms], [ns] | |
| timestamptz | timestamp[us, tz=UTC] | |
| interval | month_day_nano_interval | |
| varchar | string | |
| json | arrow.json extension on string | |
| blob | binary | |
| uuid | arrow.uuid extension | |
| list, struct, map | list, struct, map | |
| variant | string holding JSON | DuckDB has no Arrow form for it; JSON casts both ways |
| geometry | binary holding WKB, tagged geoarrow.wkb | what DuckDB exports |

Where the Arrow type alone does not tell (int128, uint128, timetz, variant, geometry), the field's metadata
has the key `ducklake:type`; the same key in a user's schema overrides the type that Arrow suggests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.model import Column

#: pyarrow's stubs describe arrays, fields and types of one known type each; code that works on all of them
#: cannot be written in those terms.
AnyArray: TypeAlias = Any
AnyField: TypeAlias = Any
AnyType: TypeAlias = Any

FIELD_ID_KEY = b"PARQUET:field_id"
TYPE_KEY = b"ducklake:type"

#: Every type without parameters or children: its Arrow form and its name in DuckDB.
SCALARS: dict[str, tuple[AnyType, str]] = {
    "boolean": (pa.bool_(), "BOOLEAN"),
    "int8": (pa.int8(), "TINYINT"),
    "int16": (pa.int16(), "SMALLINT"),
    "int32": (pa.int32(), "INTEGER"),
    "int64": (pa.int64(), "BIGINT"),
    "int128": (pa.decimal128(38, 0), "HUGEINT"),
    "uint8": (pa.uint8(), "UTINYINT"),
    "uint16": (pa.uint16(), "USMALLINT"),
    "uint32": (pa.uint32(), "UINTEGER"),
    "uint64": (pa.uint64(), "UBIGINT"),
    "uint128": (pa.decimal128(38, 0), "UHUGEINT"),
    "float32": (pa.float32(), "FLOAT"),
    "float64": (pa.float64(), "DOUBLE"),
    "date": (pa.date32(), "DATE"),
    "time": (pa.time64("us"), "TIME"),
    "time_ns": (pa.time64("ns"), "TIME_NS"),
    "timetz": (pa.time64("us"), "TIME WITH TIME ZONE"),
    "timestamp": (pa.timestamp("us"), "TIMESTAMP"),
    "timestamp_s": (pa.timestamp("s"), "TIMESTAMP_S"),
    "timestamp_ms": (pa.timestamp("ms"), "TIMESTAMP_MS"),
    "timestamp_ns": (pa.timestamp("ns"), "TIMESTAMP_NS"),
    "timestamptz": (pa.timestamp("us", tz="UTC"), "TIMESTAMP WITH TIME ZONE"),
    "interval": (pa.month_day_nano_interval(), "INTERVAL"),
    "varchar": (pa.string(), "VARCHAR"),
    "json": (pa.json_(pa.string()), "JSON"),
    "blob": (pa.binary(), "BLOB"),
    "uuid": (pa.uuid(), "UUID"),
    "variant": (pa.string(), "VARIANT"),
    "geometry": (pa.binary(), "GEOMETRY"),
}

#: Types whose Arrow form does not tell them apart from another; their fields carry `ducklake:type`.
_TAGGED = frozenset({"int128", "uint128", "timetz", "variant", "geometry"})

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
#: Steps that keep every value, among those DuckDB accepts. (It also takes some that do not, such as int64 to
#: float32, and some whose result depends on the session, such as date to timestamptz.)
_WIDER = {
    "int8": "int16 int32 int64 int128 float32 float64",
    "int16": "int32 int64 int128 float32 float64",
    "int32": "int64 int128 float64",
    "int64": "int128",
    "uint8": "uint16 uint32 uint64 uint128 int16 int32 int64 int128 float32 float64",
    "uint16": "uint32 uint64 uint128 int32 int64 int128 float32 float64",
    "uint32": "uint64 uint128 int64 int128 float64",
    "uint64": "uint128 int128",
    "float32": "float64",
    "date": "timestamp timestamp_s timestamp_ms",
    "timestamp_s": "timestamp_ms timestamp",
    "timestamp_ms": "timestamp",
}
_DIGITS = {
    "int8": 3,
    "uint8": 3,
    "int16": 5,
    "uint16": 5,
    "int32": 10,
    "uint32": 10,
    "int64": 19,
    "uint64": 20,
}


def decimal_parts(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for every other type.

    >>> decimal_parts("decimal(10,2)"), decimal_parts("int32")
    ((10, 2), None)
    """
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else None


def arrow_type(column: Column) -> AnyType:
    """The Arrow type that holds this column's values."""
    return _arrow_type(column, field_ids=False)


def arrow_field(column: Column, *, field_ids: bool = True) -> AnyField:
    """The column as an Arrow field; with `field_ids` every level names its id for Parquet."""
    metadata: dict[bytes, bytes] = {}
    if field_ids:
        metadata[FIELD_ID_KEY] = str(column.id).encode()
    if column.type in _TAGGED:
        metadata[TYPE_KEY] = column.type.encode()
    if column.type == "geometry":
        metadata[b"ARROW:extension:name"] = b"geoarrow.wkb"
        metadata[b"ARROW:extension:metadata"] = b"{}"
    return pa.field(
        column.name,
        _arrow_type(column, field_ids=field_ids),
        nullable=column.nulls_allowed,
        metadata=metadata or None,
    )


def arrow_schema(columns: Iterable[Column], *, field_ids: bool = True) -> pa.Schema:
    """The Arrow schema of a table with these columns."""
    return pa.schema([arrow_field(column, field_ids=field_ids) for column in columns])


def empty_table(columns: Iterable[Column]) -> pa.Table:
    """No rows of these columns."""
    return no_rows(arrow_schema(columns))


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows. (`Schema.empty_table` gives up on UUIDs and JSON inside lists.)"""
    kinds: list[AnyType] = [field.type for field in schema]
    return pa.Table.from_arrays([pa.nulls(0, kind) for kind in kinds], schema=schema)


def _arrow_type(column: Column, *, field_ids: bool) -> AnyType:
    if column.type in SCALARS:
        return SCALARS[column.type][0]
    decimal = decimal_parts(column.type)
    if decimal is not None:
        return pa.decimal128(*decimal)
    children = [arrow_field(child, field_ids=field_ids) for child in column.children]
    if column.type == "struct":
        return pa.struct(children)
    if column.type == "list" and len(children) == 1:
        return pa.list_(children[0])
    if column.type == "map" and len(children) == 2:
        # Arrow and Parquet both demand keys that are never NULL, whatever the catalog says.
        return pa.map_(children[0].with_nullable(False), children[1])
    raise UnsupportedError(
        f"column {column.name!r} has the type {column.type!r}, which Headwater does not know",
        hint="supported: " + ", ".join(supported_types()),
        column=column.name,
        type=column.type,
    )


def supported_types() -> list[str]:
    """The names of all types a column can have, for messages."""
    return [*SCALARS, "decimal(P,S)", "list(T)", "struct(name T, …)", "map(K,V)"]


def type_text(column: Column) -> str:
    """The column's type as DuckDB writes it in SQL.

    >>> type_text(Column(1, "s", "struct", children=(Column(2, "a", "int32"),)))
    'STRUCT("a" INTEGER)'
    """
    if column.type in SCALARS:
        return SCALARS[column.type][1]
    decimal = decimal_parts(column.type)
    if decimal is not None:
        return f"DECIMAL({decimal[0]},{decimal[1]})"
    inner = [type_text(child) for child in column.children]
    if column.type == "list" and len(inner) == 1:
        return f"{inner[0]}[]"
    if column.type == "map" and len(inner) == 2:
        return f"MAP({inner[0]}, {inner[1]})"
    if column.type == "struct" and inner:
        names = [_quoted(child.name) for child in column.children]
        return "STRUCT(" + ", ".join(f"{name} {text}" for name, text in zip(names, inner, strict=True)) + ")"
    raise UnsupportedError(
        f"column {column.name!r} has the type {column.type!r}, which has no name in SQL",
        hint="supported: " + ", ".join(supported_types()),
        column=column.name,
        type=column.type,
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def can_widen(old: Column, new_type: str) -> bool:
    """Whether a column can take this type so that it keeps every value and DuckDB agrees."""
    if new_type in _WIDER.get(old.type, "").split():
        return True
    wanted = decimal_parts(new_type)
    if wanted is None:
        return False
    have = decimal_parts(old.type) or (_DIGITS.get(old.type, 99), 0)
    return wanted[1] >= have[1] and wanted[0] - wanted[1] >= have[0] - have[1]


def columns_from_arrow(schema: pa.Schema, first_id: int = 1) -> tuple[Column, ...]:
    """The columns of a new table for data of this schema; ids count depth first from `first_id`."""
    return _columns([schema.field(i) for i in range(len(schema))], first_id, ())[0]


def _columns(fields: list[AnyField], next_id: int, path: tuple[str, ...]) -> tuple[tuple[Column, ...], int]:
    seen: dict[str, str] = {}
    columns: list[Column] = []
    for field in fields:
        key = field.name.lower()
        if not field.name:
            raise InvalidInputError(
                f"column {len(columns) + 1} of {'.'.join(path) or 'the table'} has an empty name",
                hint="give every column and every struct field a name",
            )
        if key in seen:
            raise InvalidInputError(
                f"two columns are named {seen[key]!r} and {field.name!r}",
                detail="DuckDB compares names without regard to case",
                hint="rename one of them",
                column=".".join((*path, field.name)),
            )
        seen[key] = field.name
        column, next_id = _column(field, next_id, path)
        columns.append(column)
    return tuple(columns), next_id


def _column(field: AnyField, next_id: int, path: tuple[str, ...]) -> tuple[Column, int]:
    where = (*path, field.name)
    own_id, next_id = next_id, next_id + 1
    override = (field.metadata or {}).get(TYPE_KEY)
    if override is not None:
        from headwater.lake.format.type_text import column_from_text

        column = column_from_text(field.name, override.decode(), own_id, nulls_allowed=field.nullable)
        return column, own_id + sum(1 for _ in column.walk())
    kind = field.type
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    name = _scalar_name(kind)
    if name is not None:
        return Column(own_id, field.name, name, field.nullable), next_id
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        if not fields:
            raise _refused(where, kind, "a struct needs at least one field", "drop the column or add a field")
        children, next_id = _columns(fields, next_id, where)
        return Column(own_id, field.name, "struct", field.nullable, children=children), next_id
    if pa.types.is_map(kind):
        # Keys are NOT NULL in Arrow anyway; DuckDB's catalog says "nulls allowed" for them.
        key, next_id = _column(kind.key_field.with_name("key").with_nullable(True), next_id, where)
        value, next_id = _column(kind.item_field.with_name("value"), next_id, where)
        return Column(own_id, field.name, "map", field.nullable, children=(key, value)), next_id
    if _is_list(kind):
        element, next_id = _column(kind.value_field.with_name("element"), next_id, where)
        return Column(own_id, field.name, "list", field.nullable, children=(element,)), next_id
    raise _why_refused(where, kind)


def _is_list(kind: AnyType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


_BY_ARROW = {
    **{arrow: name for name, (arrow, _) in SCALARS.items() if name not in _TAGGED and name != "time_ns"},
    pa.float16(): "float32",
    pa.date64(): "date",
    pa.time32("s"): "time",
    pa.time32("ms"): "time",
    pa.large_string(): "varchar",
    pa.string_view(): "varchar",
    pa.large_binary(): "blob",
    pa.binary_view(): "blob",
}


def _scalar_name(kind: AnyType) -> str | None:
    """DuckLake's name of an Arrow type without children; None where it has none."""
    if pa.types.is_decimal(kind):
        if kind.precision > 38 or not 0 <= kind.scale <= kind.precision:
            return None
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "timestamptz"
    if pa.types.is_fixed_size_binary(kind):
        return "blob"
    if isinstance(kind, pa.JsonType):
        return "json"
    return _BY_ARROW.get(kind)


def _why_refused(path: tuple[str, ...], kind: AnyType) -> InvalidInputError:
    if pa.types.is_null(kind):
        why, hint = "a column of nothing but NULL has no type", "cast it to the type it should have"
    elif pa.types.is_duration(kind):
        why = "DuckLake has no type for a span of time counted in one unit"
        hint = "cast it to int64, or to month_day_nano_interval for an interval column"
    elif pa.types.is_time(kind):
        why = "DuckDB cannot write times with nanoseconds"
        hint = "cast it to time64('us')"
    elif pa.types.is_decimal(kind):
        why = "a decimal has at most 38 digits, and a scale from 0 to its precision"
        hint = "cast it to a decimal128 that fits, or to float64"
    else:
        why, hint = "DuckLake has no such type", "supported: " + ", ".join(supported_types())
    return _refused(path, kind, why, hint)


def _refused(path: tuple[str, ...], kind: AnyType, why: str, hint: str) -> InvalidInputError:
    name = ".".join(path)
    return InvalidInputError(
        f"column {name!r} cannot be stored as {kind}", detail=why, hint=hint, column=name, type=str(kind)
    )
