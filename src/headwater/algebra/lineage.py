"""Column lineage: the source columns that a column of a result comes from.

A column comes from those whose values are computed into it. Others only decide whether and where a value
appears: conditions of filters and joins, groups, the order of windows and of first rows.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from sqlglot import exp

from headwater.algebra.relations import (
    ROW_ID,
    Aggregate,
    Filter,
    Generate,
    Join,
    Opaque,
    Project,
    Query,
    Relation,
    Scan,
    Semi,
    TopK,
    UnionAll,
    Values,
    Window,
    columns_of,
)
from headwater.errors import NotFoundError


class Origin(NamedTuple):
    """A column of a table."""

    table: str
    column: str


def column_lineage(query: Query) -> dict[str, tuple[Origin, ...]]:
    """For each column that users see, the columns it is computed from; nothing for constants."""
    return {shown: tuple(sorted(lineage(query, shown))) for shown, _ in query.outputs}


def lineage(query: Query, column: str, *, deciding: bool = False) -> tuple[Origin, ...]:
    """The source columns that a column of the result is computed from, in the order in which they are met.

    With `deciding`: those that do not flow into its values and only decide which values appear.
    """
    tracer = _Tracer()
    tracer.value(query.relation, _inner_name(query, column))
    if not deciding:
        return tuple(tracer.values)
    tracer.rows(query.relation)
    return tuple(each for each in tracer.decisions if each not in tracer.values)


def _inner_name(query: Query, column: str) -> str:
    known = {shown.lower(): inner for shown, inner in query.outputs}
    if column.lower() not in known:
        near = difflib.get_close_matches(column.lower(), known, n=1)
        names = [shown for shown, _ in query.outputs]
        hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(names)}."
        raise NotFoundError(f"The query has no column {column!r}.", hint=hint, column=column)
    return known[column.lower()]


class _Tracer:
    """Follows names down through the relations, each of them once."""

    def __init__(self) -> None:
        self.values: dict[Origin, None] = {}
        self.decisions: dict[Origin, None] = {}
        self._seen: set[tuple[int, str, bool]] = set()
        self._rows_seen: set[int] = set()

    def value(self, relation: Relation, name: str, *, decides: bool = False) -> None:
        """Follow what a column is computed from."""
        if (id(relation), name, decides) in self._seen:
            return
        self._seen.add((id(relation), name, decides))
        match relation:
            case Scan():
                stored = dict((*relation.key_fields, *relation.fields)).get(name)
                if stored is not None and stored != ROW_ID:
                    (self.decisions if decides else self.values)[Origin(relation.source, stored)] = None
            case Values():
                pass
            case Project() if name in relation.columns:
                self._expression(relation.child, dict(relation.outputs)[name], decides)
            case Aggregate() if name not in relation.groups:
                self._expression(relation.child, dict(relation.aggregates)[name], decides)
            case Window() if name in dict(relation.functions):
                self._expression(relation.child, dict(relation.functions)[name], decides)
            case Generate() if name in relation.outputs:
                self._expression(relation.child, relation.generator, decides)
            case UnionAll() if name in relation.names:
                place = relation.names.index(name)
                for child in relation.inputs:
                    self.value(child, child.columns[place], decides=decides)
            case Opaque():
                for child in relation.inputs:  # its SQL is not looked into
                    for each in child.columns:
                        self.value(child, each, decides=decides)
            case _:
                for child in relation.children:
                    if name in child.all_columns:
                        self.value(child, name, decides=decides)

    def rows(self, relation: Relation) -> None:
        """Follow what decides which rows there are."""
        if id(relation) in self._rows_seen:
            return
        self._rows_seen.add(id(relation))
        for name in self._deciding(relation):
            for child in relation.children:
                if name in child.all_columns:
                    self.value(child, name, decides=True)
        for child in relation.children:
            self.rows(child)

    def _deciding(self, relation: Relation) -> list[str]:
        match relation:
            case Filter() | Semi() | Join():
                return [] if relation.condition is None else _ordered(relation.condition)
            case Aggregate():
                return list(relation.groups)
            case Generate():
                return _ordered(relation.generator)
            case TopK():
                return [name for each in relation.order for name in _ordered(each)]
            case Opaque():
                return [name for child in relation.inputs for name in child.columns]
            case _:
                return []

    def _expression(self, child: Relation, expression: exp.Expr, decides: bool) -> None:
        """Follow the columns of an expression; what a FILTER or OVER says only decides."""
        deciding = _deciding_parts(expression)
        for name in _ordered(expression):
            self.value(child, name, decides=decides or name in deciding)


def _deciding_parts(expression: exp.Expr) -> frozenset[str]:
    """Columns that are spoken of only in FILTER, PARTITION BY and ORDER BY.

    A rank has nothing but its order to be computed from.
    """
    if expression.find(exp.Filter, exp.Window) is None:
        return frozenset()
    computed = expression.copy()
    for node in list(computed.find_all(exp.Filter, exp.Window)):
        ranks = isinstance(node, exp.Window) and not columns_of(node.this)
        for part in ("partition_by",) if ranks else ("partition_by", "order", "spec"):
            node.set(part, None)
        if isinstance(node, exp.Filter):
            node.set("expression", None)
    return columns_of(expression) - columns_of(computed)


def _ordered(expression: exp.Expr) -> list[str]:
    """Names of columns in the order in which they are written."""
    return list(dict.fromkeys(found.name for found in expression.find_all(exp.Column, bfs=False)))
