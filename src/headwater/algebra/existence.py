"""Scans of which it only matters what values there are, not how many rows have them.

What EXISTS, IN, DISTINCT and the keys of a change ask of a table is which values it has. Rows of such a scan
that are the same in all columns that matter may be one row, and what its other columns hold is of no
consequence: of four hundred thousand orders, the customers are left that have any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.algebra.relations import (
    WEIGHT,
    Aggregate,
    Concat,
    Filter,
    Generate,
    Join,
    Project,
    Relation,
    Scan,
    Semi,
    Signed,
    UnionAll,
    columns_of,
)


def value_columns(relation: Relation) -> Mapping[str, frozenset[str]]:
    """The scans of a `numbered` relation of which only distinct values matter, and their stored columns."""
    finder = _Finder()
    finder.visit(relation, None)
    return finder.found


@dataclass
class _Finder:
    found: dict[str, frozenset[str]] = field(default_factory=dict)

    def visit(self, node: Relation, needed: frozenset[str] | None) -> None:
        """Note the scans below a relation; `needed` are the columns whose values matter, if only these do."""
        if needed is not None:
            # A sum of weights is no question of values.
            needed = None if WEIGHT in needed else needed & frozenset(node.all_columns)
        match node:
            case Scan():
                if needed:
                    stored = dict((*node.fields, *node.key_fields))
                    self.found[node.source] = frozenset(stored[name] for name in needed)
            case Semi():
                of_condition = columns_of(node.condition)
                self.visit(node.left, None if needed is None else needed | of_condition)
                self.visit(node.right, of_condition)
            case Aggregate() if not node.aggregates:
                self.visit(node.child, frozenset(node.groups) if needed is None else needed)
            case Project() if needed is not None:
                below = dict(node.outputs)
                used = [columns_of(below[name]) if name in below else {name} for name in needed]
                self.visit(node.child, frozenset().union(*used))
            case Filter() if needed is not None:
                self.visit(node.child, needed | columns_of(node.condition))
            case Generate() if needed is not None:
                self.visit(node.child, needed | columns_of(node.generator))
            case Join() if needed is not None and node.side not in needed:
                of_condition = frozenset() if node.condition is None else columns_of(node.condition)
                for child in node.children:
                    self.visit(child, needed | of_condition)
            case Signed():
                self.visit(node.child, needed)
            case Concat():
                for child in node.inputs:
                    self.visit(child, needed)
            case UnionAll() if needed is not None and needed <= frozenset(node.names):
                for child in node.inputs:
                    own = zip(node.names, child.columns, strict=True)
                    self.visit(child, frozenset(below for name, below in own if name in needed))
            case _:
                for child in node.children:
                    self.visit(child, None)


__all__ = ["value_columns"]
