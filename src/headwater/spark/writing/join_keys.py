"""Which files of a table a small source of a MERGE can meet at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

from headwater.algebra.predicates import And, Comparison, Constant, In, Predicate
from headwater.lake.model import Table
from headwater.spark.types import spark_type

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
    table: Table, schema: st.StructType, rows: pa.Table, equal: Sequence[tuple[int, int]]
) -> Predicate | None:
    """What every row of the table that has a partner must meet; None if nothing is known.

    `rows` are those of the source, of type `schema`; `equal` are places of columns of the table and of the
    source that the condition of the join wants to be equal.
    """
    parts = [
        part for mine, theirs in equal if (part := _bounds(table, schema, rows, mine, theirs)) is not None
    ]
    return And(tuple(parts)) if parts else None


def _bounds(table: Table, schema: st.StructType, rows: pa.Table, mine: int, theirs: int) -> Predicate | None:
    column = table.columns[mine]
    if column.type in ("uuid", "json", "time", "timestamp_ns"):
        return None
    kind = schema.fields[theirs].dataType
    if kind != spark_type(column) or not isinstance(kind, _COMPARED):
        return None
    given: Any = rows.column(theirs)
    values = pc.unique(given.drop_null()) if given.length() else given
    if not len(values):
        return Constant(False)
    path = (column.name,)
    if len(values) <= _FEW:
        return In(path, tuple(values.to_pylist()))
    both: Any = pc.min_max(values).as_py()
    return And((Comparison(path, ">=", both["min"]), Comparison(path, "<=", both["max"])))
