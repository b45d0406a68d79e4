"""A query as a chain of stages, each with a stored result.

Operators that keep state (aggregates, DISTINCT, set operations, first rows) are cut out of the query and
become stages of their own: what is above them reads their stored rows, whose states before and after are
known exactly. So an aggregate of an aggregate is a chain of two. The last stage is what users see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlglot import exp

from headwater.algebra.accumulators import (
    Accumulator,
    Extremum,
    State,
    accumulator,
    extremum,
    initial,
    rows_state,
    states_of,
)
from headwater.algebra.equalities import with_conversions
from headwater.algebra.padding import without_padding
from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Join,
    Named,
    Opaque,
    Project,
    Query,
    Relation,
    Scan,
    Semi,
    TopK,
    Window,
    column,
    columns_of,
)
from headwater.algebra.renaming import same_names
from headwater.algebra.rules.context import equi_condition, speaks_of_now
from headwater.algebra.rules.delta import delta
from headwater.algebra.substituting import substituted

#: Says whether a stored row is part of what users see.
SHOWN = "_hw_shown"
#: How many operators the delta of a join may have. Outer joins and EXISTS inside each other multiply; what is
#: stored in between stops that.
MOST_OPERATORS = 400

#: Names and Spark types of a relation's columns, the rest of its key included.
Types = Mapping[str, str]
#: Finds out the types of a relation's columns, given those of the stages it reads.
Describe = Callable[[Relation, Mapping[str, Types]], Types]

Strategy = Literal["rows", "sums", "extrema", "groups", "first rows", "anew"]


@dataclass(frozen=True)
class First:
    """The first rows in an order, of which some more are stored than are shown."""

    #: exp.Ordered over stored columns.
    order: tuple[exp.Expr, ...]
    limit: int
    offset: int
    #: How many rows are stored at most.
    buffer: int
    #: Whether rows have to meet a condition besides, which they have stored.
    conditional: bool = False

    @property
    def needed(self) -> int:
        """How many rows must be stored to know what is shown, unless there are no more."""
        return self.limit + self.offset

    def stored(self, rows: Relation) -> Relation:
        """Rows to be stored, with whether they are shown."""
        ranked = Window(rows, (), ((_RANK, self.rank(rows)),))
        shown: list[exp.Expr] = [
            exp.GT(this=column(_RANK), expression=exp.Literal.number(self.offset)),
            exp.LTE(this=column(_RANK), expression=exp.Literal.number(self.needed)),
        ]
        if self.conditional:
            shown.append(column(_MEETS))
        own = tuple((name, column(name)) for name in rows.columns)
        return Stored(ranked, (*own, (SHOWN, exp.and_(*shown))), rows.key)

    def rank(self, rows: Relation) -> exp.Expr:
        """The place of a row in the order, counted from 1; the renderer breaks ties by the rows' key."""
        order = exp.Order(expressions=[item.copy() for item in self.order])
        return exp.Window(this=exp.RowNumber(), order=order)


_RANK, _MEETS = "_hw_rank", "_hw_meets"


@dataclass(frozen=True)
class Stored(Project):
    """A projection to stored columns, among which is all of the key."""

    stored_key: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The stored names of the key."""
        return self.stored_key


@dataclass(frozen=True)
class Stage:
    """One stored result and how it follows from its inputs."""

    #: What later stages read it as: `@1`, `@2`, …; the last is `@`.
    source: str
    strategy: Strategy
    #: The rows to store, from the inputs as they are now.
    relation: Relation
    #: Stored names of the columns, in order, with the names they have in `relation`.
    fields: tuple[tuple[str, str], ...]
    #: Stored names of what identifies a row.
    key: tuple[str, ...]
    #: Stored names with their Spark types.
    types: Types = field(default_factory=dict, compare=False)
    #: Of an aggregate: what it is over, its groups, its states, and what is computed from those.
    child: Relation | None = None
    groups: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    extrema: tuple[Extremum, ...] = ()
    #: Of first rows: which, and in what order.
    first: First | None = None
    #: Why it cannot follow changes, if it cannot.
    reasons: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tables and stages it reads."""
        scans = (node for node in self.relation.walk() if isinstance(node, Scan))
        return tuple(dict.fromkeys(scan.source for scan in scans))

    @property
    def depends_on_time(self) -> bool:
        """Whether its rows change when only time passes."""
        return any(
            isinstance(node, Filter) and speaks_of_now(node.condition) for node in self.relation.walk()
        )

    def runs_short(self, before: int, came: int, went: int) -> bool:
        """Whether too few rows would be left to know the first ones: then all have to be read again."""
        return self.first is not None and before - went + came < self.first.needed

    def stored(self, version: Literal["old", "new", "delta"] = "old", prefix: str = "_hw_old_") -> Scan:
        """Its stored rows, under names of their own."""
        return Scan(
            self.source,
            tuple((prefix + name, name) for name, _ in self.fields),
            tuple((prefix + name, name) for name in self.key),
            version,
        )


