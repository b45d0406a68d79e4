"""Functions that make rows: `explode` and its kin, in LATERAL VIEW, in FROM and in SELECT.

All of them are `explode` of an array or a map, whose elements are then taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.algebra.building.functions import function_name, is_generator
from headwater.algebra.building.places import NoRuleError
from headwater.algebra.building.resolving import Resolver
from headwater.algebra.building.scopes import Scope, Visible
from headwater.algebra.relations import (
    Generate,
    Opaque,
    Project,
    Relation,
    Values,
    column,
    columns_of,
)


def lateral_view(resolver: Resolver, lateral: exp.Lateral) -> None:
    """Add the columns of a LATERAL VIEW."""
    alias = lateral.args.get("alias")
    names = [one.name for one in (alias.args.get("columns") or ())] if alias is not None else []
    outer = bool(lateral.args.get("outer"))
    shown = generate(resolver, lateral.this, names, outer=outer)
    qualifier = (alias.name,) if alias is not None and alias.name else ()
    resolver.scope += Scope(tuple(Visible(one.name, one.internal, qualifier, one.type) for one in shown))


def table_function(resolver: Resolver, node: exp.Table) -> tuple[Relation, Scope]:
    """A function in FROM."""
    alias = node.args.get("alias")
    names = [one.name for one in (alias.args.get("columns") or ())] if alias is not None else []
    qualifier = (alias.name,) if alias is not None and alias.name else ()
    if is_generator(node.this):
        part = Resolver(resolver.context, resolver.around.without_outer(), resolver.subqueries)
        part.relation = Values((), ((),))
        shown = generate(part, node.this, names, outer=False)
        relation: Relation = part.relation
    else:
        relation, shown = _function(resolver, node, names)
    return relation, Scope(tuple(Visible(one.name, one.internal, qualifier, one.type) for one in shown))


def _function(resolver: Resolver, node: exp.Table, names: list[str]) -> tuple[Relation, list[Visible]]:
    called = function_name(node.this)
    if called == "range" and not names:
        names = ["id"]
    if not names:
        raise resolver.context.error(
            node,
            f"The columns of the function {called or node.this.key} are not known.",
            hint="Name them: … AS t(a, b).",
        )
    fresh = resolver.context.names.fresh
    shown = [Visible(name, fresh(name)) for name in names]
    alias = exp.TableAlias(
        this=exp.to_identifier("_t"),
        columns=[exp.to_identifier(one.internal, quoted=True) for one in shown],
    )
    read = exp.select("*").from_(exp.Table(this=resolver.without_now(node.this), alias=alias))
    reason = f"The table function {called or node.this.key} has no rule."
    return Opaque((), read, tuple(one.internal for one in shown), fresh("copy"), reason), shown


def generate(resolver: Resolver, call: exp.Expr, names: Sequence[str], *, outer: bool) -> list[Visible]:
    """Add the columns of a generator to the resolver's relation."""
    kind = _kind(call)
    outer = outer or kind.endswith("_outer")
    kind = kind.removesuffix("_outer")
    fresh = resolver.context.names.fresh
    if kind == "stack":
        items, defaults = _stacked(resolver, call)
        kinds: list[str | None] = [None] * len(defaults)
    elif kind in ("explode", "posexplode", "inline"):
        given = call.this if not isinstance(call, exp.Anonymous) else call.expressions[0]
        items = resolver.without_now(given)
        defaults, kinds = _elements(resolver, call, items, kind, len(names))
    else:
        raise NoRuleError(f"The function {kind} has no rule.")
    if columns_of(items) & resolver.outer_columns:
        raise NoRuleError("A function that makes rows speaks of the query around it.")
    with_place = kind == "posexplode"
    full = [*(["pos"] if with_place else []), *defaults]
    if names and len(names) != len(full):
        raise resolver.context.error(call, f"{len(names)} names are given to {len(full)} columns.")
    called = list(names) or full
    resolver.flush()
    ordinal = fresh(called[0] if with_place else "ordinal")
    apart = kind in ("inline", "stack")
    element = called[1:] if with_place else (["element"] if apart else called)
    outputs = tuple(fresh(name) for name in element)
    resolver.relation = Generate(resolver.relation, exp.Explode(this=items), outputs, ordinal, outer)
    if apart:
        fields = [
            exp.Dot(this=column(outputs[0]), expression=exp.to_identifier(name, quoted=True))
            for name in defaults
        ]
        return _computed(resolver, called, fields, kinds)
    if with_place:
        place = _computed(resolver, called[:1], [column(ordinal)], ["int"])
        return place + [Visible(n, o, type=k) for n, o, k in zip(element, outputs, kinds, strict=True)]
    return [Visible(n, o, type=k) for n, o, k in zip(called, outputs, kinds, strict=True)]


