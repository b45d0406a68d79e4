"""DELETE and UPDATE."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.catalog import no_column
from headwater.lake.model import Table
from headwater.lake.writing.transaction import Transaction
from headwater.spark.sql.catalyst import Catalyst, items, optional
from headwater.spark.sql.relations import Relations
from headwater.spark.sql.results import written
from headwater.spark.sql.statement import Statement
from headwater.spark.sql.targets import Target, default_of, relation_of, target_name
from headwater.spark.writing.row_level import delete_rows, update_rows
from headwater.spark.writing.transactions import WriteResult, in_transaction
from headwater.typedefs import TableName


def delete(statement: Statement) -> DataFrame | None:
    """DELETE FROM t [AS a] [WHERE …]"""
    plan = statement.session.jvm.without_named_queries(statement.plan)
    name = target_name(statement, relation_of(plan.table())[0])
    if name is None:
        return None

    def work(tx: Transaction) -> WriteResult:
        resolved = resolved_for(statement, tx, plan)
        condition = resolved.condition()
        if is_true(condition):
            return WriteResult(deleted=delete_rows(statement.session, tx, str(name), None))
        target = Target(statement.session, statement.catalyst, resolved.table(), condition)
        where = statement.catalyst.column(condition)
        return WriteResult(deleted=delete_rows(target, tx, str(name), where))

    return written(statement.session.spark, in_transaction(statement.session, work, statement.note))


def update(statement: Statement) -> DataFrame | None:
    """UPDATE t [AS a] SET c = v, … [WHERE …]"""
    plan = statement.session.jvm.without_named_queries(statement.plan)
    relation, alias = relation_of(plan.table())
    name = target_name(statement, relation)
    if name is None:
        return None

    def work(tx: Transaction) -> WriteResult:
        resolved = resolved_for(statement, tx, plan)
        condition = optional(resolved.condition())
        target = Target(statement.session, statement.catalyst, resolved.table(), condition)
        table = tx.state.table(name)
        values = assigned(statement.catalyst, table, resolved.assignments(), alias)
        where = None if condition is None else statement.catalyst.column(condition)
        return WriteResult(updated=update_rows(target, tx, str(name), where, values))

    return written(statement.session.spark, in_transaction(statement.session, work, statement.note))


def resolved_for(statement: Statement, tx: Transaction, plan: Any) -> Any:
    """The statement with what it reads at the snapshot that the transaction began with."""
    relations = Relations(statement.session, statement.catalyst, tx.base_snapshot_id)
    return relations.resolve(plan)[0]


def is_true(condition: Any) -> bool:
    """Whether a condition is the constant TRUE."""
    return bool(condition.toString() == "true")


def assigned(catalyst: Catalyst, table: Table, assignments: Any, alias: str | None) -> dict[str, SparkColumn]:
    """What each column is set to."""
    values: dict[str, SparkColumn] = {}
    for assignment in items(assignments):
        name = column_name(table, assignment.key(), alias)
        if name.lower() in {known.lower() for known in values}:
            raise InvalidInputError(f"Column {name!r} is set twice.", table=str(table.name), column=name)
        values[name] = value_for(catalyst, table, name, assignment.value())
    return values


def value_for(catalyst: Catalyst, table: Table, name: str, value: Any) -> SparkColumn:
    """A value for a column, which may be the word DEFAULT."""
    if catalyst.session.jvm.is_default(value):
        column = table.column(name)
        if column is None:
            raise no_column(table, name)
        return default_of(column)
    return catalyst.column(value)


def column_name(table: Table, key: Any, alias: str | None) -> str:
    """The column that an assignment is to: `c`, `alias.c`, `schema.table.c`."""
    parts = [str(part) for part in items(key.nameParts())]
    for prefix in _prefixes(table.name, alias):
        if len(parts) > len(prefix) and [p.lower() for p in parts[: len(prefix)]] == prefix:
            parts = parts[len(prefix) :]
            break
    found = table.column(parts[0])
    if found is None:
        raise no_column(table, parts)
    if len(parts) > 1:
        raise UnsupportedError(
            f"{'.'.join(parts)!r} is a field inside of column {found.name!r}; only whole columns are set.",
            hint=f"SET {found.name} = named_struct('{parts[-1]}', …, …)",
            column=".".join(parts),
        )
    return found.name


def _prefixes(name: TableName, alias: str | None) -> list[list[str]]:
    if alias is not None:
        return [[alias.lower()]]
    table, schema = name.name.lower(), name.schema.lower()
    return [["lake", schema, table], [schema, table], [table]]
