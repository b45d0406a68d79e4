"""Relations of the algebra as DataFrames: their SQL, with DataFrames in the places of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.algebra.alone import as_a_whole
from headwater.algebra.conditions import conditions
from headwater.algebra.existence import value_columns
from headwater.algebra.narrowing import Link, links, numbered
from headwater.algebra.predicates import Predicate
from headwater.algebra.relations import ROW_ID, WEIGHT, Relation, Scan
from headwater.algebra.render import render
from headwater.algebra.stages import Types
from headwater.refresh.sources import Source
from headwater.spark.connector import LakeSpark
from headwater.spark.sql.catalyst import Catalyst
from headwater.spark.types import spark_field


@dataclass(frozen=True)
class Statement:
    """A relation as SQL, and what it reads by the names it reads it by: each scan has its own."""

    relation: Relation
    leaves: Mapping[str, Scan]
    moments: Mapping[str, str]
    #: Whether small sides of joins are to be sent to every worker.
    hints: bool = False
    #: Whether it computes everything, so that Spark should see as much as it can of what is meant.
    whole: bool = False
    #: The statement as Spark's parser reads it, with and without hints.
    _parsed: dict[bool, Any] = field(default_factory=dict, compare=False)
    #: What was kept of how Spark computes it; see `programs`.
    programs: dict[Any, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def links(self) -> Mapping[str, tuple[Link, ...]]:
        """What tells which rows of its scans matter."""
        return links(self.relation)

    @cached_property
    def conditions(self) -> Mapping[str, Predicate]:
        """What rows of its scans have to meet to matter."""
        return conditions(self.relation)

    @cached_property
    def value_columns(self) -> Mapping[str, frozenset[str]]:
        """Scans of which only the distinct values of some stored columns matter, and these."""
        return value_columns(self.relation)

    def text(self, *, hints: bool) -> str:
        """The SQL."""
        return render(
            self.relation,
            names=lambda scan: scan.source,
            moments=self.moments,
            hints=hints,
            subqueries=self.whole,
        )

    def over(
        self,
        session: LakeSpark,
        frame_of: Callable[[Scan], DataFrame],
        given: Mapping[str, DataFrame] | None = None,
    ) -> DataFrame:
        """The statement's rows; `given` are the few rows of some scans, by the names of their leaves."""
        known = given or {}
        frames = {
            name: known[name] if name in known else frame_of(scan) for name, scan in self.leaves.items()
        }
        catalyst = Catalyst(session)
        # Where everything is few rows, one task does it all, and nothing need be sent anywhere.
        hints = self.hints and len(known) < len(self.leaves)
        if hints not in self._parsed:
            self._parsed[hints] = session.jvm.without_named_queries(catalyst.parse(self.text(hints=hints)))
        return catalyst.frame(session.jvm.over(self._parsed[hints], frames))


def statement(
    relation: Relation, *, moments: Mapping[str, str], hints: bool = False, whole: bool = False
) -> Statement:
    """A relation as a statement over names of its own."""
    named, leaves = numbered(as_a_whole(relation) if whole else relation)
    return Statement(named, leaves, dict(moments), hints, whole)


def bound(
    session: LakeSpark,
    relation: Relation,
    frame_of: Callable[[Scan], DataFrame],
    *,
    moments: Mapping[str, str],
    whole: bool = False,
) -> DataFrame:
    """A relation as a DataFrame."""
    return statement(relation, moments=moments, whole=whole).over(session, frame_of)


def moment_text(moment: datetime) -> str:
    """A moment as Spark and DuckDB read it."""
    return moment.isoformat(sep=" ", timespec="microseconds")


class Describer:
    """Finds the types of relations by letting Spark analyse them over tables without rows."""

    def __init__(self, session: LakeSpark, sources: Mapping[str, Source]):
        self.session = session
        self.sources = sources
        self._empty: dict[str, DataFrame] = {}

    def __call__(self, relation: Relation, stages: Mapping[str, Types]) -> Types:
        """The types of a relation's columns by name."""
        moment = "2000-01-01 00:00:00+00:00"
        frame = bound(
            self.session,
            relation,
            lambda scan: self._frame(scan, stages),
            moments={"now": moment, "before": moment},
        )
        return {field.name: field.dataType.simpleString() for field in frame.schema.fields}

    def _frame(self, scan: Scan, stages: Mapping[str, Types]) -> DataFrame:
        if scan.source not in self._empty:
            if scan.source in stages:
                fields = [st.StructField(n, parse_type(t)) for n, t in stages[scan.source].items()]
            else:
                columns = self.sources[scan.source].table.columns
                fields = [*map(spark_field, columns), st.StructField(ROW_ID, st.LongType())]
            fields.append(st.StructField(WEIGHT, st.IntegerType()))
            self._empty[scan.source] = self.session.jvm.empty(self.session.spark, fields)
        return self._empty[scan.source]


def parse_type(text: str) -> st.DataType:
    """A Spark type from its text."""
    return st.DataType.fromDDL(text)
