"""Inner joins of any number of relations, with any condition; a relation may be joined to itself.

    Δ(T₁ ⋈ … ⋈ Tₙ) = Σᵢ  new(T₁) ⋈ … ⋈ new(Tᵢ₋₁) ⋈ ΔTᵢ ⋈ old(Tᵢ₊₁) ⋈ … ⋈ old(Tₙ)

n terms rather than 2ⁿ - 1, and a term whose ΔTᵢ is empty is left out. Each term begins with its delta and
goes on to whatever a condition connects to what is there already, so that the few rows of the delta drive
the work.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headwater.algebra.relations import (
    Filter,
    Join,
    Project,
    Relation,
    Scan,
    columns_of,
    conjuncts,
)
from headwater.algebra.rules.context import (
    Context,
    concat,
    equi_condition,
    is_inner,
    keys_of,
    restrict,
)


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
        terms.append(_joined(changed, others, conditions))
    return concat(terms)


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


def _joined(changed: Relation, others: Sequence[Relation], conditions: Sequence[exp.Expr]) -> Relation:
    """One term: from the delta along the conditions to all other relations."""
    bound, waiting, open_ = changed, list(others), list(conditions)
    while waiting:
        following = min(waiting, key=lambda each: _distance(bound, each, open_))
        waiting.remove(following)
        known = frozenset(bound.all_columns) | frozenset(following.all_columns)
        ready = [condition for condition in open_ if columns_of(condition) <= known]
        open_ = [condition for condition in open_ if condition not in ready]
        condition = exp.and_(*(part.copy() for part in ready)) if ready else None
        bound = Join("inner", bound, _narrowed(bound, following, condition), condition, small="left")
    return Filter(bound, exp.and_(*(part.copy() for part in open_))) if open_ else bound


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
