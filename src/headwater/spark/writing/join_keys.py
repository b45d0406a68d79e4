"""Which files of a table a small source of a MERGE can meet at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from headwater.algebra.predicates import And, Comparison, Constant, In, Predicate
from headwater.lake.model import Table
from headwater.spark.types import spark_schema, spark_type

#: Up to this many different keys files are pruned by each of them, beyond by the smallest and the largest.
_FEW = 200
#: Types whose values compare in the catalog as they do in Spark.
_COMPARED = (
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
    st.DecimalType,
    st.StringType,
    st.DateType,
    st.TimestampNTZType,
)


def rows_met(
    spark: SparkSession,
    table: Table,
    source: DataFrame,
    rows: pa.Table,
    on: SparkColumn,
    aliases: tuple[str, str],
) -> Predicate | None:
    """What every row of the table that has a partner must meet; None if nothing is known.

    `rows` are those of `source`, `on` is the condition of the join, in which table and source have `aliases`.
    """
    empty = spark.createDataFrame([], spark_schema(table.columns)).alias(aliases[0])
    plan: Any = empty.join(source, on)._jdf.queryExecution().analyzed()
    condition = plan.condition()
    if condition.isEmpty():
        return None
    parts = [
        part
        for mine, theirs in _equalities(condition.get(), aliases)
        if (part := _bounds(table, source, rows, mine, theirs)) is not None
    ]
    return And(tuple(parts)) if parts else None


def _equalities(condition: Any, aliases: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Columns of the table and of the source that must be equal."""
    kind = condition.getClass().getSimpleName()
    if kind == "And":
        yield from _equalities(condition.left(), aliases)
        yield from _equalities(condition.right(), aliases)
    elif kind == "EqualTo":
        sides = [_column(condition.left()), _column(condition.right())]
        for (alias, mine), (other, theirs) in (sides, sides[::-1]):
            if (alias, other) == aliases:
                yield mine, theirs


def _column(expression: Any) -> tuple[str, str]:
    if expression.getClass().getSimpleName() != "AttributeReference":
        return "", ""
    return str(expression.qualifier().mkString(".")), str(expression.name())


def _bounds(table: Table, source: DataFrame, rows: pa.Table, mine: str, theirs: str) -> Predicate | None:
    column = table.column(mine)
    places = [i for i, name in enumerate(source.columns) if name == theirs]
    if column is None or len(places) != 1 or column.type in ("uuid", "json", "time", "timestamp_ns"):
        return None
    kind = source.schema.fields[places[0]].dataType
    if kind != spark_type(column) or not isinstance(kind, _COMPARED):
        return None
    given: Any = rows.column(places[0])
    values = pc.unique(given.drop_null()) if given.length() else given
    if not len(values):
        return Constant(False)
    path = (column.name,)
    if len(values) <= _FEW:
        return In(path, tuple(values.to_pylist()))
    both: Any = pc.min_max(values).as_py()
    return And((Comparison(path, ">=", both["min"]), Comparison(path, "<=", both["max"])))
