"""From the text of a query to the algebra."""

from __future__ import annotations

from typing import Literal

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from headwater.algebra.building.context import Catalog, Context
from headwater.algebra.building.opaque import build_opaque
from headwater.algebra.building.ordering import is_limited
from headwater.algebra.building.places import NoRuleError, error_at, query_error
from headwater.algebra.building.pruning import prune
from headwater.algebra.building.resolving import bare, refuse_all_chance
from headwater.algebra.building.scopes import Around, Built, Visible
from headwater.algebra.building.selects import build_select
from headwater.algebra.building.set_operations import build_set_operation, limited
from headwater.algebra.building.withs import entered
from headwater.algebra.relations import ROW_ID, Project, Query, Values, column
from headwater.algebra.spark_text import SparkSql, parsed


def build_query(
    sql: str, catalog: Catalog, *, nondeterministic: Literal["refuse", "full"] = "refuse"
) -> Query:
    """The relational algebra of a SELECT in Spark's dialect.

    With `nondeterministic="full"` a query that depends on chance, or shows the current time, is computed anew
    as a whole instead of being refused.
    """
    tree = _parsed(sql)
    context = Context(catalog, sql, nondeterministic)
    try:
        refuse_all_chance(context, tree)
        built = build(context, tree, Around())
    except NoRuleError as error:
        built = build_opaque(context, tree, Around(), error.reason)
    except RecursionError:
        raise query_error(sql, None, "The query is nested too deeply.") from None
    if tree.args.get("order") is not None and not is_limited(tree):
        context.notes["ORDER BY without LIMIT is left out: rows of a table have no order."] = None
    return _query(context, tree, built)


def build(context: Context, query: exp.Expr, around: Around) -> Built:
    """A query, or a query inside another one, as a relation."""
    try:
        return _relation(context, query, around)
    except NoRuleError as error:
        if error.whole or around.outer is not None:
            raise
        return build_opaque(context, query, around, error.reason)


def _relation(context: Context, query: exp.Expr, around: Around) -> Built:
    around = entered(context, query, around)
    match query:
        case exp.Select():
            return build_select(context, query, around)
        case exp.SetOperation():
            return build_set_operation(context, query, around)
        case exp.Subquery() if isinstance(query.this, (exp.Query, exp.Values)):
            built = context.build(query.this, around)
            return limited(context, query, around, built)
        case exp.Values():
            return _values(context, query)
        case exp.Subquery() | exp.Table():
            return build_select(context, exp.select("*").from_(query.copy()), around)
        case _:
            raise context.error(query, "This is not a query.", hint="Write a SELECT.")


def _values(context: Context, query: exp.Values) -> Built:
    rows = [
        tuple(row.expressions) if isinstance(row, exp.Tuple) else (bare(row),) for row in query.expressions
    ]
    width = len(rows[0])
    for row, node in zip(rows, query.expressions, strict=True):
        if len(row) != width:
            raise context.error(node, f"VALUES with rows of {width} and of {len(row)} columns.")
        for value in row:
            if value.find(exp.Column, exp.Query) is not None:
                raise NoRuleError("VALUES with something else than constants has no rule.")
    shown = tuple(
        Visible(f"col{place + 1}", context.names.fresh(f"col{place + 1}")) for place in range(width)
    )
    ordinal = context.names.fresh("ordinal") if len(rows) > 1 else None
    copied = tuple(tuple(value.copy() for value in row) for row in rows)
    return Built(Values(tuple(one.internal for one in shown), copied, ordinal), shown)


def _query(context: Context, tree: exp.Expr, built: Built) -> Query:
    _refuse_names(context, tree, built)
    outputs: list[tuple[str, exp.Expr]] = []
    for one in built.columns:
        taken = any(name == one.internal for name, _ in outputs)
        outputs.append((context.names.fresh(one.name) if taken else one.internal, column(one.internal)))
    names = tuple(name for name, _ in outputs)
    relation = prune(Project(built.relation, tuple(outputs)), frozenset(names))
    shown = tuple((one.name, name) for one, name in zip(built.columns, names, strict=True))
    return Query(relation, shown, tuple(context.tables), tuple(context.notes))


def _refuse_names(context: Context, tree: exp.Expr, built: Built) -> None:
    items = tree.expressions if isinstance(tree, exp.Select) else []
    exact = len(items) == len(built.columns)
    seen: set[str] = set()
    for place, one in enumerate(built.columns):
        node = items[place] if exact else (items[0] if items else tree)
        if one.name.lower() in seen:
            raise context.error(
                node,
                f"Two columns of the result are called `{one.name}`.",
                hint=f"Give one of them another name: … AS {one.name}_2.",
            )
        taken = {ROW_ID: "That is what the ids of rows are called."}.get(one.name.lower())
        if one.name.lower().startswith("_hw_"):
            taken = "Names that begin with _hw_ are those of helper columns."
        if taken:
            raise context.error(
                node,
                f"A column of the result is called `{one.name}`.",
                why=taken,
                hint="Give it another name.",
            )
        seen.add(one.name.lower())


def _parsed(sql: str) -> exp.Expr:
    try:
        tokens = SparkSql().tokenize(sql)
        for token in tokens:
            if token.token_type is TokenType.PIPE_GT:
                raise error_at(
                    sql,
                    token.start,
                    token.end,
                    "The pipe syntax |> is not supported.",
                    hint="Write a SELECT.",
                )
        statements = parsed(sql)
    except SqlglotError as error:
        facts = (getattr(error, "errors", None) or [{}])[0]
        why = facts.get("description") or str(error).splitlines()[0]
        raise _not_understood(sql, why, facts) from None
    except RecursionError:
        raise query_error(sql, None, "The query is nested too deeply.") from None
    if not statements:
        raise query_error(sql, None, "There is no query.", hint="Write a SELECT.")
    if len(statements) > 1:
        end = next(token for token in tokens if token.token_type is TokenType.SEMICOLON)
        raise error_at(sql, end.start, end.end, "There is more than one statement.", hint="Leave one SELECT.")
    (tree,) = statements
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise error_at(sql, tokens[0].start, tokens[0].end, "This is not a query.", hint="Write a SELECT.")
    return tree


def _not_understood(sql: str, why: str, facts: dict[str, object]) -> Exception:
    line, place = facts.get("line"), facts.get("col")
    mark = str(facts.get("highlight") or "")
    message = "The query cannot be understood."
    if not isinstance(line, int) or not isinstance(place, int):
        return query_error(sql, None, message, why=why)
    lines = sql.split("\n")
    before = sum(len(one) + 1 for one in lines[: line - 1])
    end = min(before + place - 1, len(sql) - 1)
    return error_at(sql, max(before, end - len(mark) + 1), end, message, why=why)
