"""GROUP BY and aggregate functions.

A projection computes group expressions and arguments, so that an aggregate speaks only of columns. Grouping
sets multiply each row by a list of set numbers and blank the keys that a set does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.algebra.building.correlation import keyed
from headwater.algebra.building.functions import (
    WRAPPERS,
    aggregates_in,
    function_name,
    is_aggregate,
    is_constant,
    own_nodes,
)
from headwater.algebra.building.resolving import bare, rebuilt
from headwater.algebra.relations import Aggregate, Join, Project, Values, column

if TYPE_CHECKING:
    from headwater.algebra.building.selects import Block

#: Parts of a call that hold arguments without being one.
_HOLDERS = (exp.Distinct, exp.Order, exp.Ordered, exp.Where, *WRAPPERS)
_SAME: dict[str, type[exp.Func]] = {
    "mean": exp.Avg,
    "std": exp.Stddev,
    "some": exp.LogicalOr,
    "every": exp.LogicalAnd,
}


def group(block: Block, clause: exp.Group | None, outputs: Sequence[exp.Expr]) -> None:
    """Group the block's relation; `outputs` are the expressions, as written, that see the groups."""
    calls = [call for output in outputs for call in aggregates_in(output)]
    found, sets = _grouping(block, clause)
    expressions, values = found.nodes, found.values
    names = [
        block.as_column(value, _wanted(block, node)) for node, value in zip(expressions, values, strict=True)
    ]
    made: list[tuple[str, exp.Expr]] = []
    for node in calls:
        block.replaced[id(node)] = column(_add(block, made, _call(block, node), node))
    keys: list[str] = []
    if block.correlated:
        keys, block.correlated = keyed(block, "A subquery with aggregates")
    block.flush()
    if sets is not None:
        names, more = _multiplied(block, names, sets, made, keys, outputs)
        keys = [*more, *keys]
    groups = tuple(dict.fromkeys([*names, *keys]))
    block.relation = Aggregate(block.relation, groups, tuple(made))
    block.groups = list(zip(values, names, strict=True))
    for node, name in zip(expressions, names, strict=True):
        for item in _items(block, node):
            block.replaced[id(item)] = column(name)
    block.group_names = tuple(names)
    block.correlation_keys = tuple(keys)
    block.calls = tuple(made)
    block.forget_aliases()


def normal_call(call: exp.Expr) -> exp.Expr:
    """Functions of several names under one of them."""
    if isinstance(call, exp.Any):
        return exp.LogicalOr(this=bare(call.this))
    if isinstance(call, exp.Anonymous) and function_name(call) in _SAME:
        return _SAME[function_name(call)](this=call.expressions[0])
    return call


def _call(block: Block, node: exp.Expr) -> exp.Expr:
    """The call of an aggregate over columns and constants."""

    def argument(part: exp.Expr) -> exp.Expr:
        if isinstance(part, _HOLDERS) or part is node:
            return normal_call(rebuilt(part, argument))
        if is_aggregate(part) and isinstance(part.parent, WRAPPERS):
            return normal_call(rebuilt(part, argument))
        if isinstance(part, (exp.Star, exp.Identifier, exp.Var, exp.DataType)):
            return part.copy()
        value = block.without_now(part)
        return value if is_constant(value) else column(block.as_column(value, "argument"))

    return argument(node)


def _add(block: Block, made: list[tuple[str, exp.Expr]], call: exp.Expr, node: exp.Expr) -> str:
    for name, known in made:
        if known == call:
            return name
    alias = node.parent.alias if isinstance(node.parent, exp.Alias) else ""
    inner = node
    while isinstance(inner, WRAPPERS):
        inner = inner.this
    name = block.context.names.fresh(alias or function_name(inner) or inner.key)
    made.append((name, call))
    return name


def _items(block: Block, node: exp.Expr) -> Iterator[exp.Expr]:
    """Items of the SELECT that are a group because of how they are written: by number, alias or text."""
    meant = node
    if isinstance(node, exp.Column) and not node.table and not block.knows(node):
        meant = block.aliases.get(node.name.lower(), node)
    for item in block.output_nodes():
        if item is meant or (item == meant and item.find(exp.Query) is not None):
            yield item


def _wanted(block: Block, node: exp.Expr) -> str:
    """A readable name for a group: the one that the SELECT list gives it."""
    for alias, item in block.aliases.items():
        if item == node:
            return alias
    return node.name if isinstance(node, exp.Column) else "grouped"


# -- the clause --------------------------------------------------------------------------------------


def _grouping(block: Block, clause: exp.Group | None) -> tuple[_Expressions, list[tuple[int, ...]] | None]:
    """The expressions to group by, and the grouping sets as positions in them, if there are any."""
    found = _Expressions(block)
    if clause is None:
        return found, None
    if clause.args.get("all"):
        for node in block.output_nodes():
            if not isinstance(node, exp.Literal) and next(aggregates_in(node), None) is None:
                found.place(node)
        return found, None
    several = (exp.Rollup, exp.Cube, exp.GroupingSets)
    plain = [node for node in clause.expressions if not isinstance(node, several)]
    clauses: list[list[tuple[int, ...]]] = []
    for node in clause.expressions:
        if isinstance(node, several):
            clauses.append(_sets(found, node))
        else:
            clauses.append([(found.place(node),)])
    after = [one for name in ("rollup", "cube", "grouping_sets") for one in clause.args.get(name) or ()]
    if after:
        kind = after[0]
        if isinstance(kind, exp.GroupingSets):
            clauses = [_sets(found, kind)]
        else:
            places = [(found.place(node),) for node in plain]
            clauses = [_rolled(places) if isinstance(kind, exp.Rollup) else _cubed(places)]
    elif len(plain) == len(clause.expressions):
        return found, None
    sets = [tuple(dict.fromkeys(place for part in chosen for place in part)) for chosen in product(*clauses)]
    return found, sets


