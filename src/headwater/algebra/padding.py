"""Aggregates over a left join, in which rows without a partner add nothing to their group.

    γ(L ⟕ R) = γ(L ∪ (L ⋈ R))      where L's rows have NULLs for R's columns

if every aggregate passes over the NULLs: the rows of L only say which groups there are. Whether a row of L
has other partners no longer matters, so that nothing of R has to be looked up by the keys that changed: what
follows from changes are the terms of an inner join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Join,
    Named,
    Project,
    Relation,
    UnionAll,
    column,
    columns_of,
)
from headwater.algebra.substituting import substituted

#: Whose value is NULL where one of their operands is.
_STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
#: Whose value is NULL where their first operand is.
_STRICT_IN_THIS = (exp.Paren, exp.Neg, exp.Not, exp.Cast, exp.TryCast, exp.Like, exp.Between, exp.In)


def without_padding(node: Aggregate, types: Callable[[Relation], Mapping[str, str]]) -> Aggregate:
    """The aggregate over a union in place of its left join, if that is the same; `types` finds out types."""
    above, join = _taken_apart(node.child)
    if join is None or not _adds_nothing(node, above, join):
        return node
    found = types(join.right)
    nothing = tuple((n, exp.cast(exp.null(), found[n], dialect="spark")) for n in join.right.columns)
    own: tuple[Named, ...] = tuple((name, column(name)) for name in join.left.columns)
    padded: Relation = Project(join.left, (*own, *nothing))
    matched: Relation = replace(join, kind="inner")
    for operator in reversed(above):
        padded, matched = operator.with_children((padded,)), operator.with_children((matched,))
    names = node.child.columns
    tag = "_".join(("_hw_padded", *(join.left.key or join.left.columns)[:1]))
    return replace(node, child=UnionAll((padded, matched), names, tag))


def _taken_apart(relation: Relation) -> tuple[list[Project | Filter], Join | None]:
    """The projections and conditions above a left join, and the join."""
    above: list[Project | Filter] = []
    while isinstance(relation, (Project, Filter)):
        above.append(relation)
        relation = relation.child
    is_left = isinstance(relation, Join) and relation.kind == "left"
    return above, relation if isinstance(relation, Join) and is_left else None


def _adds_nothing(node: Aggregate, above: list[Project | Filter], join: Join) -> bool:
    """Whether a row of the left side without a partner does no more than to say that its group is there."""
    right = _Nulls(frozenset(join.right.all_columns))
    values: dict[str, exp.Expr] = {name: column(name) for name in join.all_columns}
    for operator in reversed(above):
        if isinstance(operator, Project):
            passed = {name: values[name] for name in operator.key if name in values}
            made = {name: substituted(value, values) for name, value in operator.outputs}
            values = {**passed, **made}
        elif not right.apart_from(substituted(operator.condition, values)):
            return False
    shown = frozenset(node.child.columns)
    return all(name in shown and right.apart_from(values[name]) for name in node.groups) and all(
        columns_of(call) <= shown and right.ignored_by(call, values) for _, call in node.aggregates
    )


@dataclass(frozen=True)
class _Nulls:
    """Columns that are all NULL, and what follows from that."""

    names: frozenset[str]

    def apart_from(self, value: exp.Expr) -> bool:
        """Whether a value does not depend on these columns."""
        return not columns_of(value) & self.names

    def ignored_by(self, call: exp.Expr, values: Mapping[str, exp.Expr]) -> bool:
        """Whether an aggregate is what it is without the row where they are NULL."""
        if isinstance(call, exp.Filter):
            return self.never_true(substituted(call.expression.this, values))
        if isinstance(call, exp.CountIf):
            return self.never_true(substituted(call.this, values))
        if not isinstance(call, (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)):
            return False
        arguments = [each for each in (call.this, *call.expressions) if each is not None]
        if not all(isinstance(each, exp.Column) for each in arguments):
            return False
        given = [values[each.name] for each in arguments]
        if any(map(self.is_null, given)):
            return True
        # The same value once more changes neither of these.
        return isinstance(call, (exp.Min, exp.Max)) and all(map(self.apart_from, given))

    def is_null(self, value: exp.Expr) -> bool:
        """Whether it is clear that a value is NULL."""
        if isinstance(value, exp.Column):
            return value.name in self.names
        if isinstance(value, _STRICT):
            return self.is_null(value.left) or self.is_null(value.right)
        if isinstance(value, _STRICT_IN_THIS):
            return value.this is not None and self.is_null(value.this)
        if isinstance(value, exp.Case) and value.this is None:
            other = value.args.get("default")
            return all(map(self._gives_nothing, value.args["ifs"])) and (other is None or self.is_null(other))
        return isinstance(value, exp.Null)

    def _gives_nothing(self, branch: exp.If) -> bool:
        return self.never_true(branch.this) or self.is_null(branch.args["true"])

    def never_true(self, condition: exp.Expr) -> bool:
        """Whether it is clear that a condition is false or NULL."""
        match condition:
            case exp.Paren():
                return self.never_true(condition.this)
            case exp.And():
                return self.never_true(condition.left) or self.never_true(condition.right)
            case exp.Or():
                return self.never_true(condition.left) and self.never_true(condition.right)
            case exp.Not(this=exp.Is(this=value, expression=exp.Null())):
                return self.is_null(value)
            case exp.Boolean():
                return not condition.this
        return self.is_null(condition)


__all__ = ["without_padding"]
