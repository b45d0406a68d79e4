"""FROM: tables, views, named queries, joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.algebra.building.conditions import add_filters, apply_condition
from headwater.algebra.building.correlation import all_of
from headwater.algebra.building.functions import has_now, is_generator
from headwater.algebra.building.generators import lateral_view, table_function
from headwater.algebra.building.places import NoRuleError, nearest
from headwater.algebra.building.resolving import Resolver, refuse_all_chance, refuse_now
from headwater.algebra.building.scopes import AmbiguousError, Around, Scope, Visible
from headwater.algebra.relations import (
    ROW_ID,
    Join,
    Project,
    Relation,
    Scan,
    Semi,
    Values,
    column,
    columns_of,
    conjuncts,
)
from headwater.algebra.spark_text import parsed

Source = tuple[Relation, Scope]


def read_from(resolver: Resolver, select: exp.Select) -> None:
    """Give the resolver what FROM reads."""
    from_ = select.args.get("from_")
    if from_ is None:
        resolver.relation = Values((), ((),))
        return
    resolver.relation, resolver.scope = source(resolver, from_.this)
    for join in [*(from_.this.args.get("joins") or ()), *(select.args.get("joins") or ())]:
        _join(resolver, join)
    for lateral in [*(from_.this.args.get("laterals") or ()), *(select.args.get("laterals") or ())]:
        lateral_view(resolver, lateral)


def source(resolver: Resolver, node: exp.Expr) -> Source:
    """The relation of one table, subquery, list of values or function, and the names it gives."""
    if node.args.get("sample") is not None:
        raise NoRuleError("TABLESAMPLE reads other rows each time.")
    if node.args.get("pivots"):
        raise NoRuleError("PIVOT and UNPIVOT have no rule.")
    if isinstance(node, exp.Table):
        return _table(resolver, node)
    if isinstance(node, exp.Subquery) and isinstance(node.this, (exp.Table, exp.Subquery)):
        return _parenthesised(resolver, node)
    if isinstance(node, exp.Values):
        node = _with_alias(node)
    if isinstance(node, (exp.Subquery, exp.Values)):
        return _subquery(resolver, node)
    if isinstance(node, exp.Lateral):
        raise NoRuleError("A lateral subquery is computed for each row.")
    raise resolver.context.error(node, "FROM cannot read this.", hint="Use a table or a subquery.")


# -- tables ------------------------------------------------------------------------------------------


def _table(resolver: Resolver, node: exp.Table) -> Source:
    context = resolver.context
    if isinstance(node.this, exp.Func):
        return table_function(resolver, node)
    for option in ("version", "when", "system_time", "changes"):
        if node.args.get(option) is not None:
            raise context.error(
                node,
                "A fixed version of a table cannot be read here.",
                why="The result is kept up to date with the tables it reads.",
                hint="Read the table itself.",
            )
    parts = tuple(part.name for part in node.parts)
    if len(parts) == 1:
        named = resolver.around.named.get(parts[0].lower())
        if named is not None:
            built = context.build(named.query, named.around)
            scope = Scope(built.columns)
            names = named.names or None
            _check_count(resolver, node, names, len(built.columns))
            return built.relation, _called(resolver, node, scope.aliased(parts[0], names))
    found = context.catalog.table(parts)
    if found is None:
        raise context.error(
            node.this,
            f"There is no table or view `{'.'.join(parts)}`.",
            hint=nearest(".".join(parts), context.catalog.names())
            or nearest(parts[-1], (name.rpartition(".")[2] for name in context.catalog.names())),
        )
    context.tables[found.name] = None
    qualifier = parts if len(parts) > 1 else tuple(found.name.rpartition(".")[::2])
    if found.view is not None:
        relation, scope = _view(resolver, node, found.name, found.view)
    else:
        if any(name.lower() == ROW_ID for name, _ in found.columns):
            raise context.error(
                node.this,
                f"Table {found.name} has a column called `{ROW_ID}`.",
                why="It hides the ids of the table's rows, by which changes are followed.",
                hint="Give the column another name with ALTER TABLE … RENAME COLUMN.",
            )
        relation, scope = _scan(resolver, found.name, found.columns)
    scope = Scope(
        tuple(replace(one, qualifier=qualifier, by_name=True, by_star=True) for one in scope.star())
    )
    return relation, _called(resolver, node, scope)


def _scan(resolver: Resolver, name: str, columns: Sequence[tuple[str, str]]) -> Source:
    names = resolver.context.names
    seen = [Visible(stored, names.fresh(stored), type=kind) for stored, kind in columns]
    if resolver.context.names_row_ids and all(one.name.lower() != ROW_ID for one in seen):
        seen.append(Visible(ROW_ID, names.fresh(ROW_ID), type="bigint"))
    rows = names.fresh(f"{name.rpartition('.')[2]}_rowid")
    scan = Scan(name, tuple((one.internal, one.name) for one in seen), ((rows, ROW_ID),))
    return scan, Scope(tuple(seen))


def _view(resolver: Resolver, node: exp.Table, name: str, text: str) -> Source:
    context = resolver.context
    if name in context.views:
        path = " → ".join([*context.views[context.views.index(name) :], name])
        raise context.error(node, f"The view {name} reads itself.", why=path, hint="Define it over tables.")
    with context.inside_view(name, text):
        try:
            (query,) = parsed(text)
        except SqlglotError as error:
            raise context.error(None, "Its SELECT cannot be understood.", why=str(error)) from None
        refuse_all_chance(context, query)
        built = context.build(query, Around())
    return built.relation, Scope(built.columns)


def _called(resolver: Resolver, node: exp.Expr, scope: Scope) -> Scope:
    """The names under the alias that is given, if one is."""
    alias = node.args.get("alias")
    if alias is None or alias.this is None:
        return scope
    names = [one.name for one in alias.args.get("columns") or ()] or None
    _check_count(resolver, alias, names, len(scope.star()))
    return scope.aliased(alias.name, names)


def _check_count(resolver: Resolver, node: exp.Expr, names: Sequence[str] | None, count: int) -> None:
    if names is not None and len(names) != count:
        raise resolver.context.error(
            node, f"{len(names)} names are given to {count} columns.", hint="Give each column one name."
        )


def _with_alias(node: exp.Values) -> exp.Values:
    """`VALUES 'a', 'b' AS t(x)`: the parser takes `t` for the alias of the last value."""
    last = node.expressions[-1].expressions[-1] if node.expressions[-1].expressions else None
    if not isinstance(last, exp.Alias):
        return node
    node = node.copy()
    last = node.expressions[-1].expressions[-1]
    columns = node.args["alias"].args.get("columns") if node.args.get("alias") is not None else None
    node.set("alias", exp.TableAlias(this=last.args["alias"].copy(), columns=columns))
    last.replace(last.this)
    return node


def _subquery(resolver: Resolver, node: exp.Expr) -> Source:
    built = resolver.context.build(node, resolver.around)
    if built.correlated:
        raise NoRuleError("A subquery in FROM speaks of the query around it.")
    alias = node.args.get("alias")
    if alias is None or alias.this is None:
        columns = tuple(replace(one, qualifier=(), by_name=True, by_star=True) for one in built.columns)
        return built.relation, Scope(columns)
    return built.relation, _called(resolver, node, Scope(built.columns))


def _parenthesised(resolver: Resolver, node: exp.Subquery) -> Source:
    """`(a JOIN b)`: a part of FROM by itself."""
    if isinstance(node.this, exp.Subquery) and not node.this.args.get("joins") and not node.this.alias:
        return _subquery(resolver, node)
    part = Resolver(resolver.context, resolver.around, resolver.subqueries)
    part.relation, part.scope = source(part, node.this)
    for join in node.this.args.get("joins") or ():
        _join(part, join)
    resolver.outer_columns |= part.outer_columns
    if part.correlated:
        raise NoRuleError("A condition of a join in parentheses speaks of the query around it.")
    return part.relation, _called(resolver, node, part.scope)


# -- joins -------------------------------------------------------------------------------------------


def _join(resolver: Resolver, join: exp.Join) -> None:
    if isinstance(join.this, exp.Lateral):
        _lateral(resolver, join)
        return
    kind = _kind(resolver, join)
    left, scope = resolver.relation, resolver.scope
    right, added = source(resolver, join.this)
    using = _using(resolver, join, scope, added)
    if kind == "right":
        resolver.relation = right
        _finish_join(resolver, join, "left", left, added, scope, using, swapped=True)
    else:
        resolver.relation = left
        _finish_join(resolver, join, kind, right, scope, added, using, swapped=False)


def _kind(resolver: Resolver, join: exp.Join) -> str:
    side, kind = join.side.upper(), join.kind.upper()
    if join.method.upper() not in ("", "NATURAL"):
        raise NoRuleError(f"{join.method} JOIN has no rule.")
    if kind in ("SEMI", "ANTI"):
        return kind.lower()
    if kind in ("", "INNER", "OUTER", "CROSS") and side in ("", "LEFT", "RIGHT", "FULL"):
        return side.lower() or "inner"
    raise resolver.context.error(join, f"{side} {kind} JOIN is not known.".strip())


def _finish_join(
    resolver: Resolver,
    join: exp.Join,
    kind: str,
    other: Relation,
    first: Scope,
    second: Scope,
    using: list[tuple[Visible, Visible]],
    *,
    swapped: bool,
) -> None:
    """Join `other` to the resolver's relation; `first` and `second` are the scopes in that order."""
    left, right = (second, first) if swapped else (first, second)
    resolver.scope = left + right
    conditions = [_equal(resolver, a, b) for a, b in using]
    later: list[exp.Expr] = []
    if join.args.get("on") is not None:
        for part in conjuncts(join.args["on"]):
            if kind == "inner" and (part.find(exp.Query) is not None or has_now(part)):
                later.append(part)
            else:
                conditions.append(_on(resolver, part, kind))
    outer = [one for one in conditions if columns_of(one) & resolver.outer_columns]
    conditions = [one for one in conditions if not columns_of(one) & resolver.outer_columns]
    if outer and kind != "inner":
        raise NoRuleError("The condition of an outer join speaks of the query around it.")
    if resolver.correlated and (kind == "full" or swapped):
        raise NoRuleError("A condition below an outer join speaks of the query around it.")
    condition = all_of(conditions) if conditions else None
    if kind in ("semi", "anti"):
        resolver.relation = Semi(resolver.relation, other, condition or exp.true(), kind == "anti")
        resolver.scope = left
        return
    if kind != "inner" and condition is None:
        condition = exp.true()
    resolver.relation = Join(kind, resolver.relation, other, condition)  # type: ignore[arg-type]
    if using:
        _merge(resolver, "right" if swapped else kind, left, right, using)
    add_filters(resolver, outer)
    for part in later:
        apply_condition(resolver, part)


