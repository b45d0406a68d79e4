"""Queries for which there is no rule: their own SQL over relations that have rules."""

from __future__ import annotations

from sqlglot import exp

from headwater.algebra.building.context import Context
from headwater.algebra.building.faithful import faithful
from headwater.algebra.building.functions import is_now
from headwater.algebra.building.ordering import only
from headwater.algebra.building.outputs import output_name
from headwater.algebra.building.resolving import Resolver
from headwater.algebra.building.scopes import Around, Built, Scope, Visible
from headwater.algebra.building.sources import source
from headwater.algebra.building.subqueries import replace_subquery
from headwater.algebra.relations import Opaque, Relation, column

_MOVED = ("sample", "pivots", "joins", "laterals")


def build_opaque(context: Context, query: exp.Expr, around: Around, reason: str) -> Built:
    """The query as it stands, over its tables."""
    if context.nondeterministic == "refuse":
        for node in query.walk():
            if is_now(node):
                raise context.error(
                    node,
                    "The current time cannot be used in a part of a query that has no rule.",
                    why=reason,
                    hint="Rewrite that part, or use refresh mode full with nondeterministic='full'.",
                )
    text = query.copy().transform(faithful)
    names = _Columns(context, around).of(text)
    inputs: list[Relation] = []
    for table in list(text.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or defined_inside(table):
            continue
        relation, scope = _read(context, table, around)
        wanted = _mentioned(text, scope)
        internal = tuple(dict.fromkeys(one.internal for one in wanted))
        inputs.append(only(relation, internal))
        _replace(table, wanted, len(inputs) - 1)
    fresh = context.names.fresh
    columns = tuple(Visible(name, fresh(name)) for name in names)
    alias = exp.TableAlias(
        this=exp.to_identifier("_q"),
        columns=[exp.to_identifier(one.internal, quoted=True) for one in columns],
    )
    inner = text.this if isinstance(text, exp.Subquery) and not text.alias else text
    read = exp.select("*").from_(exp.Subquery(this=inner, alias=alias))
    relation = Opaque(tuple(inputs), read, tuple(one.internal for one in columns), fresh("copy"), reason)
    return Built(relation, columns)


def defined_inside(table: exp.Table) -> bool:
    """Whether a WITH clause around the table, in the same text, has its name."""
    if table.db:
        return False
    node: exp.Expr = table
    while node.parent is not None:
        child, node = node, node.parent
        with_ = node.args.get("with_") if not isinstance(node, exp.With) else None
        if with_ is None:
            continue
        for cte in with_.expressions:
            inside_itself = child is with_ and any(one is cte for one in _ancestors(table))
            if cte.alias.lower() == table.name.lower():
                return not inside_itself or bool(with_.args.get("recursive"))
            if inside_itself:
                break  # what comes after is not known yet
    return False


def _ancestors(node: exp.Expr) -> list[exp.Expr]:
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def _read(context: Context, table: exp.Table, around: Around) -> tuple[Relation, Scope]:
    resolver = Resolver(context, around.without_outer(), replace_subquery)
    plain = exp.Table(**{part: table.args.get(part) for part in ("this", "db", "catalog", "version", "when")})
    return source(resolver, plain.copy())


def _mentioned(text: exp.Expr, scope: Scope) -> list[Visible]:
    """The columns that the text can mean: those it names, or all if it has a star."""
    shown = scope.star()
    stars = any(not isinstance(star.parent, exp.Count) for star in text.find_all(exp.Star))
    natural = any(join.method.upper() == "NATURAL" for join in text.find_all(exp.Join))
    if stars or natural or text.find(exp.Pivot) is not None:
        return shown
    named = {one.name.lower() for one in text.find_all(exp.Identifier)}
    return [one for one in shown if one.name.lower() in named] or shown[:1]


def _replace(table: exp.Table, columns: list[Visible], number: int) -> None:
    chosen = [
        exp.Alias(this=column(one.internal), alias=exp.to_identifier(one.name, quoted=True))
        for one in columns
    ]
    read = exp.select(*chosen).from_(exp.to_table(f"_hw_input_{number}"))
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
    moved = {part: table.args[part] for part in _MOVED if table.args.get(part)}
    _unqualify(table)
    table.replace(exp.Subquery(this=read, alias=alias.copy(), **moved))


def _unqualify(table: exp.Table) -> None:
    """Names that were qualified with the schema: the table is a subquery now."""
    if not table.db or table.alias:
        return
    root = table.root()
    for found in root.find_all(exp.Column):
        if found.table.lower() == table.name.lower() and found.args.get("db") is not None:
            found.set("db", None)
            found.set("catalog", None)


class _Columns:
    """Names of the columns that a query shows, from its text and the catalog alone."""

    def __init__(self, context: Context, around: Around):
        self.context = context
        self.around = around

    def of(self, query: exp.Expr) -> list[str]:
        """The names, in order."""
        if isinstance(query, (exp.SetOperation, exp.Subquery, exp.CTE)):
            return self.of(query.this)
        if isinstance(query, exp.Values):
            width = len(query.expressions[0].expressions) if query.expressions else 0
            return [f"col{place + 1}" for place in range(width or 1)]
        names: list[str] = []
        for item in query.expressions:
            star = isinstance(item, exp.Star) or (
                isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            )
            if star:
                names += self._star(query, item)
            elif isinstance(item, exp.Aliases):
                names += [one.name for one in item.expressions]
            else:
                names.append(output_name(item))
        return names

    def _star(self, query: exp.Expr, item: exp.Expr) -> list[str]:
        from_ = query.args.get("from_")
        joins = [*((from_.this.args.get("joins") if from_ else None) or ()), *(query.args.get("joins") or ())]
        parts = [from_.this] if from_ else []
        merged = any(join.args.get("using") or join.method for join in joins)
        if merged or query.args.get("laterals") or not parts:
            raise self._unknown(item)
        wanted = item.table.lower() if isinstance(item, exp.Column) else ""
        names: list[str] = []
        for part in [*parts, *(join.this for join in joins if join.kind.upper() not in ("SEMI", "ANTI"))]:
            if not wanted or part.alias_or_name.lower() == wanted:
                names += self._source(part)
        star = item if isinstance(item, exp.Star) else item.this
        left_out = {one.name.lower() for one in star.args.get("except_") or ()}
        return [name for name in names if name.lower() not in left_out]

    def _source(self, node: exp.Expr) -> list[str]:
        alias = node.args.get("alias")
        given = [one.name for one in (alias.args.get("columns") or ())] if alias is not None else []
        if given:
            return given
        if node.args.get("pivots"):
            raise self._unknown(node)
        if isinstance(node, exp.Table):
            if defined_inside(node):
                return self._cte(node)
            return [one.name for one in _read(self.context, node, self.around)[1].star()]
        if isinstance(node, (exp.Subquery, exp.Values)) and not isinstance(node.this, exp.Table):
            return self.of(node)
        raise self._unknown(node)

    def _cte(self, table: exp.Table) -> list[str]:
        for node in _ancestors(table):
            with_ = node.args.get("with_")
            for cte in with_.expressions if with_ is not None else ():
                if cte.alias.lower() == table.name.lower():
                    columns = cte.args["alias"].args.get("columns") or ()
                    return [one.name for one in columns] or self.of(cte.this)
        raise self._unknown(table)

    def _unknown(self, node: exp.Expr) -> Exception:
        return self.context.error(
            node,
            "The columns that `*` shows here are not known.",
            why="This part of the query has no rule and is taken as it stands.",
            hint="Name the columns instead of `*`.",
        )
