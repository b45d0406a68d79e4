"""Full outer joins: affected keys are computed again.

With K the join keys that occur in ΔL or ΔR:

    Δ(L ⟗ R) = L₁|K ⟗ R₁|K  -  L₀|K ⟗ R₀|K
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.relations import Join, Relation, Signed
from headwater.algebra.rules.context import Context, concat, equi_condition, keys_of, restrict


def delta_full(node: Join, context: Context) -> Relation | None:
    """Old and new rows of the affected keys."""
    equal = equi_condition(node.condition, node.left, node.right)
    found = [
        (delta, values)
        for delta, values in (
            (context.of(node.left), equal.left),
            (context.of(node.right), equal.right),
        )
        if delta is not None
    ]
    if not found:
        return None
    sides = [node.left, node.right]
    before = [context.old(side) for side in sides]
    if equal.left:
        keys = keys_of(found)
        both = (equal.left, equal.right)
        sides = [restrict(side, keys, values) for side, values in zip(sides, both, strict=True)]
        before = [restrict(side, keys, values) for side, values in zip(before, both, strict=True)]
    terms: list[Relation] = [
        Signed(replace(node, left=sides[0], right=sides[1]), 1),
        Signed(replace(node, left=before[0], right=before[1]), -1),
    ]
    return concat(terms)
