"""Changes of a stage into the transaction: rows taken out, changed in place, added; each checked first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.algebra.accumulators import ROWS
from headwater.algebra.changes import IN_DOUBT, IS, OLD, PLACE, WAS
from headwater.algebra.relations import WEIGHT
from headwater.algebra.stages import Stage
from headwater.errors import InvariantError
from headwater.lake.format.equality import Key, row_keys
from headwater.lake.model import Table
from headwater.lake.reading.scan import ScanPlan
from headwater.refresh.deltas import Delta
from headwater.refresh.inputs import WaveState
from headwater.refresh.local_rows import Found
from headwater.refresh.pairing import paired
from headwater.spark.literals import name_sql
from headwater.spark.reading.native import FILE, POSITION
from headwater.spark.types import from_spark, spark_schema
from headwater.spark.writing.located import Located, locate, located
from headwater.spark.writing.native import ROW_ID as KEPT_ROW_ID
from headwater.spark.writing.rows import most_rows


@dataclass(frozen=True)
class Stored:
    """What was done to a stage's rows."""

    delta: Delta
    inserted: int
    deleted: int


#: How many times as many changes as there are rows are expected at most.
_AS_BEFORE = 4


class Unfit(Enum):
    """Why changes were not applied: they have to be computed otherwise."""

    #: Fewer rows would be left than have to be known.
    SHORT = 1
    #: More rows than this process takes, of a query that was made for few.
    MANY = 2


#: Computes groups again, by their keys, of which a change could not tell what becomes of them.
Settle = Callable[[Found], pa.Table | None]


