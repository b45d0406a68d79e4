"""Columns of the lake as Spark's own Parquet reader sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as st

from headwater.lake.format.types import decimal_parts
from headwater.lake.model import Column
from headwater.lake.reading.column_history import ColumnVersion
from headwater.spark.literals import default_sql, name_sql
from headwater.spark.types import spark_type
from headwater.typedefs import ColumnId, SnapshotId

#: What Spark's reader turns into the right value by itself.
_NATIVE = frozenset(
    {
        "boolean",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
    }
    | {"date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "time"}
    | {"varchar", "json", "blob", "uuid"}
)
#: Older types that it widens by itself; the other steps it refuses, or gets wrong (uint32 to double).
_WIDENED = {
    "int16": {"int8"},
    "int32": {"int8", "int16"},
    "int64": {"int8", "int16", "int32"},
    "float64": {"float32", "int8", "int16", "int32"},
    "uint16": {"uint8"},
    "uint32": {"uint8", "uint16"},
    "timestamp": {"date", "timestamp_s", "timestamp_ms"},
    "timestamp_ms": {"timestamp_s", "date"},
    "timestamp_s": {"date"},
}
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class NativeColumn:
    """How a column is read from files, and what makes the column of it."""

    column: Column
    name: str
    """The column's name inside the scan; the table's own, wherever that is safe."""

    def field(self) -> st.StructField:
        """The field to read, found by its id; files without it have the initial default."""
        return st.StructField(self.name, _file_type(self.column), True, _metadata(self.column))

    def value(self) -> str:
        """The column as the table has it, in Spark's SQL."""
        read = name_sql(self.name)
        if self.column.type == "uuid":
            parts = [f"substring(lower(hex({read})), {start}, {size})" for start, size in _UUID_PARTS]
            return f"CASE WHEN {read} IS NOT NULL THEN concat_ws('-', {', '.join(parts)}) END"
        return read


_UUID_PARTS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))


def native_columns(columns: Iterable[Column], history: Iterable[ColumnVersion]) -> tuple[NativeColumn, ...]:
    """The columns under names that mean no other column in any file.

    Spark finds columns by field id, but filters inside files by name: after `a` and `b` changed names, it
    would skip row groups by the statistics of the wrong one.
    """
    risky = _reused_names(history)
    return tuple(
        NativeColumn(
            column, f"headwater {column.id}" if risky & {c.id for c in column.walk()} else column.name
        )
        for column in columns
    )


def is_native(column: Column) -> bool:
    """Whether Spark's reader can give the exact values of a column."""
    if column.is_nested:
        return all(
            is_native(child) and child.type != "uuid" and child.initial_default is None
            for child in column.children
        )
    known = column.type in _NATIVE or decimal_parts(column.type) is not None
    default = column.initial_default
    return known and (default is None or default_sql(column, default) is not None)


def native_since(
    columns: Iterable[Column], history: Iterable[ColumnVersion], snapshot: SnapshotId
) -> SnapshotId:
    """The snapshot since which files have columns that Spark's reader widens by itself, if at all.

    At a snapshot from before a widening no file is sure: compaction may have put the rows into a newer one,
    whose type is wider than the column was.
    """
    current = {inner.id: inner for column in columns for inner in column.walk()}
    since = 0
    for version in history:
        now = current.get(version.id)
        if now is None or version.type == now.type:
            continue
        if version.begin > snapshot:
            return _NEVER
        if version.end is not None and not _widens(version.type, now.type):
            since = max(since, version.end)
    return since


def _widens(old: str, new: str) -> bool:
    """Whether Spark's reader makes values of a column's type of those of an older one."""
    before, now = decimal_parts(old), decimal_parts(new)
    if before is not None and now is not None:
        return before[1] == now[1] and before[0] <= now[0]
    return old in _WIDENED.get(new, ())


def _reused_names(history: Iterable[ColumnVersion]) -> set[ColumnId]:
    """Columns that have or had a name which another column of the same parent has or had."""
    owners: dict[tuple[ColumnId | None, str], set[ColumnId]] = {}
    for version in history:
        owners.setdefault((version.parent, version.name.lower()), set()).add(version.id)
    return {column for ids in owners.values() if len(ids) > 1 for column in ids}


def _file_type(column: Column) -> st.DataType:
    if column.type == "uuid":
        return st.BinaryType()
    if column.type == "struct":
        return st.StructType(
            [st.StructField(c.name, _file_type(c), True, {"parquet.field.id": c.id}) for c in column.children]
        )
    if column.type == "list":
        return st.ArrayType(_file_type(column.children[0]))
    if column.type == "map":
        return st.MapType(_file_type(column.children[0]), _file_type(column.children[1]))
    return spark_type(column)


def _metadata(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"parquet.field.id": column.id}
    if column.initial_default is not None:
        text = default_sql(column, column.initial_default)
        found |= {"EXISTS_DEFAULT": text, "CURRENT_DEFAULT": text}
    return found
