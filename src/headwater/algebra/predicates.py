"""Row filters as data: SQL text → a small tree that file pruning can reason about.

The tree keeps SQL's three-valued logic. NOT is pushed down to the leaves while parsing (`NOT a > 5` becomes
`a <= 5`: both are NULL for a NULL `a`), so it remains only above leaves that have no opposite of their own.
Whatever is not understood stays in the tree as `Opaque`: nothing can be concluded from it, and the exact
filter is still applied to the rows that are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from headwater.algebra.literals import Literal, Unknown, alike, literal, literal_sql
from headwater.errors import InvalidInputError
from headwater.typedefs import quote_name

#: The names from the column down to the field: `("s", "x")` for `s.x`. The first may be a table's name.
Path: TypeAlias = tuple[str, ...]

OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">=": "<=", ">": "<", "<=": ">="}


@dataclass(frozen=True, slots=True)
class And:
    """All parts are true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part is true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false. Only leaves are negated: `In`, `IsNull`, `StartsWith`, `Like`, `Opaque`."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column against a constant that is not NULL; `op` is one of `=`, `<>`, `<`, `<=`, `>`, `>=`."""

    column: Path
    op: str
    value: Literal


@dataclass(frozen=True, slots=True)
class In:
    """The column equals one of the constants, which are all of one kind, or NULL."""

    column: Path
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is NULL."""

    column: Path


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text column begins with the prefix."""

    column: Path
    prefix: str


@dataclass(frozen=True, slots=True)
class Like:
    """The text column has the pieces of a pattern between `%`, in their order; no other sign is special."""

    column: Path
    pattern: str


@dataclass(frozen=True, slots=True)
class Constant:
    """Always true, always false, or always NULL."""

    value: bool | None
    references: tuple[Path, ...] = field(default=(), compare=False)
    """Columns that the text names although they decide nothing, as in `a = NULL`."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Anything else: any row may match."""

    sql: str
    references: tuple[Path, ...] = ()


Predicate: TypeAlias = And | Or | Not | Comparison | In | IsNull | StartsWith | Like | Constant | Opaque


@lru_cache(maxsize=256)
def parse_predicate(text: str, dialect: str = "duckdb") -> Predicate:
    """Read the text of a WHERE condition.

    >>> parse_predicate("a > 5 AND NOT (b = 'x' OR c IS NULL)")  # doctest: +NORMALIZE_WHITESPACE
    And(parts=(Comparison(column=('a',), op='>', value=5), Comparison(column=('b',), op='<>', value='x'),
     Not(part=IsNull(column=('c',)))))
    """
    try:
        tokens = sqlglot.tokenize(text, read=dialect)
        for token in tokens:
            if token.token_type is TokenType.SEMICOLON:
                raise _invalid(text, "A `;` does not belong into a condition.", token.line, token.col)
        tree = sqlglot.parse_one(text, read=dialect, into=exp.Condition)
        _reject_non_conditions(text, tree)
        return _convert(tree, dialect)
    except SqlglotError as error:
        facts = (getattr(error, "errors", None) or [{}])[0]
        why = facts.get("description") or str(error).splitlines()[0]
        raise _invalid(text, why, facts.get("line"), facts.get("col")) from None
    except RecursionError:
        raise _invalid(text, "It is nested too deeply.") from None


def columns(predicate: Predicate) -> tuple[Path, ...]:
    """Every column that the predicate names, also inside its opaque parts, each once, in order."""
    return tuple(dict.fromkeys(_paths(predicate)))


def negate(predicate: Predicate) -> Predicate:
    """The predicate that is true where this one is false, and NULL where this one is NULL."""
    match predicate:
        case And(parts):
            return Or(tuple(negate(part) for part in parts))
        case Or(parts):
            return And(tuple(negate(part) for part in parts))
        case Not(part):
            return part
        case Comparison(column, op, value):
            return Comparison(column, OPPOSITE[op], value)
        case Constant(value, references):
            return Constant(None if value is None else not value, references)
        case _:
            return Not(predicate)


def says_something(predicate: Predicate) -> bool:
    """Whether rows, or files of them, can be left out because of it."""
    match predicate:
        case And(parts):
            return any(map(says_something, parts))
        case Or(parts):
            return all(map(says_something, parts))
        case Not(part):
            return says_something(part)
        case Opaque():
            return False
    return True


