"""CREATE, REPLACE, DROP and TRUNCATE of schemas and tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.errors import UnsupportedError
from headwater.lake.writing.columns import SqlExpression
from headwater.lake.writing.transaction import Transaction
from headwater.spark.sql.catalyst import Catalyst, items, kind_of, optional, pairs, parts_of
from headwater.spark.sql.changing import resolved_for
from headwater.spark.sql.names import has, lake_name, lake_schema
from headwater.spark.sql.relations import Relations
from headwater.spark.sql.results import nothing, written
from headwater.spark.sql.statement import Statement, frame_of
from headwater.spark.sql.targets import target_name
from headwater.spark.types import columns_of
from headwater.spark.writing.row_level import delete_rows
from headwater.spark.writing.transactions import WriteResult, in_transaction
from headwater.typedefs import TableName

#: Defaults that are computed for each row, in DuckDB's words.
_COMPUTED = {
    "current_timestamp": "now()",
    "now": "now()",
    "current_date": "current_date",
    "curdate": "current_date",
    "uuid": "uuid()",
}
_CHANGING = re.compile(r"\b(current_\w+|now|curdate|localtimestamp|uuid|rand\w*|monotonically\w*)\b", re.I)
#: Spark's transforms are of the whole calendar (`days` is a date), DuckLake's of its parts (day of a month).
_CALENDAR = {
    "years": ("year",),
    "months": ("year", "month"),
    "days": ("year", "month", "day"),
    "hours": ("year", "month", "day", "hour"),
}
_PARTS = ("year", "month", "day", "hour")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def changed(statement: Statement, work: Callable[[Transaction], None]) -> DataFrame:
    """Run a change of the catalog in one snapshot."""
    statement.session.lake.run(work, **asdict(statement.note))
    return nothing(statement.session.spark)


# -- schemas -------------------------------------------------------------------------------------------------


def create_schema(statement: Statement) -> DataFrame | None:
    """CREATE SCHEMA | DATABASE | NAMESPACE [IF NOT EXISTS] s"""
    plan = statement.plan
    name = lake_schema(parts_of(plan.child()))
    if name is None:
        return None
    return changed(statement, lambda tx: tx.create_schema(name, if_not_exists=bool(plan.ifNotExists())))


def drop_schema(statement: Statement) -> DataFrame | None:
    """DROP SCHEMA [IF EXISTS] s [CASCADE]"""
    plan = statement.plan
    name = lake_schema(parts_of(plan.namespace()))
    if name is None:
        return None
    cascade, missing = bool(plan.cascade()), bool(plan.ifExists())
    return changed(statement, lambda tx: tx.drop_schema(name, cascade=cascade, if_exists=missing))


# -- tables --------------------------------------------------------------------------------------------------


@dataclass
class Layout:
    """What a CREATE TABLE says besides its columns."""

    partition_by: list[str] = field(default_factory=list)
    sort_by: list[str] = field(default_factory=list)
    comment: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class Columns:
    """The columns of a CREATE TABLE."""

    schema: pa.Schema
    not_null: list[str]
    defaults: dict[str, Any]
    comments: dict[str, str]


def create_table(statement: Statement) -> DataFrame | None:
    """CREATE [OR REPLACE] | REPLACE TABLE [IF NOT EXISTS] t (columns) …"""
    plan = statement.plan
    name = lake_name(parts_of(plan.name()))
    if name is None:
        return None
    replaces = kind_of(plan) == "ReplaceTable"
    layout = layout_of(plan)
    columns = columns_of_definition(statement.catalyst, plan.columns())
    if_not_exists = not replaces and bool(plan.ignoreIfExists())

    def work(tx: Transaction) -> None:
        if replaces and not plan.orCreate():
            tx.state.table(name)
        if if_not_exists and tx.state.find_table(name) is not None:
            return
        tx.create_table(
            name,
            columns.schema,
            partition_by=layout.partition_by,
            sort_by=layout.sort_by,
            defaults=columns.defaults,
            not_null=columns.not_null,
            comment=layout.comment,
            tags=layout.tags,
            or_replace=replaces,
        )
        for column, comment in columns.comments.items():
            tx.set_comment(name, comment, column=column)

    return changed(statement, work)


def create_table_as(statement: Statement) -> DataFrame | None:
    """CREATE [OR REPLACE] | REPLACE TABLE t … AS query, in one snapshot."""
    plan = statement.session.jvm.without_named_queries(statement.plan)
    name = lake_name(parts_of(plan.name()))
    if name is None:
        return None
    replaces = kind_of(plan) == "ReplaceTableAsSelect"
    layout = layout_of(plan)

    def work(tx: Transaction) -> WriteResult:
        if replaces and not plan.orCreate():
            tx.state.table(name)
        if not replaces and plan.ignoreIfExists() and has(tx.state, name):
            return WriteResult()
        resolved = resolved_for(statement, tx, plan)
        relations = Relations(statement.session, statement.catalyst, tx.base_snapshot_id)
        rows = frame_of(relations, resolved.query())
        old = tx.state.find_table(name)
        deleted = statement.session.live_rows(tx, str(name)) if replaces and old is not None else 0
        tx.create_table(
            name,
            columns_of(rows.schema),
            partition_by=layout.partition_by,
            sort_by=layout.sort_by,
            comment=layout.comment,
            tags=layout.tags,
            or_replace=replaces,
        )
        inserted = statement.session.writer.write(tx, tx.state.table(name), rows)
        return WriteResult(inserted=inserted, deleted=deleted)

    return written(statement.session.spark, in_transaction(statement.session, work, statement.note))


def drop_table(statement: Statement) -> DataFrame | None:
    """DROP TABLE [IF EXISTS] t"""
    plan = statement.plan
    name = _dropped(statement, plan.child())
    if name is None:
        return None
    if plan.purge():
        raise UnsupportedError(
            "DROP TABLE … PURGE is not supported: older snapshots still have the table.",
            hint="DROP TABLE, then expire the snapshots.",
        )
    return changed(statement, lambda tx: tx.drop_table(name, if_exists=bool(plan.ifExists())))


def drop_view(statement: Statement) -> DataFrame | None:
    """DROP VIEW [IF EXISTS] v"""
    plan = statement.plan
    name = _dropped(statement, plan.child())
    if name is None:
        return None
    return changed(statement, lambda tx: tx.drop_view(name, if_exists=bool(plan.ifExists())))


def _dropped(statement: Statement, identifier: Any) -> TableName | None:
    """The name to drop; None if it is of Spark's own."""
    parts = parts_of(identifier)
    name = lake_name(parts)
    if name is None or (len(parts) == 1 and statement.catalyst.is_temporary(parts[0])):
        return None
    if has(statement.relations.state(), name):
        return name
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
    return None if statement.session.spark.catalog.tableExists(quoted) else name


