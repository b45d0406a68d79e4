"""Conditions of WHERE, HAVING, QUALIFY and ON: filters, semi-joins, and what belongs to the query around."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from headwater.algebra.building.correlation import STRICT, all_of
from headwater.algebra.building.functions import has_now
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver
from headwater.algebra.building.subqueries import apply_membership, is_membership
from headwater.algebra.relations import Filter, columns_of, conjuncts

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def apply_condition(resolver: Resolver, condition: exp.Expr) -> None:
    """Keep the rows for which the condition, as written, is true."""
    parts = conjuncts(condition)
    simple = [part for part in parts if part.find(exp.Query) is None]
    allowed, resolver.now_allowed = resolver.now_allowed, True
    try:
        add_filters(resolver, [resolver.resolve(part) for part in simple])
        for part in parts:
            if any(part is one for one in simple):
                continue
            if is_membership(part):
                apply_membership(resolver, part)
                continue
            resolver.needed = {id(node) for node in _needed(part)}
            add_filters(resolver, [resolver.resolve(part)])
            resolver.needed = set()
    finally:
        resolver.now_allowed = allowed


def add_filters(resolver: Resolver, conditions: Sequence[exp.Expr]) -> None:
    """Put filters above the relation; what speaks of the query around goes there."""
    own: list[exp.Expr] = []
    timed: list[exp.Expr] = []
    for condition in conditions:
        if columns_of(condition) & resolver.outer_columns:
            if has_now(condition):
                raise NoRuleError("A condition of a subquery compares the current time with outer columns.")
            resolver.correlated.append(condition)
        else:
            (timed if has_now(condition) else own).append(condition)
    for chosen in (own, timed):
        if chosen:
            resolver.flush()
            resolver.relation = Filter(resolver.relation, all_of(chosen))


def _needed(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Subqueries without whose value the condition cannot be true."""
    if isinstance(condition, _COMPARISONS):
        yield from _strict_parts(condition.this)
        yield from _strict_parts(condition.expression)


def _strict_parts(value: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(value, exp.Subquery):
        yield value
    elif isinstance(value, STRICT):
        for child in value.iter_expressions():
            yield from _strict_parts(child)
