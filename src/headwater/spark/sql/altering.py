"""ALTER TABLE and COMMENT ON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.errors import NotFoundError, UnsupportedError
from headwater.lake.catalog import no_column
from headwater.lake.format.types import columns_from_arrow
from headwater.lake.writing.transaction import Transaction
from headwater.spark.sql.catalyst import Catalyst, items, optional, pairs, parts_of
from headwater.spark.sql.creating import changed, data_type, default_value
from headwater.spark.sql.names import has, lake_name
from headwater.spark.sql.statement import Statement
from headwater.spark.types import columns_of, spark_type
from headwater.typedefs import TableName

Change = Callable[[Catalyst, Transaction, TableName, Any], None]


def altering(change: Change) -> Callable[[Statement], DataFrame | None]:
    """A handler that makes a change to a table of the lake."""

    def handle(statement: Statement) -> DataFrame | None:
        plan = statement.plan
        parts = parts_of(plan.child())
        name = lake_name(parts)
        if name is None or not has(statement.relations.state(), name):
            quoted = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
            if name is None or statement.session.spark.catalog.tableExists(quoted):
                return None
        return changed(statement, lambda tx: change(statement.catalyst, tx, name, plan))

    return handle


def add_columns(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """ADD COLUMN[S]"""
    for column in items(plan.columnsToAdd()):
        if optional(column.position()) is not None:
            raise _no_position()
        parent = optional(column.path())
        path = [*(_path(parent) if parent is not None else ()), str(column.colName())]
        kind = data_type(column.dataType())
        given = optional(column.default())
        tx.add_column(
            name,
            path,
            columns_of(st.StructType([st.StructField(path[-1], kind)])).field(0),
            default=None if given is None else default_value(catalyst, given, kind),
            not_null=not column.nullable(),
        )
        comment = optional(column.comment())
        if comment is not None:
            tx.set_comment(name, str(comment), column=path)


def rename_column(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """RENAME COLUMN a TO b"""
    tx.rename_column(name, _path(plan.column()), str(plan.newName()))


def drop_columns(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """DROP COLUMN[S] [IF EXISTS]"""
    for column in items(plan.columnsToDrop()):
        tx.drop_column(name, _path(column), if_exists=bool(plan.ifExists()))


def alter_columns(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """ALTER COLUMN c TYPE … | SET | DROP NOT NULL | SET | DROP DEFAULT | COMMENT …"""
    for spec in items(plan.specs()):
        path = _path(spec.column())
        if optional(spec.newPosition()) is not None:
            raise _no_position()
        kind = optional(spec.newDataType())
        if kind is not None:
            (field,) = columns_of(st.StructType([st.StructField(path[-1], data_type(kind))]))
            tx.widen_column(name, path, _type_text(field))
        nullable = optional(spec.newNullability())
        if nullable is not None:
            (tx.drop_not_null if nullable else tx.set_not_null)(name, path)
        comment = optional(spec.newComment())
        if comment is not None:
            tx.set_comment(name, str(comment) or None, column=path)
        default = optional(spec.newDefaultExpression())
        if default is not None:
            kind_now = _spark_type(tx, name, path)
            tx.set_default(name, path, default_value(catalyst, default, kind_now))
        if spec.dropDefault():
            tx.set_default(name, path, None)


def rename(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """ALTER TABLE | VIEW t RENAME TO u"""
    parts = [str(part) for part in items(plan.newName())]
    wanted = lake_name(parts, name.schema)
    if wanted is None or wanted.schema.lower() != name.schema.lower():
        raise UnsupportedError(
            f"{name} stays in its schema; {'.'.join(parts)} is in another.",
            hint="CREATE TABLE … AS SELECT copies it.",
        )
    (tx.rename_view if plan.isView() else tx.rename_table)(name, wanted.name)


def set_properties(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """SET TBLPROPERTIES (…)"""
    for key, value in pairs(plan.properties()).items():
        tx.set_tag(name, key, str(value))


def unset_properties(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """UNSET TBLPROPERTIES [IF EXISTS] (…)"""
    known = tx.state.table(name).tags
    for key in map(str, items(plan.propertyKeys())):
        if known.get(key) is None and not plan.ifExists():
            raise NotFoundError(f"Table {name} has no property {key!r}.", table=str(name))
        tx.set_tag(name, key, None)


def comment_on(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """COMMENT ON TABLE t IS …"""
    tx.set_comment(name, str(plan.comment()) or None)


def cluster_by(catalyst: Catalyst, tx: Transaction, name: TableName, plan: Any) -> None:
    """CLUSTER BY (…) | NONE: the order of rows in files written from now on."""
    spec = optional(plan.clusterBySpec())
    names = [] if spec is None else [list(column.fieldNames()) for column in items(spec.columnNames())]
    tx.set_sort_by(name, ['"' + str(parts[0]).replace('"', '""') + '"' for parts in names])


def _path(field_name: Any) -> list[str]:
    return [str(part) for part in items(field_name.name())]


def _type_text(field: Any) -> str:
    (column,) = columns_from_arrow(pa.schema([field]))
    return column.type


def _spark_type(tx: Transaction, name: TableName, path: list[str]) -> st.DataType:
    table = tx.state.table(name)
    column = table.column(path[0])
    if column is None:
        raise no_column(table, path)
    return spark_type(column)


def _no_position() -> UnsupportedError:
    return UnsupportedError(
        "DuckLake keeps columns in the order in which they were added.",
        hint="Leave FIRST and AFTER out; a view can show another order.",
    )
