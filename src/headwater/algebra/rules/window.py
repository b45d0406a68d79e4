"""Window functions: affected partitions are computed again.

With K the partitions that occur in ΔR:

    Δ(W(R)) = W(R₁|K) - W(R₀|K)

Ties in an order are broken by the rows' key, so that both computations agree on rows that did not change.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.relations import Relation, Signed, Window, column
from headwater.algebra.rules.context import Context, concat, keys_of, restrict


def delta_window(node: Window, context: Context) -> Relation | None:
    """Old and new rows of the affected partitions."""
    changed = context.of(node.child)
    if changed is None:
        return None
    now, before = node.child, context.old(node.child)
    if node.partition:
        values = [column(name) for name in node.partition]
        keys = keys_of([(changed, values)])
        now, before = restrict(now, keys, values), restrict(before, keys, values)
    terms: list[Relation] = [
        Signed(replace(node, child=now), 1),
        Signed(replace(node, child=before), -1),
    ]
    return concat(terms)
