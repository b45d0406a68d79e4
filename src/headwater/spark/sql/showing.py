"""SHOW, DESCRIBE and EXPLAIN."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from headwater.errors import UnsupportedError
from headwater.lake.catalog import no_column
from headwater.lake.model import Column, PartitionField, Table
from headwater.spark.inspecting import history
from headwater.spark.literals import default_sql, name_sql, text_sql
from headwater.spark.sql.catalyst import items, kind_of, optional, parts_of
from headwater.spark.sql.names import has, lake_name, lake_schema
from headwater.spark.sql.results import listed
from headwater.spark.sql.statement import Statement, frame_of
from headwater.spark.sql.targets import relation_of, target_name
from headwater.spark.types import spark_type
from headwater.typedefs import TableName

#: Statements that write, and where their plan has the table.
_WRITTEN = {
    "InsertIntoStatement": "table",
    "DeleteFromTable": "table",
    "UpdateTable": "table",
    "MergeIntoTable": "targetTable",
}
_TABLES = ("namespace", "tableName", "isTemporary")


def show_schemas(statement: Statement) -> DataFrame | None:
    """SHOW SCHEMAS | DATABASES [LIKE …]"""
    if parts_of(statement.plan.child()):
        return None  # of another catalog
    names = [schema.name for schema in statement.relations.state().schemas.values()]
    rows = [(name,) for name in sorted(names) if _like(name, statement.plan.pattern())]
    return listed(statement.session.spark, ("namespace",), rows)


def show_tables(statement: Statement) -> DataFrame | None:
    """SHOW TABLES [IN s] [LIKE …]: tables and views, of all schemas unless one is named."""
    state = statement.relations.state()
    return _show(
        statement, [*(t.name for t in state.tables.values()), *(v.name for v in state.views.values())]
    )


def show_views(statement: Statement) -> DataFrame | None:
    """SHOW VIEWS [IN s] [LIKE …]"""
    return _show(statement, [view.name for view in statement.relations.state().views.values()], "viewName")


def _show(statement: Statement, names: list[TableName], column: str = "tableName") -> DataFrame | None:
    spark, namespace = statement.session.spark, statement.plan.child()
    within = None
    if kind_of(namespace) == "UnresolvedNamespace":
        schema = lake_schema(parts_of(namespace))
        if schema is None or (
            schema.lower() not in statement.relations.state().schemas and spark.catalog.databaseExists(schema)
        ):
            return None
        within = statement.relations.state().schema(schema).name.lower()
    pattern = statement.plan.pattern()
    rows: list[tuple[str, str, bool]] = [
        (name.schema, name.name, False)
        for name in sorted(names)
        if within in (None, name.schema.lower()) and _like(name.name, pattern)
    ]
    if within is None:
        temporary = [table.name for table in spark.catalog.listTables() if table.isTemporary]
        rows += [("", name, True) for name in sorted(temporary) if _like(name, pattern)]
    return listed(spark, (_TABLES[0], column, _TABLES[2]), rows)


def _like(name: str, pattern: Any) -> bool:
    """Spark's patterns: `*` is anything, `|` separates, case does not matter."""
    text = optional(pattern)
    if text is None:
        return True
    choices = [re.escape(part.strip()).replace(r"\*", ".*") for part in str(text).split("|")]
    return any(re.fullmatch(choice, name, re.IGNORECASE) for choice in choices)


# -- one table -----------------------------------------------------------------------------------------------


def _found(statement: Statement, relation: Any) -> TableName | None:
    parts = parts_of(relation)
    if len(parts) == 1 and statement.catalyst.is_temporary(parts[0]):
        return None
    name = lake_name(parts)
    return name if name is not None and has(statement.relations.state(), name) else None


def _columns(statement: Statement, name: TableName) -> list[tuple[str, str, str | None]]:
    table = statement.relations.state().find_table(name)
    if table is not None:
        return [(c.name, spark_type(c).simpleString(), c.tags.get("comment")) for c in table.columns]
    frame = statement.catalyst.frame(statement.relations.relation(name, statement.relations.at))
    return [(field.name, field.dataType.simpleString(), None) for field in frame.schema.fields]


def show_columns(statement: Statement) -> DataFrame | None:
    """SHOW COLUMNS IN t"""
    name = _found(statement, statement.plan.child())
    if name is None:
        return None
    return listed(
        statement.session.spark, ("col_name",), [(column[0],) for column in _columns(statement, name)]
    )


def describe(statement: Statement) -> DataFrame | None:
    """DESCRIBE [TABLE] [EXTENDED] t"""
    name = _found(statement, statement.plan.relation())
    if name is None:
        return None
    state = statement.relations.state()
    table = state.find_table(name)
    rows: list[tuple[str, str, str | None]] = _columns(statement, name)
    if table is not None and table.partition is not None and table.partition.fields:
        rows += [("", "", ""), ("# Partitioning", "", "")]
        rows += [
            (f"Part {place}", text, "") for place, text in enumerate(_keys(table, table.partition.fields))
        ]
    if statement.plan.isExtended():
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(key, value, "") for key, value in _details(statement, name) if value]
    return listed(statement.session.spark, ("col_name", "data_type", "comment"), rows)


