"""Aggregates over a left join, in which rows without a partner add nothing to their group.

    γ(L ⟕ R) = γ(L ∪ (L ⋈ R))      where L's rows have NULLs for what is computed from R

if every aggregate passes over the NULLs: the rows of L only say which groups there are. Whether a row of L
has other partners no longer matters, so that nothing of R has to be looked up by the keys that changed: what
follows from changes are the terms of an inner join.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Join,
    Project,
    Relation,
    UnionAll,
    column,
    columns_of,
)
from headwater.algebra.substituting import substituted

#: How the tags of such unions begin.
PADDED = "_hw_padded"
#: Whose value is NULL where one of their operands is.
_STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
#: Whose value is NULL where their first operand is.
_STRICT_IN_THIS = (exp.Paren, exp.Neg, exp.Not, exp.Cast, exp.TryCast, exp.Like, exp.Between, exp.In)
#: Types that a NULL is given by their text.
_PLAIN = re.compile(
    r"tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)|"
    r"string|date|timestamp(_ntz)?|boolean|binary"
)


def without_padding(node: Aggregate, types: Callable[[Relation], Mapping[str, str]]) -> Aggregate:
    """The aggregate over a union in place of its left join, if that is the same; `types` finds out types."""
    above, join = _taken_apart(node.child)
    if join is None:
        return node
    nulls = _Nulls(frozenset(join.right.all_columns))
    values, conditions = _computed(join, above)
    named = frozenset(node.groups).union(*(columns_of(call) for _, call in node.aggregates))
    names = tuple(name for name in node.child.columns if name in named)
    if (
        not named <= frozenset(names)
        or not all(map(nulls.say_nothing_of, conditions))
        or not all(nulls.say_nothing_of(values[name]) for name in node.groups)
        or not all(nulls.are_passed_over(call, values) for _, call in node.aggregates)
    ):
        return node
    found = types(node.child)
    padding = [name for name in names if not nulls.say_nothing_of(values[name])]
    if not all(_PLAIN.fullmatch(found[name]) for name in padding):
        return node
    rows: Relation = join.left
    for condition in conditions:
        rows = Filter(rows, condition)
    nothing = {name: exp.cast(exp.null(), found[name], dialect="spark") for name in padding}
    padded = Project(rows, tuple((name, nothing.get(name, values[name])) for name in names))
    matched: Relation = replace(join, kind="inner")
    for operator in above:
        matched = operator.with_children((matched,))
    matched = Project(matched, tuple((name, column(name)) for name in names))
    tag = "_".join((PADDED, *(join.left.key or join.left.columns)[:1]))
    return replace(node, child=UnionAll((padded, matched), names, tag))


def _taken_apart(relation: Relation) -> tuple[Sequence[Project | Filter], Join | None]:
    """The projections and conditions above a left join, the lowest first, and the join."""
    above: list[Project | Filter] = []
    while isinstance(relation, (Project, Filter)):
        above.insert(0, relation)
        relation = relation.child
    is_left = isinstance(relation, Join) and relation.kind == "left"
    return above, relation if isinstance(relation, Join) and is_left else None


def _computed(
    join: Join, above: Sequence[Project | Filter]
) -> tuple[Mapping[str, exp.Expr], Sequence[exp.Expr]]:
    """What columns are, and the conditions, over the join's own columns."""
    values: dict[str, exp.Expr] = {name: column(name) for name in join.all_columns}
    conditions = []
    for operator in above:
        if isinstance(operator, Filter):
            conditions.append(substituted(operator.condition, values))
        else:
            passed = {name: values[name] for name in operator.key if name in values}
            values = {**passed, **{name: substituted(value, values) for name, value in operator.outputs}}
    return values, conditions


@dataclass(frozen=True)
class _Nulls:
    """Columns that are all NULL, and what follows from that."""

    names: frozenset[str]

    def say_nothing_of(self, value: exp.Expr) -> bool:
        """Whether a value does not depend on these columns."""
        return not columns_of(value) & self.names

    def are_passed_over(self, call: exp.Expr, values: Mapping[str, exp.Expr]) -> bool:
        """Whether an aggregate over columns with some values is what it is without the row of NULLs."""
        if isinstance(call, exp.Filter):
            within, inner = substituted(call.expression.this, values), call.this
            if self.are_never_true(within) or self._are_counted_as_none(inner, values):
                return True
            return self.say_nothing_of(within) and self.are_passed_over(inner, values)
        if isinstance(call, exp.CountIf):
            return self.are_never_true(substituted(call.this, values))
        if self._are_counted_as_none(call, values):
            return True
        # The same value once more changes neither of these.
        given = columns_of(call)
        return isinstance(call, (exp.Min, exp.Max)) and all(self.say_nothing_of(values[n]) for n in given)

    def _are_counted_as_none(self, call: exp.Expr, values: Mapping[str, exp.Expr]) -> bool:
        """Whether an aggregate has a NULL for an argument, and takes it for none."""
        if not isinstance(call, (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)):
            return False
        arguments = [each for each in (call.this, *call.expressions) if each is not None]
        return any(isinstance(each, exp.Column) and self.are_all_of(values[each.name]) for each in arguments)

    def are_all_of(self, value: exp.Expr) -> bool:
        """Whether it is clear that a value is NULL."""
        if isinstance(value, exp.Column):
            return value.name in self.names
        if isinstance(value, _STRICT):
            return self.are_all_of(value.left) or self.are_all_of(value.right)
        if isinstance(value, _STRICT_IN_THIS):
            return self.are_all_of(value.this)
        if isinstance(value, exp.Case) and value.this is None:
            other = value.args.get("default")
            branches = value.args["ifs"]
            return all(map(self._give_nothing, branches)) and (other is None or self.are_all_of(other))
        return isinstance(value, exp.Null)

    def _give_nothing(self, branch: exp.If) -> bool:
        return self.are_never_true(branch.this) or self.are_all_of(branch.args["true"])

    def are_never_true(self, condition: exp.Expr) -> bool:
        """Whether it is clear that a condition is false or NULL."""
        match condition:
            case exp.Paren():
                return self.are_never_true(condition.this)
            case exp.And():
                return self.are_never_true(condition.left) or self.are_never_true(condition.right)
            case exp.Or():
                return self.are_never_true(condition.left) and self.are_never_true(condition.right)
            case exp.Not(this=exp.Is(this=value, expression=exp.Null())):
                return self.are_all_of(value)
            case exp.Boolean():
                return not condition.this
        return self.are_all_of(condition)


__all__ = ["PADDED", "without_padding"]