def _on(resolver: Resolver, part: exp.Expr, kind: str) -> exp.Expr:
    if part.find(exp.Query) is not None:
        raise NoRuleError("The condition of an outer join has a subquery.")
    if has_now(part):
        refuse_now(resolver.context, next(node for node in part.walk() if has_now(node) and not node.args))
    if any(is_generator(node) for node in part.walk()):
        raise resolver.context.error(part, "A function that makes rows cannot stand in ON.")
    return resolver.resolve(part)


def _using(resolver: Resolver, join: exp.Join, left: Scope, right: Scope) -> list[tuple[Visible, Visible]]:
    """The pairs of columns that USING or NATURAL makes equal."""
    if join.method.upper() == "NATURAL":
        mine = {one.name.lower() for one in left.star()}
        named = [(join, one.name) for one in right.star() if one.name.lower() in mine]
        order = [one.name.lower() for one in left.star()]
        named.sort(key=lambda pair: order.index(pair[1].lower()))
    else:
        named = [(one, one.name) for one in join.args.get("using") or ()]
    return [
        (_one(resolver, node, left, name, "left"), _one(resolver, node, right, name, "right"))
        for node, name in named
    ]


def _one(resolver: Resolver, node: exp.Expr, scope: Scope, name: str, side: str) -> Visible:
    try:
        found = scope.find((name,))
    except AmbiguousError:
        raise resolver.context.error(
            node, f"USING ({name}) is ambiguous on the {side} side.", hint="Use ON with qualified names."
        ) from None
    if found is None:
        raise resolver.context.error(
            node,
            f"USING ({name}): the {side} side has no such column.",
            hint=nearest(name, (one.name for one in scope.star())),
        )
    return found[0]


