"""Texts of views between DuckDB's SQL and Spark's.

Two dialects of one grammar differ where it does not show: `concat` with a NULL, `/` by zero, the base of
`log`, where NULLs are sorted. So only what is known to mean the same in both is translated, some of it
rewritten; everything else is refused by name. What depends on types (a CAST that rounds here and truncates
there) cannot be seen in a text; the caller looks for it in the analysed plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from headwater.algebra.spark_text import SparkSql
from headwater.errors import UnsupportedError

#: What DuckDB's extension writes in the place of its own catalog's name.
CATALOG_PREFIX = "{DUCKLAKE_CATALOG}."

_QUERY: tuple[type[exp.Expr], ...] = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit),
    *(exp.Offset, exp.Distinct, exp.Union, exp.Except, exp.Intersect, exp.Subquery, exp.CTE, exp.With),
    *(exp.Table, exp.TableAlias, exp.Alias, exp.Column, exp.Identifier, exp.Star, exp.Values, exp.Tuple),
    *(exp.Rollup, exp.Cube, exp.GroupingSets, exp.Qualify, exp.Window, exp.WindowSpec, exp.Filter, exp.Var),
)
_VALUES: tuple[type[exp.Expr], ...] = (
    *(exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT),
    *(exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between, exp.Exists, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Case, exp.If, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Add, exp.Sub, exp.Mul),
    *(exp.Neg, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe, exp.Like, exp.ILike, exp.Dot, exp.Coalesce),
    *(exp.Nullif, exp.Greatest, exp.Least),
)
_FUNCTIONS: tuple[type[exp.Expr], ...] = (
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.Stddev),
    *(exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop, exp.Median, exp.RowNumber, exp.Rank),
    *(exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue),
    *(exp.LastValue, exp.Lower, exp.Upper, exp.Length, exp.Trim, exp.Substring, exp.Left, exp.Right),
    *(exp.Concat, exp.ConcatWs, exp.Replace, exp.StartsWith, exp.EndsWith, exp.Contains, exp.Reverse),
    *(exp.Abs, exp.Ceil, exp.Floor, exp.Round, exp.Sign, exp.Sqrt, exp.Exp, exp.Ln, exp.Pow),
    *(
        exp.Year,
        exp.Month,
        exp.Day,
        exp.Quarter,
        exp.Hour,
        exp.Minute,
        exp.Second,
        exp.TimestampTrunc,
        exp.DateTrunc,
        exp.TimeToStr,
    ),
    *(exp.CurrentDate, exp.CurrentTimestamp, exp.MD5),
)
_KNOWN = frozenset((*_QUERY, *_VALUES, *_FUNCTIONS))
#: Parts of a date or time that both count alike.
_PARTS: dict[str, type[exp.Func]] = {
    "year": exp.Year,
    "quarter": exp.Quarter,
    "month": exp.Month,
    "day": exp.Day,
    "hour": exp.Hour,
    "minute": exp.Minute,
    "second": exp.Second,
}
_UNITS = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"})
_FORMAT_CODES = re.compile(r"(?:%[YmdHMS]|[-/:. ])*")
_ODD_JOINS = {"ASOF", "POSITIONAL"}


def spark_from_duckdb(text: str, names: Sequence[str] = ()) -> str:
    """The SELECT of a view of DuckDB's as Spark's SQL.

    `names` are those that DuckDB gives to the items of the SELECT, for expressions without an alias.

    >>> spark_from_duckdb("SELECT a, (b || 'x') FROM s.t ORDER BY a", ["a", "(b || 'x')"])
    "SELECT a, (b || 'x') AS `(b || 'x')` FROM s.t ORDER BY a NULLS LAST"
    """
    tree = _parsed(text.replace(CATALOG_PREFIX, ""), "duckdb")
    tree = _transformed(tree, _without_main)
    for select in _outputs(tree):
        _name_columns(select, names)
    tree = _transformed(tree, _from_duckdb)
    _check(tree, "duckdb", frozenset({"concat_ws", "now"}))
    return _generated(tree, "spark")


def duckdb_from_spark(text: str, table: Callable[[list[str]], tuple[str, str]]) -> str:
    """A SELECT of Spark's as DuckDB's SQL; `table` tells the schema and name that a table's name means."""
    tree = _parsed(text, "spark")
    _check(tree, "spark", frozenset())
    for scope_table in list(tree.find_all(exp.Table)):
        _qualify(scope_table, table)
    return _generated(_transformed(tree, _from_spark), "duckdb")


