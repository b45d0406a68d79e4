"""DuckLake's types in Spark, and Spark's in DuckLake.

| DuckLake | Spark | note |
|---|---|---|
| boolean, int8 … int64, float32, float64 | boolean, byte … bigint, float, double | |
| uint8, uint16, uint32 | smallint, int, bigint | the next wider signed type |
| uint64 | decimal(20,0) | |
| int128, uint128 | decimal(38,0) | values of 39 digits do not fit |
| decimal(P,S), date | decimal(P,S), date | |
| timestamp, timestamp_s, timestamp_ms | timestamp_ntz | |
| timestamp_ns | bigint | nanoseconds since 1970-01-01; Spark counts microseconds |
| timestamptz | timestamp | |
| time, timetz | bigint | microseconds since midnight; Spark's own TIME is switched off by default |
| time_ns | bigint | nanoseconds since midnight |
| interval | struct<months:int, days:int, microseconds:bigint> | Spark has no interval of all three |
| varchar, json, uuid | string | |
| blob, geometry | binary | geometry as WKB |
| variant | string | its JSON text |
| list, struct, map | array, struct, map | |

Every column can be NULL for Spark, as with Spark's own file sources: it skips the check for NULL where a
schema says that there is none, and would then show garbage instead of a value that is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.format.types import TYPE_KEY, AnyType, decimal_parts, supported_types
from headwater.lake.model import Column
from headwater.spark.arrow_values import from_spark, in_pieces, to_spark

__all__ = [
    "INTERVAL",
    "arrow_type_of",
    "columns_of",
    "from_spark",
    "in_pieces",
    "spark_field",
    "spark_schema",
    "spark_type",
    "to_spark",
]

#: What an interval is in Spark.
INTERVAL = st.StructType(
    [
        st.StructField("months", st.IntegerType()),
        st.StructField("days", st.IntegerType()),
        st.StructField("microseconds", st.LongType()),
    ]
)
_SCALARS: dict[str, st.DataType] = {
    "boolean": st.BooleanType(),
    "int8": st.ByteType(),
    "int16": st.ShortType(),
    "int32": st.IntegerType(),
    "int64": st.LongType(),
    "int128": st.DecimalType(38, 0),
    "uint8": st.ShortType(),
    "uint16": st.IntegerType(),
    "uint32": st.LongType(),
    "uint64": st.DecimalType(20, 0),
    "uint128": st.DecimalType(38, 0),
    "float32": st.FloatType(),
    "float64": st.DoubleType(),
    "date": st.DateType(),
    "time": st.LongType(),
    "time_ns": st.LongType(),
    "timetz": st.LongType(),
    "timestamp": st.TimestampNTZType(),
    "timestamp_s": st.TimestampNTZType(),
    "timestamp_ms": st.TimestampNTZType(),
    "timestamp_ns": st.LongType(),
    "timestamptz": st.TimestampType(),
    "interval": INTERVAL,
    "varchar": st.StringType(),
    "json": st.StringType(),
    "blob": st.BinaryType(),
    "uuid": st.StringType(),
    "variant": st.StringType(),
    "geometry": st.BinaryType(),
}


def spark_type(column: Column) -> st.DataType:
    """The Spark type that a column is read as.

    >>> spark_type(Column(1, "a", "uint32")).simpleString()
    'bigint'
    """
    if column.type in _SCALARS:
        return _SCALARS[column.type]
    decimal = decimal_parts(column.type)
    if decimal is not None:
        return st.DecimalType(*decimal)
    children = column.children
    if column.type == "struct":
        return st.StructType([st.StructField(child.name, spark_type(child)) for child in children])
    if column.type == "list" and len(children) == 1:
        return st.ArrayType(spark_type(children[0]))
    if column.type == "map" and len(children) == 2:
        return st.MapType(spark_type(children[0]), spark_type(children[1]))
    raise UnsupportedError(
        f"Column {column.name!r} has the type {column.type!r}, which has no form in Spark.",
        hint="supported: " + ", ".join(supported_types()),
        column=column.name,
        type=column.type,
    )


def spark_field(column: Column) -> st.StructField:
    """The column as a field of a Spark schema, with its comment."""
    comment = column.tags.get("comment")
    metadata = {"comment": comment} if comment else None
    return st.StructField(column.name, spark_type(column), True, metadata)


def spark_schema(columns: Iterable[Column]) -> st.StructType:
    """The Spark schema that a table of these columns is read with."""
    return st.StructType([spark_field(column) for column in columns])


def columns_of(schema: st.StructType) -> pa.Schema:
    """The Arrow schema to create a table with (`tx.create_table`) for rows of a Spark schema.

    Nothing becomes NOT NULL by it: Spark says that of many columns (`spark.range`) without anybody's wish.
    """
    return pa.schema([_arrow_field(field, field.name) for field in schema.fields])


def _arrow_field(field: st.StructField, path: str) -> Any:
    return _named(field.name, field.dataType, path)


def _named(name: str, kind: st.DataType, path: str) -> Any:
    metadata = {TYPE_KEY: b"variant"} if isinstance(kind, st.VariantType) else None
    return pa.field(name, arrow_type_of(kind, path), metadata=metadata)


_FROM_SPARK: tuple[tuple[type[st.DataType], AnyType], ...] = (
    (st.BooleanType, pa.bool_()),
    (st.ByteType, pa.int8()),
    (st.ShortType, pa.int16()),
    (st.IntegerType, pa.int32()),
    (st.LongType, pa.int64()),
    (st.FloatType, pa.float32()),
    (st.DoubleType, pa.float64()),
    (st.DateType, pa.date32()),
    (st.TimestampType, pa.timestamp("us", tz="UTC")),
    (st.TimestampNTZType, pa.timestamp("us")),
    (st.TimeType, pa.time64("us")),
    (st.DayTimeIntervalType, pa.month_day_nano_interval()),
    (st.StringType, pa.string()),
    (st.CharType, pa.string()),
    (st.VarcharType, pa.string()),
    (st.VariantType, pa.string()),
    (st.BinaryType, pa.binary()),
)


def arrow_type_of(kind: st.DataType, path: str = "") -> AnyType:
    """The Arrow form, as the lake wants it, of a Spark type; `path` names the column in messages."""
    for known, arrow in _FROM_SPARK:
        if isinstance(kind, known):
            return arrow
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, st.ArrayType):
        return pa.list_(_named("element", kind.elementType, f"{path}.element"))
    if isinstance(kind, st.MapType):
        key = _named("key", kind.keyType, f"{path}.key").with_nullable(False)
        return pa.map_(key, _named("value", kind.valueType, f"{path}.value"))
    if isinstance(kind, st.StructType):
        return pa.struct([_arrow_field(field, f"{path}.{field.name}") for field in kind.fields])
    if isinstance(kind, st.UserDefinedType):
        return arrow_type_of(kind.sqlType(), path)
    raise InvalidInputError(
        f"Column {path!r} has Spark's type {kind.simpleString()}, which DuckLake cannot store.",
        hint=_HINTS.get(type(kind), "Cast it to a type that DuckLake has, for example string."),
        column=path,
        type=kind.simpleString(),
    )


_HINTS: dict[type[st.DataType], str] = {
    st.NullType: "Cast the column to the type it should have: CAST(NULL AS int).",
    st.GeometryType: "Write its well-known binary: st_asbinary(column).",
    st.GeographyType: "Write its well-known binary: st_asbinary(column).",
}
