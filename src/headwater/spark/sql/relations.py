"""The tables and views that a statement names, put into its plan.

Everything that a statement reads is read at one snapshot, except what it names at a version of its own. A
table that is named twice is one relation in the plan, so that Spark computes what both need once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.algebra.views import CATALOG_PREFIX, check_query, named_columns, spark_from_duckdb
from headwater.errors import HeadwaterError, InvalidInputError, UnsupportedError
from headwater.lake.catalog import DEFAULT_SCHEMA, CatalogState
from headwater.lake.lake import At
from headwater.lake.model import View
from headwater.lake.reading.row_filter import HIDDEN
from headwater.spark.sql.catalyst import Catalyst, items, kind_of, optional, parts_of
from headwater.spark.sql.names import has, lake_name
from headwater.storage.duckdb_engine import sandbox
from headwater.typedefs import SnapshotId, TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Relations:
    """Looks names up in the lake, for one statement."""

    session: LakeSpark
    catalyst: Catalyst
    at: SnapshotId
    """The snapshot that is read where a name says nothing else."""
    schema: str = DEFAULT_SCHEMA
    """Where names of one part are looked up."""
    views: tuple[TableName, ...] = ()
    """The views that the text is inside of."""
    hidden: tuple[str, ...] = ()
    """Hidden columns of tables (`rowid`, …) that the text names."""
    newest: SnapshotId | None = None
    """The newest snapshot, where it is known: plans of its tables are kept for other statements."""
    known: dict[tuple[object, ...], Any] = field(default_factory=dict)
    states: dict[SnapshotId, CatalogState] = field(default_factory=dict)

    @classmethod
    def of(cls, session: LakeSpark, catalyst: Catalyst, at: At = None) -> Relations:
        """For a statement that reads the lake as it is, or as it was."""
        found = session.lake.snapshot(at).id
        return cls(session, catalyst, found, newest=found if at is None else None)

    def resolve(self, plan: Any) -> tuple[Any, int]:
        """The plan with the lake's relations in their places, and how many they are."""
        jvm = self.session.jvm
        plan = jvm.without_named_queries(plan)
        nodes, found = [], []
        for node in jvm.unknown_relations(plan):
            relation = self._look_up(node)
            if relation is not None:
                nodes.append(node)
                found.append(relation)
        return (jvm.replaced(plan, nodes, found) if nodes else plan), len(nodes)

    def state(self, at: SnapshotId | None = None) -> CatalogState:
        """The catalog at a snapshot."""
        wanted = self.at if at is None else at
        if wanted not in self.states:
            self.states[wanted] = self.session.lake.state(wanted)
        return self.states[wanted]

    def _look_up(self, node: Any) -> Any | None:
        match kind_of(node):
            case "UnresolvedRelation":
                if node.options().containsKey("__required_write_privileges__"):
                    return None  # what the statement writes, not what it reads
                return self._named(node, self.at)
            case "RelationTimeTravel":
                return self._travelled(node)
            case "RelationChanges":
                return self._changes_clause(node)
            case "UnresolvedTableValuedFunction":
                return self._changes_function(node)
        return None

    def _name(self, node: Any) -> TableName | None:
        parts = parts_of(node)
        if len(parts) == 1 and not self.views and self.catalyst.is_temporary(parts[0]):
            return None
        return lake_name(parts, self.schema)

    def _named(self, node: Any, at: SnapshotId) -> Any | None:
        name = self._name(node)
        if name is None or not has(self.state(at), name):
            if self.views and len(parts_of(node)) == 1 and self.schema.lower() != DEFAULT_SCHEMA:
                # As in DuckDB: the view's own schema first, then the one that a session starts in.
                outer = replace(self, schema=DEFAULT_SCHEMA)
                return outer._named(node, at)
            if self.views:  # Spark might know something by that name, and it would not be the view's
                raise UnsupportedError(f"the lake has no table or view {'.'.join(parts_of(node))}")
            return None
        return self.relation(name, at)

    def relation(self, name: TableName, at: SnapshotId) -> Any:
        """The plan of a table or view at a snapshot; the same object each time."""
        place = (at, name.schema.lower(), name.name.lower(), self.hidden)
        if place not in self.known:
            view = self.state(at).find_view(name)
            if view is not None:
                self.known[place] = self.catalyst.named(view.name, self.view(view, at))
            elif at == self.newest:
                settings = self.catalyst.settings()
                self.known[place] = self.session.kept.get(at, (place, settings), lambda: self._scan(name, at))
            else:
                self.known[place] = self._scan(name, at)
        return self.known[place]

    def _scan(self, name: TableName, at: SnapshotId) -> Any:
        plan = self.session.lake.scan(name, at)
        wanted = [one for one in self.hidden if plan.table.column(one) is None]
        return self.catalyst.named(plan.table.name, self.session.reader.read(plan, wanted=wanted).frame)

    # -- other times --------------------------------------------------------------------------------

    def _travelled(self, node: Any) -> Any | None:
        inner = node.relation()
        if kind_of(inner) != "UnresolvedRelation":
            return None
        name = self._name(inner)
        if name is None:
            return None
        ours = name.schema.lower() in self.state().schemas
        try:
            at = self.session.lake.snapshot(self._moment(node)).id
        except HeadwaterError:
            if ours:
                raise
            return None  # a version of something that is not the lake's
        if not has(self.state(at), name):
            if not ours:
                return None
            self.session.lake.table(name, at)  # says since when there is one, or that there never was
        return self.relation(name, at)

    def _moment(self, node: Any) -> At:
        version = optional(node.version())
        if version is not None:
            return _version(str(version))
        timestamp = optional(node.timestamp())
        return self.moment(timestamp)

    def moment(self, expression: Any) -> datetime:
        """A point in time that a constant expression says, in the session's time zone."""
        moment = F.unix_micros(self.catalyst.column(expression).cast("timestamp"))
        micros = self.catalyst.value(self.catalyst.expression(moment))
        if micros is None:
            raise InvalidInputError("TIMESTAMP AS OF needs a time, not NULL.")
        return _EPOCH + timedelta(microseconds=micros)

    # -- changes ------------------------------------------------------------------------------------

    def _changes_function(self, node: Any) -> Any | None:
        if [str(part).lower() for part in items(node.name())] != ["table_changes"]:
            return None
        arguments = items(node.functionArgs())
        if not 2 <= len(arguments) <= 3:
            raise InvalidInputError(
                "table_changes takes a table, a first and a last snapshot.",
                hint="SELECT * FROM table_changes('sales.orders', 3, 7)",
            )
        name, *limits = arguments
        start, *end = map(self._limit, limits)
        # Without an end the feed goes as far as everything else in the statement is read.
        frame = self.session.table(str(self.catalyst.value(name))).changes(start, end[0] if end else self.at)
        return frame._jdf.queryExecution().analyzed()

    def _limit(self, expression: Any) -> At:
        """A snapshot's number, or a time."""
        value = self.catalyst.value(expression)
        if isinstance(value, int | str):
            return value
        return self.moment(expression)

    def _changes_clause(self, node: Any) -> Any | None:
        name = self._name(node.relation())
        if name is None or not has(self.state(), name):
            return None
        raise UnsupportedError(
            f"CHANGES FROM … is not read for tables of the lake ({name}).",
            hint=f"SELECT * FROM table_changes('{name}', first, last)",
        )

    # -- views --------------------------------------------------------------------------------------

    def view(self, view: View, at: SnapshotId) -> DataFrame:
        """The rows of a view: its text in Spark's SQL, over the lake as it is at a snapshot."""
        if view.name in self.views:
            raise UnsupportedError(f"View {view.name} is defined by itself.", view=str(view.name))
        inside = replace(self, at=at, schema=view.name.schema, views=(*self.views, view.name), hidden=())
        try:
            if view.dialect.lower() == "spark":
                text = check_query(view.sql)
            else:
                text = spark_from_duckdb(view.sql, column_names(view.sql))
                inside = replace(inside, hidden=named_columns(view.sql, HIDDEN))
            plan, _ = inside.resolve(self.catalyst.parse(text))
            frame = self.catalyst.frame(plan)
        except UnsupportedError as error:
            if error.facts.get("view"):
                raise  # of a view inside this one
            raise _unreadable(view, error.message) from None
        except (AnalysisException, ParseException) as error:
            raise _unreadable(view, str(error).strip().splitlines()[0]) from error
        if view.dialect.lower() != "spark":
            otherwise = self.session.jvm.computed_otherwise(frame._jdf.queryExecution().analyzed())
            if otherwise:
                raise _unreadable(view, f"Spark computes {otherwise[0]!r} otherwise than DuckDB")
        renamed = _renamed(frame, view)
        seen = [name.lower() for name in renamed.columns]
        if len(set(seen)) < len(seen):
            raise _unreadable(view, "it has two columns of one name, which DuckDB renames")
        return renamed