def truncate(statement: Statement) -> DataFrame | None:
    """TRUNCATE TABLE t"""
    name = target_name(statement, statement.plan.table())
    if name is None:
        return None

    def work(tx: Transaction) -> WriteResult:
        return WriteResult(deleted=delete_rows(statement.session, tx, str(name), None))

    return written(statement.session.spark, in_transaction(statement.session, work, statement.note))


# -- what a definition says ----------------------------------------------------------------------------------


def columns_of_definition(catalyst: Catalyst, definitions: Any) -> Columns:
    """The columns of a parsed CREATE TABLE."""
    fields, not_null, defaults, comments = [], [], {}, {}
    for definition in items(definitions):
        name = str(definition.name())
        if optional(definition.generationExpression()) or optional(definition.identityColumnSpec()):
            raise UnsupportedError(f"Column {name!r}: DuckLake has no generated columns.", column=name)
        kind = data_type(definition.dataType())
        fields.append(st.StructField(name, kind))
        if not definition.nullable():
            not_null.append(name)
        default = optional(definition.defaultValue())
        if default is not None:
            defaults[name] = default_value(catalyst, default, kind)
        comment = optional(definition.comment())
        if comment is not None:
            comments[name] = str(comment)
    return Columns(columns_of(st.StructType(fields)), not_null, defaults, comments)


