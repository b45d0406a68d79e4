"""Rows that came and went: of a table between two snapshots, of a stage in the refresh under way.

Few rows are held by this process, in Spark's own types; many stay with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.algebra.relations import ROW_ID, WEIGHT
from headwater.lake.model import Column
from headwater.lake.reading.change_plan import ChangePlan
from headwater.lake.reading.change_reader import net_rows
from headwater.lake.reading.change_rows import Numbers, same_rows
from headwater.refresh.local_rows import Found
from headwater.spark.changes import came_and_went
from headwater.spark.connector import LakeSpark
from headwater.spark.types import spark_schema, to_spark

#: More rows than these are read by Spark where it computes with them in several tasks.
GIVEN = 200_000


@dataclass
class Delta:
    """Rows with weights, in this process or in Spark."""

    schema: st.StructType
    here: pa.Table | None = None
    frame: DataFrame | None = None
    #: Whether every row came, as far as that is known.
    only_came: bool = False
    #: How many rows there are at most, if they are not here.
    at_most: int = 0
    #: Brings rows here that are not yet: there are some.
    read: Callable[[], pa.Table] | None = None
    #: Makes a DataFrame of rows that are read by Spark.
    by_spark: Callable[[], DataFrame] | None = None
    _found: Found | None = None

    @property
    def rows(self) -> pa.Table | None:
        """The rows, unless they are with Spark."""
        if self.here is None and self.read is not None:
            self.here = self.read()
        return self.here

    @property
    def found(self) -> Found | None:
        """The rows, if they are here."""
        if self._found is None and self.rows is not None:
            self._found = Found(self.rows, self.schema)
        return self._found

    @property
    def empty(self) -> bool:
        """Whether there is nothing, as far as that is known."""
        return self.here is not None and self.here.num_rows == 0

    @property
    def count(self) -> int | None:
        """How many rows, if they are here."""
        return None if self.rows is None else self.rows.num_rows

    @property
    def expected(self) -> int:
        """How many rows there are, or at most."""
        return self.at_most if self.here is None else self.here.num_rows

    @property
    def with_spark_alone(self) -> bool:
        """Whether the rows are too many for this process."""
        return self.here is None and self.read is None

    def data(self, session: LakeSpark) -> DataFrame:
        """The rows as a DataFrame; many are read by Spark, even if they are here, rather than given to it."""
        large = self.with_spark_alone or self.expected > GIVEN
        if self.frame is None and self.by_spark is not None and large:
            self.frame = self.by_spark()
        if self.frame is not None:
            return self.frame
        if self.found is None:
            raise ValueError("a delta has rows here or in Spark")
        return self.found.data(session)


@dataclass(frozen=True)
class ChangedRows:
    """Changed rows in this process, in Spark's types, with row id and weight."""

    rows: pa.Table
    updates: tuple[Numbers, Numbers]
    """The places of rows that are another than before: of each as it was, and as it is."""

    @property
    def names(self) -> frozenset[str]:
        """The columns that are here."""
        return frozenset(self.rows.schema.names)


def delta_by_spark(session: LakeSpark, plan: ChangePlan, used: Collection[str], at_most: int) -> Delta:
    """Changes that are too many for this process."""
    columns = [column for column in plan.table.columns if column.name in used]
    names = (*(column.name for column in columns), ROW_ID, WEIGHT)
    return Delta(
        _schema(columns),
        at_most=at_most,
        only_came=_only_came(plan),
        by_spark=lambda: came_and_went(session, plan, columns).toDF(*names),
    )


def late_delta(
    session: LakeSpark,
    plan: ChangePlan,
    used: Collection[str],
    at_most: int,
    read: Callable[[], ChangedRows],
) -> Delta:
    """Changes that are read once they are asked for, by this process or by Spark."""
    columns = [column for column in plan.table.columns if column.name in used]
    return replace(delta_by_spark(session, plan, used, at_most), read=lambda: _in_use(read(), columns))


def _only_came(plan: ChangePlan) -> bool:
    return not plan.deletions and not any(inlined.deleted for inlined in plan.inlined)


def read_changed_rows(session: LakeSpark, plan: ChangePlan, wanted: Collection[str]) -> ChangedRows:
    """What became of a table's rows, in the wanted columns."""
    lake = session.lake
    columns = [column for column in plan.table.columns if column.name in wanted]
    names = [column.name for column in columns or plan.table.columns[:1]]
    found = net_rows(plan, lake.store, lake.db, names, lake.kept_columns)
    values = to_spark(found.rows.select([column.name for column in columns]), columns)
    weights = pa.array(np.where(found.came, 1, -1).astype(np.int32))
    # Not one after the other: a table without any column does not know how many rows it has.
    arrays: list[Any] = [*values.columns, pa.array(found.row_ids), weights]
    names = [*values.schema.names, ROW_ID, WEIGHT]
    return ChangedRows(pa.Table.from_arrays(arrays, names=names), found.updates)


def delta_of(changes: ChangedRows, plan: ChangePlan, used: Collection[str]) -> Delta:
    """The changes in the columns in use; updates that change none of them are left out."""
    columns = [column for column in plan.table.columns if column.name in used]
    rows = _in_use(changes, columns)
    only_came = bool((rows.column(WEIGHT).to_numpy() > 0).all())
    return Delta(_schema(columns), rows, only_came=only_came)


def _in_use(changes: ChangedRows, columns: Sequence[Column]) -> pa.Table:
    rows = changes.rows.select([*(column.name for column in columns), ROW_ID, WEIGHT])
    before, after = changes.updates
    if not len(before):
        return rows
    same = same_rows(rows.drop_columns([WEIGHT]), before, after)
    keep = np.ones(rows.num_rows, bool)
    keep[before[same]] = keep[after[same]] = False
    return rows.filter(pa.array(keep))


def _schema(columns: Sequence[Column]) -> st.StructType:
    return spark_schema(columns).add(ROW_ID, st.LongType()).add(WEIGHT, st.IntegerType())
