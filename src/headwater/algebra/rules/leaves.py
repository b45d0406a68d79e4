"""Tables and constants.

Δ(T) is what the lake says: rows that went (-1) and came (1) between two snapshots.
Δ(constant) is empty.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.relations import Relation, Scan, Values
from headwater.algebra.rules.context import Context


def delta_scan(scan: Scan, context: Context) -> Relation | None:
    """The changes of a table or a stage."""
    return replace(scan, version="delta") if scan.source in context.changed else None


def delta_values(values: Values, context: Context) -> Relation | None:
    """Nothing."""
    return None
