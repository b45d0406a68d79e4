"""Column lineage: the stored columns from which a column of a query is computed.

What only decides which rows there are (conditions, join keys, groups that are not shown) is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.algebra.relations import (
    Aggregate,
    Generate,
    Named,
    Opaque,
    Project,
    Query,
    Relation,
    Scan,
    Semi,
    UnionAll,
    Window,
    columns_of,
)


class Origin(NamedTuple):
    """A column of a table."""

    table: str
    column: str


Origins = frozenset[Origin]


def column_lineage(query: Query) -> dict[str, tuple[Origin, ...]]:
    """For each column that users see, where its values come from; nothing for constants."""
    found = _origins(query.relation)
    return {shown: tuple(sorted(found.get(name, Origins()))) for shown, name in query.outputs}


def _origins(relation: Relation) -> Mapping[str, Origins]:
    """For each column of a relation, where its values come from."""
    match relation:
        case Scan():
            return {name: Origins({Origin(relation.source, stored)}) for name, stored in relation.fields}
        case Project():
            below = _origins(relation.child)
            return {**below, **_computed(relation.outputs, below)}
        case Aggregate():
            below = _origins(relation.child)
            groups = {name: below.get(name, Origins()) for name in relation.groups}
            return {**groups, **_computed(relation.aggregates, below)}
        case Window():
            below = _origins(relation.child)
            return {**below, **_computed(relation.functions, below)}
        case Generate():
            below = _origins(relation.child)
            elements = _union(below, columns_of(relation.generator))
            return {**below, **dict.fromkeys(relation.outputs, elements)}
        case UnionAll():
            inputs = [(_origins(one), one.columns) for one in relation.inputs]
            return {
                name: Origins().union(*(found.get(columns[place], Origins()) for found, columns in inputs))
                for place, name in enumerate(relation.names)
            }
        case Semi():
            return _origins(relation.left)
        case Opaque():
            # Its SQL was not taken apart: each of its columns may come from any of its inputs'.
            everything = Origins().union(*(_union(_origins(one), one.columns) for one in relation.inputs))
            return dict.fromkeys(relation.names, everything)
        case _:
            return {name: found for child in relation.children for name, found in _origins(child).items()}


def _computed(outputs: Iterable[Named], below: Mapping[str, Origins]) -> dict[str, Origins]:
    return {name: _union(below, columns_of(expression)) for name, expression in outputs}


def _union(below: Mapping[str, Origins], names: Iterable[str]) -> Origins:
    return Origins().union(*(below.get(name, Origins()) for name in names))