@dataclass(frozen=True)
class Storing:
    """Puts the changes of one stage into its table."""

    wave: WaveState
    stage: Stage
    table: Table
    stream: str

    def store(self, shape: str, frame: DataFrame, *, full: bool = False) -> Stored | Unfit:
        """Apply changes of a shape, through this process if they are few."""
        most = most_rows(frame)
        if self.wave.session.live_rows(self.wave.tx, self.table.name) * _AS_BEFORE <= most:
            # A small result is hardly a large one now: nothing need be held for a second look.
            rows = frame.limit(most + 1).toArrow()
            if rows.num_rows <= most:
                return self._few(shape, rows, full)
        kept = self.wave.keep(frame)
        if kept.count() > most:
            return self._many(shape, kept, full)
        return self._few(shape, kept.toArrow(), full)

    def few(self, shape: str, rows: pa.Table, settle: Settle) -> Stored | Unfit:
        """Apply changes that are in this process."""
        settled = self._settled(rows, settle) if IN_DOUBT in rows.schema.names else rows
        return Unfit.MANY if settled is None else self._few(shape, settled, full=False)

    def everything(self, now: pa.Table, was: pa.Table) -> Stored | Unfit:
        """Apply what differs between all rows as they are now and those that are stored."""
        keys = row_keys(now.select(self.stage.key))
        if len(set(keys)) < len(keys):
            raise self._violation("A key came twice.", "two new rows have the same key")
        return self._few("paired", paired(now, was, self._names, self.stage.key), full=True)

    def _settled(self, rows: pa.Table, settle: Settle) -> pa.Table | None:
        doubtful = rows.column(IN_DOUBT)
        sure = rows.filter(pc.invert(doubtful)).drop_columns([IN_DOUBT])
        if sure.num_rows == rows.num_rows:
            return sure
        key = list(self.stage.key)
        known = {field.name: field for field in self._schema.fields}
        schema = st.StructType([known[name] for name in key] or [st.StructField("_hw_one", st.IntegerType())])
        taken = rows.filter(doubtful)
        keys = taken.select(key) if key else pa.table({"_hw_one": pa.array([1], pa.int32())})
        again = settle(Found(keys, schema))
        if again is None:
            return None
        if again.num_rows > keys.num_rows:
            raise self._violation("A key is there twice.", "two stored rows have the same key")
        # Behind what is stored either may have columns of its own, by which rows were matched.
        names = [name for name in sure.schema.names if name in again.schema.names]
        sure = sure.select(names)
        return pa.concat_tables([sure, again.select(names).cast(sure.schema)])

    def _runs_short(self, came: int, went: int, full: bool) -> bool:
        if self.stage.first is None or full:
            return False
        before = self.wave.session.live_rows(self.wave.tx, self.table.name)
        return self.stage.runs_short(before, came, went)

    # -- through this process -----------------------------------------------------------------------

    def _few(self, shape: str, rows: pa.Table, full: bool) -> Stored | Unfit:
        came, went, updated = self._divided(shape, rows)
        if self._runs_short(came.num_rows, went.num_rows, full):
            return Unfit.SHORT
        plan = self.wave.stored_plan(self.table)
        name, tx = self.table.name, self.wave.tx
        self._check(came, went, updated, full)
        gone = pa.concat_tables([went.select(PLACE), updated.select(PLACE)])
        if gone.num_rows:
            found = located(gone.rename_columns([FILE, POSITION, KEPT_ROW_ID]))
            self._remove(found, plan)
        if updated.num_rows:
            values = from_spark(updated.select(self._names), self.table.columns)
            tx.replace_rows(name, values, updated.column(PLACE[2]).to_numpy())
        if came.num_rows:
            tx.append(name, from_spark(came.select(self._names), self.table.columns))
        delta = self._delta(shape, rows)
        only_came = not went.num_rows and not updated.num_rows
        return Stored(
            Delta(self._schema, delta, only_came=only_came),
            came.num_rows + updated.num_rows,
            gone.num_rows,
        )

    def _divided(self, shape: str, rows: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Rows that came, that went, and that are another than before at the same place."""
        if shape == "paired":
            now, before = rows.column(IS), rows.column(WAS)
            return (
                rows.filter(pc.and_not(now, before)),
                rows.filter(pc.and_not(before, now)),
                rows.filter(pc.and_(now, before)),
            )
        weights = rows.column(WEIGHT).to_numpy()
        if len(weights) and np.abs(weights).max() > 1:
            raise self._violation("A row counts more than once.", "a key that is not unique")
        came, went = rows.filter(pa.array(weights > 0)), rows.filter(pa.array(weights < 0))
        if not came.num_rows or not went.num_rows:
            return came, went, came.slice(0, 0)
        # A key that went and came again is one row that changed: it keeps its place and its row id.
        places = {key: place for place, key in enumerate(self._keys(went))}
        new = list(self._keys(came))
        again = np.array([key in places for key in new], bool)
        at = [places[key] for key, known in zip(new, again, strict=True) if known]
        updated = came.filter(pa.array(again)).drop_columns(list(PLACE))
        for name in PLACE:
            updated = updated.append_column(name, went.column(name).take(pa.array(at, pa.int64())))
        left = np.ones(went.num_rows, bool)
        left[at] = False
        return came.filter(pa.array(~again)), went.filter(pa.array(left)), updated

    def _keys(self, rows: pa.Table, *, stored: bool = False) -> Sequence[Key]:
        """The keys of rows, as they are now or, where both are there, as they were stored."""
        names: Sequence[str] = self.stage.key
        if stored and IS in rows.schema.names:
            names = [OLD + name for name in names]
        return row_keys(rows.select(names))

    def _check(self, came: pa.Table, went: pa.Table, updated: pa.Table, full: bool) -> None:
        for rows in (went, updated):
            if rows.column(PLACE[2]).null_count:
                raise self._violation("A row went that is not there.", "its key is not in the stored result")
        new = self._keys(came)
        old = [*self._keys(went, stored=True), *self._keys(updated, stored=True)]
        if len(set(new)) < len(new):
            raise self._violation("A key came twice.", "two new rows have the same key")
        if len(set(old)) < len(old) and not full:  # everything anew removes what is there twice
            raise self._violation("A key is there twice.", "two stored rows have the same key")
        if came.num_rows and came.column(PLACE[2]).null_count < came.num_rows:
            raise self._violation("A key came that is there already.", "a stored row has the same key")
        for rows in (came, went, updated):
            if ROWS in rows.schema.names and (pc.min(rows.column(ROWS)).as_py() or 0) < 0:
                raise self._violation("A group has fewer than no rows.", "its count is negative")

    def _delta(self, shape: str, rows: pa.Table) -> pa.Table:
        names = self._names
        if shape == "signed":
            return rows.select([*names, WEIGHT])
        came = rows.filter(rows.column(IS)).select(names)
        went = rows.filter(rows.column(WAS)).select([OLD + name for name in names]).rename_columns(names)
        parts = [
            part.append_column(WEIGHT, pa.array(np.full(part.num_rows, weight, np.int32)))
            for part, weight in ((came, 1), (went.cast(came.schema), -1))
        ]
        return pa.concat_tables(parts)

    # -- by Spark -----------------------------------------------------------------------------------

    def _many(self, shape: str, kept: DataFrame, full: bool) -> Stored | Unfit:
        tx, session = self.wave.tx, self.wave.session
        plan = self.wave.stored_plan(self.table)
        now, before = self._conditions(shape)
        if self.stage.first is not None and self._runs_short(
            kept.where(now).count(), kept.where(before).count(), full
        ):
            return Unfit.SHORT
        own = [F.col(name_sql(name)) for name in self._names]
        self._check_many(shape, kept, now, before)
        gone = kept.where(before)
        found = locate(
            gone.select(
                *(F.col(p).alias(n) for p, n in zip(PLACE, (FILE, POSITION, "_r"), strict=True))
            ).drop("_r")
        )
        if found.count:
            self._remove(found, plan)
        if shape == "paired":
            updated = kept.where(now & before).select(*own, F.col(PLACE[2]).alias(KEPT_ROW_ID))
            inserted = session.writer.write(tx, self.table, updated)
            inserted += session.writer.write(tx, self.table, kept.where(now & ~before).select(*own))
            old = [F.col(name_sql(OLD + name)).alias(name) for name in self._names]
            went = gone.select(*old, F.lit(-1).cast("int").alias(WEIGHT))
        else:
            inserted = session.writer.write(tx, self.table, kept.where(now).select(*own))
            went = gone.select(*own, F.lit(-1).cast("int").alias(WEIGHT))
        came = kept.where(now).select(*own, F.lit(1).cast("int").alias(WEIGHT))
        moved = Delta(self._schema, frame=came.unionAll(went), at_most=inserted + found.count)
        return Stored(moved, inserted, found.count)

    def _conditions(self, shape: str) -> tuple[SparkColumn, SparkColumn]:
        if shape == "paired":
            return F.col(IS), F.col(WAS)
        return F.col(WEIGHT) > 0, F.col(WEIGHT) < 0

    def _check_many(self, shape: str, kept: DataFrame, now: SparkColumn, before: SparkColumn) -> None:
        lost = F.count_if(before & F.col(PLACE[2]).isNull())
        heavy = F.count_if(F.abs(F.col(WEIGHT)) > 1) if shape == "signed" else F.lit(0)
        negative = F.count_if(F.col(ROWS) < 0) if ROWS in self._names else F.lit(0)
        counts = kept.agg(lost, heavy, negative).collect()[0]
        if counts[0]:
            raise self._violation("Rows went that are not there.", f"{counts[0]} keys are not in the result")
        if counts[1]:
            raise self._violation("A row counts more than once.", "a key that is not unique")
        if counts[2]:
            raise self._violation("A group has fewer than no rows.", "its count is negative")
        if self.stage.key:
            keys = [F.col(name_sql(name)) for name in self.stage.key]
            doubled = kept.where(now).groupBy(*keys).count().where("count > 1").limit(1).collect()
            if doubled:
                raise self._violation("A key came twice.", "two new rows have the same key")

    # -- helpers ------------------------------------------------------------------------------------

    def _remove(self, found: Located, plan: ScanPlan) -> None:
        self.wave.tx.remove_rows(self.table.name, plan, found.files(plan), found.inlined(plan))

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.stage.fields]

    @property
    def _schema(self) -> st.StructType:
        known = {field.name: field for field in spark_schema(self.table.columns).fields}
        fields = [st.StructField(name, known[name].dataType) for name in self._names]
        return st.StructType([*fields, st.StructField(WEIGHT, st.IntegerType())])

    def _violation(self, what: str, why: str) -> InvariantError:
        return InvariantError(
            f"The refresh of {self.stream} was stopped: {what}",
            detail=f"{why} (stage {self.stage.source}, computed by {self.stage.strategy})",
            hint="Nothing was changed. `headwater refresh --full` computes it anew.",
            stream_table=self.stream,
            stage=self.stage.source,
        )
