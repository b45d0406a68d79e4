"""Subqueries in expressions: EXISTS, IN, and those that give one value.

As a condition of its own, a membership test is a semi-join. Anywhere else its truth becomes a column, by an
outer join with the distinct keys of the subquery, and SQL's third truth value is kept exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headwater.algebra.building.correlation import all_of, check_levels, inner_block, keyed
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver, bare, grouped
from headwater.algebra.building.scalars import scalar
from headwater.algebra.relations import Aggregate, Filter, Join, Project, Relation, Semi, column


def replace_subquery(resolver: Resolver, node: exp.Expr) -> exp.Expr | None:
    """The expression in place of a subquery; None if the node is none."""
    if isinstance(node, exp.Exists) and isinstance(node.this, exp.Query):
        return _exists_value(resolver, node)
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        return _in_value(resolver, node)
    if isinstance(node, exp.Query):
        return scalar(resolver, node)
    if isinstance(node, (exp.Any, exp.All)) and isinstance(bare(node.this), exp.Query):
        raise NoRuleError("A comparison with ANY or ALL of a subquery.")
    return None


def is_membership(node: exp.Expr) -> bool:
    """Whether a condition is [NOT] EXISTS or [NOT] IN with a subquery."""
    node = _positive(node)[0]
    if isinstance(node, exp.Exists):
        return isinstance(node.this, exp.Query)
    return isinstance(node, exp.In) and node.args.get("query") is not None


def apply_membership(resolver: Resolver, node: exp.Expr) -> None:
    """Keep the rows for which the test is true."""
    test, negated = _positive(node)
    if isinstance(test, exp.Exists):
        _semi_exists(resolver, test, negated)
    elif negated:
        _not_in(resolver, test)
    else:
        _semi_in(resolver, test)


def _positive(node: exp.Expr) -> tuple[exp.Expr, bool]:
    negated = False
    while isinstance(node, (exp.Not, exp.Paren)):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


# -- as conditions -----------------------------------------------------------------------------------


def _semi_exists(resolver: Resolver, test: exp.Exists, negated: bool) -> None:
    inner = inner_block(resolver, test.this, exists=True)
    inner.check_groups("EXISTS")
    check_levels(resolver, inner.correlated)
    resolver.flush()
    resolver.relation = Semi(resolver.relation, inner.relation, all_of(inner.correlated), negated)


def _semi_in(resolver: Resolver, test: exp.Expr) -> None:
    values = _tested(resolver, test)
    inner = inner_block(resolver, test.args["query"])
    if inner.gives_values_for_nothing:
        inner.check_groups("IN")
    members = inner.members(len(values), test)
    equal: list[exp.Expr] = [
        exp.EQ(this=_operand(value), expression=column(member))
        for value, member in zip(values, members, strict=True)
    ]
    check_levels(resolver, inner.correlated)
    resolver.flush()
    resolver.relation = Semi(resolver.relation, inner.relation, all_of([*equal, *inner.correlated]))


def _not_in(resolver: Resolver, test: exp.Expr) -> None:
    """NOT IN is true where no member is equal and none could be: NULL could be anything.

    For one value and no correlation that is an anti-join and two facts about all members: whether there are
    any, and whether a NULL is among them. Else the anti-join itself asks whether members could be equal.
    """
    values = _tested(resolver, test)
    query = test.args["query"]
    inner = inner_block(resolver, query)
    inner.check_groups("NOT IN")
    members = inner.members(len(values), test)
    check_levels(resolver, inner.correlated)
    resolver.flush()
    if len(values) > 1 or inner.correlated:
        perhaps = [_perhaps_equal(v, column(member)) for v, member in zip(values, members, strict=True)]
        condition = all_of([*inner.correlated, *perhaps])
        resolver.relation = Semi(resolver.relation, inner.relation, condition, anti=True)
        return
    equal = exp.EQ(this=_operand(values[0]), expression=column(members[0]))
    resolver.relation = Semi(resolver.relation, inner.relation, equal, anti=True)
    again = inner_block(resolver, query)
    members = again.members(1, test)
    counts, total, present = _counts(resolver, again.relation, members)
    resolver.relation = Join("inner", resolver.relation, counts)
    complete = exp.EQ(this=column(present), expression=column(total))
    known = all_of([_is_not_null(values[0]), complete])
    empty = exp.EQ(this=column(total), expression=exp.Literal.number(0))
    resolver.relation = Filter(resolver.relation, exp.Or(this=empty, expression=exp.Paren(this=known)))


def _perhaps_equal(value: exp.Expr, member: exp.Expr) -> exp.Expr:
    same = exp.EQ(this=_operand(value), expression=member)
    either = exp.Or(this=same, expression=_is_null(value))
    return exp.Paren(this=exp.Or(this=either, expression=_is_null(member)))


# -- as values ---------------------------------------------------------------------------------------


def _exists_value(resolver: Resolver, test: exp.Exists) -> exp.Expr:
    inner = inner_block(resolver, test.this, exists=True)
    inner.check_groups("EXISTS")
    if not inner.correlated:
        counts, total, _ = _counts(resolver, inner.relation, ())
        resolver.flush()
        resolver.relation = Join("inner", resolver.relation, counts)
        return exp.Paren(this=exp.GT(this=column(total), expression=exp.Literal.number(0)))
    keys, conditions = keyed(inner, "EXISTS inside another expression")
    check_levels(resolver, conditions)
    resolver.flush()
    return exp.Paren(this=_is_not_null(_found(resolver, inner.relation, keys, conditions)))


def _in_value(resolver: Resolver, test: exp.In) -> exp.Expr:
    """IN as a value: true if found, else NULL if it could be one of the members, else false."""
    values = _tested(resolver, test)
    if len(values) != 1:
        raise NoRuleError("IN with more than one column stands inside another expression.")
    query, what = test.args["query"], "IN inside another expression"
    inner = inner_block(resolver, query)
    inner.check_groups("IN")
    members = inner.members(1, test)
    keys, conditions = keyed(inner, what)
    check_levels(resolver, conditions)
    equal = exp.EQ(this=_operand(values[0]), expression=column(members[0]))
    resolver.flush()
    found = _found(resolver, inner.relation, [*members, *keys], [equal, *conditions])

    # A second time, for what is known of all members together.
    again = inner_block(resolver, query)
    members = again.members(1, test)
    keys, conditions = keyed(again, what)
    counts, total, present = _counts(resolver, again.relation, members, keys)
    if conditions:
        resolver.relation = Join("left", resolver.relation, counts, all_of(conditions))
    else:
        resolver.relation = Join("inner", resolver.relation, counts)
    number = exp.Coalesce(this=column(total), expressions=[exp.Literal.number(0)])
    hidden = exp.LT(this=column(present), expression=column(total))
    return (
        exp.Case()
        .when(_is_not_null(found), exp.true())
        .when(exp.EQ(this=number, expression=exp.Literal.number(0)), exp.false())
        .when(exp.Or(this=_is_null(values[0]), expression=hidden), exp.null())
        .else_(exp.false())
    )


def _found(
    resolver: Resolver, members: Relation, keys: Sequence[str], conditions: Sequence[exp.Expr]
) -> exp.Expr:
    """Join the distinct keys; the column is NULL where there are none."""
    found = resolver.context.names.fresh("found")
    groups = tuple(dict.fromkeys(keys))
    distinct = Aggregate(_only(members, groups), groups, ())
    marked = Project(distinct, (*((name, column(name)) for name in groups), (found, exp.true())))
    resolver.relation = Join("left", resolver.relation, marked, all_of(conditions))
    return column(found)


def _counts(
    resolver: Resolver, relation: Relation, members: Sequence[str], keys: Sequence[str] = ()
) -> tuple[Aggregate, str, str]:
    """How many members there are, and how many that are not NULL: the relation, and both names."""
    names = resolver.context.names
    total, present = names.fresh("members"), names.fresh("present")
    calls: list[tuple[str, exp.Expr]] = [(total, exp.Count(this=exp.Star(), big_int=True))]
    calls += [(present, exp.Count(this=column(member), big_int=True)) for member in members]
    groups = tuple(dict.fromkeys(keys))
    child = _only(relation, tuple(dict.fromkeys([*groups, *members])))
    return Aggregate(child, groups, tuple(calls)), total, present


# -- parts -------------------------------------------------------------------------------------------


def _tested(resolver: Resolver, test: exp.Expr) -> list[exp.Expr]:
    """The values before IN."""
    tested = bare(test.this)
    parts = tested.expressions if isinstance(tested, exp.Tuple) else [tested]
    values = [resolver.without_now(part) for part in parts]
    check_levels(resolver, values)
    return values


def _only(relation: Relation, names: Sequence[str]) -> Relation:
    return Project(relation, tuple((name, column(name)) for name in names))


def _operand(value: exp.Expr) -> exp.Expr:
    return grouped(value) if isinstance(value, (exp.Binary, exp.Not, exp.Between, exp.In)) else value.copy()


def _is_null(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=_operand(value), expression=exp.null())


def _is_not_null(value: exp.Expr) -> exp.Expr:
    return exp.Not(this=_is_null(value))
