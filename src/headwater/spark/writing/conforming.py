"""Rows of a DataFrame in the columns of a table: found by name, with types that lose nothing unnoticed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.errors import InvalidInputError
from headwater.lake.format.types import AnyField, can_widen, columns_from_arrow
from headwater.lake.model import Column, Table
from headwater.spark.arrow_values import spark_arrow_type
from headwater.spark.literals import name_sql
from headwater.spark.types import columns_of, spark_type


@dataclass
class Fit:
    """How rows fit a table."""

    missing: list[Column] = field(default_factory=list)
    """Columns of the table that the rows lack; they get their defaults."""
    new: list[AnyField] = field(default_factory=list)
    """Columns to add to the table first."""
    wider: dict[str, str] = field(default_factory=dict)
    """Columns whose type must be widened first, with the type they need."""


def fit(frame: DataFrame, table: Table, *, merge_schema: bool = False, defaults: bool = False) -> Fit:
    """Check the columns of `frame` against those of `table`.

    What is missing, unknown or of a type that cannot be stored is an error, unless `merge_schema` says that
    the table may change to take it. `defaults` lets columns be missing, as in `INSERT INTO t (a, b)`.
    """
    result = Fit()
    given = _by_name(frame.schema, table)
    for name, column in ((c.name.lower(), c) for c in table.columns):
        if name not in given:
            result.missing.append(column)
    if result.missing and not merge_schema and not defaults:
        raise InvalidInputError(
            f"The rows lack {_list(c.name for c in result.missing)} of table {table.name}.",
            hint="Add them (lit(None) for NULL), or pass merge_schema=True to take their defaults.",
            table=str(table.name),
            columns=[c.name for c in result.missing],
        )
    own = {column.name.lower() for column in table.columns}
    extra = [f for name, f in given.items() if name not in own]
    if extra and not merge_schema:
        raise _unknown(extra, table)
    result.new = list(columns_of(st.StructType(extra)))
    for column in table.columns:
        source = given.get(column.name.lower())
        if source is None or source.dataType == spark_type(column):
            continue
        wanted = _wider(source, column) if merge_schema else None
        if wanted is None:
            if can_store(frame, source.dataType, spark_type(column)):
                continue
            raise InvalidInputError(
                f"Column {column.name!r} of table {table.name} is {spark_type(column).simpleString()}, "
                f"and the rows have {source.dataType.simpleString()}.",
                hint="Cast it first; a value that does not fit is then an error of the cast.",
                table=str(table.name),
                column=column.name,
            )
        result.wider[column.name] = wanted
    return result


def can_store(frame: DataFrame, source: st.DataType, target: st.DataType) -> bool:
    """Whether Spark stores values of one type in a column of another without a cast in the text.

    That is the rule of its own INSERT: numbers to numbers (too large is an error), anything plain to text,
    dates to timestamps, and inside of structs, lists and maps the same; but no text to numbers.
    """
    if source == target or isinstance(source, st.NullType):
        return True
    if isinstance(source, st.StructType) and isinstance(target, st.StructType):
        given = {f.name.lower(): f.dataType for f in source.fields}
        wanted = {f.name.lower(): f.dataType for f in target.fields}
        return set(given) == set(wanted) and all(can_store(frame, given[n], wanted[n]) for n in wanted)
    if isinstance(source, st.ArrayType) and isinstance(target, st.ArrayType):
        return can_store(frame, source.elementType, target.elementType)
    if isinstance(source, st.MapType) and isinstance(target, st.MapType):
        return can_store(frame, source.keyType, target.keyType) and can_store(
            frame, source.valueType, target.valueType
        )
    session: Any = frame.sparkSession._jsparkSession
    jvm: Any = frame.sparkSession._jvm
    given_type, wanted_type = (session.parseDataType(kind.json()) for kind in (source, target))
    return bool(
        jvm.org.apache.spark.sql.catalyst.expressions.Cast.canANSIStoreAssign(given_type, wanted_type)
    )


def with_field_ids(
    frame: DataFrame, columns: Sequence[Column], extra: Mapping[str, int] | None = None
) -> DataFrame:
    """The rows with exactly these columns, in order, and field ids for Parquet.

    `extra` names further columns that go along, with their field ids.
    """
    values = [_with_id(F.col(name_sql(column.name)), column) for column in columns]
    for name, field_id in (extra or {}).items():
        values.append(F.col(name_sql(name)).alias(name, metadata={"parquet.field.id": field_id}))
    return frame.select(*values)


def _with_id(value: SparkColumn, column: Column) -> SparkColumn:
    if column.type == "struct":
        children = [_with_id(value.getField(child.name), child) for child in column.children]
        value = F.when(value.isNotNull(), F.struct(*children))
    return value.alias(column.name, metadata={"parquet.field.id": column.id})


def _by_name(schema: st.StructType, table: Table) -> dict[str, st.StructField]:
    found: dict[str, st.StructField] = {}
    for one in schema.fields:
        if one.name.lower() in found:
            raise InvalidInputError(
                f"The rows for table {table.name} have two columns named {one.name!r}.",
                detail="Names are compared without regard to case.",
                hint="Rename or drop one.",
                table=str(table.name),
                column=one.name,
            )
        found[one.name.lower()] = one
    return found


def _unknown(extra: Sequence[st.StructField], table: Table) -> InvalidInputError:
    names = [c.name for c in table.columns]
    near = difflib.get_close_matches(extra[0].name, names, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return InvalidInputError(
        f"Table {table.name} has no column {_list(f.name for f in extra)}.",
        hint=f"{meant}Drop it from the rows, or pass merge_schema=True to add it to the table.",
        table=str(table.name),
        columns=[f.name for f in extra],
    )


def _wider(source: st.StructField, column: Column) -> str | None:
    (wanted,) = columns_from_arrow(columns_of(st.StructType([source])))
    return wanted.type if can_widen(column, wanted.type) else None


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def as_stored(rows: pa.Table, schema: st.StructType, columns: Sequence[Column]) -> pa.Table | None:
    """Rows of Spark's, of type `schema`, with the columns of a table; None where that is for Spark to do.

    It is where a column is missing, where its type is another that is not simply a wider or a narrower one,
    and where a value does not fit: Spark has the words for that.
    """
    given = {one.name.lower(): place for place, one in enumerate(schema.fields)}
    if len(given) < len(schema.fields):
        return None
    arrays: list[Any] = []
    for column in columns:
        place = given.get(column.name.lower())
        if place is None:
            return None
        array: Any = rows.column(place)
        kind, target = schema.fields[place].dataType, spark_type(column)
        if kind != target:
            if not _is_wider_or_narrower(kind, target):
                return None
            try:
                array = array.cast(spark_arrow_type(column))
            except pa.ArrowInvalid:
                return None
        arrays.append(array)
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _is_wider_or_narrower(kind: st.DataType, target: st.DataType) -> bool:
    if isinstance(kind, st.DecimalType) and isinstance(target, st.DecimalType):
        return kind.scale == target.scale
    return isinstance(kind, st.IntegralType) and isinstance(target, st.IntegralType)


def stored_as(value: SparkColumn, column: Column, kind: st.DataType) -> SparkColumn:
    """A value of type `kind` as the table stores it; `fit` has said that it can be."""
    return _stored(value, kind, column).alias(column.name)


def stored_rows(frame: DataFrame, table: Table) -> DataFrame:
    """The rows with their columns as the table stores them, and whatever else they have."""
    known = {column.name.lower(): column for column in table.columns}
    columns = []
    for one in frame.schema.fields:
        value, column = F.col(name_sql(one.name)), known.get(one.name.lower())
        columns.append(value if column is None else stored_as(value, column, one.dataType))
    return frame.select(*columns)


def _stored(value: SparkColumn, kind: st.DataType, column: Column) -> SparkColumn:
    target = spark_type(column)
    if kind == target:
        return value
    if isinstance(kind, st.StructType) and isinstance(target, st.StructType) and column.children:
        given = {one.name.lower(): one for one in kind.fields}
        parts = []
        for child in column.children:
            own = given[child.name.lower()]
            parts.append(_stored(value.getField(own.name), own.dataType, child).alias(child.name))
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, st.ArrayType) and column.type == "list":
        element, inner = kind.elementType, column.children[0]
        return F.transform(value, lambda item: _stored(item, element, inner))
    if isinstance(kind, st.MapType) and column.type == "map":
        key, item = column.children
        entries = F.transform_keys(value, lambda k, _: _stored(k, kind.keyType, key))
        return F.transform_values(entries, lambda _, v: _stored(v, kind.valueType, item))
    return value.cast(target)
