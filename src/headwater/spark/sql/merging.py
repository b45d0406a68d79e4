"""MERGE INTO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from headwater.lake.model import Table
from headwater.lake.writing.transaction import Transaction
from headwater.spark.merge import Action, Case, Clause, Merge
from headwater.spark.sql.catalyst import LAKE, items, kind_of, optional, parts_of
from headwater.spark.sql.changing import column_name, resolved_for, value_for
from headwater.spark.sql.names import lake_name
from headwater.spark.sql.results import written
from headwater.spark.sql.statement import Statement
from headwater.spark.sql.targets import Target, default_of, relation_of, target_name
from headwater.spark.writing.merging import run_merge
from headwater.spark.writing.transactions import WriteResult, in_transaction
from headwater.typedefs import TableName

#: The name of a source that the statement gives none.
_UNNAMED = "headwater source"


def merge(statement: Statement) -> DataFrame | None:
    """MERGE [WITH SCHEMA EVOLUTION] INTO t USING s ON … WHEN …"""
    plan = statement.session.jvm.without_named_queries(statement.plan)
    relation, alias = relation_of(plan.targetTable())
    name = target_name(statement, relation)
    if name is None:
        return None
    source_alias, source_name = _source_name(plan.sourceTable())

    def work(tx: Transaction) -> WriteResult:
        resolved = resolved_for(statement, tx, plan)
        source = statement.catalyst.frame(resolved.sourceTable())
        reading = _Reading(
            statement, tx.state.table(name), alias or name.name, source_alias, source_name, source.columns
        )
        made = Merge(
            statement.session.table(str(name)),
            source,
            statement.catalyst.column(reading.whole(resolved.mergeCondition())),
            target_alias=reading.target,
            source_alias=source_alias,
            clauses=tuple(reading.clauses(resolved)),
            schema_may_change=bool(resolved.withSchemaEvolution()),
        )
        target = Target(statement.session, statement.catalyst, resolved.targetTable(), None)
        return run_merge(target, tx, str(name), made)

    return written(statement.session.spark, in_transaction(statement.session, work, statement.note))


def _source_name(plan: Any) -> tuple[str, TableName | None]:
    """What the source is called, and the table that it is where it has no other name."""
    relation, alias = relation_of(plan)
    if alias is not None:
        return alias, None
    if kind_of(relation) != "UnresolvedRelation":
        return _UNNAMED, None
    parts = parts_of(relation)
    return parts[-1], lake_name(parts)


@dataclass(frozen=True)
class _Reading:
    """Reads the clauses of one MERGE."""

    statement: Statement
    table: Table
    target: str
    source: str
    source_name: TableName | None
    source_columns: Sequence[str]

    def clauses(self, plan: Any) -> list[Clause]:
        cases = (
            (Case.MATCHED, plan.matchedActions()),
            (Case.NOT_MATCHED, plan.notMatchedActions()),
            (Case.NOT_MATCHED_BY_SOURCE, plan.notMatchedBySourceActions()),
        )
        return [self._clause(case, action) for case, actions in cases for action in items(actions)]

    def _clause(self, case: Case, action: Any) -> Clause:
        condition = optional(action.condition())
        where = None if condition is None else self.column(case, condition)
        match kind_of(action):
            case "DeleteAction":
                return Clause(case, Action.DELETE, where)
            case "UpdateStarAction":
                return Clause(case, Action.UPDATE, where, None)
            case "InsertStarAction":
                return Clause(case, Action.INSERT, where, None)
        values: dict[str, SparkColumn] = {}
        for assignment in items(action.assignments()):
            name = column_name(self.table, assignment.key(), self.target)
            value = assignment.value()
            if not self.statement.session.jvm.is_default(value):
                value = self._own(case, value)
            values[name] = value_for(self.statement.catalyst, self.table, name, value)
        if case is not Case.NOT_MATCHED:
            return Clause(case, Action.UPDATE, where, values)
        for column in self.table.columns:
            if column.name not in values and column.default_type != "literal":
                values[column.name] = default_of(column)
        return Clause(case, Action.INSERT, where, values)

    def column(self, case: Case, expression: Any) -> SparkColumn:
        return self.statement.catalyst.column(self._own(case, expression))

    def _own(self, case: Case, expression: Any) -> Any:
        """Rows without a partner have the columns of one side alone, so that no name is ambiguous."""
        expression = self.whole(expression)
        jvm = self.statement.session.jvm
        if case is Case.NOT_MATCHED:
            return jvm.qualified(expression, self.source, columns=self.source_columns)
        if case is Case.NOT_MATCHED_BY_SOURCE:
            return jvm.qualified(expression, self.target, columns=[c.name for c in self.table.columns])
        return expression

    def whole(self, expression: Any) -> Any:
        """`schema.table.column` as the alias has it."""
        jvm = self.statement.session.jvm
        for name, alias in ((self.table.name, self.target), (self.source_name, self.source)):
            if name is not None:
                for prefix in ([name.schema, name.name], [LAKE, name.schema, name.name]):
                    expression = jvm.qualified(expression, alias, prefix=prefix)
        return expression