def _equal(resolver: Resolver, left: Visible, right: Visible) -> exp.Expr:
    return exp.EQ(this=column(left.internal), expression=column(right.internal))


def _merge(
    resolver: Resolver, kind: str, left: Scope, right: Scope, using: list[tuple[Visible, Visible]]
) -> None:
    """Columns of USING come first and once; qualified names still reach both."""
    merged: list[Visible] = []
    computed: list[tuple[str, exp.Expr]] = []
    for mine, theirs in using:
        chosen = theirs if kind == "right" else mine
        internal = chosen.internal
        if kind == "full":
            internal = resolver.context.names.fresh(mine.name)
            both = exp.Coalesce(this=column(mine.internal), expressions=[column(theirs.internal)])
            computed.append((internal, both))
        merged.append(Visible(mine.name, internal, type=mine.type))
    if computed:
        kept = tuple((name, column(name)) for name in resolver.relation.columns)
        resolver.relation = Project(resolver.relation, kept + tuple(computed))
    hidden = {id(one) for pair in using for one in pair}
    keys = [replace(one, by_name=False, by_star=False) for pair in using for one in pair]
    rest = [one for one in (left + right).columns if id(one) not in hidden]
    resolver.scope = Scope((*merged, *keys, *rest))


def _lateral(resolver: Resolver, join: exp.Join) -> None:
    """`, LATERAL explode(…) AS t(x)`."""
    lateral = join.this
    if not is_generator(lateral.this) or join.args.get("on") is not None or join.side.upper() == "LEFT":
        raise NoRuleError("A lateral subquery is computed for each row.")
    lateral_view(resolver, lateral)
