"""Conditions that every row of a scan has to meet to be of any consequence.

A relation's conditions stand where the query has them, or where a rule put them. Those that speak of the
columns of one scan alone are brought down to it, so that its rows can be looked at as soon as they are here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sqlglot import exp

from headwater.algebra.predicates import And, Predicate, parse_predicate
from headwater.algebra.relations import (
    Aggregate,
    Concat,
    Filter,
    Generate,
    Join,
    Net,
    Project,
    Relation,
    Scan,
    Semi,
    Side,
    Signed,
    UnionAll,
    Window,
    column,
    columns_of,
    conjuncts,
)

_Conditions = tuple[exp.Expr, ...]


def conditions(relation: Relation) -> Mapping[str, Predicate]:
    """Conditions for the scans of a `numbered` relation that have any, over their stored columns."""
    found: dict[str, _Conditions] = {}
    _bring_down(relation, (), found)
    texts = {scan: dict.fromkeys(each.sql("spark") for each in wanted) for scan, wanted in found.items()}
    return {scan: And(tuple(parse_predicate(each, "spark") for each in all_)) for scan, all_ in texts.items()}


def _bring_down(node: Relation, wanted: _Conditions, found: dict[str, _Conditions]) -> None:
    match node:
        case Scan():
            kept = _renamed(wanted, dict((*node.fields, *node.key_fields)))
            if kept:
                found[node.source] = kept
            return
        case Filter():
            below = [(node.child, (*wanted, *conjuncts(node.condition)))]
        case Signed() | Side() | Net():
            below = [(node.child, wanted)]
        case Project():
            plain = {name: value.name for name, value in node.outputs if isinstance(value, exp.Column)}
            computed = {name for name, _ in node.outputs}
            passing = {name: name for name in node.child.all_columns if name not in computed}
            below = [(node.child, _renamed(wanted, {**passing, **plain}))]
        case Aggregate():
            below = [(node.child, _about(wanted, node.groups))]
        case Window():
            below = [(node.child, _about(wanted, node.partition))]
        case Generate():
            below = [(node.child, _about(wanted, node.child.all_columns))]
        case Join(kind="full"):
            below = [(node.left, ()), (node.right, ())]
        case Join() | Semi():
            below = _of_sides(node, wanted)
        case Concat():
            below = [(child, wanted) for child in node.inputs]
        case UnionAll():
            names = [dict(zip(node.names, child.columns, strict=True)) for child in node.inputs]
            below = [(child, _renamed(wanted, each)) for child, each in zip(node.inputs, names, strict=True)]
        case _:
            below = [(child, ()) for child in node.children]
    for child, conditions_of_it in below:
        _bring_down(child, conditions_of_it, found)


def _of_sides(node: Join | Semi, wanted: _Conditions) -> list[tuple[Relation, _Conditions]]:
    """What rows of either side must meet: partners that fail the condition of a join are none."""
    own = conjuncts(node.condition)
    both_ways = node.kind == "inner" if isinstance(node, Join) else not node.anti
    of_left = (*wanted, *own) if both_ways else wanted
    of_right = (*wanted, *own) if isinstance(node, Join) and both_ways else own
    return [
        (node.left, _about(of_left, node.left.all_columns)),
        (node.right, _about(of_right, node.right.all_columns)),
    ]


def _about(wanted: Iterable[exp.Expr], names: Collection[str]) -> _Conditions:
    known = frozenset(names)
    parts = (_part_about(condition, known) for condition in wanted)
    return tuple(part for part in parts if part is not None)


def _part_about(condition: exp.Expr, names: frozenset[str]) -> exp.Expr | None:
    """What a condition says of these columns alone: of `(a AND b) OR (c AND d)` that is `a OR c`."""
    if columns_of(condition) <= names:
        return condition
    if not isinstance(condition, exp.Or):
        return None
    branches = [_about(conjuncts(branch), names) for branch in condition.flatten()]
    return exp.or_(*(exp.and_(*parts) for parts in branches)) if all(branches) else None


def _renamed(wanted: Iterable[exp.Expr], names: Mapping[str, str]) -> _Conditions:
    """Conditions on columns that have other names below; those on others are left out."""

    def rename(node: exp.Expr) -> exp.Expr:
        return column(names[node.name]) if isinstance(node, exp.Column) else node

    return tuple(condition.copy().transform(rename) for condition in _about(wanted, names.keys()))


__all__ = ["conditions"]