def _details(statement: Statement, name: TableName) -> Iterable[tuple[str, str]]:
    state = statement.relations.state()
    table = state.find_table(name)
    tags = table.tags if table is not None else state.view(name).tags
    yield "Catalog", "lake"
    yield "Schema", name.schema
    yield "Table", name.name
    yield "Type", "TABLE" if table is not None else "VIEW"
    yield "Provider", "ducklake"
    yield "Comment", tags.get("comment") or ""
    if table is not None:
        yield "Location", table.path
        yield "Sorted By", ", ".join(f"{f.expression} {f.direction}" for f in table.sort)
    else:
        view = state.view(name)
        yield "View Text", view.sql
        yield "View Dialect", view.dialect
    yield "Snapshot", str(state.snapshot.id)
    shown = [
        f"{key}={value}" for key, value in sorted(tags.items()) if key != "comment" and value is not None
    ]
    yield "Table Properties", f"[{','.join(shown)}]" if shown else ""


def describe_column(statement: Statement) -> DataFrame | None:
    """DESCRIBE t c, and DESCRIBE HISTORY t, which Spark reads as the same."""
    plan = statement.plan
    relation = plan.relation()
    names = [str(part) for part in items(plan.column().nameParts())]
    if [part.upper() for part in parts_of(relation)] == ["HISTORY"]:
        table = lake_name(names)
        return None if table is None else history(statement.session, table)
    name = _found(statement, relation)
    if name is None:
        return None
    for column, kind, comment in _columns(statement, name):
        if column.lower() == names[0].lower():
            rows = [("col_name", column), ("data_type", kind), ("comment", comment)]
            return listed(statement.session.spark, ("info_name", "info_value"), rows)
    raise no_column(statement.relations.state().table(name), names)


def show_properties(statement: Statement) -> DataFrame | None:
    """SHOW TBLPROPERTIES t [(key)]"""
    name = _found(statement, statement.plan.table())
    if name is None:
        return None
    state = statement.relations.state()
    table = state.find_table(name)
    tags = table.tags if table is not None else state.view(name).tags
    only = optional(statement.plan.propertyKey())
    rows = [(k, v) for k, v in sorted(tags.items()) if v is not None and only in (None, k)]
    return listed(statement.session.spark, ("key", "value"), rows)


def show_create(statement: Statement) -> DataFrame | None:
    """SHOW CREATE TABLE t"""
    name = _found(statement, statement.plan.child())
    if name is None:
        return None
    state = statement.relations.state()
    table = state.find_table(name)
    shown = f"{name_sql(name.schema)}.{name_sql(name.name)}"
    text = f"CREATE VIEW {shown} AS {state.view(name).sql}" if table is None else _create_text(table, shown)
    return listed(statement.session.spark, ("createtab_stmt",), [(text,)])


def _create_text(table: Table, shown: str) -> str:
    columns = ",\n  ".join(_column_text(column) for column in table.columns)
    lines = [f"CREATE TABLE {shown} (\n  {columns})"]
    if table.partition is not None and table.partition.fields:
        lines.append(f"PARTITIONED BY ({', '.join(_keys(table, table.partition.fields))})")
    if table.comment:
        lines.append(f"COMMENT {text_sql(table.comment)}")
    tags = {key: value for key, value in table.tags.items() if key != "comment" and value is not None}
    if tags:
        listed_tags = ", ".join(f"{text_sql(key)} = {text_sql(value)}" for key, value in sorted(tags.items()))
        lines.append(f"TBLPROPERTIES ({listed_tags})")
    return "\n".join(lines)


def _column_text(column: Column) -> str:
    text = f"{name_sql(column.name)} {spark_type(column).simpleString()}"
    if not column.nulls_allowed:
        text += " NOT NULL"
    if column.default_value is not None:
        literal = default_sql(column, column.default_value) if column.default_type == "literal" else None
        text += f" DEFAULT {literal or column.default_value}"
    comment = column.tags.get("comment")
    return text + (f" COMMENT {text_sql(comment)}" if comment else "")


def _keys(table: Table, fields: Iterable[PartitionField]) -> list[str]:
    """Partition keys as Spark's grammar writes them."""
    columns = table.by_id()
    keys = []
    for key in fields:
        name = name_sql(columns[key.column_id].name)
        if key.transform == "identity":
            keys.append(name)
        elif key.transform.startswith("bucket("):
            keys.append(f"bucket({key.transform[7:-1]}, {name})")
        else:
            keys.append(f"{key.transform}({name})")
    return keys


def use(statement: Statement) -> DataFrame | None:
    """USE s: the lake has no current schema, so that a statement means the same wherever it runs."""
    parts = parts_of(statement.plan.child())
    schema = lake_schema(parts)
    if schema is None or schema.lower() not in statement.relations.state().schemas:
        return None
    raise UnsupportedError(
        f"USE {schema}: names without a schema always mean the lake's schema main.",
        hint=f"Write {schema}.table.",
    )


# -- queries -------------------------------------------------------------------------------------------------


def explain(statement: Statement) -> DataFrame | None:
    """EXPLAIN [mode] query"""
    inner = statement.plan.logicalPlan()
    written = _WRITTEN.get(kind_of(inner))
    if written is not None:
        if target_name(statement, relation_of(getattr(inner, written)())[0]) is None:
            return None
        raise UnsupportedError(
            "EXPLAIN shows how a query runs, and this statement writes to the lake.",
            hint="EXPLAIN the query inside of it.",
        )
    resolved, count = statement.relations.resolve(inner)
    if not count:
        return None
    command = statement.catalyst.jvm.org.apache.spark.sql.execution.command.ExplainCommand
    return statement.catalyst.frame(command(resolved, statement.plan.mode()))


def describe_query(statement: Statement) -> DataFrame | None:
    """DESCRIBE QUERY query"""
    frame = frame_of(statement.relations, statement.plan.plan())
    rows = [(f.name, f.dataType.simpleString(), None) for f in frame.schema.fields]
    return listed(statement.session.spark, ("col_name", "data_type", "comment"), rows)
