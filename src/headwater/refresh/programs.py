"""Statements whose rows are all in this process: planned by Spark once, run by it over other rows each time.

For a handful of rows Spark takes many times as long to find out how to compute something as to compute it.
How it is computed does not depend on the rows, so a plan is made over places for rows and is kept. What it
holds of a statement is what Spark made of it: the same operators, in a single task, with nothing exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.algebra.relations import Scan
from headwater.refresh.binding import Statement
from headwater.refresh.local_rows import Found
from headwater.spark.connector import LakeSpark
from headwater.spark.sql.catalyst import Catalyst
from headwater.spark.writing.rows import most_rows

#: What makes small queries quick: no plan is changed while it runs, no more tasks than there are workers.
_QUICK = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": None}
#: Where all rows are here: one task, and no part of a plan that stands for another, so that rows can be put
#: in each place …
_ALONE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.exchange.reuse": "false",
}
#: … and, up to so many rows, no code that is compiled first.
_INTERPRETED = {
    **_ALONE,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_FEW = 20_000


@dataclass(frozen=True)
class Program:
    """A statement as Spark computes it."""

    plan: Any
    schema: pa.Schema
    most: int
    """How many rows this process takes; one more is asked for, to tell."""

    def run(self, session: LakeSpark, found: Mapping[str, Found]) -> pa.Table | None:
        """What comes of these rows; None if it is too many."""
        held = {leaf: rows.held(session) for leaf, rows in found.items()}
        made = session.jvm.run(session.spark, self.plan, held, self.schema)
        return made if made.num_rows <= self.most else None


def first_rows(
    session: LakeSpark,
    statement: Statement,
    frame_of: Callable[[Scan], DataFrame],
    found: Mapping[str, Found],
) -> pa.Table | None:
    """The rows of a statement, some or all of whose inputs are here; None if they are too many to take."""
    alone = len(found) == len(statement.leaves)
    few = sum(rows.rows.num_rows for rows in found.values()) <= _FEW
    with _set(session, (_INTERPRETED if few else _ALONE) if alone else _QUICK):
        program = _program(session, statement, found, few=few) if alone else None
        if program is not None:
            return program.run(session, found)
        frame = statement.over(session, frame_of, {leaf: rows.data(session) for leaf, rows in found.items()})
        most = most_rows(frame)
        rows: pa.Table = frame.limit(most + 1).toArrow()
        return rows if rows.num_rows <= most else None


def _program(
    session: LakeSpark, statement: Statement, found: Mapping[str, Found], *, few: bool
) -> Program | None:
    """How a statement is computed over rows of these kinds, few or not; None if that cannot be kept."""
    kinds = tuple((leaf, rows.schema.simpleString()) for leaf, rows in sorted(found.items()))
    key = (Catalyst(session).settings(), kinds, few)
    if key not in statement.programs:
        places = {leaf: session.jvm.place(session.spark, leaf, rows.schema) for leaf, rows in found.items()}
        frame = statement.over(session, _no_frame, places)
        most = most_rows(frame)
        plan = session.jvm.planned(frame.limit(most + 1))
        statement.programs[key] = None if plan is None else Program(plan, _arrow_schema(frame.schema), most)
    program: Program | None = statement.programs[key]
    return program


def _arrow_schema(schema: st.StructType) -> pa.Schema:
    return to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")


def _no_frame(scan: Scan) -> DataFrame:
    raise ValueError(f"there is no place for {scan.source}")


@contextmanager
def _set(session: LakeSpark, wanted: Mapping[str, str | None]) -> Iterator[None]:
    """Run Spark's queries with some settings; None stands for the number of workers."""
    conf = session.spark.conf
    workers = str(max(1, session.spark.sparkContext.defaultParallelism))
    before = {name: conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            conf.set(name, value or workers)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                conf.unset(name)
            else:
                conf.set(name, old)
