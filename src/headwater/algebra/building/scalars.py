"""Subqueries that give one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.algebra.building.correlation import all_of, check_levels, inner_block, is_strict
from headwater.algebra.building.functions import is_sketch, value_of_nothing
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver, grouped
from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Join,
    Project,
    Relation,
    TopK,
    Values,
    column,
    columns_of,
)

if TYPE_CHECKING:
    from headwater.algebra.building.selects import Block


def scalar(resolver: Resolver, query: exp.Expr) -> exp.Expr:
    """Join a subquery that has at most one row for each row here; gives its value."""
    needed = id(query) in resolver.needed
    inner = inner_block(resolver, query)
    if len(inner.items) != 1:
        raise resolver.context.error(
            query,
            f"A subquery used as a value has {len(inner.items)} columns.",
            hint="Select one column.",
        )
    value = inner.items[0].value
    if inner.is_constant_row and not inner.correlated:
        check_levels(resolver, [value])
        return grouped(value)
    check_levels(resolver, inner.correlated)
    if inner.is_total:
        return _total(resolver, inner, value, needed)
    if inner.correlated:
        return _grouped(resolver, inner, value)
    built = inner.finish()
    name = built.columns[0].internal
    rows = _rows(built.relation)
    if rows is None:
        raise NoRuleError("A subquery used as a value may have more than one row: it is no aggregate.")
    resolver.flush()
    if rows == 1:
        resolver.relation = Join("inner", resolver.relation, built.relation)
    else:
        resolver.relation = Join("left", resolver.relation, built.relation, exp.true())
    return column(name)


def _total(resolver: Resolver, inner: Block, value: exp.Expr, needed: bool) -> exp.Expr:
    """An aggregate without GROUP BY: its value is computed above the join, also for no rows."""
    calls = dict(inner.calls)
    used = [name for name in calls if name in columns_of(value)]
    check_levels(resolver, [value])
    conditions = inner.correlated
    resolver.flush()
    if not conditions:
        resolver.relation = Join("inner", resolver.relation, inner.relation)
        return grouped(value)
    if any(is_sketch(calls[name]) for name in used):
        raise NoRuleError("A correlated subquery computes a sketch.")
    nothing = {name: value_of_nothing(calls[name]) for name in used}
    if needed and used and is_strict(value) and not any(nothing.values()):
        resolver.relation = Join("inner", resolver.relation, inner.relation, all_of(conditions))
        return grouped(value)
    resolver.relation = Join("left", resolver.relation, inner.relation, all_of(conditions))

    def filled(node: exp.Expr) -> exp.Expr:
        empty = nothing.get(node.name) if isinstance(node, exp.Column) else None
        return node if empty is None else exp.Coalesce(this=node.copy(), expressions=[empty.copy()])

    return grouped(value.copy().transform(filled))


def _grouped(resolver: Resolver, inner: Block, value: exp.Expr) -> exp.Expr:
    """A correlated subquery with GROUP BY: one row at most if it is grouped by what it is correlated by."""
    if not inner.one_row_each:
        raise NoRuleError("A correlated subquery used as a value may have more than one row.")
    name = inner.as_column(value, "value")
    inner.flush()
    resolver.flush()
    resolver.relation = Join("left", resolver.relation, inner.relation, all_of(inner.correlated))
    return column(name)


def at_most_one_row(relation: Relation) -> bool:
    """Whether the relation never has two rows."""
    return _rows(relation) is not None


def _rows(relation: Relation) -> int | None:
    """1: always one row; 0: at most one; None: perhaps more."""
    if isinstance(relation, Project):
        return _rows(relation.child)
    if isinstance(relation, Aggregate) and not relation.groups:
        return 1
    if isinstance(relation, Values) and len(relation.rows) == 1:
        return 1
    if relation.key == () or (isinstance(relation, TopK) and relation.limit <= 1):
        return 0
    if isinstance(relation, Filter):
        return None if _rows(relation.child) is None else 0
    return None
