"""What the rules share: which inputs changed, states before and after, restriction to keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.algebra.relations import (
    Aggregate,
    Concat,
    Filter,
    Join,
    Project,
    Relation,
    Scan,
    Semi,
    column,
    columns_of,
    conjuncts,
)
from headwater.algebra.render import BEFORE

#: Functions whose value is the moment of the refresh.
MOMENTS = (exp.CurrentDate, exp.CurrentTimestamp, exp.Localtimestamp)


@dataclass(frozen=True)
class Context:
    """What changed since the refresh before: sources by name, and whether time moved."""

    changed: frozenset[str]
    time_moved: bool
    #: The delta of any relation, or None if it has none.
    delta: Callable[[Relation, Context], Relation | None]

    def of(self, relation: Relation) -> Relation | None:
        """The delta of a relation, or None if nothing in it can have changed."""
        return self.delta(relation, self) if self.touched(relation) else None

    def touched(self, relation: Relation) -> bool:
        """Whether anything that a relation reads changed."""
        for node in relation.walk():
            if isinstance(node, Scan) and node.source in self.changed:
                return True
            if self.time_moved and isinstance(node, Filter) and speaks_of_now(node.condition):
                return True
        return False

    def old(self, relation: Relation) -> Relation:
        """The relation as it was. What did not change is read as it is now, so that it is read once."""
        if not self.touched(relation):
            return relation
        made = relation.with_children(tuple(self.old(child) for child in relation.children))
        if isinstance(made, Scan) and made.source in self.changed:
            return replace(made, version="old")
        if isinstance(made, Filter) and self.time_moved and speaks_of_now(made.condition):
            return replace(made, condition=as_before(made.condition))
        return made


def speaks_of_now(expression: exp.Expr) -> bool:
    """Whether an expression depends on the moment of the refresh."""
    return expression.find(*MOMENTS) is not None


def as_before(condition: exp.Expr) -> exp.Expr:
    """The condition at the moment of the refresh before."""

    def mark(node: exp.Expr) -> exp.Expr:
        return exp.Anonymous(this=BEFORE, expressions=[node]) if isinstance(node, MOMENTS) else node

    return condition.copy().transform(mark)


def concat(terms: Sequence[Relation]) -> Relation | None:
    """The terms of a delta as one relation."""
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else Concat(tuple(terms))


@dataclass(frozen=True)
class Keys:
    """Distinct values of some columns, by which relations can be restricted."""

    relation: Relation
    names: tuple[str, ...]


def keys_of(parts: Sequence[tuple[Relation, Sequence[exp.Expr]]], prefix: str = "_hw_key") -> Keys:
    """The distinct values of expressions over one or more relations."""
    names = tuple(f"{prefix}_{number}" for number in range(len(parts[0][1])))
    projected = [
        _unkeyed(relation, tuple((n, e.copy()) for n, e in zip(names, values, strict=True)))
        for relation, values in parts
    ]
    if len(projected) == 1:
        return Keys(projected[0], names)
    return Keys(Aggregate(Concat(tuple(projected)), names, ()), names)


def _unkeyed(relation: Relation, outputs: tuple[tuple[str, exp.Expr], ...]) -> Relation:
    """A projection whose rows are about to lose their identity: distinct values are all that matters."""
    return Aggregate(Project(relation, outputs), tuple(name for name, _ in outputs), ())


def restrict(relation: Relation, keys: Keys, values: Sequence[exp.Expr]) -> Relation:
    """Rows of a relation whose values are among the keys; NULLs match each other."""
    condition = all_of(
        exp.NullSafeEQ(this=value.copy(), expression=column(name))
        for value, name in zip(values, keys.names, strict=True)
    )
    return Semi(relation, keys.relation, condition, small=True)


def all_of(conditions: Iterable[exp.Expr]) -> exp.Expr:
    """The conjunction of conditions; true if there are none."""
    parts = list(conditions)
    return exp.and_(*parts) if parts else exp.true()


@dataclass(frozen=True)
class EquiCondition:
    """A join's condition, taken apart: equal values on both sides, and what remains."""

    left: tuple[exp.Expr, ...]
    right: tuple[exp.Expr, ...]
    rest: tuple[exp.Expr, ...]


def equi_condition(condition: exp.Expr | None, left: Relation, right: Relation) -> EquiCondition:
    """Which values of the two sides of a join must be equal."""
    ours, theirs = frozenset(left.all_columns), frozenset(right.all_columns)
    lefts: list[exp.Expr] = []
    rights: list[exp.Expr] = []
    rest: list[exp.Expr] = []
    for part in conjuncts(condition):
        pair = None
        if isinstance(part, (exp.EQ, exp.NullSafeEQ)):
            pair = _sides(part.left, part.right, ours, theirs)
        if pair is None:
            rest.append(part)
        else:
            lefts.append(pair[0])
            rights.append(pair[1])
    return EquiCondition(tuple(lefts), tuple(rights), tuple(rest))


def _sides(
    a: exp.Expr, b: exp.Expr, ours: frozenset[str], theirs: frozenset[str]
) -> tuple[exp.Expr, exp.Expr] | None:
    of_a, of_b = columns_of(a), columns_of(b)
    if not of_a or not of_b:
        return None
    if of_a <= ours and of_b <= theirs:
        return a, b
    if of_a <= theirs and of_b <= ours:
        return b, a
    return None


def is_inner(relation: Relation) -> bool:
    """Whether a relation is an inner join, perhaps under conditions that do not speak of time."""
    if isinstance(relation, Filter):
        return not speaks_of_now(relation.condition) and is_inner(relation.child)
    return isinstance(relation, Join) and relation.kind == "inner"
