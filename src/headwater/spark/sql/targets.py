"""The table that a statement changes: found by its name, read under the name that the statement gives it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.algebra.predicates import Predicate, says_something
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.model import Column, Table
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.spark.connector import LakeSpark
from headwater.spark.literals import default_sql
from headwater.spark.reading.columns import NativeColumn
from headwater.spark.reading.pushed import predicate_of
from headwater.spark.sql.catalyst import Catalyst, kind_of, parts_of
from headwater.spark.sql.names import has, lake_name, not_there
from headwater.spark.types import spark_type
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.sql.statement import Statement


def relation_of(plan: Any) -> tuple[Any, str | None]:
    """The relation that is written, and the alias the statement gives it."""
    if kind_of(plan) == "SubqueryAlias":
        return relation_of(plan.child())[0], str(plan.alias())
    return plan, None


def target_name(statement: Statement, relation: Any) -> TableName | None:
    """The lake's table that a statement writes; None if it is one of Spark's own."""
    if kind_of(relation) not in ("UnresolvedRelation", "UnresolvedTable"):
        return None
    parts = parts_of(relation)
    catalyst, state = statement.catalyst, statement.relations.state()
    if len(parts) == 1 and catalyst.is_temporary(parts[0]):
        return None
    name = lake_name(parts)
    if name is None:
        return None
    if has(state, name):
        if state.find_view(name) is not None:
            raise UnsupportedError(f"{name} is a view; only tables are written.", view=str(name))
        return state.table(name).name
    if statement.session.spark.catalog.tableExists(".".join(f"`{p.replace('`', '``')}`" for p in parts)):
        return None
    raise not_there(parts, state)


class Target(LakeSpark):
    """The session of a statement that changes rows: its table is read under the statement's names for it.

    What is changed depends on a condition that may ask other tables; files are pruned by the rest of it.
    """

    def __init__(self, session: LakeSpark, catalyst: Catalyst, plan: Any, condition: Any | None):
        self.__dict__.update(session.__dict__)
        self._catalyst = catalyst
        self._plan = plan
        self._condition = condition

    def target(
        self, tx: Transaction, name: TableName | str, where: str | SparkColumn | None, wanted: Collection[str]
    ) -> tuple[ScanPlan, DataFrame]:
        """The rows of the table, pruned but not filtered, under the names the statement has for them."""
        table = tx.state.table(name)
        found = self.reader.read(tx.scan(name, self._files(table)), wanted=wanted, replan=False)
        return found.plan, self._named(table, found.frame)

    def _files(self, table: Table) -> Predicate | None:
        plain = None if self._condition is None else self.jvm.without_subqueries(self._condition)
        if plain is None:
            return None
        fields = [NativeColumn(column, column.name).field() for column in table.columns]
        empty = self._named(table, self.jvm.empty(self.spark, fields))
        predicate = predicate_of(self.jvm.conditions(empty.where(self._catalyst.column(plain))), table)
        return predicate if says_something(predicate) else None

    def _named(self, table: Table, frame: DataFrame) -> DataFrame:
        relation, _ = relation_of(self._plan)
        named = self._catalyst.named(table.name, frame)
        return self._catalyst.frame(self.jvm.replaced(self._plan, [relation], [named]))


#: Defaults that DuckDB computes for each row, by the type of the column, and what Spark calls them.
_COMPUTED = {
    ("timestamptz", "now()"): "current_timestamp()",
    ("timestamptz", "current_timestamp"): "current_timestamp()",
    ("date", "current_date"): "current_date()",
    ("date", "current_date()"): "current_date()",
    ("date", "today()"): "current_date()",
    ("uuid", "uuid()"): "uuid()",
    ("uuid", "gen_random_uuid()"): "uuid()",
    ("varchar", "uuid()"): "uuid()",
}


def default_text(column: Column) -> str | None:
    """The default of a column in Spark's SQL; None where only DuckDB can compute it."""
    if column.default_value is None:
        return "NULL"
    if column.default_type == "literal":
        return default_sql(column, column.default_value)
    return _COMPUTED.get((column.type, column.default_value.strip().lower()))


def default_of(column: Column) -> SparkColumn:
    """The default of a column, for the word DEFAULT."""
    text = default_text(column)
    if text is None:
        raise InvalidInputError(
            f"The default of column {column.name!r} is an expression that only DuckDB computes.",
            hint="Leave the column out of an INSERT, or give it a value.",
            column=column.name,
        )
    return F.expr(text).cast(spark_type(column))
