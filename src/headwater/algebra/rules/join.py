"""Inner joins of any number of relations, with any condition; a relation may be joined to itself.

    Δ(T₁ ⋈ … ⋈ Tₙ) = Σᵢ  new(T₁) ⋈ … ⋈ new(Tᵢ₋₁) ⋈ ΔTᵢ ⋈ old(Tᵢ₊₁) ⋈ … ⋈ old(Tₙ)

n terms rather than 2ⁿ - 1, and a term whose ΔTᵢ is empty is left out. Each term begins with its delta and
goes on to whatever a condition connects to what is there already, so that the few rows of the delta drive
the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from headwater.algebra.relations import (
    Filter,
    Join,
    Project,
    Relation,
    Scan,
    columns_of,
    conjuncts,
    has_one_row,
)
from headwater.algebra.rules.context import (
    Context,
    all_of,
    concat,
    equi_condition,
    is_inner,
    keys_of,
    restrict,
)

#: Joins what is joined so far to another relation, on a condition.
_Joining = Callable[[Relation, Relation, exp.Expr | None], Relation]


def delta_inner(node: Relation, context: Context) -> Relation | None:
    """The terms of a join, each with the one delta in it."""
    inputs, conditions = flatten(node)
    inputs, conditions = _conditions_below(inputs, conditions)
    terms: list[Relation] = []
    for number, each in enumerate(inputs):
        changed = context.of(each)
        if changed is None:
            continue
        others = [*inputs[:number], *(context.old(later) for later in inputs[number + 1 :])]
        terms.append(_joined(changed, others, conditions, _to_the_few))
    return concat(terms)


def along_conditions(inputs: Sequence[Relation], conditions: Sequence[exp.Expr]) -> Relation:
    """A join of relations in an order in which conditions lead from one to the next, wherever they do.

    Single rows come last: conditions that speak of their values can be brought down from there.
    """
    inputs, conditions = _conditions_below(inputs, conditions)
    rows = [each for each in inputs if not has_one_row(each)] or list(inputs[:1])
    known = frozenset(name for each in rows for name in each.all_columns)
    early = [condition for condition in conditions if columns_of(condition) <= known]
    joined = _joined(rows[0], rows[1:], early, lambda *sides: Join("inner", *sides))
    for value in inputs:
        if all(value is not each for each in rows):
            joined = Join("inner", joined, value)
    late = [condition for condition in conditions if all(condition is not each for each in early)]
    return Filter(joined, all_of(part.copy() for part in late)) if late else joined


def flatten(node: Relation) -> tuple[list[Relation], list[exp.Expr]]:
    """The relations that are joined, and all conditions on them."""
    if isinstance(node, Filter) and is_inner(node):
        inputs, conditions = flatten(node.child)
        return inputs, conditions + list(conjuncts(node.condition))
    if isinstance(node, Join) and node.kind == "inner":
        left, on_left = flatten(node.left)
        right, on_right = flatten(node.right)
        return left + right, on_left + on_right + list(conjuncts(node.condition))
    return [node], []


def _conditions_below(
    inputs: Sequence[Relation], conditions: Sequence[exp.Expr]
) -> tuple[list[Relation], list[exp.Expr]]:
    """Conditions on one relation alone, applied before it is joined."""
    below = list(inputs)
    rest: list[exp.Expr] = []
    for condition in conditions:
        names = columns_of(condition)
        homes = [n for n, each in enumerate(inputs) if names & frozenset(each.all_columns)]
        if len(homes) == 1:
            below[homes[0]] = Filter(below[homes[0]], condition)
        else:
            rest.append(condition)
    return below, rest


def _joined(
    first: Relation, others: Sequence[Relation], conditions: Sequence[exp.Expr], join: _Joining
) -> Relation:
    """From a relation along the conditions to all others."""
    bound, waiting, open_ = first, list(others), list(conditions)
    while waiting:
        following = min(waiting, key=lambda each: _distance(bound, each, open_))
        waiting.remove(following)
        known = frozenset(bound.all_columns) | frozenset(following.all_columns)
        ready = [condition for condition in open_ if columns_of(condition) <= known]
        open_ = [condition for condition in open_ if condition not in ready]
        condition = exp.and_(*(part.copy() for part in ready)) if ready else None
        bound = join(bound, following, condition)
    return Filter(bound, exp.and_(*(part.copy() for part in open_))) if open_ else bound


def _to_the_few(bound: Relation, other: Relation, condition: exp.Expr | None) -> Relation:
    """What is joined to the few rows that a delta leads to."""
    return Join("inner", bound, _narrowed(bound, other, condition), condition, small="left")


def _distance(bound: Relation, other: Relation, conditions: Sequence[exp.Expr]) -> int:
    """How near a relation is to what is bound: by equality, by another condition, not at all."""
    known = frozenset(bound.all_columns) | frozenset(other.all_columns)
    theirs = frozenset(other.all_columns)
    linking = [c for c in conditions if columns_of(c) <= known and columns_of(c) & theirs]
    if any(equi_condition(c, bound, other).left for c in linking):
        return 0
    return 1 if linking else 2


def _narrowed(bound: Relation, other: Relation, condition: exp.Expr | None) -> Relation:
    """Something dear to compute is computed only for the keys it is joined by."""
    if _is_plain(other):
        return other
    equal = equi_condition(condition, bound, other)
    if not equal.left:
        return other
    return restrict(other, keys_of([(bound, equal.left)]), equal.right)


def _is_plain(relation: Relation) -> bool:
    if isinstance(relation, (Filter, Project)):
        return _is_plain(relation.child)
    return isinstance(relation, Scan) or not relation.children