@dataclass(frozen=True)
class Program:
    """All stages of a query, in the order in which they are computed."""

    stages: tuple[Stage, ...]
    #: Names users see, which are also the stored names.
    columns: tuple[str, ...]

    @property
    def result(self) -> Stage:
        """The stage users see."""
        return self.stages[-1]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why parts of it are computed anew each time."""
        return tuple(dict.fromkeys(reason for stage in self.stages for reason in stage.reasons))


def compile_query(query: Query, describe: Describe) -> Program:
    """Cut a query into stages."""
    cutter = _Cutter(describe)
    top = cutter.cut(query.relation)
    cutter.last(top, query)
    return Program(tuple(cutter.stages), tuple(name for name, _ in query.outputs))


class _Cutter:
    def __init__(self, describe: Describe):
        self.describe = describe
        self.stages: list[Stage] = []
        self.types: dict[str, Types] = {}
        #: What has a stage already, by its form, and the names that its columns have there.
        self._known: dict[Relation, tuple[Stage, tuple[str, ...]]] = {}

    def cut(self, relation: Relation, *, top: bool = True) -> Relation:
        """The relation with everything below its top that keeps state replaced by scans of stages."""
        below = top and _folds(relation)
        children = tuple(self.cut(child, top=below) for child in relation.children)
        made = relation.with_children(children)
        if isinstance(made, Window):
            made = replace(made, child=self._restrictable(made.child, made.partition))
        elif isinstance(made, (Join, Semi)):
            children = tuple(self._restrictable(child, ()) for child in made.children)
            typed = with_conversions(made, lambda relation: self.describe(relation, self.types))
            made = self._bounded(self._counted(typed.with_children(children)))
        if not top and isinstance(made, (Aggregate, TopK, Opaque)):
            return self._scan(made)
        return made

    def last(self, relation: Relation, query: Query) -> None:
        """Make the stage that users see."""
        outputs = tuple(query.outputs)
        folded = _fold(relation)
        if isinstance(folded.base, Aggregate):
            values = [(name, folded.values[inner].copy()) for name, inner in outputs]
            self._aggregate("@", folded.base, values, folded.shown)
        elif isinstance(folded.base, TopK):
            values = [(name, folded.values[inner].copy()) for name, inner in outputs]
            self._first("@", folded.base, values, folded.shown)
        else:
            self._rows("@", relation, outputs)

    def _scan(self, relation: Relation) -> Relation:
        """A relation as a stage of its own."""
        form = same_names(relation) or relation
        if form not in self._known:
            source = f"@{len(self.stages) + 1}"
            outputs = tuple((name, name) for name in relation.columns)
            if isinstance(relation, Aggregate):
                self._aggregate(source, relation, [(n, column(n)) for n in relation.columns], None)
            elif isinstance(relation, TopK):
                self._first(source, relation, [(n, column(n)) for n in relation.columns], None)
            else:
                self._rows(source, relation, outputs)
            self._known[form] = self.stages[-1], relation.columns
        stage, names = self._known[form]
        fields = tuple(zip(relation.columns, names, strict=True))
        key = tuple(zip(relation.key, stage.key, strict=True))
        if not isinstance(relation, TopK):
            return Scan(stage.source, fields, key)
        shown = f"{SHOWN}_{stage.source.removeprefix('@')}_{'_'.join(relation.key[:1])}"
        return Filter(Scan(stage.source, (*fields, (shown, SHOWN)), key), column(shown))

    def _restrictable(self, child: Relation, partition: Sequence[str]) -> Relation:
        """What is read again for some keys only must not hold what cannot be computed for these alone."""
        for node in child.walk():
            if isinstance(node, Window) and not set(partition) >= set(node.partition):
                return self._scan(child)
        return child

    def _counted(self, node: Relation) -> Relation:
        """EXISTS of what is itself made of EXISTS or outer joins: the keys of the partners are stored.

        Only keys whose last partner goes, or whose first one comes, can matter then. Without, all partners
        of a key are computed again, before and after, for each of them that changed.
        """
        if not isinstance(node, Semi) or not any(map(_doubles, node.right.walk())):
            return node
        equal = equi_condition(node.condition, node.left, node.right)
        if not equal.right or equal.rest:
            return node
        keys = tuple(dict.fromkeys(name for value in equal.right for name in sorted(columns_of(value))))
        distinct = Aggregate(Project(node.right, tuple((name, column(name)) for name in keys)), keys, ())
        return replace(node, right=self._scan(distinct))

    def _bounded(self, node: Relation) -> Relation:
        """The operator over stages, as far as it takes to keep its delta small enough to be planned."""
        while (whole := _delta_size(node)) > MOST_OPERATORS:
            sizes = [0 if isinstance(child, Scan) else _delta_size(child) for child in node.children]
            heaviest = sizes.index(max(sizes))
            children = list(node.children)
            children[heaviest] = self._scan(children[heaviest])
            node = node.with_children(tuple(children))
            if _delta_size(node) >= whole:
                break
        return node

    def _add(self, stage: Stage) -> None:
        found = self.describe(stage.relation, self.types)
        types = {stored: found[name] for stored, name in stage.fields}
        self.types[stage.source] = types
        self.stages.append(replace(stage, types=types))

    # -- kinds of stages ----------------------------------------------------------------------------

    def _rows(self, source: str, relation: Relation, outputs: Sequence[tuple[str, str]]) -> None:
        """A stage whose rows are those of the relation, with the rest of its key."""
        stored = {inner: name for name, inner in outputs}
        fields = list(outputs)
        key: list[str] = []
        for number, inner in enumerate(relation.key):
            if inner not in stored:
                stored[inner] = f"_hw_key_{number + 1}"
                fields.append((stored[inner], inner))
            key.append(stored[inner])
        reasons = _reasons(relation)
        opaque = any(isinstance(node, Opaque) for node in relation.walk())
        strategy: Strategy = "anew" if opaque else "rows"
        self._add(Stage(source, strategy, relation, tuple(fields), tuple(key), reasons=reasons))

    def _first(self, source: str, node: TopK, outputs: Sequence[Named], shown: exp.Expr | None) -> None:
        """A stage that stores more rows than are shown, so that rows which go leave others to show."""
        kept: list[Named] = list(outputs)
        stored = {value.name: name for name, value in outputs if isinstance(value, exp.Column)}
        key = []
        for number, inner in enumerate(node.key):
            if inner not in stored:
                stored[inner] = f"_hw_key_{number + 1}"
                kept.append((stored[inner], column(inner)))
            key.append(stored[inner])
        order = []
        for number, item in enumerate(node.order):
            kept.append((f"_hw_order_{number + 1}", item.this.copy()))
            ordered = item.copy()
            ordered.set("this", column(f"_hw_order_{number + 1}"))
            order.append(ordered)
        if shown is not None:
            kept.append((_MEETS, exp.Coalesce(this=shown.copy(), expressions=[exp.false()])))
        rows = Stored(node.child, tuple(kept), tuple(key))
        needed = node.limit + node.offset
        first = First(
            tuple(order), node.limit, node.offset, max(2 * needed, needed + 1000), shown is not None
        )
        names = (*(name for name, _ in kept), SHOWN)
        self._add(
            Stage(
                source,
                "first rows",
                first.stored(TopK(rows, first.order, first.buffer)),
                tuple((name, name) for name in names),
                tuple(key),
                child=rows,
                first=first,
                reasons=_reasons(node.child),
            )
        )

    def _aggregate(
        self, source: str, node: Aggregate, outputs: Sequence[Named], shown: exp.Expr | None
    ) -> None:
        """A stage that stores groups, states and what is computed from them."""
        child_types = self.describe(node.child, self.types)
        found = {name: accumulator(name, call, child_types) for name, call in node.aggregates}
        sums: dict[str, Accumulator] = {name: each for name, each in found.items() if each is not None}
        most = {n: extremum(n, call) for n, call in node.aggregates if n not in sums}
        extrema = tuple(each for each in most.values() if each is not None)
        kept_up = len(extrema) == len(most)
        if kept_up:
            node = without_padding(node, lambda relation: self.describe(relation, self.types))
            states, values = states_of(sums)
            values |= {name: column(each.name) for name, each in most.items() if each is not None}
            highest = tuple((each.name, each.initial) for each in extrema)
            base = Aggregate(node.child, node.groups, (*initial(states), *highest))
        else:
            extrema = ()
            states = (rows_state(),)
            values = {name: column(name) for name, _ in node.aggregates}
            base = Aggregate(node.child, node.groups, (*initial(states), *node.aggregates))
        computed: list[Named] = [(name, substituted(value, values)) for name, value in outputs]
        stored = {inner.name: name for name, inner in outputs if isinstance(inner, exp.Column)}
        kept: list[Named] = list(computed)
        key = []
        for number, group in enumerate(node.groups):
            if group not in stored:
                stored[group] = f"_hw_key_{number + 1}"
                kept.append((stored[group], column(group)))
            key.append(stored[group])
        kept += [(state.name, column(state.name)) for state in states]
        kept += [(each.name, column(each.name)) for each in extrema]
        if shown is not None:
            condition = exp.Coalesce(this=substituted(shown, values), expressions=[exp.false()])
            kept.append((SHOWN, condition))
        self._add(
            Stage(
                source,
                ("extrema" if extrema else "sums") if kept_up else "groups",
                Project(base, tuple(kept)),
                tuple((name, name) for name, _ in kept),
                tuple(key),
                child=node.child,
                groups=node.groups,
                states=states,
                extrema=extrema,
                reasons=_reasons(node.child),
            )
        )


@dataclass(frozen=True)
class _Folded:
    """Projections and conditions above a relation, as values over its columns and one condition."""

    base: Relation
    values: dict[str, exp.Expr]
    shown: exp.Expr | None


def _folds(relation: Relation) -> bool:
    """Whether a stage can do what an operator does when it stores a row."""
    if isinstance(relation, Filter):
        return not speaks_of_now(relation.condition)
    return isinstance(relation, Project)


def _fold(relation: Relation) -> _Folded:
    if isinstance(relation, Project):
        below = _fold(relation.child)
        values = {name: substituted(value, below.values) for name, value in relation.outputs}
        return replace(below, values=values)
    if isinstance(relation, Filter) and _folds(relation):
        below = _fold(relation.child)
        condition = substituted(relation.condition, below.values)
        shown = condition if below.shown is None else exp.and_(below.shown, condition)
        return replace(below, shown=shown)
    return _Folded(relation, {name: column(name) for name in relation.columns}, None)


def _doubles(node: Relation) -> bool:
    """Whether what follows from an operator's right side is found by computing it before and after."""
    return isinstance(node, Semi) or (isinstance(node, Join) and node.kind != "inner")


def _delta_size(relation: Relation) -> int:
    """How many operators there are in what a relation's changes are computed by, if all its inputs change."""
    sources = [node.source for node in relation.walk() if isinstance(node, Scan)]
    changed = delta(relation, sources, time_moved=True)
    return 0 if changed is None else _size(changed, {})


def _size(relation: Relation, known: dict[int, int]) -> int:
    """Operators counted as often as they are read; the same object is looked at once."""
    if id(relation) not in known:
        known[id(relation)] = 1 + sum(_size(child, known) for child in relation.children)
    return known[id(relation)]


def _reasons(relation: Relation) -> tuple[str, ...]:
    """Why a part of a relation cannot follow changes at a cost that follows them."""
    found: list[str] = []
    for node in relation.walk():
        if isinstance(node, Opaque):
            found.append(node.reason)
        elif isinstance(node, Window) and not node.partition:
            found.append("a window without PARTITION BY covers all rows")
        elif _doubles(node) and isinstance(node, (Join, Semi)):
            if equi_condition(node.condition, node.left, node.right).left:
                continue
            what = "EXISTS" if isinstance(node, Semi) else "an outer join"
            found.append(f"{what} without an equality between the two sides has no keys to follow")
    return tuple(dict.fromkeys(found))
