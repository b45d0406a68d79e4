"""Spark's time windows, as the expressions that they stand for.

    SELECT window.start, count(*) FROM t GROUP BY window(at, '10 minutes')

becomes a query that groups by the start of the window, computed from `at`; with a slide, each row is in
several windows, as if a LATERAL VIEW had made them. Spark plans windows the same way, but only where it sees
one of them and nothing in between; and other engines know none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from headwater.algebra.building.functions import own_nodes

_NAME = "window"
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=\s|$)", re.IGNORECASE)
#: How long before a row's time the window begins that it is in, where there are several.
_BEFORE = "_hw_before"


@dataclass(frozen=True)
class _Window:
    """One call: its time, and its measures in microseconds."""

    time: exp.Expr
    width: int
    slide: int
    first: int

    @property
    def start(self) -> exp.Expr:
        if self.width == self.slide:
            return _sql(f"_t - {self._since_start} * {_MICRO}", self.time)
        return _sql(f"_t - {_BEFORE} * {_MICRO}", self.time)

    @property
    def end(self) -> exp.Expr:
        return _sql(f"_t + {self.width} * {_MICRO}", exp.Paren(this=self.start))

    @property
    def before(self) -> exp.Expr:
        """How long before the time each of the windows begins that it is in."""
        return _sql(f"sequence({self._since_start}, {self.width - 1}, {self.slide})", self.time)

    @property
    def _since_start(self) -> str:
        return f"pmod(unix_micros(_t) - {self.first}, {self.slide})"


_MICRO = "INTERVAL '0.000001' SECOND"


def without_time_windows(tree: exp.Expr) -> exp.Expr:
    """The query with each `window` replaced; what Spark would not take is left for it to refuse."""
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() == "window_time" and len(call.expressions) == 1:
            made = exp.Dot(this=call.expressions[0].copy(), expression=exp.to_identifier("end", quoted=True))
            call.replace(exp.Paren(this=_sql(f"_t - {_MICRO}", made)))
    for select in list(tree.find_all(exp.Select)):
        calls = [node for node in _own(select) if _is_call(node)]
        windows = {call.sql(): _window(call) for call in calls}
        if len(windows) == 1 and (window := next(iter(windows.values()))) is not None:
            _replace(select, window)
    return tree


def window_without_rule(select: exp.Select) -> str | None:
    """Why a SELECT's windows are none that expressions stand for."""
    calls = [node for node in _own(select) if isinstance(node, exp.Anonymous)]
    if any(call.name.lower() == "session_window" for call in calls):
        return "A session window joins rows that are close to each other."
    if any(map(_is_call, calls)):
        return "A time window has other measures than constants, or there are several."
    return None


def _replace(select: exp.Select, window: _Window) -> None:
    """One SELECT over windows, as one over their starts."""
    called = {_NAME} | {each.alias.lower() for each in select.expressions if _is_call(each.unalias())}
    for node in select.expressions:
        if not isinstance(node, exp.Alias) and (_is_call(node) or _is_name(node)):
            node.replace(exp.alias_(node.copy(), _NAME))
        elif not isinstance(node, exp.Alias) and (part := _part(node)) is not None:
            node.replace(exp.alias_(node.copy(), part))
    group = select.args.get("group")
    for node in [] if group is None else list(group.expressions):
        if _is_call(node) or (
            isinstance(node, exp.Column) and not node.table and node.name.lower() in called
        ):
            node.replace(window.start)
    for node in list(_own(select)):
        part = _part(node)
        if part is not None:
            node.replace(exp.Paren(this=window.start if part == "start" else window.end))
        elif (_is_call(node) or _is_name(node)) and not isinstance(node.parent, exp.Dot):
            node.replace(_struct(window))
    select.where(exp.Not(this=exp.Is(this=window.time.copy(), expression=exp.Null())), copy=False)
    if window.width != window.slide:
        view = exp.Lateral(
            this=exp.Explode(this=window.before),
            view=True,
            alias=exp.TableAlias(this=exp.to_identifier("_hw_windows"), columns=[exp.to_identifier(_BEFORE)]),
        )
        select.append("laterals", view)


def _struct(window: _Window) -> exp.Expr:
    fields = (("start", window.start), ("end", window.end))
    return exp.Struct(
        expressions=[exp.PropertyEQ(this=exp.to_identifier(name), expression=value) for name, value in fields]
    )


def _part(node: exp.Expr) -> str | None:
    """`start` or `end` of the window: `window.start`, or that of the call itself."""
    name = ""
    if isinstance(node, exp.Column) and node.table.lower() == _NAME and not node.db:
        name = node.name.lower()
    elif isinstance(node, exp.Dot) and (_is_call(node.this) or _is_name(node.this)):
        name = node.expression.name.lower()
    return name if name in ("start", "end") else None


def _is_name(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table and node.name.lower() == _NAME


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == _NAME


def _own(select: exp.Select) -> Iterator[exp.Expr]:
    """What belongs to a SELECT itself, not to the queries inside it."""
    for child in select.iter_expressions():
        yield from own_nodes(child)


def _window(call: exp.Expr) -> _Window | None:
    """A call, if its measures are constants that make sense."""
    if not 2 <= len(call.expressions) <= 4:
        return None
    measures = [_microseconds(each) for each in call.expressions[1:]]
    width = measures[0]
    slide = measures[1] if len(measures) > 1 else width
    first = measures[2] if len(measures) > 2 else 0
    if width is None or slide is None or first is None or not 0 < slide <= width or abs(first) >= slide:
        return None
    # A date becomes the time at which it begins.
    time = exp.Paren(this=_sql("_t + INTERVAL '0' SECOND", call.expressions[0]))
    return _Window(time, width, slide, first)


def _microseconds(node: exp.Expr) -> int | None:
    """`10 minutes`, `1 hour 30 minutes`; Spark takes whole numbers for microseconds."""
    if not isinstance(node, exp.Literal):
        return None
    if not node.is_string:
        return int(node.name) if node.is_int else None
    text = re.sub(r"^\s*interval\b", "", node.name.strip(), flags=re.IGNORECASE)
    total, place = 0.0, 0
    while place < len(text.rstrip()):
        part = _PART.match(text, place)
        unit = None if part is None else _UNITS.get(part[2].lower())
        if part is None or unit is None:
            return None
        total += float(part[1]) * unit
        place = part.end()
    return round(total) if place else None


def _sql(template: str, time: exp.Expr) -> exp.Expr:
    made = sqlglot.parse_one(template, read="spark")
    return made.transform(
        lambda node: time.copy() if isinstance(node, exp.Column) and node.name == "_t" else node
    )


__all__ = ["window_without_rule", "without_time_windows"]
