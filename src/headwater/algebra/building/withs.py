"""WITH: queries that have names."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headwater.algebra.building.context import Context
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.scopes import Around, Named


def entered(context: Context, query: exp.Expr, around: Around) -> Around:
    """What the query sees: also what its own WITH clause names."""
    with_ = query.args.get("with_")
    if with_ is None:
        return around
    for cte in with_.expressions:
        alias = cte.args["alias"]
        name = alias.name.lower()
        if with_.args.get("recursive") and _reads(cte.this, name):
            raise NoRuleError("A recursive query has no rule.")
        columns = tuple(one.name for one in alias.args.get("columns") or ())
        named = Named(cte.this, columns, around.without_outer())
        around = replace(around, named={**around.named, name: named})
    return around


def peeled(context: Context, query: exp.Expr, around: Around) -> tuple[exp.Expr, Around]:
    """A query without the parentheses around it, and what it sees."""
    while True:
        around = entered(context, query, around)
        plain = isinstance(query, exp.Subquery) and not any(
            query.args.get(one) for one in ("limit", "offset", "order", "joins", "pivots", "sample", "alias")
        )
        if not plain or not isinstance(query.this, (exp.Query, exp.Values)):
            return query, around
        query = query.this


def _reads(query: exp.Expr, name: str) -> bool:
    return any(table.name.lower() == name and not table.db for table in query.find_all(exp.Table))
