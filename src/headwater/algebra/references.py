"""Which tables a query names, without knowing any of them."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from headwater.algebra.building.places import error_at
from headwater.algebra.spark_text import parsed
from headwater.algebra.statement_reader import tokens_of
from headwater.errors import QueryError


def table_references(query: str) -> tuple[tuple[str, ...], ...]:
    """The names of all tables and views that a query reads, each once, in the order of the text.

    >>> table_references("WITH o AS (SELECT * FROM sales.o) SELECT * FROM o JOIN c USING (id)")
    (('sales', 'o'), ('c',))
    """
    found: dict[tuple[str, ...], None] = {}
    nodes = _parsed(query).find_all(exp.Table)
    for node in sorted(nodes, key=lambda node: node.this.meta.get("start", 0)):
        parts = tuple(part.name for part in node.parts)
        is_function = not isinstance(node.this, exp.Identifier)
        if all(parts) and not is_function and not (len(parts) == 1 and _is_named_query(node, parts[0])):
            found[parts] = None
    return tuple(found)


def _parsed(query: str) -> exp.Expr:
    try:
        trees = parsed(query)
    except TokenError:
        _, place = tokens_of(query)
        raise error_at(query, place or 0, len(query) - 1, "What begins here is never closed.") from None
    except ParseError as error:
        raise _located(query, error) from None
    except RecursionError:
        raise QueryError("The query is nested too deeply.", line=None, column=None, fragment=None) from None
    if len(trees) != 1:
        raise error_at(query, 0, len(query) - 1, "There must be one query, and nothing else.")
    if not isinstance(trees[0], exp.Query | exp.Values):
        raise error_at(query, 0, 0, "A query is expected: SELECT, WITH, VALUES.")
    return trees[0]


def _located(query: str, error: ParseError) -> QueryError:
    """sqlglot's error, with the place in our words: its column is that of the last character."""
    first = error.errors[0] if error.errors else {}
    line, column, fragment = first.get("line"), first.get("col"), first.get("highlight") or ""
    words = str(first.get("description") or "it is no SQL").rstrip(".")
    # Some of its words name its own classes.
    message = "The query cannot be read: " + ("something is missing" if "<class" in words else words) + "."
    if line is None or column is None:
        return QueryError(message, line=None, column=None, fragment=None)
    before = query.split("\n")[: line - 1]
    end = sum(len(one) + 1 for one in before) + column - 1
    return error_at(query, max(0, end - len(fragment) + 1), max(0, end), message)


def _is_named_query(node: exp.Expr, name: str) -> bool:
    """Whether a WITH clause gives the name: one around the table, and before it in the same clause."""
    inside: exp.Expr = node
    around = node.parent
    while around is not None:
        if isinstance(around, exp.With):
            # Inside one of the named queries: only those before it are known, and itself if it is recursive.
            known = around.expressions[
                : around.expressions.index(inside) + bool(around.args.get("recursive"))
            ]
            if any(one.alias.lower() == name.lower() for one in known):
                return True
            inside, around = around, around.parent
            if around is None:
                return False
        else:
            clause = around.args.get("with_")
            if clause is not None and any(one.alias.lower() == name.lower() for one in clause.expressions):
                return True
        inside, around = around, around.parent
    return False
