"""ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver
from headwater.algebra.building.scalars import at_most_one_row
from headwater.algebra.building.scopes import Visible
from headwater.algebra.relations import Filter, Opaque, Project, Relation, TopK, column


def is_limited(query: exp.Expr) -> bool:
    """Whether not all rows of the query count."""
    return _limit_node(query) is not None or query.args.get("offset") is not None


def limit(
    resolver: Resolver,
    query: exp.Expr,
    shown: tuple[Visible, ...],
    value: Callable[[exp.Expr], exp.Expr],
) -> tuple[Visible, ...]:
    """Keep what LIMIT and OFFSET of the query keep; gives the columns that are shown then.

    `value` resolves what stands in ORDER BY.
    """
    if not is_limited(query):
        return shown
    count = _constant(query, _limit_node(query))
    skipped = _constant(query, query.args.get("offset")) or 0
    order = query.args.get("order")
    if resolver.correlated:
        raise NoRuleError("A correlated subquery has a LIMIT.")
    if order is None:
        return _any_rows(resolver, shown, count, skipped)
    if count is None:
        raise NoRuleError("OFFSET without LIMIT has no rule.")
    items = []
    for item in order.expressions:
        name = resolver.as_column(value(item.this), "sorted")
        given = {key: one for key, one in item.args.items() if key != "this"}
        items.append(exp.Ordered(this=column(name), **given))
    resolver.flush()
    resolver.relation = TopK(resolver.relation, tuple(items), count, skipped)
    return shown


def _any_rows(
    resolver: Resolver, shown: tuple[Visible, ...], count: int | None, skipped: int
) -> tuple[Visible, ...]:
    if count is not None and count > 0 and not skipped and at_most_one_row(resolver.relation):
        return shown
    if count == 0:
        resolver.relation = Filter(resolver.relation, exp.false())
        return shown
    fresh = resolver.context.names.fresh
    new = [fresh(one.name) for one in shown]
    read = exp.select(
        *(
            exp.Alias(this=column(one.internal), alias=exp.to_identifier(name, quoted=True))
            for one, name in zip(shown, new, strict=True)
        )
    ).from_(exp.to_table("_hw_input_0"))
    if count is not None:
        read = read.limit(count)
    if skipped:
        read = read.offset(skipped)
    inputs = (only(resolver.relation, tuple(dict.fromkeys(one.internal for one in shown))),)
    reason = "LIMIT without ORDER BY may keep any rows."
    resolver.relation = Opaque(inputs, read, tuple(new), fresh("copy"), reason)
    return tuple(Visible(one.name, name, type=one.type) for one, name in zip(shown, new, strict=True))


def only(relation: Relation, names: tuple[str, ...]) -> Relation:
    """The relation with exactly these columns."""
    if relation.columns == names:
        return relation
    return Project(relation, tuple((name, column(name)) for name in names))


def _limit_node(query: exp.Expr) -> exp.Expr | None:
    node = query.args.get("limit")
    if node is None or (isinstance(node, exp.Limit) and node.expression.name.upper() == "ALL"):
        return None
    return node  # type: ignore[no-any-return]


def _constant(query: exp.Expr, node: exp.Expr | None) -> int | None:
    if node is None:
        return None
    count = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
    if isinstance(count, exp.Literal) and count.is_int:
        return int(count.name)
    raise NoRuleError("LIMIT and OFFSET are not constants.")
