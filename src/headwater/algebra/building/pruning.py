"""Leave out what no one reads: columns of tables, values, aggregates and windows."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Generate,
    Join,
    Opaque,
    Project,
    Relation,
    Scan,
    Semi,
    TopK,
    UnionAll,
    Values,
    Window,
    column,
    columns_of,
)


def prune(relation: Relation, needed: frozenset[str]) -> Relation:
    """The relation with no more columns than needed, as far as that is easy to do."""
    match relation:
        case Scan():
            return replace(relation, fields=tuple(one for one in relation.fields if one[0] in needed))
        case Values():
            return _values(relation, needed)
        case Filter():
            return replace(relation, child=prune(relation.child, needed | columns_of(relation.condition)))
        case Project():
            return _project(relation, needed)
        case Join() | Semi():
            wanted = needed if relation.condition is None else needed | columns_of(relation.condition)
            return replace(relation, left=prune(relation.left, wanted), right=prune(relation.right, wanted))
        case Aggregate():
            return _aggregate(relation, needed)
        case UnionAll():
            return _union(relation, needed)
        case Generate():
            return replace(relation, child=prune(relation.child, needed | columns_of(relation.generator)))
        case Window():
            return _window(relation, needed)
        case TopK():
            return replace(relation, child=prune(relation.child, needed | _all(relation.order)))
        case Opaque():
            inputs = tuple(prune(child, frozenset(child.columns)) for child in relation.inputs)
            return replace(relation, inputs=inputs)
        case _:
            return relation


def _all(values: tuple[exp.Expr, ...]) -> frozenset[str]:
    return frozenset(name for value in values for name in columns_of(value))


def _values(relation: Values, needed: frozenset[str]) -> Values:
    places = [place for place, name in enumerate(relation.names) if name in needed]
    rows = tuple(tuple(row[place] for place in places) for row in relation.rows)
    return replace(relation, names=tuple(relation.names[place] for place in places), rows=rows)


def _project(relation: Project, needed: frozenset[str]) -> Relation:
    outputs = tuple(one for one in relation.outputs if one[0] in needed)
    child = prune(relation.child, _all(tuple(value for _, value in outputs)))
    same = all(isinstance(value, exp.Column) and value.name == name for name, value in outputs)
    if same and tuple(name for name, _ in outputs) == child.columns:
        return child
    return Project(child, outputs)


def _aggregate(relation: Aggregate, needed: frozenset[str]) -> Relation:
    kept = tuple(one for one in relation.aggregates if one[0] in needed)
    if not kept and not relation.groups:
        kept = relation.aggregates[:1]
    inside = frozenset(relation.groups) | _all(tuple(call for _, call in kept))
    return replace(relation, child=prune(relation.child, inside), aggregates=kept)


def _union(relation: UnionAll, needed: frozenset[str]) -> Relation:
    places = [place for place, name in enumerate(relation.names) if name in needed]
    inputs = []
    for child in relation.inputs:
        wanted = tuple(child.columns[place] for place in places)
        pruned = prune(child, frozenset(wanted))
        # Columns are matched by position: say which, even if what is below comes to have more.
        if not isinstance(pruned, Project):
            pruned = Project(pruned, tuple((name, column(name)) for name in wanted))
        inputs.append(pruned)
    return replace(relation, inputs=tuple(inputs), names=tuple(relation.names[place] for place in places))


def _window(relation: Window, needed: frozenset[str]) -> Relation:
    kept = tuple(one for one in relation.functions if one[0] in needed)
    if not kept:
        return prune(relation.child, needed)
    inside = needed | frozenset(relation.partition) | _all(tuple(call for _, call in kept))
    return replace(relation, child=prune(relation.child, inside), functions=kept)
