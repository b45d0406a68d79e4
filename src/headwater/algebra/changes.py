"""What the changes of its inputs mean for a stage's stored rows, as one relation.

Two shapes come out. *Signed*: rows that came and went, each with its weight, of stages that store plain rows.
*Paired*: for each affected key the row as it is now beside the row as it was stored, of everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from headwater.algebra.accumulators import ROWS, change
from headwater.algebra.relations import (
    Aggregate,
    Concat,
    Filter,
    Generate,
    Join,
    Named,
    Net,
    Project,
    Relation,
    Scan,
    Semi,
    Side,
    UnionAll,
    Values,
    Window,
    column,
)
from headwater.algebra.rules.context import Context, Keys, all_of, keys_of, restrict, speaks_of_now
from headwater.algebra.rules.delta import delta
from headwater.algebra.stages import First, Stage, Stored

#: Prefix of a stored row's columns as they were.
OLD = "_hw_old_"
#: Whether the row exists now, and whether it was stored before.
IS, WAS = "_hw_is", "_hw_was"
#: Where a stored row is: the number of a file, a position in it, the row's id. Its reader gives them.
PLACE = ("_hw_file", "_hw_position", "_hw_row")
#: Marks groups whose smallest or largest value may have gone; and what their keys are read as.
IN_DOUBT, DOUBTFUL = "_hw_in_doubt", "@doubtful"
_IS_NEW, _PLACE, _LAST = "_hw_new", "_hw_place", "_hw_last"


@dataclass(frozen=True)
class Changes:
    """The changes of a stage's stored rows. Columns have stored names."""

    shape: Literal["signed", "paired"]
    relation: Relation


def changes(
    stage: Stage,
    changed: Iterable[str],
    *,
    time_moved: bool = False,
    full: bool = False,
    only_came: bool = False,
    few: bool = True,
) -> Changes | None:
    """What to do to a stage's rows when some of its inputs changed; None: nothing.

    With `full` everything is computed from the inputs as they are now, and compared with what is stored.
    With `only_came` the changed inputs lost no row, so that where nothing can go nothing is looked for.
    With `few` groups whose smallest or largest value may have gone are only marked (`IN_DOUBT`), and are to
    be computed by `regrouped` afterwards; otherwise all affected groups are computed at once.
    """
    sources = frozenset(changed)
    context = Context(
        sources, time_moved, lambda relation, _: delta(relation, sources, time_moved=time_moved)
    )
    if not full and not context.touched(stage.relation):
        return None
    if full or stage.strategy == "anew":
        return Changes("paired", _difference(stage, computed(stage), None))
    if stage.strategy == "rows":
        moved = context.of(stage.relation)
        if moved is None:
            return None
        grows = only_came and not time_moved and _monotone(stage.relation)
        return Changes("signed", _signed(stage, moved, grows))
    if stage.child is None:
        raise ValueError(f"stage {stage.source} aggregates nothing")
    moved = context.of(stage.child)
    if moved is None:
        return None
    if stage.first is not None:
        return Changes("paired", _first_again(stage, stage.first, moved))
    if stage.strategy == "sums" or (stage.strategy == "extrema" and few):
        return Changes("paired", _added(stage, moved))
    if not stage.groups:
        return Changes("paired", _difference(stage, computed(stage), None))
    return Changes("paired", _regrouped(stage, keys_of([(moved, [column(name) for name in stage.groups])])))


def regrouped(stage: Stage) -> Changes:
    """The changes of the groups whose stored key is in the relation `DOUBTFUL`, computed again."""
    if not stage.groups:
        return Changes("paired", _difference(stage, computed(stage), None))
    names = tuple(f"_hw_key_{number}" for number in range(len(stage.key)))
    given = tuple(zip(names, stage.key, strict=True))
    return Changes("paired", _regrouped(stage, Keys(Scan(DOUBTFUL, given, (), "new"), names)))


def computed(stage: Stage) -> Relation:
    """A stage's rows from its inputs as they are now, under their stored names."""
    return _renamed(stage, stage.relation)


def _signed(stage: Stage, moved: Relation, only_came: bool) -> Relation:
    """Net rows with their weights, each with the place of the stored row of its key."""
    rows = Net(_renamed(stage, moved))
    own = tuple((name, column(name)) for name in _names(stage))
    if only_came:
        nowhere = tuple((name, exp.cast(exp.null(), "bigint")) for name in PLACE)
        return Project(rows, (*own, *nowhere))
    stored = placed(stage, only=stage.key)
    joined = Join("left", rows, stored, _same(stage.key, (OLD + name for name in stage.key)))
    return Project(joined, (*own, *((name, column(name)) for name in PLACE)))


