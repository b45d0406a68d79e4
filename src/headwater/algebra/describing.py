"""A stage's operators as lines of text, for people."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from headwater.algebra.padding import PADDED
from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Generate,
    Join,
    Opaque,
    Project,
    Relation,
    Scan,
    Semi,
    TopK,
    UnionAll,
    Values,
    Window,
)
from headwater.algebra.rules.delta import rule_of
from headwater.algebra.stages import Stage

#: How aggregates follow changes.
AGGREGATES = {
    "sums": "sums are added up",
    "extrema": "sums are added up, smallest and largest values move",
}


def operators(stage: Stage) -> Iterator[tuple[int, str, str]]:
    """Depth, operator and the rule by which it follows changes, from the top down."""
    yield from _walk(stage.relation, 0, stage)


def _walk(relation: Relation, depth: int, stage: Stage) -> Iterator[tuple[int, str, str]]:
    if isinstance(relation, Project):
        # What is only computed from each row says nothing about how changes travel.
        yield from _walk(relation.child, depth, stage)
        return
    yield depth, _text(relation), _rule(relation, stage)
    for child in relation.children:
        yield from _walk(child, depth + 1, stage)


def _rule(relation: Relation, stage: Stage) -> str:
    if isinstance(relation, Aggregate):
        return AGGREGATES.get(stage.strategy, "affected groups")
    if isinstance(relation, TopK):
        return "first rows of a stored buffer"
    if isinstance(relation, Opaque):
        return f"anew: {relation.reason}"
    return rule_of(relation)[0]


def _text(relation: Relation) -> str:
    match relation:
        case Scan():
            return f"read {relation.source} ({', '.join(relation.columns)})"
        case Values():
            return f"{len(relation.rows)} constant rows"
        case Filter():
            return f"where {_sql(relation.condition)}"
        case Join():
            on = "" if relation.condition is None else f" on {_sql(relation.condition)}"
            return f"{relation.kind} join{on}"
        case Semi():
            return f"{'not exists' if relation.anti else 'exists'} {_sql(relation.condition)}"
        case Aggregate():
            calls = ", ".join(_sql(call) for _, call in relation.aggregates) or "distinct"
            by = f" by {', '.join(relation.groups)}" if relation.groups else ""
            return f"aggregate {calls}{by}"
        case UnionAll() if relation.tag.startswith(PADDED):
            return "left join, as all rows of its left side and those that have a partner"
        case UnionAll():
            return f"union of {len(relation.inputs)}"
        case Generate():
            return f"generate {_sql(relation.generator)}"
        case Window():
            by = f" by {', '.join(relation.partition)}" if relation.partition else ""
            return f"window {', '.join(_sql(call) for _, call in relation.functions)}{by}"
        case TopK():
            order = ", ".join(_sql(item) for item in relation.order)
            return f"first {relation.limit} by {order}"
        case Opaque():
            return "other"
    return type(relation).__name__.lower()


def _sql(expression: exp.Expr) -> str:
    text = expression.sql(dialect="spark").replace("`", "")
    return text if len(text) <= 80 else text[:77] + "…"