class _Expressions:
    """The distinct expressions of a GROUP BY, in order."""

    def __init__(self, block: Block):
        self.nodes: list[exp.Expr] = []
        self._block = block
        self.values: list[exp.Expr] = []

    def place(self, node: exp.Expr) -> int:
        """The position of an expression; numbers mean items of the SELECT."""
        node = self._block.by_number(node, "GROUP BY")
        value = bare(self._block.without_now(node))
        for place, known in enumerate(self.values):
            if known == value:
                return place
        self.nodes.append(node)
        self.values.append(value)
        return len(self.nodes) - 1


def _sets(found: _Expressions, node: exp.Expr) -> list[tuple[int, ...]]:
    if isinstance(node, exp.GroupingSets):
        sets: list[tuple[int, ...]] = []
        for part in node.expressions:
            nested = isinstance(part, (exp.Rollup, exp.Cube, exp.GroupingSets))
            sets += _sets(found, part) if nested else [_places(found, part)]
        return sets
    parts = [_places(found, part) for part in node.expressions]
    return _rolled(parts) if isinstance(node, exp.Rollup) else _cubed(parts)


def _places(found: _Expressions, node: exp.Expr) -> tuple[int, ...]:
    parts = node.expressions if isinstance(node, exp.Tuple) else [bare(node)]
    return tuple(found.place(part) for part in parts)


def _rolled(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [_joined(parts[:count]) for count in range(len(parts), -1, -1)]


def _cubed(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    counts = range(len(parts), -1, -1)
    return [_joined(chosen) for count in counts for chosen in combinations(parts, count)]


def _joined(parts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(place for part in parts for place in part)


# -- grouping sets -----------------------------------------------------------------------------------


def _multiplied(
    block: Block,
    names: list[str],
    sets: Sequence[tuple[int, ...]],
    made: Sequence[tuple[str, exp.Expr]],
    keys: Sequence[str],
    outputs: Sequence[exp.Expr],
) -> tuple[list[str], list[str]]:
    """Each row once for each set, without the keys that are not in it. Gives the keys' and sets' columns.

    A set's number has a bit for each key, the first one the highest, that is 1 if the set lacks the key.
    """
    fresh = block.context.names.fresh
    numbers = [_number(one, len(names)) for one in sets]
    identity, position = fresh("grouping_id"), fresh("position")
    repeated = len(set(numbers)) < len(numbers)
    rows = tuple(
        tuple(exp.Literal.number(n) for n in ((number, place) if repeated else (number,)))
        for place, number in enumerate(numbers)
    )
    columns = (identity, position) if repeated else (identity,)
    choices = Values(columns, rows, fresh("ordinal") if len(rows) > 1 else None)
    block.relation = Join("inner", block.relation, choices)
    kept: list[tuple[str, exp.Expr]] = [(name, column(name)) for name in block.relation.columns]
    blanked = []
    for place, name in enumerate(names):
        having = sorted({number for number, one in zip(numbers, sets, strict=True) if place in one})
        test: exp.Expr = exp.In(
            this=column(identity), expressions=[exp.Literal.number(number) for number in having]
        )
        if not having:
            test = exp.false()
        blanked.append(fresh(name))
        kept.append((blanked[-1], exp.Case().when(test, column(name)).else_(exp.null())))
    block.relation = Project(block.relation, tuple(kept))
    for output in outputs:
        for node in own_nodes(output):
            if isinstance(node, (exp.Grouping, exp.GroupingId)):
                block.replaced[id(node)] = _of_identity(block, node, identity, names)
            elif isinstance(node, exp.Column) and node.name.lower() == "grouping__id":
                block.replaced[id(node)] = column(identity)
    return blanked, list(columns)


def _number(places: tuple[int, ...], count: int) -> int:
    return sum(1 << (count - 1 - place) for place in range(count) if place not in places)


def _of_identity(block: Block, node: exp.Expr, identity: str, names: Sequence[str]) -> exp.Expr:
    """grouping(a) is one bit of the set's number; grouping_id(…) is some bits, or all."""
    if isinstance(node, exp.GroupingId) and not node.expressions:
        return exp.cast(column(identity), "bigint")
    whole: exp.Expr | None = None
    for argument in node.expressions:
        name = block.as_column(bare(block.without_now(argument)), "grouped")
        if name not in names:
            raise block.context.error(argument, "The argument of grouping() is not in GROUP BY.")
        bit = _bit(identity, len(names) - 1 - names.index(name))
        doubled = None if whole is None else exp.Mul(this=whole, expression=exp.Literal.number(2))
        whole = bit if doubled is None else exp.Paren(this=exp.Add(this=doubled, expression=bit))
    if whole is None:
        raise block.context.error(node, "grouping() needs a column of GROUP BY.")
    return exp.cast(whole, "tinyint" if isinstance(node, exp.Grouping) else "bigint")


def _bit(identity: str, place: int) -> exp.Expr:
    """One bit of a number, in arithmetic that every dialect has."""
    shifted: exp.Expr = column(identity)
    if place:
        power = exp.Literal.number(1 << place)
        shifted = exp.Paren(this=exp.Floor(this=exp.Div(this=shifted, expression=power)))
    return exp.Paren(this=exp.Mod(this=shifted, expression=exp.Literal.number(2)))


def output_aggregates(outputs: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Calls of aggregate functions in expressions."""
    for output in outputs:
        yield from aggregates_in(output)