def _monotone(relation: Relation) -> bool:
    """Whether rows that come into its inputs can only let rows come."""
    kinds = (Scan, Values, Filter, Project, Generate, UnionAll)
    inner = isinstance(relation, Join) and relation.kind == "inner"
    return (inner or isinstance(relation, kinds)) and all(map(_monotone, relation.children))


def _added(stage: Stage, moved: Relation) -> Relation:
    """Old sums and the sums of the delta, added up; smallest and largest values moved."""
    calls = [(f"_hw_d_{name}", call) for name, call in change(stage.states)]
    for each in stage.extrema:
        calls += [(f"_hw_came_{each.name}", each.came), (f"_hw_went_{each.name}", each.went)]
    sums = Aggregate(moved, stage.groups, tuple(calls))
    stored = placed(stage)
    on = _same(stage.groups, (OLD + name for name in stage.key))
    joined = Join("left", sums, stored, on, small="right" if not stage.groups else None)
    added: list[Named] = [(name, column(name)) for name in stage.groups]
    for state in stage.states:
        total = _total(state.name)
        if state.counted_by is not None:
            none = exp.EQ(this=_total(state.counted_by), expression=exp.Literal.number(0))
            total = exp.Case().when(none, exp.null()).else_(total)
        added.append((state.name, exp.cast(total, stage.types[state.name], dialect="spark")))
    doubts: list[exp.Expr] = []
    for each in stage.extrema:
        old = column(OLD + each.name)
        added.append((each.name, each.moved(old, column(f"_hw_came_{each.name}"))))
        doubts.append(each.gone(old.copy(), column(f"_hw_went_{each.name}")))
    doubt: tuple[Named, ...] = ((IN_DOUBT, exp.or_(*doubts)),) if doubts else ()
    now = Project(joined, (*added, *doubt, *_kept(stored)))
    exists = exp.GT(this=column(ROWS), expression=exp.Literal.number(0)) if stage.groups else exp.true()
    if doubts:
        # A group without rows has no smallest value to look for.
        doubt = ((IN_DOUBT, exp.and_(column(IN_DOUBT), exists.copy())),)
    outputs = _outputs(stage)
    paired = Project(now, (*outputs, *doubt, *_kept(stored), (IS, exists), (WAS, _was())))
    if any(speaks_of_now(value) for _, value in outputs):
        return _only_changed(stage, paired, _names(stage))
    # What else is stored follows from these.
    kept = [state.name for state in stage.states]
    return _only_changed(stage, paired, [*kept, *(extremum.name for extremum in stage.extrema)])


def _total(state: str) -> exp.Expr:
    """What a state was and what is added to it."""
    parts = (
        exp.Coalesce(this=column(name), expressions=[exp.Literal.number(0)])
        for name in (OLD + state, f"_hw_d_{state}")
    )
    return exp.paren(exp.Add(this=next(parts), expression=next(parts)))


def _regrouped(stage: Stage, keys: Keys) -> Relation:
    """The groups of some keys, computed again."""
    values = [column(name) for name in stage.groups]
    outer = stage.relation
    if not isinstance(outer, Project) or not isinstance(outer.child, Aggregate) or stage.child is None:
        raise ValueError(f"stage {stage.source} is not a projection of an aggregate")
    again = outer.with_children((outer.child.with_children((restrict(stage.child, keys, values),)),))
    stored = restrict(placed(stage), keys, [column(OLD + name) for name in stage.key])
    return _difference(stage, _renamed(stage, again), stored)


