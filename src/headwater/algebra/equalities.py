"""Equalities between a text and something else.

Affected keys are values of one side of a join, looked up on both. That is sound only if equal keys are the
same value: but `'1'` and `'01'` are different texts, both equal to the number 1. With the conversion written
down, which Spark makes by itself, the key is what the text is converted to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from headwater.algebra.relations import Join, Project, Relation, Semi, conjuncts
from headwater.algebra.rules.context import all_of, equi_condition

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})


def with_conversions(node: Join | Semi, types: Callable[[Relation], Mapping[str, str]]) -> Relation:
    """The join with texts converted where they are compared with something else; `types` finds out types."""
    equal = equi_condition(node.condition, node.left, node.right)
    if not equal.left or (isinstance(node, Join) and node.kind == "inner"):
        return node
    pairs = list(zip(equal.left, equal.right, strict=True))
    sides = [(f"_hw_{side}_{n}", value) for n, pair in enumerate(pairs) for side, value in enumerate(pair)]
    found = types(Project(Join("inner", node.left, node.right), tuple(sides)))
    converted: dict[exp.Expr, exp.Expr] = {}
    for number, (left, right) in enumerate(pairs):
        of_left, of_right = found[f"_hw_0_{number}"], found[f"_hw_1_{number}"]
        for value, kind, other in ((left, of_left, of_right), (right, of_right, of_left)):
            if is_text(kind) and not is_text(other):
                converted[value] = exp.cast(value.copy(), common_type(other), dialect="spark")
    if not converted:
        return node
    return replace(node, condition=all_of(_converted(part, converted) for part in conjuncts(node.condition)))


def _converted(part: exp.Expr, converted: Mapping[exp.Expr, exp.Expr]) -> exp.Expr:
    if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
        return part.copy()
    sides = (converted.get(side, side).copy() for side in (part.this, part.expression))
    return type(part)(this=next(sides), expression=next(sides))


def is_text(kind: str) -> bool:
    """Whether a Spark type holds texts."""
    return kind.startswith(("string", "varchar", "char"))


def common_type(other: str) -> str:
    """What Spark compares a text and another type as."""
    if other in _WHOLE:
        return "bigint"
    return "double" if other.startswith(("decimal", "float", "double")) else other
