"""Which files go through DuckDB's own Parquet code, and how their columns are handed to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.format.leaves import leaf_arrays, leaves
from headwater.lake.format.types import FIELD_ID_KEY, AnyArray, type_text
from headwater.lake.model import Column
from headwater.storage.duckdb_codec import CodecColumn, FieldIds


def needs_duckdb(columns: Iterable[Column]) -> bool:
    """Whether pyarrow cannot write these columns as DuckDB reads them."""
    return any(leaf.type in ("interval", "variant", "geometry") for leaf in leaves(columns))


def needs_duckdb_to_read(columns: Iterable[Column]) -> bool:
    """Whether pyarrow cannot make sense of a file's values of these columns: variants are shredded."""
    return any(leaf.type == "variant" for leaf in leaves(columns))


def codec_columns(columns: Sequence[Column], schema: pa.Schema) -> tuple[CodecColumn, ...]:
    """How a table of this schema goes into a file: `columns` first, then plain ones (row ids) as they are."""
    found = []
    for column in columns:
        casts = [_sql(column)]
        if column.type == "variant":
            casts.insert(0, "JSON")
        found.append(CodecColumn(column.name, tuple(casts), _ids(column)))
    for place in range(len(columns), len(schema)):
        field = schema.field(place)
        found.append(CodecColumn(field.name, (), int((field.metadata or {})[FIELD_ID_KEY])))
    return tuple(found)


def _sql(column: Column) -> str:
    """The type a column has in the file: its own, but 128-bit integers as decimals, which lose no digit."""
    if column.type in ("int128", "uint128"):
        return "DECIMAL(38,0)"
    if column.type == "list":
        return _sql(column.children[0]) + "[]"
    if column.type == "map":
        return f"MAP({_sql(column.children[0])}, {_sql(column.children[1])})"
    if column.type == "struct":
        fields = (f'"{child.name.replace(chr(34), chr(34) * 2)}" {_sql(child)}' for child in column.children)
        return f"STRUCT({', '.join(fields)})"
    return type_text(column)


def _ids(column: Column) -> FieldIds:
    if not column.children:
        return column.id
    return column.id, {child.name: _ids(child) for child in column.children}


def check_writable(table: pa.Table, columns: Sequence[Column]) -> None:
    """Raise for values that no Parquet file can hold: they would come back as others, or not at all."""
    for column in columns:
        if column.is_nested and any(leaf.type == "variant" for leaf in leaves([column])):
            raise UnsupportedError(
                f"column {column.name!r} has a variant inside a {column.type}",
                detail="DuckDB writes variants only as columns of their own",
                hint="make it a column, or use json",
                column=column.name,
            )
    if not any(leaf.type == "interval" for leaf in leaves(columns)):
        return
    for leaf, data in leaf_arrays(table.select(range(len(columns))), columns):
        if leaf.type == "interval":
            for chunk in data.chunks if isinstance(data, pa.ChunkedArray) else [data]:
                _check_intervals(chunk.drop_null(), leaf)


def _check_intervals(array: AnyArray, column: Column) -> None:
    # Parquet's interval is three unsigned numbers, the last of them milliseconds. DuckDB refuses negative
    # ones and drops what is smaller than a millisecond without a word.
    for value in array.to_pylist():
        if min(value.months, value.days, value.nanoseconds) < 0 or value.nanoseconds % 1_000_000:
            raise InvalidInputError(
                f"column {column.name!r}: the interval {tuple(value)} cannot be stored in a file",
                detail="Parquet's intervals have whole milliseconds and no negative parts",
                hint="store months, days and microseconds as integers",
                column=column.name,
            )