def _first_again(stage: Stage, first: First, moved: Relation) -> Relation:
    """The first rows of those that are stored still, and of those that came before the last of them.

    What came after the last of them may have others before it that are not stored. Too few rows are left by
    this if more went than are stored beyond need: then everything has to be read again (`First.needed`).
    """
    rows = Net(moved)
    stored = Scan(stage.source, tuple((name, name) for name in moved.columns), _own(stage.key), "old")
    names = tuple(f"_hw_gone_{name}" for name in stage.key)
    taken = tuple((name, column(key)) for name, key in zip(names, stage.key, strict=True))
    gone = Stored(Side(rows, came=False), taken, names)
    same = _same(stage.key, names)
    kept = Semi(stored, gone, same, anti=True, small=True)
    parts = [
        Stored(part, (*_kept(part), (_IS_NEW, exp.Literal.number(new))), stage.key)
        for part, new in ((kept, 0), (Side(rows, came=True), 1))
    ]
    whole = Concat(tuple(parts))
    old = exp.EQ(this=column(_IS_NEW), expression=exp.Literal.number(0))
    ranked = Window(whole, (), ((_PLACE, first.rank(whole)),))
    last = exp.Window(this=exp.Max(this=exp.Case().when(old, column(_PLACE))))
    bounded = Window(ranked, (), ((_LAST, last),))
    before = exp.LTE(this=column(_PLACE), expression=column(_LAST))
    within = exp.LTE(this=column(_PLACE), expression=exp.Literal.number(first.buffer))
    chosen = Stored(Filter(bounded, exp.and_(before, within)), _kept(moved), stage.key)
    return _difference(stage, first.stored(chosen), None)


def _own(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


def _difference(stage: Stage, now: Relation, stored: Relation | None) -> Relation:
    """Rows as they are now beside rows as they are stored, where the two differ."""
    marked = Project(now, (*((name, column(name)) for name in now.columns), ("_hw_is_now", exp.true())))
    stored = stored or placed(stage)
    on = _same(stage.key, (OLD + name for name in stage.key))
    joined = Join("full", marked, stored, on)
    outputs = tuple((name, column(name)) for name in _names(stage))
    exists = exp.Coalesce(this=column("_hw_is_now"), expressions=[exp.false()])
    paired = Project(joined, (*outputs, *_kept(stored), (IS, exists), (WAS, _was())))
    return _only_changed(stage, paired, _names(stage))


def placed(stage: Stage, only: Sequence[str] | None = None) -> Scan:
    """The stored rows with their places."""
    scan = stage.stored("old", OLD)
    wanted = [OLD + name for name in only] if only is not None else scan.columns
    fields = tuple(pair for pair in scan.fields if pair[0] in wanted)
    return Scan(scan.source, (*fields, *((name, name) for name in PLACE)), (), "old")


def _renamed(stage: Stage, relation: Relation) -> Relation:
    """A relation's rows under their stored names; names below are free of them."""
    return Stored(relation, tuple((stored, column(name)) for stored, name in stage.fields), stage.key)


def _outputs(stage: Stage) -> tuple[Named, ...]:
    """What an aggregate stores, over groups and states."""
    if not isinstance(stage.relation, Project):
        raise ValueError(f"stage {stage.source} is not a projection of an aggregate")
    return stage.relation.outputs


def _kept(stored: Relation) -> tuple[Named, ...]:
    return tuple((name, column(name)) for name in stored.columns)


def _names(stage: Stage) -> tuple[str, ...]:
    return tuple(name for name, _ in stage.fields)


def _was() -> exp.Expr:
    return exp.Not(this=exp.Is(this=column(PLACE[2]), expression=exp.null()))


def _same(left: Iterable[str], right: Iterable[str]) -> exp.Expr:
    """Equal values, NULLs included."""
    return all_of(
        exp.NullSafeEQ(this=column(a), expression=column(b)) for a, b in zip(left, right, strict=True)
    )


def _only_changed(stage: Stage, paired: Relation, names: Iterable[str]) -> Relation:
    """Without rows that are what they were, told by some columns, and without groups that came and went."""
    same = all_of(
        exp.NullSafeEQ(this=_comparable(stage, name), expression=_comparable(stage, name, OLD))
        for name in names
    )
    both = exp.and_(column(IS), column(WAS))
    either = exp.or_(column(IS), column(WAS))
    differs: exp.Expr = exp.not_(exp.paren(exp.and_(both, same)))
    if IN_DOUBT in paired.columns:
        differs = exp.or_(column(IN_DOUBT), differs)
    return Filter(paired, exp.and_(exp.paren(either), exp.paren(differs)))


def _comparable(stage: Stage, name: str, prefix: str = "") -> exp.Expr:
    """A column as something that has an equality: Spark's maps have none."""
    value = column(prefix + name)
    if "map<" not in stage.types.get(name, ""):
        return value
    return exp.Anonymous(this="to_json", expressions=[value])


__all__ = [
    "DOUBTFUL",
    "IN_DOUBT",
    "IS",
    "OLD",
    "PLACE",
    "WAS",
    "Changes",
    "changes",
    "computed",
    "placed",
    "regrouped",
]