def _computed(
    resolver: Resolver, names: Sequence[str], values: Sequence[exp.Expr], kinds: Sequence[str | None]
) -> list[Visible]:
    fresh = resolver.context.names.fresh
    shown = [Visible(name, fresh(name), type=kind) for name, kind in zip(names, kinds, strict=True)]
    kept = tuple((name, column(name)) for name in resolver.relation.columns)
    added = tuple((one.internal, value) for one, value in zip(shown, values, strict=True))
    resolver.relation = Project(resolver.relation, kept + added)
    return shown


def _kind(call: exp.Expr) -> str:
    match call:
        case exp.PosexplodeOuter():
            return "posexplode_outer"
        case exp.Posexplode():
            return "posexplode"
        case exp.Explode():
            return "explode_outer" if type(call).__name__.endswith("Outer") else "explode"
        case exp.Inline():
            return "inline"
        case exp.Stack():
            return "stack"
        case _:
            return function_name(call)


def _stacked(resolver: Resolver, call: exp.Expr) -> tuple[exp.Expr, list[str]]:
    """`stack(n, …)`: n rows of the values, in their order, as an array of structs."""
    count = call.this
    if not (isinstance(count, exp.Literal) and count.is_int and int(count.name) > 0):
        raise resolver.context.error(call, "stack() needs the number of rows as a constant.")
    values = [resolver.without_now(value) for value in call.expressions]
    rows = int(count.name)
    width = -(-len(values) // rows)
    values += [exp.null() for _ in range(rows * width - len(values))]
    names = [f"col{place}" for place in range(width)]
    structs = [
        exp.Anonymous(
            this="named_struct",
            expressions=[
                part
                for name, value in zip(names, values[row * width : (row + 1) * width], strict=True)
                for part in (exp.Literal.string(name), value)
            ],
        )
        for row in range(rows)
    ]
    return exp.Array(expressions=structs), names


def _elements(
    resolver: Resolver, call: exp.Expr, items: exp.Expr, kind: str, given: int
) -> tuple[list[str], list[str | None]]:
    """Names and types of what an array or a map holds."""
    declared = _type_of(resolver, items)
    if kind == "inline":
        element = declared.expressions[0] if declared is not None and declared.expressions else None
        if element is None or not element.is_type(exp.DType.STRUCT):
            raise NoRuleError("The fields that inline() gives are not known from the types of the tables.")
        fields = [one for one in element.expressions if isinstance(one, exp.ColumnDef)]
        return [one.name for one in fields], [_type_text(one.args.get("kind")) for one in fields]
    parts = given - (kind == "posexplode")
    map_like = isinstance(items, (exp.Map, exp.VarMap, exp.ToMap)) or function_name(items) == "map"
    if parts == 2 or map_like or (declared is not None and declared.is_type(exp.DType.MAP)):
        inner = list(declared.expressions) if declared is not None else []
        known = len(inner) == 2
        return ["key", "value"], [_type_text(inner[n]) if known else None for n in (0, 1)]
    inner = list(declared.expressions) if declared is not None else []
    return ["col"], [_type_text(inner[0]) if len(inner) == 1 else None]


def _type_of(resolver: Resolver, items: exp.Expr) -> exp.DataType | None:
    text = None
    if isinstance(items, exp.Column):
        text = next((one.type for one in resolver.scope.columns if one.internal == items.name), None)
    if text is None:
        return None
    try:
        return sqlglot.exp.DataType.build(text, dialect="spark")
    except SqlglotError:
        return None


def _type_text(kind: exp.Expr | None) -> str | None:
    return None if kind is None else kind.sql(dialect="spark")
