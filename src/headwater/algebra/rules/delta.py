"""The delta of a relation: the rule of each operator, applied from the top down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headwater.algebra.relations import (
    Concat,
    Filter,
    Generate,
    Join,
    Project,
    Relation,
    Scan,
    Semi,
    UnionAll,
    Values,
    Window,
)
from headwater.algebra.rules.context import Context
from headwater.algebra.rules.full_join import delta_full
from headwater.algebra.rules.join import delta_inner
from headwater.algebra.rules.leaves import delta_scan, delta_values
from headwater.algebra.rules.one_sided import delta_one_sided
from headwater.algebra.rules.rowwise import delta_concat, delta_filter, delta_project, delta_union_all
from headwater.algebra.rules.window import delta_window

Rule = Callable[[Any, Context], Relation | None]

#: Which rule is whose; the first that fits. Aggregates and first rows keep state: they are stages.
RULES: tuple[tuple[str, Callable[[Relation], bool], Rule], ...] = (
    ("changes of a table", lambda node: isinstance(node, Scan), delta_scan),
    ("constant", lambda node: isinstance(node, Values), delta_values),
    ("row by row", lambda node: isinstance(node, (Project, Generate)), delta_project),
    ("row by row", lambda node: isinstance(node, Filter), delta_filter),
    ("branch by branch", lambda node: isinstance(node, UnionAll), delta_union_all),
    ("part by part", lambda node: isinstance(node, Concat), delta_concat),
    ("one term per input", lambda node: isinstance(node, Join) and node.kind == "inner", delta_inner),
    ("linear on the left", lambda node: isinstance(node, Join) and node.kind == "left", delta_one_sided),
    ("linear on the left", lambda node: isinstance(node, Semi), delta_one_sided),
    ("affected keys", lambda node: isinstance(node, Join) and node.kind == "full", delta_full),
    ("affected partitions", lambda node: isinstance(node, Window), delta_window),
)


def delta(relation: Relation, changed: Iterable[str], *, time_moved: bool = False) -> Relation | None:
    """The rows that came (1) and went (-1) when some sources changed; None if that cannot be.

    Equal rows with opposite weights may occur: `Net` removes them where that matters.
    """
    return Context(frozenset(changed), time_moved, _delta).of(relation)


def rule_of(relation: Relation) -> tuple[str, Rule]:
    """The name of an operator's rule and the rule."""
    for name, fits, rule in RULES:
        if fits(relation):
            return name, rule
    raise TypeError(f"{type(relation).__name__} has no rule of its own: it is a stage")


def _delta(relation: Relation, context: Context) -> Relation | None:
    return rule_of(relation)[1](relation, context)