def data_type(java: Any) -> st.DataType:
    """A type of the JVM's as ours."""
    return st._parse_datatype_json_string(java.json())


def default_value(catalyst: Catalyst, default: Any, kind: st.DataType) -> Any:
    """What a DEFAULT is: a constant, or an expression that both compute for each row."""
    text = str(default.originalSQL()).strip()
    computed = _COMPUTED.get(text.lower().removesuffix("()").strip())
    if computed is not None:
        return SqlExpression(computed)
    if _CHANGING.search(re.sub(r"'(?:[^'\\]|\\.)*'", "''", text)):
        raise UnsupportedError(
            f"The default {text!r} would have to be computed for each row.",
            hint="Use a constant, current_timestamp(), current_date() or uuid().",
        )
    value = catalyst.column(default.child())
    if isinstance(kind, st.TimestampType):
        micros = catalyst.value(catalyst.expression(F.unix_micros(value.cast(kind))))
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)
    found = catalyst.value(catalyst.expression(value.cast(kind)))
    return bytes(found) if isinstance(found, bytearray) else found


def layout_of(plan: Any) -> Layout:
    """Partitioning, order, comment and properties of a parsed CREATE TABLE."""
    spec = plan.tableSpec()
    refused = {
        f"USING {optional(spec.provider())}": str(optional(spec.provider()) or "ducklake").lower()
        != "ducklake",
        "LOCATION": optional(spec.location()) is not None,
        "EXTERNAL": bool(spec.external()),
        "constraints": spec.constraints().size() > 0,
        "ROW FORMAT or STORED AS": optional(spec.serde()) is not None,
        "OPTIONS": spec.optionExpression().options().size() > 0,
    }
    for what, given in refused.items():
        if given:
            raise UnsupportedError(
                f"A table of the lake takes no {what}.",
                hint="Leave it out; spark_catalog.schema.table names a table of Spark's own.",
            )
    tags = {name: str(value) for name, value in pairs(spec.properties()).items()}
    comment = optional(spec.comment())
    layout = Layout(comment=None if comment is None else str(comment), tags=tags)
    for transform in items(plan.partitioning()):
        _add_transform(layout, transform)
    return layout


def _add_transform(layout: Layout, transform: Any) -> None:
    name = str(transform.name()).lower()
    columns = [_reference(reference) for reference in transform.references()]
    if name == "identity":
        layout.partition_by.append(columns[0])
    elif name in _CALENDAR:
        layout.partition_by += [f"{part}({columns[0]})" for part in _CALENDAR[name]]
    elif name in _PARTS and len(columns) == 1:
        layout.partition_by.append(f"{name}({columns[0]})")
    elif name == "bucket" and len(columns) == 1:
        layout.partition_by.append(f"bucket({transform.numBuckets().value()}, {columns[0]})")
    elif name == "sorted_bucket" and transform.columns().size() == 1:
        (key,) = (_reference(reference) for reference in items(transform.columns()))
        layout.partition_by.append(f"bucket({transform.numBuckets().value()}, {key})")
        layout.sort_by += [_reference(reference) for reference in items(transform.sortedColumns())]
    elif name == "cluster_by":
        layout.sort_by += columns
    else:
        raise UnsupportedError(
            f"DuckLake does not partition by {transform.describe()}.",
            hint="Use a column, years(c), months(c), days(c), hours(c) or bucket(N, c).",
        )


def _reference(reference: Any) -> str:
    names = list(reference.fieldNames())
    if len(names) > 1:
        raise UnsupportedError(f"{'.'.join(names)!r} is a field inside of a column.", hint="Use a column.")
    return '"' + str(names[0]).replace('"', '""') + '"'
