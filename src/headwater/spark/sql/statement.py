"""One SQL statement over the lake: parsed by Spark, run by Spark or by the lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from headwater.algebra.views import statement_count
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.lake import At
from headwater.spark.sql.catalyst import Catalyst, kind_of, parts_of
from headwater.spark.sql.names import has, lake_name, not_there
from headwater.spark.sql.relations import Relations
from headwater.spark.writing.transactions import Note

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark


@dataclass
class Statement:
    """A parsed statement and what its handlers need."""

    session: LakeSpark
    catalyst: Catalyst
    text: str
    plan: Any
    at: At = None
    note: Note = field(default_factory=Note)

    @cached_property
    def relations(self) -> Relations:
        """The lake as the statement reads it."""
        return Relations.of(self.session, self.catalyst, self.at)

    def query(self, plan: Any) -> DataFrame:
        """The rows of a query over the lake."""
        return frame_of(self.relations, plan)


#: Runs a statement, or leaves it to Spark by returning None.
Handler = Callable[[Statement], DataFrame | None]


def run_sql(session: LakeSpark, text: str, *, at: At = None, note: Note | None = None) -> DataFrame:
    """Run one statement of Spark's SQL in which the lake's tables and views are simply there.

    With `at` a query reads the lake as it was at a snapshot. What writes returns one row: how many rows were
    inserted, updated and deleted, and the snapshot it became; `note` goes into that snapshot.
    """
    catalyst = Catalyst(session)
    try:
        plan = catalyst.parse(text)
    except ParseException:
        if statement_count(text) > 1:
            raise InvalidInputError(
                "The text holds several statements.", hint="Run them one at a time; a last `;` is fine."
            ) from None
        raise
    statement = Statement(session, catalyst, text, plan, at, note or Note())
    handler = handlers().get(kind_of(_command(plan)))
    if at is not None and handler is not None and not kind_of(plan).startswith(_READING):
        raise InvalidInputError("Only what reads can read an older snapshot (at=…).")
    done = None if handler is None else handler(statement)
    if done is not None:
        return done
    _refuse_unsupported(statement)
    return _by_spark(statement)


def frame_of(relations: Relations, plan: Any) -> DataFrame:
    """The rows of a plan whose names are looked up in the lake first."""
    resolved, _ = relations.resolve(plan)
    try:
        return relations.catalyst.frame(resolved)
    except AnalysisException as error:
        raise _explained(error, relations, resolved) from error


@cache
def handlers() -> Mapping[str, Handler]:
    """Who runs which statement, by the class of its plan."""
    from headwater.spark.sql import (
        altering,
        calling,
        changing,
        creating,
        inserting,
        merging,
        showing,
        viewing,
    )

    return {
        "InsertIntoStatement": inserting.insert,
        "DeleteFromTable": changing.delete,
        "UpdateTable": changing.update,
        "MergeIntoTable": merging.merge,
        "TruncateTable": creating.truncate,
        "CreateNamespace": creating.create_schema,
        "DropNamespace": creating.drop_schema,
        "CreateTable": creating.create_table,
        "ReplaceTable": creating.create_table,
        "CreateTableAsSelect": creating.create_table_as,
        "ReplaceTableAsSelect": creating.create_table_as,
        "DropTable": creating.drop_table,
        "DropView": creating.drop_view,
        "AddColumns": altering.altering(altering.add_columns),
        "RenameColumn": altering.altering(altering.rename_column),
        "DropColumns": altering.altering(altering.drop_columns),
        "AlterColumns": altering.altering(altering.alter_columns),
        "RenameTable": altering.altering(altering.rename),
        "SetTableProperties": altering.altering(altering.set_properties),
        "UnsetTableProperties": altering.altering(altering.unset_properties),
        "CommentOnTable": altering.altering(altering.comment_on),
        "AlterTableClusterBy": altering.altering(altering.cluster_by),
        "CreateView": viewing.create_view,
        "AlterViewAs": viewing.alter_view,
        "CreateViewCommand": viewing.temporary_view,
        "CacheTableAsSelect": viewing.cached,
        "ShowNamespacesCommand": showing.show_schemas,
        "ShowTables": showing.show_tables,
        "ShowViews": showing.show_views,
        "ShowColumns": showing.show_columns,
        "ShowTableProperties": showing.show_properties,
        "ShowCreateTable": showing.show_create,
        "DescribeRelation": showing.describe,
        "DescribeColumn": showing.describe_column,
        "DescribeQueryCommand": showing.describe_query,
        "ExplainCommand": showing.explain,
        "SetCatalogAndNamespace": showing.use,
        "Call": calling.call,
    }


#: Statements that only look, and so can look at the past.
_READING = ("Show", "Describe", "Explain")


def _refuse_unsupported(statement: Statement) -> None:
    """A command on a table of the lake that nobody here runs would look for the table in Spark's catalog."""
    plan = statement.plan
    children = [plan.children().apply(place) for place in range(plan.children().size())]
    for child in children[:1]:
        if kind_of(child) not in ("UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView"):
            continue
        parts = parts_of(child)
        name = lake_name(parts)
        if len(parts) == 1 and statement.catalyst.is_temporary(parts[0]):
            continue
        if name is not None and has(statement.relations.state(), name):
            raise UnsupportedError(
                f"{str(child.commandName()).upper()} is not supported for tables of the lake ({name}).",
                table=str(name),
            )


def _command(plan: Any) -> Any:
    """The statement that a WITH clause stands before."""
    return plan.child() if kind_of(plan) == "UnresolvedWith" else plan


def _by_spark(statement: Statement) -> DataFrame:
    """A query, or a command that has nothing to do with the lake but may read it."""
    resolved, count = statement.relations.resolve(statement.plan)
    try:
        if count:
            return statement.catalyst.frame(resolved)
        return statement.session.spark.sql(statement.text)
    except AnalysisException as error:
        raise _explained(error, statement.relations, resolved) from error


def _explained(error: AnalysisException, relations: Relations, plan: Any) -> Exception:
    """The error, or for a table that is nowhere one that tells what the lake has."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return error
    for node in relations.session.jvm.unknown_relations(plan):
        if kind_of(node) == "UnresolvedRelation":
            parts = parts_of(node)
            wanted = str((error.getMessageParameters() or {}).get("relationName", ""))
            same = wanted.replace("`", "").lower() == ".".join(parts).lower()
            if same and lake_name(parts) is not None:
                return not_there(parts, relations.state())
    return error
