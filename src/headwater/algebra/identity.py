"""Which tables' row ids are part of what a query stores, or decide it."""

from __future__ import annotations

from headwater.algebra.relations import (
    ROW_ID,
    Aggregate,
    Opaque,
    Project,
    Relation,
    Scan,
    Semi,
    TopK,
    Window,
    columns_of,
)
from headwater.algebra.stages import Program, Stored


def by_row_id(program: Program) -> frozenset[str]:
    """The sources whose rows are known by their row ids where results are stored.

    Aggregates forget whose values they are of; windows and first rows put equal rows in the order of ids.
    """
    relations = [stage.relation for stage in program.stages]
    return frozenset(source for each in relations for source in _sources(each, _named(each), keyed=True))


def _named(relation: Relation) -> frozenset[str]:
    """Names that projections compute with: a stage that stores a key under another name is one."""
    projections = (node for node in relation.walk() if isinstance(node, Project))
    return frozenset(name for node in projections for _, value in node.outputs for name in columns_of(value))


def _sources(node: Relation, named: frozenset[str], *, keyed: bool) -> set[str]:
    """The sources below an operator whose row ids matter, if its own key does or not."""
    match node:
        case Scan():
            ids = {name for name, stored in node.key_fields if stored == ROW_ID}
            return {node.source} if ids and (keyed or ids & named) else set()
        case Aggregate() | Opaque() | Stored():
            below = [False] * len(node.children)
        case Semi():
            below = [keyed, False]
        case Window() | TopK():
            below = [True]
        case _:
            below = [keyed] * len(node.children)
    pairs = zip(node.children, below, strict=True)
    return {source for child, each in pairs for source in _sources(child, named, keyed=each)}
