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
from py4j.protocol import Py4JJavaError
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
    "spark.sql.execution.replaceHashWithSortAgg": "false",
}
#: … and, up to so many rows, no code that is compiled first.
_INTERPRETED = {
    **_ALONE,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_FEW = 20_000
#: From so many rows on, as many tasks as there are workers exchange them, if that is not too often: of a plan
#: over many tables a single task is the quicker one. Their batches may be of any size.
_MOST, _SIMPLE = 300_000, 5
_SPREAD: Mapping[str, str | None] = {
    **_ALONE,
    "spark.sql.shuffle.partitions": None,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
#: How Spark says that operators of a task hold more than there is memory. Its own plans can do with less.
_NO_MEMORY = "UNABLE_TO_ACQUIRE_MEMORY"
#: A plan for many rows does for up to so many times as many, where fewer than these are hardly any.
_TIMES, _NONE = 8, 5_000
_SETTINGS: Mapping[str, Mapping[str, str | None]] = {"few": _INTERPRETED, "many": _ALONE, "most": _SPREAD}


@dataclass(frozen=True)
class Program:
    """A statement as Spark computes it."""

    plan: Any
    schema: pa.Schema
    most: int
    """How many rows this process takes; one more is asked for, to tell."""
    spread: DataFrame | None = None
    """What was planned, if it is to be run by several tasks."""

    def run(self, session: LakeSpark, found: Mapping[str, Found]) -> pa.Table | None:
        """What comes of these rows; None if it is too many."""
        held = {leaf: rows.held(session) for leaf, rows in found.items()}
        if self.spread is None:
            made = session.jvm.run(session.spark, self.plan, held, self.schema)
        else:
            made = session.jvm.run_for_many(self.spread, self.plan, held, self.schema)
        return made if made.num_rows <= self.most else None


def first_rows(
    session: LakeSpark,
    statement: Statement,
    frame_of: Callable[[Scan], DataFrame],
    found: Mapping[str, Found],
) -> pa.Table | None:
    """The rows of a statement, some or all of whose inputs are here; None if they are too many to take."""
    alone = len(found) == len(statement.leaves)
    size = _size(found)
    with _set(session, _SETTINGS[size] if alone else _QUICK):
        program = _program(session, statement, found, size) if alone else None
        if program is None:
            return _without_program(session, statement, frame_of, found)
        try:
            return program.run(session, found)
        except Py4JJavaError as error:
            if _NO_MEMORY not in str(error):
                raise
    with _set(session, _QUICK):
        return _without_program(session, statement, frame_of, found)


def _without_program(
    session: LakeSpark,
    statement: Statement,
    frame_of: Callable[[Scan], DataFrame],
    found: Mapping[str, Found],
) -> pa.Table | None:
    frame = statement.over(session, frame_of, {leaf: rows.data(session) for leaf, rows in found.items()})
    most = most_rows(frame)
    rows: pa.Table = frame.limit(most + 1).toArrow()
    return rows if rows.num_rows <= most else None


def _size(found: Mapping[str, Found]) -> str:
    """How many rows are there; the same ones, where several leaves read them, count once."""
    total = sum({id(rows.rows): rows.rows.num_rows for rows in found.values()}.values())
    if total <= _FEW:
        return "few"
    return "most" if total > _MOST and len(found) <= _SIMPLE else "many"


def _program(
    session: LakeSpark, statement: Statement, found: Mapping[str, Found], size: str
) -> Program | None:
    """How a statement is computed over rows of these kinds and so many; None if that cannot be kept."""
    few, spread = size == "few", size == "most"
    sizes = {} if few else {leaf: rows.rows.num_rows for leaf, rows in found.items()}
    schemas = {leaf: rows.schema if few else _as_found(rows) for leaf, rows in sorted(found.items())}
    kinds = tuple((leaf, schema.json()) for leaf, schema in schemas.items())
    known = statement.programs.setdefault((Catalyst(session).settings(), kinds, size), [])
    for planned_for, program in known:
        if all(_alike(rows, planned_for[leaf]) for leaf, rows in sizes.items()):
            kept: Program | None = program
            return kept
    workers = max(1, session.spark.sparkContext.defaultParallelism)
    places = {
        leaf: session.jvm.place(session.spark, leaf, schema, workers if spread and sizes[leaf] > _FEW else 1)
        for leaf, schema in schemas.items()
    }
    frame = statement.over(session, _no_frame, places)
    most = most_rows(frame)
    if few:
        plan = session.jvm.planned(frame.limit(most + 1))
    else:
        plan = session.jvm.planned_for_many(frame, most + 1, sizes, spread=spread)
    made = None
    if plan is not None:
        made = Program(plan, _arrow_schema(frame.schema), most, frame if spread else None)
    known.append((sizes, made))
    return made


def _as_found(found: Found) -> st.StructType:
    """The kind of some rows, where columns without NULLs are known to have none."""
    rows = found.rows
    nulls = {name for name in rows.schema.names if rows.column(name).null_count}
    return st.StructType([st.StructField(f.name, f.dataType, f.name in nulls) for f in found.schema.fields])


def _alike(rows: int, others: int) -> bool:
    """Whether what is quick for so many rows is so for as many others."""
    least, most = sorted((rows + _NONE, others + _NONE))
    return most <= _TIMES * least


def _arrow_schema(schema: st.StructType) -> pa.Schema:
    # That this time nothing is NULL is not to be said of what comes of it: next time something may be.
    found = to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in found])


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