def to_sql(predicate: Predicate) -> str:
    """The predicate as DuckDB SQL, for explanations."""
    match predicate:
        case And(parts):
            return "(" + " AND ".join(map(to_sql, parts)) + ")"
        case Or(parts):
            return "(" + " OR ".join(map(to_sql, parts)) + ")"
        case Not(part):
            return f"(NOT {to_sql(part)})"
        case Comparison(column, op, value):
            return f"{_path_sql(column)} {op} {literal_sql(value)}"
        case In(column, values):
            return f"{_path_sql(column)} IN ({', '.join(map(literal_sql, values))})"
        case IsNull(column):
            return f"{_path_sql(column)} IS NULL"
        case StartsWith(column, prefix):
            return f"starts_with({_path_sql(column)}, {literal_sql(prefix)})"
        case Like(column, pattern):
            return f"{_path_sql(column)} LIKE {literal_sql(pattern)}"
        case Constant(value):
            return "NULL::BOOLEAN" if value is None else str(value).upper()
        case Opaque(sql):
            return f"({sql})"


def _paths(predicate: Predicate) -> Iterator[Path]:
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _paths(part)
        case Not(part):
            yield from _paths(part)
        case Comparison(column) | In(column) | IsNull(column) | StartsWith(column) | Like(column):
            yield column
        case Opaque(_, references) | Constant(_, references):
            yield from references


def _invalid(text: str, why: str, line: int | None = None, column: int | None = None) -> InvalidInputError:
    where = f" (line {line}, column {column})" if line is not None else ""
    shown = text if len(text) <= 200 else text[:200] + "…"
    return InvalidInputError(
        f"{shown!r} is not a condition{where}.",
        detail=why,
        hint="Write what would follow WHERE: one boolean expression over the table's columns.",
        text=text,
        line=line,
        column=column,
    )


#: Expressions that never have a truth value, so that a slip like `5` or `a + 1` is noticed before reading.
_NOT_BOOLEAN = (
    exp.Literal,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Mod,
    exp.DPipe,
    exp.Star,
    exp.Tuple,
)
#: Expressions whose value for one row depends on other rows, or on something outside of the row.
_NOT_PER_ROW = {
    exp.Query: "A subquery cannot be part of a row filter.",
    exp.AggFunc: "An aggregate cannot be part of a row filter.",
    exp.Window: "A window function cannot be part of a row filter.",
    exp.Placeholder: "A parameter has no value here.",
    exp.Parameter: "A parameter has no value here.",
    exp.PositionalColumn: "A column must be named.",
}


def _reject_non_conditions(text: str, tree: exp.Expr) -> None:
    if isinstance(tree.unnest(), _NOT_BOOLEAN):
        raise _invalid(text, "Its value is not a boolean.")
    for node in tree.walk():
        for kind, why in _NOT_PER_ROW.items():
            if isinstance(node, kind):
                raise _invalid(text, why)


def _convert(node: exp.Expr, dialect: str) -> Predicate:
    understood = _understand(node, dialect)
    if understood is not None:
        return understood
    references = tuple(dict.fromkeys(filter(None, map(_path, node.find_all(exp.Column, exp.Dot, bfs=False)))))
    return Opaque(node.sql(dialect=dialect, comments=False), references)


_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def _understand(node: exp.Expr, dialect: str) -> Predicate | None:
    """The node as a predicate, or None where its meaning is not known for certain."""
    match node:
        case exp.Paren():
            return _convert(node.this, dialect)
        case exp.And() | exp.Or():
            kind = And if isinstance(node, exp.And) else Or
            return kind(tuple(_flattened(kind, (_convert(part, dialect) for part in node.flatten()))))
        case exp.Not():
            return negate(_convert(node.this, dialect))
        case exp.Boolean():
            return Constant(bool(node.this))
        case exp.Null():
            return Constant(None)
        case exp.Between():
            return _between(node)
        case exp.In():
            return _in(node)
        case exp.Is():
            return _is(node)
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            return _null_safe(node)
        case exp.Like():
            return _like(node)
        case exp.StartsWith() | exp.Anonymous():
            return _starts_with(node)
        case exp.Column() | exp.Dot() | exp.Bracket():
            path = _path(node)
            return None if path is None else Comparison(path, "=", True)
        case _:
            return _comparison(node)


