"""A definition as a program: the query is read, tables are looked up, stages are cut and typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from pyspark.sql import DataFrame

from headwater.algebra.alone import alone
from headwater.algebra.building import build_query
from headwater.algebra.changes import Changes, changes, computed, placed, regrouped
from headwater.algebra.identity import by_row_id
from headwater.algebra.relations import Filter, Query, Relation, Scan, column, opaque_over
from headwater.algebra.stages import SHOWN, Program, Stage, compile_query
from headwater.errors import InvalidInputError, NotFoundError, UnsupportedError
from headwater.lake.catalog import CatalogState, table_name
from headwater.recent import Recent
from headwater.refresh.binding import Describer, Statement, statement
from headwater.refresh.functions import load_function
from headwater.refresh.local_rows import Found
from headwater.refresh.model import Definition, StreamTable
from headwater.refresh.sources import Source, Sources, shown
from headwater.spark.connector import LakeSpark
from headwater.spark.types import spark_field

#: What the rows that a Python function makes are read as.
FUNCTION = "@function"
#: So many small tables are kept for a stream table.
_WHOLE_TABLES = 64


@dataclass(frozen=True)
class Situation:
    """What a stage finds itself in, as far as its statement depends on it."""

    stage: str
    changed: frozenset[str] = frozenset()
    time_moved: bool = False
    full: bool = False
    only_came: bool = False
    small: bool = False
    #: Whether it is computed from the sources alone, whatever other stages have stored.
    alone: bool = False
    #: What of it is asked for: groups whose smallest or largest value may have gone; its rows as they are
    #: now; its rows as they are stored, with their places.
    part: Literal["doubtful", "computed", "stored"] | None = None


@dataclass(frozen=True)
class Prepared:
    """The statement that gives a stage's changes in a situation."""

    shape: Literal["signed", "paired"]
    statement: Statement


@dataclass(frozen=True)
class Compiled:
    """A stream table's query, ready to be computed in full or to follow changes."""

    query: Query
    program: Program
    sources: Mapping[str, Source]
    #: Makes the rows of stream tables that are defined by Python, from the sources' rows by their names.
    function: Callable[[Mapping[str, DataFrame]], DataFrame] | None = None
    #: What it reads of small tables, by the files these are made of.
    whole_tables: Recent[Any, Found] = field(default_factory=lambda: Recent(_WHOLE_TABLES), compare=False)
    _prepared: dict[Situation, Prepared | None] = field(default_factory=dict, compare=False)

    def prepared(self, situation: Situation, moments: Mapping[str, str]) -> Prepared | None:
        """A stage's statement; None if nothing can have changed. Those that say no time are made once."""
        if situation in self._prepared:
            return self._prepared[situation]
        stage = next(stage for stage in self.program.stages if stage.source == situation.stage)
        if situation.alone:
            stage = self._alone
        match situation.part:
            case "doubtful":
                found: Changes | None = regrouped(stage)
            case "computed":
                found = Changes("paired", computed(stage))
            case "stored":
                found = Changes("paired", placed(stage))
            case None:
                found = changes(
                    stage,
                    situation.changed,
                    time_moved=situation.time_moved,
                    full=situation.full,
                    only_came=situation.only_came,
                    few=situation.small,
                )
        made = None
        if found is not None:
            made = Prepared(
                found.shape,
                statement(found.relation, moments=moments, hints=situation.small, whole=situation.full),
            )
        if situation.part == "stored" or not stage.depends_on_time:
            self._prepared[situation] = made
        return made

    @cached_property
    def _alone(self) -> Stage:
        return alone(self.program)

    @cached_property
    def used_columns(self) -> Mapping[str, frozenset[str]]:
        """The stored columns that are read of each source."""
        if self.function is not None:
            return {n: frozenset(c.name for c in s.table.columns) for n, s in self.sources.items()}
        used: dict[str, set[str]] = {name: set() for name in self.sources}
        for stage in self.program.stages:
            for node in stage.relation.walk():
                if isinstance(node, Scan) and node.source in used:
                    used[node.source].update(stored for _, stored in (*node.fields, *node.key_fields))
        return {name: frozenset(columns) for name, columns in used.items()}

    @cached_property
    def by_row_id(self) -> frozenset[str]:
        """The sources whose row ids are part of what is stored, or decide it."""
        return by_row_id(self.program) & self.sources.keys()


