"""Left joins, semi joins (EXISTS) and anti joins (NOT EXISTS).

All three are linear in their left side, so with K the join keys that occur in ΔR:

    Δ(L ∘ R) = ΔL ∘ R₀  +  L₁|K ∘ R₁|K  -  L₁|K ∘ R₀|K

Only rows of L with a key in K can see another R than before; NULL keys match each other in |K, since a row
with a NULL key has to appear on both sides of the difference or on none. Without an equality in the condition
K is everything: right, but as dear as computing anew, which `restrictable` tells the caller.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.relations import Join, Relation, Semi, Signed
from headwater.algebra.rules.context import Context, concat, equi_condition, keys_of, restrict


def delta_one_sided(node: Join | Semi, context: Context) -> Relation | None:
    """The three terms, without those whose delta is empty."""
    equal = equi_condition(node.condition, node.left, node.right)
    of_left, of_right = context.of(node.left), context.of(node.right)
    before = context.old(node.right)
    terms: list[Relation] = []
    if of_left is not None:
        partners = before
        if equal.left:
            partners = restrict(before, keys_of([(of_left, equal.left)]), equal.right)
        terms.append(_over(node, of_left, partners))
    if of_right is not None:
        rows, after = node.left, node.right
        if equal.left:
            keys = keys_of([(of_right, equal.right)])
            rows = restrict(rows, keys, equal.left)
            before, after = restrict(before, keys, equal.right), restrict(after, keys, equal.right)
        terms.append(Signed(_over(node, rows, after), 1))
        terms.append(Signed(_over(node, rows, before), -1))
    return concat(terms)


def _over(node: Join | Semi, left: Relation, right: Relation) -> Relation:
    if isinstance(node, Join):
        return replace(node, left=left, right=right, small="right")
    return replace(node, left=left, right=right, small=True)