def _flattened(kind: type[And] | type[Or], parts: Iterable[Predicate]) -> Iterator[Predicate]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _comparison(node: exp.Expr) -> Predicate | None:
    op = _COMPARISONS.get(type(node))
    if op is None:
        return None
    if op in ("=", "<>") and isinstance(node.this, exp.Substring):
        found = _begins_with(node.this, [node.expression])
        return negate(found) if found is not None and op == "<>" else found
    path, constant = _path(node.this), node.expression
    if path is None:
        path, constant, op = _path(node.expression), node.this, FLIPPED[op]
    value = literal(constant)
    if path is None or isinstance(value, Unknown):
        return None
    return Constant(None, (path,)) if value is None else Comparison(path, op, value)


def _between(node: exp.Between) -> Predicate | None:
    path = _path(node.this)
    bounds = alike([literal(node.args["low"]), literal(node.args["high"])])
    if path is None or bounds is None or node.args.get("symmetric"):
        return None
    return And(
        tuple(
            Constant(None, (path,)) if bound is None else Comparison(path, op, bound)
            for op, bound in zip((">=", "<="), bounds, strict=True)
        )
    )


def _in(node: exp.In) -> Predicate | None:
    if isinstance(node.this, exp.Substring):
        return _begins_with(node.this, node.expressions)
    path = _path(node.this)
    values = alike([literal(value) for value in node.expressions])
    return None if path is None or not values else In(path, tuple(values))


def _begins_with(node: exp.Substring, texts: Sequence[exp.Expr]) -> Predicate | None:
    """`substring(c, 1, 2) IN ('13', '31')`: the texts are as long as what is taken of the column."""
    path, first, length = _path(node.this), literal(node.args.get("start")), literal(node.args.get("length"))
    values = [literal(text) for text in texts]
    if path is None or first != 1 or isinstance(first, bool) or not isinstance(length, int) or not values:
        return None
    if not all(isinstance(value, str) and len(value) == length > 0 for value in values):
        return None
    found = tuple(StartsWith(path, str(value)) for value in values)
    return found[0] if len(found) == 1 else Or(found)


def _is(node: exp.Is) -> Predicate | None:
    path = _path(node.this)
    if path is None:
        return None
    if isinstance(node.expression, exp.Null):
        return IsNull(path)
    if isinstance(node.expression, exp.Boolean):  # never NULL: `a IS TRUE` is false for a NULL `a`
        return And((Not(IsNull(path)), Comparison(path, "=", bool(node.expression.this))))
    return None


def _null_safe(node: exp.NullSafeEQ | exp.NullSafeNEQ) -> Predicate | None:
    path, constant = _path(node.this), node.expression
    if path is None:
        path, constant = _path(node.expression), node.this
    value = literal(constant)
    if path is None or isinstance(value, Unknown):
        return None
    same: Predicate = (
        IsNull(path) if value is None else And((Not(IsNull(path)), Comparison(path, "=", value)))
    )
    return same if isinstance(node, exp.NullSafeEQ) else negate(same)


def _like(node: exp.Like) -> Predicate | None:
    path, pattern = _path(node.this), literal(node.expression)
    if path is None or not isinstance(pattern, str) or not re.fullmatch(r"[^_\\]+", pattern, re.DOTALL):
        return None
    prefix = pattern[:-1]
    plain = prefix and pattern.endswith("%") and "%" not in prefix
    found = StartsWith(path, prefix) if plain else Like(path, pattern)
    return Not(found) if node.args.get("negate") else found


def _starts_with(node: exp.StartsWith | exp.Anonymous) -> Predicate | None:
    if isinstance(node, exp.StartsWith):
        arguments = [node.this, node.expression]
    elif node.name.lower() == "prefix":
        arguments = node.expressions
    else:
        return None
    if len(arguments) != 2:
        return None
    path, prefix = _path(arguments[0]), literal(arguments[1])
    return None if path is None or not isinstance(prefix, str) else StartsWith(path, prefix)


def _path(node: exp.Expr | None) -> Path | None:
    match node:
        case exp.Paren():
            return _path(node.this)
        case exp.Column() if isinstance(node.this, exp.Identifier):
            return tuple(part.name for part in node.parts)
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            parent = _path(node.this)
            return None if parent is None else (*parent, node.expression.name)
        case exp.Bracket() if len(node.expressions) == 1:
            parent, key = _path(node.this), node.expressions[0]
            # A text key is a struct's field; a map's entry looks the same, but has no statistics.
            return (*parent, key.name) if parent and isinstance(key, exp.Literal) and key.is_string else None
        case _:
            return None


def _path_sql(path: Path) -> str:
    return ".".join(map(quote_name, path))