def column_names(text: str) -> list[str]:
    """The names that DuckDB gives to the items of a query's SELECT; those of a star are not known here."""
    with sandbox() as session:
        found = session.execute("SELECT json_serialize_sql(?)", [text.replace(CATALOG_PREFIX, "")]).fetchall()
        tree = json.loads(found[0][0])
        if tree.get("error"):
            return []
        node = tree["statements"][0]["node"]
        while "select_list" not in node and "left" in node:
            node = node["left"]
        names = []
        one = session.execute("SELECT json_serialize_sql('SELECT 1')").fetchall()[0][0]
        for item in node.get("select_list", []):
            alone = json.loads(one)
            alone["statements"][0]["node"]["select_list"] = [item]
            shown = session.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(alone)]).fetchall()
            names.append(item.get("alias") or str(shown[0][0]).removeprefix("SELECT "))
        return names


def _renamed(frame: DataFrame, view: View) -> DataFrame:
    """The columns under the names that the view gives them; there may be fewer names than columns."""
    names = aliases(view.column_aliases)
    return frame.toDF(*names, *frame.columns[len(names) :]) if names else frame


def aliases(text: str) -> list[str]:
    """The names in a list of quoted ones, as the catalog stores it."""
    names, place = [], 0
    while place < len(text):
        if text[place] != '"':
            place += 1
            continue
        end = place + 1
        while text[end : end + 2] == '""' or text[end] != '"':
            end += 2 if text[end] == '"' else 1
        names.append(text[place + 1 : end].replace('""', '"'))
        place = end + 1
    return names


def _unreadable(view: View, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"View {view.name} cannot be read by Spark.",
        detail=f"{why} (its SQL: {view.sql})",
        hint="Read it in DuckDB, or register it anew with SQL that both understand.",
        view=str(view.name),
        sql=view.sql,
    )


def _version(text: str) -> SnapshotId:
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            f"VERSION AS OF needs the number of a snapshot, not {text!r}.",
            hint="TIMESTAMP AS OF takes a time.",
        ) from None
