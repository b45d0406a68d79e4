"""Aggregate functions that can be kept up to date by adding and subtracting, and what must be kept for them.

An aggregate over exact numbers is a function of sums: its group's new value is the old sums plus the sums of
what came minus the sums of what went. Sums of floating-point numbers depend on the order of addition, so they
and everything that is no sum (min, percentile, collect_list, DISTINCT) are computed again for the groups that
changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from headwater.algebra.relations import WEIGHT, Named, column

#: Stored in every aggregate: how many rows a group has.
ROWS = "_hw_rows"

#: Sums of decimals of more digits have 38, which a division leaves with fewer places than an average has.
_DIVISIBLE = 24


@dataclass(frozen=True)
class State:
    """A sum that is kept: what it adds up over rows, and over weighted rows."""

    name: str
    #: The aggregate that gives it from nothing.
    initial: exp.Expr
    #: The aggregate over a delta that has to be added to it.
    change: exp.Expr
    #: The state that counts its values: where there are none it is NULL, as a sum of nothing is.
    counted_by: str | None = None


@dataclass(frozen=True)
class Accumulator:
    """An aggregate as sums: the states it needs, and its value as an expression over them."""

    states: tuple[State, ...]
    value: exp.Expr


@dataclass(frozen=True)
class Extremum:
    """A smallest or largest value: rows that come move it, rows that go do not unless it goes itself."""

    #: Where it is stored, which is also its value.
    name: str
    initial: exp.Expr
    largest: bool
    #: The value among rows that came, and among rows that went.
    came: exp.Expr
    went: exp.Expr

    def moved(self, old: exp.Expr, came: exp.Expr) -> exp.Expr:
        """The new value; NULLs do not count."""
        kind = exp.Greatest if self.largest else exp.Least
        return kind(this=old, expressions=[came], ignore_nulls=True)

    def gone(self, old: exp.Expr, went: exp.Expr) -> exp.Expr:
        """Whether the value itself may have gone."""
        beyond = (exp.LT if self.largest else exp.GT)(this=went.copy(), expression=old)
        inside = exp.Not(this=exp.Coalesce(this=exp.paren(beyond), expressions=[exp.false()]))
        return exp.and_(exp.Not(this=exp.Is(this=went, expression=exp.null())), inside)


def extremum(name: str, call: exp.Expr) -> Extremum | None:
    """How to keep a MIN or MAX, or None if the aggregate is something else."""
    given, condition = call, None
    if isinstance(call, exp.Filter):
        condition, call = call.expression.this, call.this
    if not isinstance(call, (exp.Min, exp.Max)) or not isinstance(call.this, exp.Column):
        return None

    def over(kind: type[exp.Expr]) -> exp.Expr:
        signed = kind(this=column(WEIGHT), expression=exp.Literal.number(0))
        return type(call)(this=_case(exp.and_(*_given(condition), signed), call.this.copy()))

    return Extremum(f"_hw_{name}_most", given.copy(), isinstance(call, exp.Max), over(exp.GT), over(exp.LT))


def rows_state() -> State:
    """How many rows a group has."""
    return State(ROWS, exp.Count(this=exp.Star()), exp.Sum(this=column(WEIGHT)))


def accumulator(name: str, call: exp.Expr, types: Mapping[str, str]) -> Accumulator | None:
    """How to keep an aggregate by sums, or None if that cannot be done exactly.

    `name` is the aggregate's own name, from which those of its states are made; `types` has the Spark types
    of the columns it is computed from.
    """
    condition = None
    if isinstance(call, exp.Filter):
        condition, call = call.expression.this, call.this
    if isinstance(call, exp.CountIf):
        return _counted(name, exp.and_(*_given(condition), call.this.copy()))
    if isinstance(call, exp.Count):
        return _count(name, call, condition)
    if isinstance(call, (exp.Sum, exp.Avg)) and isinstance(call.this, exp.Column):
        return _sum(name, call, condition, types.get(call.this.name, ""))
    return None


def _count(name: str, call: exp.Count, condition: exp.Expr | None) -> Accumulator | None:
    arguments = [call.this, *call.expressions]
    if any(isinstance(argument, exp.Distinct) for argument in arguments):
        return None
    given = [a for a in arguments if a is not None and not isinstance(a, (exp.Star, exp.Literal))]
    if not given and condition is None:
        return Accumulator((), column(ROWS))
    present = [exp.Not(this=exp.Is(this=a.copy(), expression=exp.null())) for a in given]
    return _counted(name, exp.and_(*_given(condition), *present))


def _counted(name: str, condition: exp.Expr) -> Accumulator:
    """How many rows meet a condition."""
    state = State(
        f"_hw_{name}_count",
        exp.Count(this=_case(condition, exp.Literal.number(1)), big_int=True),
        exp.Sum(this=_case(condition, column(WEIGHT), exp.Literal.number(0))),
    )
    return Accumulator((state,), column(state.name))


def _sum(
    name: str, call: exp.Sum | exp.Avg, condition: exp.Expr | None, type_text: str
) -> Accumulator | None:
    kind = type_text.lower()
    whole = kind in ("tinyint", "smallint", "int", "bigint", "byte", "short", "integer", "long")
    if not whole and not kind.startswith("decimal"):
        return None
    value: exp.Expr = call.this.copy()
    averaged = isinstance(call, exp.Avg)
    if averaged and not whole and _digits(kind)[0] > _DIVISIBLE:
        return None
    if averaged and whole:
        # Spark adds whole numbers up as doubles for an average; exact sums give the same and never drift.
        value = exp.cast(value, "decimal(20, 0)")
    if condition is not None:
        value = _case(condition, value)
    count = _counted(name, exp.Not(this=exp.Is(this=value.copy(), expression=exp.null())))
    going = exp.LT(this=column(WEIGHT), expression=exp.Literal.number(0))
    total = State(
        f"_hw_{name}_sum",
        exp.Sum(this=value.copy()),
        exp.Sum(this=_case(going, exp.Neg(this=exp.paren(value.copy())), value.copy())),
        counted_by=count.states[0].name,
    )
    rows, added = count.value, column(total.name)
    if not averaged:
        result: exp.Expr = added
    elif whole:
        result = exp.Div(this=exp.cast(added, "double"), expression=rows.copy())
    else:
        result = exp.cast(exp.Div(this=added, expression=rows.copy()), _average_type(kind))
    none = exp.EQ(this=rows.copy(), expression=exp.Literal.number(0))
    return Accumulator((*count.states, total), exp.Case().when(none, exp.null()).else_(result))


def _average_type(decimal: str) -> str:
    """Spark's type for the average of a decimal type."""
    precision, scale = _digits(decimal)
    return f"decimal({min(38, precision + 4)}, {min(38, scale + 4)})"


