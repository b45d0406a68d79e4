"""CREATE VIEW: a view that DuckDB runs too, and temporary views of Spark's over the lake."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import duckdb
from pyspark.sql import DataFrame

from headwater.algebra.views import duckdb_from_spark
from headwater.errors import UnsupportedError
from headwater.lake.format.ids import new_uuid
from headwater.lake.model import View
from headwater.lake.writing.transaction import Transaction
from headwater.spark.literals import name_sql
from headwater.spark.sql.catalyst import items, kind_of, optional, pairs, parts_of
from headwater.spark.sql.names import has, lake_name
from headwater.spark.sql.results import nothing
from headwater.spark.sql.statement import Statement
from headwater.typedefs import TableName


def create_view(statement: Statement) -> DataFrame | None:
    """CREATE [OR REPLACE] VIEW [IF NOT EXISTS] v [(columns)] AS query"""
    plan = statement.plan
    name = lake_name(parts_of(plan.child()))
    if name is None:
        return None
    columns = [str(pair._1()) for pair in items(plan.userSpecifiedColumns())]
    if any(optional(pair._2()) is not None for pair in items(plan.userSpecifiedColumns())):
        raise UnsupportedError("Columns of a view have no comments in DuckLake.", hint="Comment on the view.")
    made = _definition(statement, name, plan, str(optional(plan.originalText())), columns)
    comment = optional(plan.comment())
    tags = {key: str(value) for key, value in pairs(plan.properties()).items()}

    def work(tx: Transaction) -> None:
        tx.create_view(
            name,
            made[0],
            column_aliases=made[1],
            comment=None if comment is None else str(comment),
            tags=tags,
            or_replace=bool(plan.replace()),
            if_not_exists=bool(plan.allowExisting()),
        )

    statement.session.lake.run(work, **asdict(statement.note))
    return nothing(statement.session.spark)


def alter_view(statement: Statement) -> DataFrame | None:
    """ALTER VIEW v AS query"""
    plan = statement.plan
    name = lake_name(parts_of(plan.child()))
    if name is None or statement.relations.state().find_view(name) is None:
        return None
    text, columns = _definition(statement, name, plan, str(plan.originalText()), [])
    old = statement.relations.state().view(name)

    def work(tx: Transaction) -> None:
        tags = {key: value for key, value in old.tags.items() if value is not None}
        tx.create_view(name, text, column_aliases=columns, tags=tags, or_replace=True)

    statement.session.lake.run(work, **asdict(statement.note))
    return nothing(statement.session.spark)


def temporary_view(statement: Statement) -> DataFrame | None:
    """CREATE [OR REPLACE] TEMPORARY VIEW v AS query"""
    plan = statement.plan
    resolved, count = statement.relations.resolve(plan.plan())
    if not count:
        return None
    rows = statement.catalyst.frame(resolved)
    columns = [str(pair._1()) for pair in items(plan.userSpecifiedColumns())]
    if columns:
        rows = rows.toDF(*columns)
    name = str(plan.name().table())
    everywhere = kind_of(plan.viewType()) == "GlobalTempView"
    match (everywhere, bool(plan.replace())):
        case (True, True):
            rows.createOrReplaceGlobalTempView(name)
        case (True, False):
            rows.createGlobalTempView(name)
        case (False, True):
            rows.createOrReplaceTempView(name)
        case _:
            rows.createTempView(name)
    return nothing(statement.session.spark)


def cached(statement: Statement) -> DataFrame | None:
    """CACHE [LAZY] TABLE v AS query"""
    plan = statement.plan
    resolved, count = statement.relations.resolve(plan.plan())
    if not count:
        return None
    name = str(plan.tempViewName())
    rows = statement.catalyst.frame(resolved)
    rows.createOrReplaceTempView(name)
    statement.session.spark.catalog.cacheTable(name_sql(name))
    if not plan.isLazy():
        statement.session.spark.table(name_sql(name)).count()
    return nothing(statement.session.spark)


def _definition(
    statement: Statement, name: TableName, plan: Any, text: str, columns: list[str]
) -> tuple[str, list[str]]:
    """The view in DuckDB's SQL and the names of its columns, checked with DuckDB and read back by Spark."""
    asked = statement.query(plan.query())
    otherwise = statement.session.jvm.computed_otherwise(asked._jdf.queryExecution().analyzed())
    if otherwise:
        raise _refused(name, f"DuckDB computes {otherwise[0]!r} otherwise than Spark")
    state = statement.relations.state()

    def table(parts: list[str]) -> tuple[str, str]:
        found = lake_name(parts)
        if found is None or not has(state, found) or (len(parts) == 1 and _is_temporary(statement, parts)):
            raise UnsupportedError(f"{'.'.join(parts)} is not a table or view of the lake")
        return found

    try:
        translated = duckdb_from_spark(text, table)
    except UnsupportedError as error:
        raise _refused(name, error.message) from None
    names = columns or list(asked.columns)
    if len(names) != len(asked.columns):
        raise _refused(name, f"it has {len(asked.columns)} columns and {len(names)} names")
    _bind(statement, name, translated, len(names))
    _read_back(statement, name, translated, names, asked)
    return translated, names


def _is_temporary(statement: Statement, parts: list[str]) -> bool:
    return statement.catalyst.is_temporary(parts[0])


def _bind(statement: Statement, name: TableName, text: str, count: int) -> None:
    with statement.session.lake.duckdb() as session:
        try:
            found = session.execute(f"SELECT * FROM ({text}) AS bound LIMIT 0").description
        except duckdb.Error as error:
            raise _refused(name, f"DuckDB says: {str(error).splitlines()[0]}") from None
    if len(found or []) != count:
        raise _refused(name, f"DuckDB sees {len(found or [])} columns, and Spark {count}")


def _read_back(statement: Statement, name: TableName, text: str, names: list[str], asked: DataFrame) -> None:
    """What Spark will read later must be what the statement says now."""
    quoted = ",".join('"' + column.replace('"', '""') + '"' for column in names)
    view = View(-1, new_uuid(), -1, name, "duckdb", text, quoted, -1)
    relations = statement.relations
    read = relations.view(view, relations.at)
    for wanted, found in zip(asked.schema.fields, read.schema.fields, strict=True):
        if wanted.dataType != found.dataType:
            raise _refused(
                name,
                f"column {found.name!r} is {wanted.dataType.simpleString()} in Spark, "
                f"and {found.dataType.simpleString()} when DuckDB computes it",
            )


def _refused(name: TableName, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"View {name} cannot be registered: DuckDB could not run it as Spark does.",
        detail=why,
        hint="Write it in terms that both share (CAST where types differ), or CREATE TEMPORARY VIEW.",
        view=str(name),
    )
