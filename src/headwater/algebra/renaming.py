"""Relations that are the same but for the names of their columns.

A query that is used twice, as a WITH clause or a view, is built twice under names of its own. Under names
that depend on nothing but the relation's form both are equal, and one stored result serves them.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Generate,
    Join,
    Named,
    Project,
    Relation,
    Scan,
    Semi,
    TopK,
    UnionAll,
    Values,
    Window,
    column,
)


def same_names(relation: Relation) -> Relation | None:
    """The relation with columns named by where they first appear; None if its names are part of a text.

    >>> from headwater.algebra.relations import Scan
    >>> one, other = (Scan("t", ((name, "a"),), ((f"{name}_id", "rowid"),)) for name in "xy")
    >>> one == other, same_names(one) == same_names(other)
    (False, True)
    """
    try:
        return _Renaming().relation(relation)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """An operator whose names cannot be changed."""


class _Renaming:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def relation(self, given: Relation) -> Relation:
        """The relation under the new names, from its leaves up."""
        node = given.with_children(tuple(self.relation(child) for child in given.children))
        match node:
            case Scan():
                return replace(
                    node, fields=self._stored(node.fields), key_fields=self._stored(node.key_fields)
                )
            case Values():
                ordinal = None if node.ordinal is None else self._name(node.ordinal)
                return replace(node, names=self._all(node.names), ordinal=ordinal)
            case Filter() | Semi():
                return replace(node, condition=self._value(node.condition))
            case Join():
                return (
                    node if node.condition is None else replace(node, condition=self._value(node.condition))
                )
            case Project():
                return replace(node, outputs=self._named(node.outputs))
            case Aggregate():
                groups = self._all(node.groups)
                return replace(node, groups=groups, aggregates=self._named(node.aggregates))
            case UnionAll():
                return replace(node, names=self._all(node.names), tag=self._name(node.tag))
            case Generate():
                made = self._value(node.generator)
                outputs, ordinal = self._all(node.outputs), self._name(node.ordinal)
                return replace(node, generator=made, outputs=outputs, ordinal=ordinal)
            case Window():
                partition = self._all(node.partition)
                return replace(node, partition=partition, functions=self._named(node.functions))
            case TopK():
                return replace(node, order=tuple(self._value(item) for item in node.order))
            case _:
                raise _UnknownError

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, f"_{len(self._names)}")

    def _all(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._name(name) for name in names)

    def _stored(self, fields: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((self._name(name), stored) for name, stored in fields)

    def _named(self, values: tuple[Named, ...]) -> tuple[Named, ...]:
        # What a value is made of comes first: it was there before the value had a name.
        made = [(name, self._value(value)) for name, value in values]
        return tuple((self._name(name), value) for name, value in made)

    def _value(self, value: exp.Expr) -> exp.Expr:
        def renamed(node: exp.Expr) -> exp.Expr:
            return column(self._name(node.name)) if isinstance(node, exp.Column) else node

        return value.copy().transform(renamed, copy=False)
