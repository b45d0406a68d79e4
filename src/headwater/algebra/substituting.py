"""Names of columns replaced by what they stand for."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp


def substituted(expression: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
    """An expression over columns as one over what those are computed from."""

    def value(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.name not in values:
            return node
        found = values[node.name].copy()
        return found if isinstance(found, (exp.Column, exp.Literal)) else exp.paren(found)

    return expression.copy().transform(value)


__all__ = ["substituted"]
