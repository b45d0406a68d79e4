"""Relations of the algebra as DataFrames: their SQL, with DataFrames in the places of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.algebra.relations import ROW_ID, WEIGHT, Relation, Scan
from headwater.algebra.render import render
from headwater.algebra.stages import Types
from headwater.refresh.sources import Source
from headwater.spark.connector import LakeSpark
from headwater.spark.sql.catalyst import Catalyst, parts_of
from headwater.spark.types import spark_field


def scans_of(relation: Relation) -> list[Scan]:
    """What a relation reads."""
    return [node for node in relation.walk() if isinstance(node, Scan)]


def bound(
    session: LakeSpark,
    relation: Relation,
    frame_of: Callable[[Scan], DataFrame],
    *,
    moments: Mapping[str, str],
    hints: bool = False,
) -> DataFrame:
    """A relation as a DataFrame. Scans of the same source and version are given as one."""
    names: dict[tuple[str, str], str] = {}
    frames: dict[str, DataFrame] = {}
    for scan in scans_of(relation):
        place = (scan.source, scan.version)
        if place not in names:
            names[place] = f"_hw_leaf_{len(names)}"
            frames[names[place]] = frame_of(scan)
    text = render(relation, names=lambda scan: names[scan.source, scan.version], moments=moments, hints=hints)
    catalyst = Catalyst(session)
    plan = session.jvm.without_named_queries(catalyst.parse(text))
    nodes = [node for node in session.jvm.unknown_relations(plan) if parts_of(node)[0] in frames]
    found = [frames[parts_of(node)[0]]._jdf.queryExecution().analyzed() for node in nodes]
    return catalyst.frame(session.jvm.replaced(plan, nodes, found))


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
