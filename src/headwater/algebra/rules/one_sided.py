"""Left joins, semi joins (EXISTS) and anti joins (NOT EXISTS).

All three are linear in their left side, so with K the join keys that occur in ΔR:

    Δ(L ∘ R) = ΔL ∘ R₀  +  L₁|K ∘ R₁|K  -  L₁|K ∘ R₀|K

Only rows of L with a key in K can see another R than before; NULL keys match each other in |K, since a row
with a NULL key has to appear on both sides of the difference or on none. Without an equality in the condition
K is everything: right, but as dear as computing anew, which `restrictable` tells the caller.

Several of them on top of each other are linear in what is below them all. Where they ask for the same values
of that, they are one operator with several right sides, and K is of all of these: three terms, where each by
itself would treble the terms of the one below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.algebra.relations import Filter, Join, Relation, Semi, Signed, columns_of
from headwater.algebra.rules.context import (
    Context,
    concat,
    equi_condition,
    keys_of,
    restrict,
    speaks_of_now,
)


@dataclass(frozen=True)
class _Layer:
    """One of the operators on top of each other; a condition between them has no right side."""

    node: Join | Semi | Filter
    #: Values of the left side that are equal to values of the right side.
    ours: tuple[exp.Expr, ...] = ()
    theirs: tuple[exp.Expr, ...] = ()
    right: Relation | None = None
    changed: Relation | None = None


def delta_one_sided(node: Join | Semi, context: Context) -> Relation | None:
    """The three terms, without those whose delta is empty."""
    base, layers = _layers(node, context)

    def met(layer: _Layer, left: Relation, right: Relation) -> Relation:
        """The partners as they were, for the values that the left side has."""
        before = context.old(right)
        return restrict(before, keys_of([(left, layer.ours)]), layer.theirs) if layer.ours else before

    of_base = context.of(base)
    terms = [] if of_base is None else [_over(of_base, layers, met)]
    changed = [(layer.changed, layer.theirs) for layer in layers if layer.changed is not None]
    if not changed:
        return concat(terms)
    ours = layers[-1].ours
    keys = keys_of(changed) if ours else None

    def affected(layer: _Layer, left: Relation, right: Relation) -> Relation:
        if layer.changed is None:
            return met(layer, left, right)
        return right if keys is None else restrict(right, keys, layer.theirs)

    def affected_before(layer: _Layer, left: Relation, right: Relation) -> Relation:
        return affected(layer, left, context.old(right))

    rows = base if keys is None else restrict(base, keys, ours)
    terms.append(Signed(_over(rows, layers, affected), 1))
    terms.append(Signed(_over(rows, layers, affected_before), -1))
    return concat(terms)


def _layers(node: Join | Semi, context: Context) -> tuple[Relation, Sequence[_Layer]]:
    """What is below operators that ask for the same values of it, and these, the lowest first."""
    top = _layer(node, context)
    found, base = [top], node.left
    if top.changed is None or not top.ours:
        return base, found
    names = frozenset[str]().union(*map(columns_of, top.ours))
    passed, below = [top], node.left
    while names <= frozenset(below.all_columns):
        if isinstance(below, Filter) and not speaks_of_now(below.condition):
            passed.append(_Layer(below))
            below = below.child
            continue
        if not isinstance(below, Semi) and not (isinstance(below, Join) and below.kind == "left"):
            break
        layer = _layer(below, context)
        passed.append(layer)
        below = below.left
        if layer.changed is None:
            continue
        if layer.ours != top.ours:
            break
        found, base = passed[:], below
    return base, found[::-1]


def _layer(node: Join | Semi, context: Context) -> _Layer:
    equal = equi_condition(node.condition, node.left, node.right)
    return _Layer(node, equal.left, equal.right, node.right, context.of(node.right))


def _over(
    rows: Relation, layers: Sequence[_Layer], partners: Callable[[_Layer, Relation, Relation], Relation]
) -> Relation:
    """The operators over other rows, with other right sides."""
    for layer in layers:
        if isinstance(layer.node, Filter):
            rows = replace(layer.node, child=rows)
        elif layer.right is not None:
            right = partners(layer, rows, layer.right)
            if isinstance(layer.node, Join):
                rows = replace(layer.node, left=rows, right=right, small="right")
            else:
                rows = replace(layer.node, left=rows, right=right, small=True)
    return rows


__all__ = ["delta_one_sided"]
