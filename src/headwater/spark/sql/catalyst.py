"""Spark's parsed statements from Python: small steps between Scala's collections and ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

#: The name by which the lake itself may stand before a schema, as DuckDB's sessions attach it.
LAKE = "lake"
#: Spark fails on `SELECT EXISTS (…)` over a union, which a table of the lake with inlined rows is: this rule
#: would push the question into the union's parts, and columns are pruned without it too.
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_PUSH_PROJECTION = "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion"
#: What the meaning of an analysed plan depends on.
_MEANING = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")


class Catalyst:
    """Spark's parser and planner in one session."""

    def __init__(self, session: LakeSpark):
        self.session = session
        self.spark = session.spark
        self.jvm: Any = session.spark._jvm
        self._java: Any = session.spark._jsparkSession

    @cached_property
    def _logical(self) -> Any:
        return self.jvm.org.apache.spark.sql.catalyst.plans.logical

    def parse(self, text: str) -> Any:
        """A statement as Spark's own parser reads it."""
        return self._java.sessionState().sqlParser().parsePlan(text)

    def parse_expression(self, text: str) -> Any:
        """An expression as Spark's own parser reads it."""
        return self._java.sessionState().sqlParser().parseExpression(text)

    def settings(self) -> tuple[str | None, ...]:
        """The settings on which the meaning of a plan depends that was made before."""
        return tuple(self.spark.conf.get(name, None) for name in _MEANING)

    def is_temporary(self, name: str) -> bool:
        """Whether the Spark session has a temporary view of that name."""
        return bool(self._java.sessionState().catalog().isTempView(self.seq([name])))

    def frame(self, plan: Any) -> DataFrame:
        """The rows that a plan makes; it is analysed now, and a command runs now."""
        dataset = self.jvm.org.apache.spark.sql.classic.Dataset
        frame = DataFrame(dataset.ofRows(self._java, plan), self.spark)
        if self.session.jvm.asks_in_projection(frame._jdf.queryExecution().analyzed()):
            self._without_rule(_PUSH_PROJECTION)
        return frame

    def _without_rule(self, rule: str) -> None:
        excluded = self.spark.conf.get(_EXCLUDED, None) or ""
        if rule not in excluded:
            self.spark.conf.set(_EXCLUDED, f"{excluded},{rule}".lstrip(","))

    def column(self, expression: Any) -> SparkColumn:
        """An expression as a column."""
        return SparkColumn(self.jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))

    def expression(self, column: SparkColumn) -> Any:
        """A column as an expression."""
        return self.jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)

    def named(self, name: TableName, frame: DataFrame) -> Any:
        """The plan of rows whose columns can be named as those of a table."""
        plan: Any = frame._jdf.queryExecution().analyzed()
        identifier = self.jvm.org.apache.spark.sql.catalyst.AliasIdentifier(
            name.name, self.seq([LAKE, name.schema])
        )
        return self._logical.SubqueryAlias(identifier, plan)

    def value(self, expression: Any, kind: str | None = None) -> Any:
        """What a constant expression is, cast to a type; an error of Spark's where it is not constant."""
        one = self.frame(self._logical.OneRowRelation())
        column = self.column(expression)
        return one.select(column if kind is None else column.cast(kind)).collect()[0][0]

    def seq(self, items: Sequence[Any]) -> Any:
        """A sequence of Scala's."""
        converters = self.jvm.scala.jdk.javaapi.CollectionConverters
        return converters.asScala(self.session.jvm.list_of(items)).toSeq()


def kind_of(node: Any) -> str:
    """The class of a node of a plan, in short."""
    return str(node.getClass().getSimpleName()).rstrip("$")


def items(sequence: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [sequence.apply(place) for place in range(sequence.size())]


def pairs(mapping: Any) -> dict[str, Any]:
    """A map of Scala's, from text to anything, as a dictionary."""
    return {str(pair._1()): pair._2() for pair in items(mapping.toSeq())}


def optional(option: Any) -> Any | None:
    """What an Option of Scala's holds."""
    return option.get() if option.isDefined() else None


def parts_of(relation: Any) -> list[str]:
    """The parts of the name that an unresolved relation, table, view or identifier has."""
    for method in ("multipartIdentifier", "nameParts"):
        found = getattr(relation, method, None)
        if kind_of(relation) in _HAS[method] and found is not None:
            return [str(part) for part in items(found())]
    return []


_HAS = {
    "multipartIdentifier": (
        "UnresolvedRelation",
        "UnresolvedTable",
        "UnresolvedView",
        "UnresolvedTableOrView",
        "UnresolvedNamespace",
    ),
    "nameParts": ("UnresolvedIdentifier",),
}
