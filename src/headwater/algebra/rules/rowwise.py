"""Operators that look at one row at a time: projection, filter, explode, union.

    Δ(π(R)) = π(ΔR)      Δ(σ(R)) = σ(ΔR)      Δ(explode(R)) = explode(ΔR)      Δ(R ∪ S) = ΔR ∪ ΔS

A condition p that speaks of the current time is another condition at each refresh, p₀ before and p₁ now:

    Δ(σ(R)) = σ[p₁](ΔR) + σ[p₁ ∧ ¬p₀](R₀) - σ[p₀ ∧ ¬p₁](R₀)

where the second and third term are the rows that time alone moved across the condition.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headwater.algebra.relations import (
    Concat,
    Filter,
    Generate,
    Project,
    Relation,
    Signed,
    UnionAll,
    column,
)
from headwater.algebra.rules.context import Context, as_before, concat, is_inner, speaks_of_now
from headwater.algebra.rules.join import delta_inner


def delta_project(node: Project | Generate, context: Context) -> Relation | None:
    """The same operator over the delta."""
    changed = context.of(node.child)
    return None if changed is None else node.with_children((changed,))


def delta_filter(node: Filter, context: Context) -> Relation | None:
    """The condition over the delta; and over all rows where time moved it."""
    if is_inner(node):
        return delta_inner(node, context)
    changed = context.of(node.child)
    terms: list[Relation] = [] if changed is None else [Filter(changed, node.condition)]
    if context.time_moved and speaks_of_now(node.condition):
        now, before = node.condition, as_before(node.condition)
        rows = context.old(node.child)
        terms.append(Signed(Filter(rows, _only(now, before)), 1))
        terms.append(Signed(Filter(rows, _only(before, now)), -1))
    return concat(terms)


def _only(holds: exp.Expr, fails: exp.Expr) -> exp.Expr:
    """One condition is true and the other is not: false or NULL."""
    return exp.and_(holds.copy(), exp.not_(exp.Coalesce(this=fails.copy(), expressions=[exp.false()])))


def delta_union_all(node: UnionAll, context: Context) -> Relation | None:
    """The deltas of the inputs, each under its own number."""
    found = [(number, child, context.of(child)) for number, child in node.tagged]
    changed = [(number, _in_order(child, delta)) for number, child, delta in found if delta is not None]
    if not changed:
        return None
    return replace(
        node,
        inputs=tuple(delta for _, delta in changed),
        numbers=tuple(number for number, _ in changed),
        absent_key=tuple(name for name in node.key if name != node.tag),
    )


def _in_order(relation: Relation, changed: Relation) -> Relation:
    """The delta of a relation with columns in its order: a union matches them by position, and the terms of a
    join begin with whichever input changed."""
    if changed.columns == relation.columns:
        return changed
    return Project(changed, tuple((name, column(name)) for name in relation.columns))


def delta_concat(node: Concat, context: Context) -> Relation | None:
    """The deltas of the parts."""
    found = [context.of(child) for child in node.inputs]
    return concat([delta for delta in found if delta is not None])
