"""A query of Spark's SQL as DuckDB's, to compute the same rows a second time by other means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.algebra.spark_in_duckdb import at_moment, bridge, refused
from headwater.algebra.spark_text import parsed
from headwater.algebra.views import CATALOG_PREFIX

#: The text that a table's name stands for, or None to leave it.
Tables = Callable[[tuple[str, ...]], str | None]


def to_duckdb(sql: str, tables: Tables, *, moment: datetime | None = None) -> str:
    """A query of Spark's as DuckDB's, with each table replaced by a query in parentheses.

    `moment` takes the place of the current time.

    >>> to_duckdb("SELECT t.a FROM s.t", lambda parts: "(SELECT a FROM lake.s.t AT (VERSION => 7))")
    'SELECT t.a FROM (SELECT a FROM lake.s.t AT (VERSION => 7)) AS t'
    """
    tree = bridge(_parsed(sql, "spark"), moment)
    _put_tables(tree, tables)
    return _generated(tree)


def view_to_duckdb(sql: str, tables: Tables, *, moment: datetime | None = None) -> str:
    """The same for a query that is DuckDB's already, such as that of a view."""
    tree = _parsed(sql.replace(CATALOG_PREFIX, ""), "duckdb")
    if moment is not None:
        tree = at_moment(tree, moment)
    _put_tables(tree, tables)
    return _generated(tree)


def has_limit(sql: str) -> bool:
    """Whether a query of Spark's picks some of its rows by LIMIT."""
    return _parsed(sql, "spark").find(exp.Limit) is not None


def collects(sql: str) -> bool:
    """Whether a query of Spark's makes arrays of rows, whose order nothing guarantees."""
    return _parsed(sql, "spark").find(exp.ArrayAgg, exp.ArrayUniqueAgg) is not None


def _parsed(text: str, dialect: str) -> exp.Expr:
    try:
        if dialect == "spark":
            trees = parsed(text)
        else:
            trees = [tree for tree in sqlglot.parse(text, read=dialect) if tree is not None]
    except SqlglotError as error:
        raise refused(f"its SQL cannot be parsed: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise refused("its SQL is nested too deeply") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise refused("it is not one query")
    return trees[0]


def _generated(tree: exp.Expr) -> str:
    try:
        return tree.sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE, comments=False)
    except SqlglotError as error:
        raise refused(str(error).splitlines()[0]) from None


# -- tables --------------------------------------------------------------------------------------------------


def _put_tables(tree: exp.Expr, tables: Tables) -> None:
    """Replace tables, not names of WITH clauses. What replaces one has no schema to qualify columns by."""
    found = [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (len(table.parts) == 1 and names_query(table))
    ]
    _tell_apart(tree, found)
    for table in found:
        text = tables(tuple(part.name for part in table.parts))
        if text is None:
            continue
        made = sqlglot.parse_one(f"SELECT * FROM {text}", read="duckdb").args["from_"].this
        alias = table.args.get("alias")
        if alias is None:
            alias = exp.TableAlias(this=exp.to_identifier(table.name, quoted=table.this.quoted))
        made.set("alias", alias.copy())
        for kept in ("joins", "laterals", "pivots"):
            made.set(kept, table.args.get(kept))
        table.replace(made)
    for column in tree.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)


def _tell_apart(tree: exp.Expr, tables: list[exp.Table]) -> None:
    """Tables of one name in several schemas get aliases of their own, and the columns that speak of them."""
    called: dict[str, set[str]] = {}
    for table in tables:
        called.setdefault(table.alias_or_name.lower(), set()).add(
            f" {table.alias}" if table.alias else _full(table)
        )
    doubled = [table for table in tables if not table.alias and len(called[table.name.lower()]) > 1]
    # An alias is nearer than the name of a table beside it.
    aliased = [table for table in tables if table.alias and len(called[table.alias.lower()]) > 1]
    for column in tree.find_all(exp.Column):
        schema = column.args.get("db")
        same = [t for t in (*aliased, *doubled) if t.alias_or_name.lower() == column.table.lower()]
        if schema is not None:
            wanted = f".{schema.name}.{column.table}".lower()
            same = [table for table in same if not table.alias and f".{_full(table)}".endswith(wanted)]
        meant = _nearest(column, same)
        if meant is not None and not meant.alias:
            column.set("table", exp.to_identifier(_full(meant), quoted=True))
    for table in doubled:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(_full(table), quoted=True)))


def _full(table: exp.Table) -> str:
    return ".".join(part.name.lower() for part in table.parts)


def _nearest(column: exp.Expr, tables: list[exp.Table]) -> exp.Table | None:
    """The table that is read by the innermost query around a column."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        for table in tables:
            if table.find_ancestor(exp.Select) is select:
                return table
        select = select.find_ancestor(exp.Select)
    return None


def names_query(table: exp.Table) -> bool:
    """Whether a name is that of a WITH clause around it; a clause sees neither itself nor later ones."""
    name = table.name.lower()
    node: exp.Expr = table
    while node.parent is not None:
        inside, node = node, node.parent
        given = node if isinstance(node, exp.With) else node.args.get("with_")
        if given is None or (inside is given and node is not given):
            continue
        visible = given.expressions
        if node is given and not given.args.get("recursive"):
            visible = visible[: [id(each) for each in visible].index(id(inside))]
        if any(each.alias.lower() == name for each in visible):
            return True
    return False
