"""INSERT INTO and INSERT OVERWRITE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.catalog import no_column
from headwater.lake.writing.transaction import Transaction
from headwater.spark.literals import name_sql
from headwater.spark.sql.catalyst import items, kind_of, optional, pairs
from headwater.spark.sql.changing import resolved_for
from headwater.spark.sql.relations import Relations
from headwater.spark.sql.results import written
from headwater.spark.sql.statement import Statement, frame_of
from headwater.spark.sql.targets import Target, default_text, target_name
from headwater.spark.types import spark_type
from headwater.spark.writing.assigning import fitted
from headwater.spark.writing.overwrite import overwrite_partitions
from headwater.spark.writing.row_level import delete_rows
from headwater.spark.writing.transactions import WriteResult, in_transaction
from headwater.typedefs import TableName

_MODE = "spark.sql.sources.partitionOverwriteMode"


def insert(statement: Statement) -> DataFrame | None:
    """INSERT INTO | OVERWRITE t [PARTITION (…)] [(columns) | BY NAME] [REPLACE WHERE …] query"""
    plan = statement.session.jvm.without_named_queries(statement.plan)
    name = target_name(statement, plan.table())
    if name is None:
        return None

    def work(tx: Transaction) -> WriteResult:
        return _Insert(statement, tx, name, plan).run()

    return written(statement.session.spark, in_transaction(statement.session, work, statement.note))


@dataclass
class _Insert:
    statement: Statement
    tx: Transaction
    name: TableName
    plan: Any

    def run(self) -> WriteResult:
        self.table = self.tx.state.table(self.name)
        self.resolved = resolved_for(self.statement, self.tx, self.plan)
        criteria = optional(self.resolved.replaceCriteriaOpt())
        if criteria is not None and kind_of(criteria) != "InsertReplaceWhere":
            raise UnsupportedError(
                "INSERT … REPLACE ON is not supported for tables of the lake.", hint="Use MERGE INTO."
            )
        fixed = self._fixed()
        rows = self._rows(fixed)
        if criteria is not None:
            return WriteResult(deleted=self._replace(rows, criteria.cond()), inserted=self._add(rows))
        if not self.resolved.overwrite():
            return WriteResult(inserted=self._add(rows))
        if self.table.partition is not None and self.table.partition.fields and self._dynamic():
            return overwrite_partitions(self.statement.session, self.tx, str(self.name), rows)
        return WriteResult(deleted=self._clear(fixed), inserted=self._add(rows))

    def _dynamic(self) -> bool:
        mode: str | None = self.statement.session.spark.conf.get(_MODE, "static")
        return str(mode).lower() == "dynamic"

    # -- the rows -----------------------------------------------------------------------------------

    def _fixed(self) -> dict[str, SparkColumn]:
        """Columns whose value PARTITION (c = v) gives, in the table's types."""
        partition = self.table.partition
        keys = {f.column_id for f in partition.fields if f.transform == "identity"} if partition else set()
        fixed: dict[str, SparkColumn] = {}
        for name, value in pairs(self.resolved.partitionSpec()).items():
            column = self.table.column(name)
            if column is None:
                raise no_column(self.table, name, " to name in PARTITION")
            if column.id not in keys:
                raise InvalidInputError(
                    f"Table {self.name} is not partitioned by {column.name!r}.",
                    hint="INSERT … REPLACE WHERE overwrites what a condition names.",
                    table=str(self.name),
                    column=column.name,
                )
            given = optional(value)
            if given is not None:
                text = None if str(given) == "__HIVE_DEFAULT_PARTITION__" else str(given)
                fixed[column.name] = F.lit(text).cast(spark_type(column))
        return fixed

    def _rows(self, fixed: Mapping[str, SparkColumn]) -> DataFrame:
        listed = [str(name) for name in items(self.resolved.userSpecifiedCols())]
        by_name = bool(self.resolved.byName())
        names = self._names(listed, fixed)
        query = self.resolved.query()
        if not by_name:
            defaults = [self._default(name) for name in names]
            query = self.statement.session.jvm.with_defaults(query, defaults)
        relations = Relations(self.statement.session, self.statement.catalyst, self.tx.base_snapshot_id)
        rows = frame_of(relations, query)
        if not by_name:
            if self.resolved.withSchemaEvolution() and not listed:
                names += rows.columns[len(names) :]  # columns that only the query has
            self._check_count(rows, names, bool(listed))
            rows = rows.toDF(*names)
        for name, value in fixed.items():
            rows = rows.withColumn(name, value)
        return rows

    def _names(self, listed: Sequence[str], fixed: Mapping[str, SparkColumn]) -> list[str]:
        taken = {name.lower() for name in fixed}
        if not listed:
            return [c.name for c in self.table.columns if c.name.lower() not in taken]
        for name in listed:
            if self.table.column(name) is None:
                raise no_column(self.table, name)
        return list(listed)

    def _default(self, name: str) -> Any | None:
        """The default of a column as an expression; None where only DuckDB can compute it."""
        column = self.table.column(name)
        text = "NULL" if column is None else default_text(column)
        return None if text is None else self.statement.catalyst.parse_expression(text)

    def _check_count(self, rows: DataFrame, names: Sequence[str], listed: bool) -> None:
        if len(rows.columns) == len(names):
            return
        wanted = "The column list has" if listed else f"Table {self.name} takes"
        raise InvalidInputError(
            f"{wanted} {len(names)} columns, and the query gives {len(rows.columns)}.",
            hint="List the columns that are given: INSERT INTO t (a, b) …; the others get their defaults.",
            table=str(self.name),
        )

    def _add(self, rows: DataFrame) -> int:
        listed = self.resolved.userSpecifiedCols().size() > 0 or bool(self.resolved.byName())
        table = fitted(
            self.tx,
            str(self.name),
            rows,
            merge_schema=bool(self.resolved.withSchemaEvolution()),
            defaults=listed,
        )
        return self.statement.session.writer.write(self.tx, table, rows)

    # -- what they replace --------------------------------------------------------------------------

    def _clear(self, fixed: Mapping[str, SparkColumn]) -> int:
        name = str(self.name)
        if not fixed:
            return delete_rows(self.statement.session, self.tx, name, None)
        same = [F.col(name_sql(column)).eqNullSafe(value) for column, value in fixed.items()]
        return delete_rows(self.statement.session, self.tx, name, reduce(lambda a, b: a & b, same))

    def _replace(self, rows: DataFrame, condition: Any) -> int:
        catalyst = self.statement.catalyst
        where = catalyst.column(condition)
        named = catalyst.frame(catalyst.named(self.name, rows))
        stray = named.where(~F.coalesce(where, F.lit(False))).limit(1).collect()
        if stray:
            raise InvalidInputError(
                f"A new row for table {self.name} does not meet the condition of REPLACE WHERE.",
                detail=f"The row is {stray[0].asDict()}; the condition is {condition.sql()}.",
                hint="Filter the query by the condition, or insert what lies outside of it by itself.",
                table=str(self.name),
            )
        target = Target(self.statement.session, catalyst, self.resolved.table(), condition)
        return delete_rows(target, self.tx, str(self.name), where)