def named_columns(text: str, among: Collection[str]) -> tuple[str, ...]:
    """Which of some hidden columns of DuckDB's tables a view names. Beside `*`, which has none of them, none.

    >>> named_columns("SELECT a, RowId FROM s.t", ["rowid", "filename"])
    ('rowid',)
    """
    tree = _parsed(text.replace(CATALOG_PREFIX, ""), "duckdb")
    named = {column.name.lower() for column in tree.find_all(exp.Column)}
    found = tuple(name for name in among if name in named)
    if found and any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        raise UnsupportedError(f"it names the hidden column {found[0]} beside *")
    return found


def check_query(text: str, dialect: str = "spark") -> str:
    """A text that is one query and nothing that would change anything."""
    _parsed(text, dialect)
    return text


def statement_count(text: str) -> int:
    """How many statements a text holds; a `;` at the end does not begin another.

    >>> statement_count("SELECT ';' -- ;"), statement_count("SELECT 1; SELECT 2;")
    (1, 2)
    """
    try:
        tokens = SparkSql().tokenize(text)
    except SqlglotError:
        return 1
    count, empty = 0, True
    for token in tokens:
        semicolon = token.token_type is TokenType.SEMICOLON
        count += empty and not semicolon
        empty = semicolon
    return count


def _parsed(text: str, dialect: str) -> exp.Expr:
    try:
        read = SparkSql if dialect == "spark" else dialect
        trees = [tree for tree in sqlglot.parse(text, read=read) if tree is not None]
    except SqlglotError as error:
        raise UnsupportedError(f"its SQL cannot be parsed: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UnsupportedError("its SQL is nested too deeply") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise UnsupportedError("it is not one query")
    return trees[0]


def _transformed(tree: exp.Expr, rule: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Apply a rule to every node, children first, so that no result is rewritten again."""
    for node in list(tree.dfs())[::-1]:
        new = rule(node)
        if new is not node:
            if node is tree:
                tree = new
            else:
                node.replace(new)
    return tree


def _generated(tree: exp.Expr, dialect: str) -> str:
    try:
        return tree.sql(dialect=dialect, unsupported_level=sqlglot.ErrorLevel.RAISE, comments=False)
    except SqlglotError as error:
        raise UnsupportedError(str(error).splitlines()[0]) from None


# -- what is known -------------------------------------------------------------------------------------------


def _check(tree: exp.Expr, dialect: str, functions: frozenset[str]) -> None:
    for node in tree.walk():
        known = type(node) in _KNOWN
        if isinstance(node, exp.Anonymous):
            known = node.name.lower() in functions
        if not known or _odd(node):
            shown = node.sql(dialect=dialect, comments=False)
            raise UnsupportedError(f"{shown[:80]!r} is not known to mean the same in Spark and DuckDB")


def _odd(node: exp.Expr) -> bool:
    """Known nodes in a form that is not."""
    arguments = node.args
    match node:
        case exp.Select():
            return _star_over_using(node)
        case exp.Column():  # with the name of a catalog, which is another in every session
            return bool(arguments.get("catalog"))
        case exp.Join():
            return bool(arguments.get("method") and str(arguments["method"]).upper() in _ODD_JOINS)
        case exp.With():
            return bool(arguments.get("recursive"))
        case exp.Distinct():
            return bool(arguments.get("on"))
        case exp.Star():
            return bool(arguments.get("replace") or arguments.get("rename"))
        case exp.Union() | exp.Except() | exp.Intersect():
            return bool(arguments.get("by_name"))
        case exp.Table():
            return bool(
                set(arguments) & {"pivots", "laterals", "joins", "version", "sample"}
                and any(
                    arguments.get(name) for name in ("pivots", "laterals", "version", "sample", "changes")
                )
            ) or not isinstance(node.this, exp.Identifier)
        case exp.Like() | exp.ILike():
            pattern = node.expression
            return not (pattern.is_string and "\\" not in pattern.name)
        case exp.Substring():
            start = arguments.get("start")
            return start is None or not (start.is_int and int(start.name) >= 1)
        case exp.Left() | exp.Right():
            return not (node.expression.is_int and int(node.expression.name) >= 0)
        case exp.Trim():
            return bool(arguments.get("expression"))
        case exp.In():
            return bool(arguments.get("unnest") or arguments.get("field"))
        case exp.Dot():
            return not isinstance(node.expression, exp.Identifier)
        case exp.TimestampTrunc() | exp.DateTrunc():
            return str(node.args["unit"].name).upper() not in _UNITS
        case exp.TimeToStr():
            pattern = arguments["format"]
            return not (pattern.is_string and _FORMAT_CODES.fullmatch(pattern.name))
        case exp.Window():
            return bool(arguments.get("over") and str(arguments["over"]).upper() != "OVER")
        case exp.DataType():
            return node.this in _ODD_TYPES or bool(arguments.get("nested"))
        case exp.Count():
            return bool(arguments.get("expressions"))
        case exp.Sum() | exp.Avg() | exp.Min() | exp.Max():
            return bool(arguments.get("expressions"))
        case _:
            return False


def _star_over_using(select: exp.Select) -> bool:
    """`*` over a join by USING: Spark puts the common columns first, DuckDB leaves them in their places."""
    stars = any(isinstance(value, exp.Star) or value.is_star for value in select.expressions)
    joins = select.args.get("joins") or []
    return stars and any(
        join.args.get("using") or str(join.args.get("method") or "").upper() == "NATURAL" for join in joins
    )


_ODD_TYPES = frozenset(
    {
        *(
            exp.DataType.Type.TIME,
            exp.DataType.Type.TIMETZ,
            exp.DataType.Type.INTERVAL,
            exp.DataType.Type.UUID,
        ),
        *(exp.DataType.Type.JSON, exp.DataType.Type.INT128, exp.DataType.Type.UINT128),
        *(exp.DataType.Type.UTINYINT, exp.DataType.Type.USMALLINT, exp.DataType.Type.UINT),
        *(exp.DataType.Type.UBIGINT, exp.DataType.Type.BIT, exp.DataType.Type.USERDEFINED),
        *(exp.DataType.Type.TIMESTAMP_NS, exp.DataType.Type.TIMESTAMP_S, exp.DataType.Type.TIMESTAMP_MS),
        *(
            exp.DataType.Type.VARIANT,
            exp.DataType.Type.STRUCT,
            exp.DataType.Type.MAP,
            exp.DataType.Type.ARRAY,
        ),
        *(
            exp.DataType.Type.LIST,
            exp.DataType.Type.ENUM,
            exp.DataType.Type.VARBINARY,
            exp.DataType.Type.CHAR,
        ),
    }
)


# -- from DuckDB ---------------------------------------------------------------------------------------------


def _without_main(node: exp.Expr) -> exp.Expr:
    """DuckDB writes some functions with their schema (`main."trim"(x)`), which hides them from the parser."""
    if not isinstance(node, exp.Dot) or not isinstance(node.expression, exp.Func):
        return node
    if not isinstance(node.this, exp.Identifier) or node.this.name != "main":
        return node
    call = node.expression
    if isinstance(call, exp.Anonymous):
        arguments = ", ".join(argument.sql(dialect="duckdb") for argument in call.expressions)
        return sqlglot.parse_one(f"{call.name}({arguments})", read="duckdb")
    return call


def _from_duckdb(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Anonymous():
            return _function(node)
        case exp.Div():
            return _divided(node.this, node.expression)
        case exp.IntDiv() | exp.Mod():
            # By zero it is NULL in DuckDB and an error in Spark.
            safe = exp.Nullif(this=_grouped(node.expression), expression=exp.Literal.number(0))
            return exp.Paren(this=type(node)(this=_grouped(node.this), expression=safe))
        case exp.Avg():
            return exp.Avg(this=_double(node.this)) if not isinstance(node.this, exp.Distinct) else node
        case exp.Concat():  # DuckDB's leaves NULLs out
            return exp.Anonymous(this="concat_ws", expressions=[exp.Literal.string(""), *node.expressions])
        case exp.EQ() if isinstance(node.expression, exp.Any):
            return _in_subquery(node)
        case exp.TimestampTrunc() | exp.DateTrunc():
            kind = exp.DataType.build("TIMESTAMPNTZ")
            return exp.Cast(this=node.copy(), to=kind)
        case exp.Values():
            return _with_names(node, 0)
        case exp.Log():
            raise UnsupportedError("log() has another base in Spark")
        case _:
            return node


def _function(node: exp.Anonymous) -> exp.Expr:
    name, arguments = node.name.lower(), node.expressions
    if name == "count_star" and not arguments:
        return exp.Count(this=exp.Star())
    if name == "date_part" and len(arguments) == 2 and arguments[0].is_string:
        part = _PARTS.get(arguments[0].name.lower())
        if part is not None:
            return part(this=arguments[1])
    return node


def _divided(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """DuckDB divides doubles, whatever it is given, and by zero as IEEE 754 says."""
    infinity = exp.Cast(this=exp.Literal.string("Infinity"), to=exp.DataType.build("DOUBLE"))
    return exp.Paren(
        this=exp.If(
            this=exp.EQ(this=_double(right), expression=exp.Literal.number(0)),
            true=exp.Mul(this=_double(left), expression=infinity),
            false=exp.Div(this=_double(left), expression=_double(right)),
        )
    )


def _double(value: exp.Expr) -> exp.Expr:
    return exp.Cast(this=value.copy(), to=exp.DataType.build("DOUBLE"))


def _grouped(value: exp.Expr) -> exp.Expr:
    return value.copy() if isinstance(value, exp.Paren) else exp.Paren(this=value.copy())


def _in_subquery(node: exp.EQ) -> exp.Expr:
    """`x IN (SELECT …)`, which DuckDB writes as `x = ANY(SELECT …)`."""
    query = node.expression.this
    inner = query.this if isinstance(query, exp.Subquery | exp.Paren) else query
    return exp.In(this=node.this.copy(), query=exp.Subquery(this=inner.copy()))


def _with_names(node: exp.Values, first: int) -> exp.Expr:
    """A list of VALUES whose columns are named: DuckDB calls them col0, col1, …, Spark col1, col2, …"""
    count = len(node.expressions[0].expressions) if isinstance(node.expressions[0], exp.Tuple) else 1
    old = node.args.get("alias")
    given = list(old.args.get("columns") or []) if old is not None else []
    names = [exp.to_identifier(f"col{first + place}") for place in range(len(given), count)]
    called = old.this if old is not None and old.this is not None else exp.to_identifier("valueslist")
    new = node.copy()
    new.set("alias", exp.TableAlias(this=called.copy(), columns=[*(c.copy() for c in given), *names]))
    return new


def _outputs(tree: exp.Expr) -> Iterator[exp.Select]:
    """The SELECT that names the columns of a query."""
    while not isinstance(tree, exp.Select):
        if not isinstance(tree, exp.Subquery | exp.SetOperation | exp.Paren):
            return
        tree = tree.this
    yield tree


def _name_columns(select: exp.Select, names: Sequence[str]) -> None:
    if len(names) != len(select.expressions):
        return
    for value, name in zip(list(select.expressions), names, strict=True):
        plain = value.unnest() if isinstance(value, exp.Paren) else value
        if isinstance(plain, exp.Alias | exp.Column | exp.Star | exp.Dot):
            continue
        value.replace(exp.alias_(value.copy(), name, quoted=True))


# -- from Spark ----------------------------------------------------------------------------------------------


def _from_spark(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Concat():  # Spark's is NULL where any part is
            first, *rest = node.expressions
            joined: exp.Expr = _grouped(first)
            for part in rest:
                joined = exp.DPipe(this=joined, expression=_grouped(part), safe=True)
            return exp.Paren(this=joined)
        case exp.Values():
            return _with_names(node, 1)
        case _:
            return node


def _qualify(node: exp.Table, table: Callable[[list[str]], tuple[str, str]]) -> None:
    parts = [part.name for part in node.parts]
    if len(parts) == 1 and _is_named_query(node, parts[0]):
        return
    schema, name = table(parts)
    node.set("catalog", None)
    node.set("db", exp.to_identifier(schema, quoted=True))
    node.set("this", exp.to_identifier(name, quoted=True))
    if not node.alias and len(parts) > 1:
        return
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(parts[0], quoted=True)))


def _is_named_query(node: exp.Table, name: str) -> bool:
    """Whether a WITH clause around the table has that name."""
    parent = node.parent
    while parent is not None:
        with_ = parent.args.get("with_") or parent.args.get("with")
        if with_ is not None and any(cte.alias.lower() == name.lower() for cte in with_.expressions):
            return True
        parent = parent.parent
    return False


def normalised(text: str) -> str:
    """A query of Spark's without what has no meaning: layout, comments, the case of words."""
    return ";".join(
        one.sql(dialect="spark", comments=False) for one in sqlglot.parse(text, read=SparkSql) if one
    )
