"""Conditions between a subquery and the query around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver, bare
from headwater.algebra.equalities import common_type, is_text
from headwater.algebra.relations import column, columns_of

if TYPE_CHECKING:
    from headwater.algebra.building.selects import Block


#: Operators that give NULL as soon as one operand is NULL.
STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Paren, exp.Cast)


def inner_block(resolver: Resolver, query: exp.Expr, *, exists: bool = False) -> Block:
    """The subquery, built up to its SELECT list. Only for EXISTS it does not matter how many rows it has."""
    from headwater.algebra.building.selects import Block

    return Block.inside(resolver, query, exists=exists)


def keyed(inner: Resolver, what: str) -> tuple[list[str], list[exp.Expr]]:
    """Turn correlated conditions into equalities with columns of the subquery.

    Gives the columns, by which the subquery can then be grouped, and the conditions over them.
    """
    keys: list[str] = []
    conditions: list[exp.Expr] = []
    for condition in inner.correlated:
        if columns_of(condition) <= inner.outer_columns:
            conditions.append(condition)
            continue
        own, other, kind = _sides(inner, bare(condition), what)
        name = inner.as_column(_converted(inner, own, other), "correlated")
        keys.append(name)
        conditions.append(kind(this=column(name), expression=other.copy()))
    inner.flush()
    return list(dict.fromkeys(keys)), conditions


def _sides(inner: Resolver, condition: exp.Expr, what: str) -> tuple[exp.Expr, exp.Expr, type[exp.Expr]]:
    if isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
        for own, other in (
            (condition.this, condition.expression),
            (condition.expression, condition.this),
        ):
            if columns_of(other) <= inner.outer_columns and not columns_of(own) & inner.outer_columns:
                return own, other, type(condition)
    raise NoRuleError(f"{what} is correlated by something else than equality.")


def _converted(inner: Resolver, own: exp.Expr, other: exp.Expr) -> exp.Expr:
    """A text as what it is compared with, since '1' and '01' would be two groups that equal one number."""
    mine = _type(inner, own)
    theirs = None if inner.around.outer is None else _type(inner.around.outer, other)
    if mine is None or theirs is None or not is_text(mine) or is_text(theirs):
        return own
    return exp.cast(own.copy(), common_type(theirs), dialect="spark")


def _type(resolver: Resolver, value: exp.Expr) -> str | None:
    if not isinstance(bare(value), exp.Column):
        return None
    found = (one.type for one in resolver.scope.columns if one.internal == bare(value).name)
    return next((kind.lower() for kind in found if kind is not None), None)


def check_levels(resolver: Resolver, conditions: Sequence[exp.Expr]) -> None:
    """A subquery may speak of the query around it, not of what is around that."""
    if any(columns_of(condition) & resolver.outer_columns for condition in conditions):
        raise NoRuleError("A subquery speaks of columns more than one level out.")


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """The conjunction of conditions."""
    if not conditions:
        return exp.true()
    whole = _operand(conditions[0]) if len(conditions) > 1 else conditions[0].copy()
    for condition in conditions[1:]:
        whole = exp.And(this=whole, expression=_operand(condition))
    return whole


def _operand(condition: exp.Expr) -> exp.Expr:
    return exp.Paren(this=condition.copy()) if isinstance(condition, exp.Or) else condition.copy()


def is_strict(value: exp.Expr) -> bool:
    """Whether the value is NULL as soon as one of its columns is."""
    value = bare(value)
    if isinstance(value, (exp.Column, exp.Literal)):
        return True
    parts = (value.this,) if isinstance(value, exp.Cast) else tuple(value.iter_expressions())
    return isinstance(value, STRICT) and all(is_strict(part) for part in parts)
