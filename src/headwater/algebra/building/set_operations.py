"""UNION, INTERSECT and EXCEPT.

INTERSECT and EXCEPT count, for each row, how often each side has it: an aggregate over the union of both.
"""

from __future__ import annotations

from sqlglot import exp

from headwater.algebra.building.context import Context
from headwater.algebra.building.ordering import limit
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver
from headwater.algebra.building.scopes import Around, Built, Scope, Visible
from headwater.algebra.building.subqueries import replace_subquery
from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Generate,
    Named,
    Project,
    Relation,
    UnionAll,
    column,
)


def build_set_operation(context: Context, query: exp.SetOperation, around: Around) -> Built:
    """Two queries made one."""
    if query.args.get("by_name") or query.args.get("on") or query.args.get("side"):
        raise NoRuleError("UNION BY NAME has no rule.")
    branches = [_branch(context, node, around) for node in _flat(query)]
    first = branches[0]
    for branch, node in zip(branches, _flat(query), strict=True):
        if len(branch.columns) != len(first.columns):
            raise context.error(
                node,
                f"{query.key.upper()} of {len(first.columns)} and {len(branch.columns)} columns.",
                hint="All its queries must have the same number of columns.",
            )
    distinct = query.args.get("distinct") is not False
    if isinstance(query, exp.Union):
        built = _united(context, branches)
        if distinct:
            names = tuple(one.internal for one in built.columns)
            built = Built(Aggregate(built.relation, names, ()), built.columns)
    else:
        built = _counted(context, query, branches, distinct=distinct)
    return limited(context, query, around, built)


def limited(context: Context, query: exp.Expr, around: Around, built: Built) -> Built:
    """ORDER BY and LIMIT after a set operation, or after a query in parentheses."""
    resolver = Resolver(context, around.without_outer(), replace_subquery)
    resolver.relation, resolver.scope = built.relation, Scope(built.columns)
    resolver.correlated = list(built.correlated)

    def value(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Literal) and node.is_int:
            place = int(node.name)
            if not 1 <= place <= len(built.columns):
                raise context.error(node, f"ORDER BY {place}: there are {len(built.columns)} columns.")
            return column(built.columns[place - 1].internal)
        return resolver.without_now(node)

    shown = limit(resolver, query, built.columns, value)
    return Built(resolver.relation, shown, built.correlated)


def _flat(query: exp.SetOperation) -> list[exp.Expr]:
    """The queries that are united; a chain of UNION ALL is one union."""
    parts: list[exp.Expr] = []
    for part in (query.this, query.expression):
        plain = (
            isinstance(query, exp.Union)
            and isinstance(part, exp.Union)
            and part.args.get("distinct") is False
            and not any(part.args.get(one) for one in ("limit", "offset", "with_"))
        )
        parts += _flat(part) if plain and isinstance(part, exp.Union) else [part]
    return parts


def _branch(context: Context, node: exp.Expr, around: Around) -> Built:
    built = context.build(node, around)
    if built.correlated:
        raise NoRuleError("A set operation inside a subquery speaks of the query around it.")
    return built


def _united(context: Context, branches: list[Built], *added: tuple[str, list[exp.Expr]]) -> Built:
    """UNION ALL; `added` are further columns, with a value for each branch."""
    fresh = context.names.fresh
    first = branches[0].columns
    names = tuple(fresh(one.name) for one in first)
    inputs: list[Relation] = []
    for place, branch in enumerate(branches):
        outputs: list[Named] = []
        for one in branch.columns:
            taken = any(name == one.internal for name, _ in outputs)
            outputs.append((fresh(one.name) if taken else one.internal, column(one.internal)))
        outputs += [(fresh(name), values[place].copy()) for name, values in added]
        inputs.append(Project(branch.relation, tuple(outputs)))
    more = tuple(fresh(name) for name, _ in added)
    relation = UnionAll(tuple(inputs), names + more, fresh("branch"))
    shown = [Visible(one.name, name, type=one.type) for one, name in zip(first, names, strict=True)]
    return Built(relation, tuple(shown))


def _counted(context: Context, query: exp.Expr, branches: list[Built], *, distinct: bool) -> Built:
    fresh = context.names.fresh
    one, none = exp.Literal.number(1), exp.cast(exp.null(), "int")
    built = _united(context, branches, ("is_left", [one, none]), ("is_right", [none, one]))
    groups = tuple(shown.internal for shown in built.columns)
    markers = built.relation.columns[len(groups) :]
    left, right = fresh("left_rows"), fresh("right_rows")
    counts: list[Named] = [
        (name, exp.Count(this=column(marker), big_int=True))
        for name, marker in zip((left, right), markers, strict=True)
    ]
    relation: Relation = Aggregate(built.relation, groups, tuple(counts))
    intersect = isinstance(query, exp.Intersect)
    zero = exp.Literal.number(0)
    if distinct:
        both: exp.Expr = exp.GT(this=column(right), expression=zero)
        only_left: exp.Expr = exp.EQ(this=column(right), expression=zero.copy())
        condition = exp.And(
            this=exp.GT(this=column(left), expression=zero.copy()),
            expression=both if intersect else only_left,
        )
        return Built(Filter(relation, condition), built.columns)
    times: exp.Expr = exp.Sub(this=column(left), expression=column(right))
    if intersect:
        times = exp.Least(this=column(left), expressions=[column(right)])
    copies, element = fresh("copies"), fresh("copy")
    kept = tuple((name, column(name)) for name in groups)
    relation = Project(relation, (*kept, (copies, times)))
    relation = Filter(relation, exp.GT(this=column(copies), expression=zero.copy()))
    upto = exp.cast(column(copies), "int")
    series = exp.GenerateSeries(start=exp.Literal.number(1), end=upto)
    relation = Generate(relation, exp.Explode(this=series), (element,), fresh("ordinal"))
    return Built(relation, built.columns)
