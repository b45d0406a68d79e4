"""The result of a program from its sources alone, as one relation that Spark can optimise as a whole.

What other stages store is computed in its place. Three things that following changes needs are left out of
it, since Spark does not find out by itself that they change nothing: row ids that nobody asks for, which have
to be read; groups of EXISTS' partners; and joins where a condition says the same (`Renderer.subqueries`).
Joins are put in an order in which conditions lead from one table to the next: Spark does that for tables, but
not for subqueries that also give row ids, and would form all pairs of tables that a FROM lists side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from sqlglot import exp

from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Generate,
    Join,
    Project,
    Relation,
    Scan,
    Semi,
    column,
    columns_of,
)
from headwater.algebra.rules.context import is_inner
from headwater.algebra.rules.join import along_conditions, flatten
from headwater.algebra.stages import Program, Stage, Stored


def alone(program: Program) -> Stage:
    """The stage users see, over the sources."""
    below: dict[str, Stage] = {}
    for stage in program.stages:
        child = None if stage.child is None else _inlined(stage.child, below)
        below[stage.source] = replace(stage, relation=_inlined(stage.relation, below), child=child)
    return below[program.result.source]


def as_a_whole(relation: Relation) -> Relation:
    """A relation over sources as Spark computes all of it best."""
    return _along_conditions(_without_idle_keys(relation))


def _without_idle_keys(relation: Relation) -> Relation:
    """Without row ids that only make rows of aggregates' inputs, or of EXISTS' partners, distinct."""
    named = frozenset(name for node in relation.walk() for name in _names(node))
    return _without_keys(relation, named, idle=False)


def _along_conditions(relation: Relation) -> Relation:
    """With inner joins in an order in which conditions connect them; the same columns, the same key."""
    if not is_inner(relation):
        return relation.with_children(tuple(map(_along_conditions, relation.children)))
    inputs, conditions = flatten(relation)
    joined = along_conditions([_along_conditions(each) for each in inputs], conditions)
    return Stored(joined, tuple((name, column(name)) for name in relation.columns), relation.key)


def _inlined(relation: Relation, stages: Mapping[str, Stage]) -> Relation:
    """The relation with the stages it reads in the places of their scans."""
    if isinstance(relation, Scan) and relation.source in stages:
        return _rows(relation, stages[relation.source])
    children = [_inlined(child, stages) for child in relation.children]
    if isinstance(relation, Semi) and isinstance(relation.right, Scan):
        partners = _partners(relation.right, stages.get(relation.right.source))
        children[1] = children[1] if partners is None else partners
    return relation.with_children(tuple(children))


def _rows(scan: Scan, stage: Stage) -> Relation:
    """What a scan of a stage reads."""
    inner = dict(stage.fields)
    named = dict((*scan.fields, *scan.key_fields))
    outputs = tuple((name, column(inner[stored])) for name, stored in named.items())
    rows = Stored(stage.relation, outputs, scan.key)
    return Project(rows, tuple((name, column(name)) for name in scan.columns))


def _partners(scan: Scan, stage: Stage | None) -> Relation | None:
    """What groups are made of, where it only matters which there are."""
    if stage is None or stage.child is None or not stage.groups:
        return None
    groups = dict(zip(stage.key, stage.groups, strict=True))
    if not all(stored in groups for _, stored in scan.fields):
        return None
    return Project(stage.child, tuple((name, column(groups[stored])) for name, stored in scan.fields))


def _without_keys(node: Relation, named: frozenset[str], *, idle: bool) -> Relation:
    match node:
        case Scan():
            # Something has to be selected.
            idle = idle and bool(node.fields)
            kept = tuple(pair for pair in node.key_fields if not idle or pair[0] in named)
            return replace(node, key_fields=kept)
        case Aggregate() | Stored():
            below = [True]
        case Semi():
            below = [idle, True]
        case Filter() | Project() | Generate():
            below = [idle and bool(node.columns)]
        case Join() if node.kind != "full":
            below = [idle, idle]
        case _:  # keys order rows, or tell copies apart
            below = [False] * len(node.children)
    pairs = zip(node.children, below, strict=True)
    return node.with_children(tuple(_without_keys(child, named, idle=each) for child, each in pairs))


def _names(node: Relation) -> Iterator[str]:
    """All names that an operator speaks of, but for the keys that a scan offers."""
    for each in fields(node):
        if each.name != "key_fields":
            yield from _said(getattr(node, each.name))


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, exp.Expr):
        yield from columns_of(value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _said(each)


__all__ = ["alone", "as_a_whole"]