def read_query(definition: Definition, sources: Sources) -> Query:
    """The query of a definition over what the lake has."""
    if definition.query is None:
        raise UnsupportedError(f"{definition.name} is made by a Python function, not by a query.")
    policy = definition.options.get("nondeterministic", "refuse")
    return build_query(definition.query, sources, nondeterministic="full" if policy == "full" else "refuse")


def compile_definition(
    session: LakeSpark, definition: Definition, state: CatalogState, streams: Iterable[StreamTable]
) -> Compiled:
    """Everything a refresh needs to know about a definition."""
    sources = Sources(state, streams)
    if definition.function is not None:
        return _compile_function(session, definition, definition.function, sources)
    query = read_query(definition, sources)
    query = replace(query, relation=_over_storage(query.relation, sources.found))
    program = compile_query(query, Describer(session, sources.found))
    read = {name for stage in program.stages for name in stage.inputs}
    return Compiled(query, program, {n: s for n, s in sources.found.items() if n in read})


def _compile_function(session: LakeSpark, definition: Definition, path: str, sources: Sources) -> Compiled:
    """A stream table whose rows a Python function makes: computed anew, and compared with what is stored."""
    function = load_function(path)
    names: dict[str, str] = {}
    for parameter, table in definition.inputs.items():
        found = sources.table(tuple(table_name(table)))
        if found is None or found.name not in sources.found:
            raise NotFoundError(
                f"{definition.name} reads {table}, which is no table of the lake.",
                hint="Functions are given tables and stream tables; a view can be a stream table of its own.",
                table=table,
            )
        names[parameter] = found.name

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        made = function(**{parameter: frames[name] for parameter, name in names.items()})
        if not isinstance(made, DataFrame):
            raise InvalidInputError(f"{path} returned {type(made).__name__}, not a DataFrame.", function=path)
        return made

    empty = {
        name: session.jvm.empty(session.spark, [*map(spark_field, shown(source))])
        for name, source in sources.found.items()
    }
    columns = call(empty).schema.fields
    _check_columns(definition, [field.name for field in columns])
    outputs = tuple(field.name for field in columns)
    scan = Scan(FUNCTION, tuple((name, name) for name in outputs), ())
    reason = f"the rows are made by the Python function {path}"
    relation = opaque_over(scan, outputs, reason)
    query = Query(relation, tuple((name, name) for name in outputs), tuple(sources.found))
    types = {FUNCTION: {field.name: field.dataType.simpleString() for field in columns}}
    program = compile_query(query, lambda r, stages: Describer(session, {})(r, {**types, **stages}))
    return Compiled(query, program, dict(sources.found), call)


def _check_columns(definition: Definition, names: Sequence[str]) -> None:
    lowered = [name.lower() for name in names]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"{definition.name} would have two columns called {twice[0]!r}.",
            hint="Give one of them another name with alias() or withColumnRenamed().",
            column=twice[0],
        )


def _over_storage(relation: Relation, sources: Mapping[str, Source]) -> Relation:
    """Scans of stream tables read what is stored: rows by their key, without those that are not shown."""
    if not isinstance(relation, Scan):
        children = tuple(_over_storage(child, sources) for child in relation.children)
        return relation.with_children(children)
    stream = sources[relation.source].stream
    if stream is None:
        return relation
    base = relation.key[0]
    keys = tuple((f"{base}_{number}", name) for number, name in enumerate(stream.storage.key))
    scan = replace(relation, key_fields=keys)
    if all(stored.name != SHOWN for stored in sources[relation.source].table.columns):
        return scan
    shown = f"{base}_shown"
    scan = replace(scan, fields=(*scan.fields, (shown, SHOWN)))
    return Filter(scan, column(shown))