def _digits(decimal: str) -> tuple[int, int]:
    """Precision and scale of a decimal type."""
    found = re.match(r"decimal\((\d+),\s*(\d+)\)", decimal)
    return (int(found[1]), int(found[2])) if found else (10, 0)


def _given(condition: exp.Expr | None) -> list[exp.Expr]:
    return [] if condition is None else [condition.copy()]


def _case(condition: exp.Expr, value: exp.Expr, otherwise: exp.Expr | None = None) -> exp.Expr:
    case = exp.Case().when(condition.copy(), value)
    return case if otherwise is None else case.else_(otherwise)


def states_of(accumulators: Mapping[str, Accumulator]) -> tuple[tuple[State, ...], dict[str, exp.Expr]]:
    """All states that some aggregates need, the number of rows first, and the aggregates' values over them.

    Aggregates of the same values share what they have in common: a sum and an average need one sum.
    """
    found = {ROWS: rows_state()}
    same: dict[str, str] = {}
    values: dict[str, exp.Expr] = {}
    for name, each in accumulators.items():
        renamed: dict[str, str] = {}
        for state in each.states:
            renamed[state.name] = same.setdefault(state.initial.sql(), state.name)
            found.setdefault(renamed[state.name], state)
        values[name] = each.value.copy().transform(_renamed, renamed)
    return tuple(found.values()), values


def _renamed(node: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    return column(names[node.name]) if isinstance(node, exp.Column) and node.name in names else node


def initial(states: tuple[State, ...]) -> tuple[Named, ...]:
    """The aggregates that give the states from nothing."""
    return tuple((state.name, state.initial) for state in states)


def change(states: tuple[State, ...]) -> tuple[Named, ...]:
    """The aggregates over a delta that have to be added to the states."""
    return tuple((state.name, state.change) for state in states)
