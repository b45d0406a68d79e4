"""What a name means in a place of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.algebra.relations import Relation

if TYPE_CHECKING:
    from headwater.algebra.building.resolving import Resolver


@dataclass(frozen=True)
class Visible:
    """A column that can be named: its name, and what it is called inside the algebra."""

    name: str
    internal: str
    #: The table's alias, or the parts of its name.
    qualifier: tuple[str, ...] = ()
    type: str | None = None
    #: Whether the name alone finds it: not the columns that USING made one of.
    by_name: bool = True
    #: Whether `*` shows it.
    by_star: bool = True


class AmbiguousError(Exception):
    """A name that more than one column has."""

    def __init__(self, found: tuple[Visible, ...]):
        super().__init__()
        self.found = found


@dataclass(frozen=True)
class Scope:
    """The columns that can be named, in the order of `*`."""

    columns: tuple[Visible, ...] = ()

    def find(self, parts: tuple[str, ...]) -> tuple[Visible, int] | None:
        """The column that a dotted name means, and how many of its parts; the rest are fields."""
        for taken in range(min(len(parts), 4), 0, -1):
            qualifier, name = parts[: taken - 1], parts[taken - 1]
            found = [one for one in self._named(name) if _fits(one, qualifier)]
            distinct = {one.internal: one for one in found}
            if len(distinct) > 1:
                raise AmbiguousError(tuple(found))
            if found:
                return found[0], taken
        return None

    def _named(self, name: str) -> list[Visible]:
        wanted = name.lower()
        return [one for one in self.columns if one.name.lower() == wanted]

    def star(self, qualifier: tuple[str, ...] = ()) -> list[Visible]:
        """What `*`, or `t.*`, shows."""
        if not qualifier:
            return [one for one in self.columns if one.by_star]
        return [one for one in self.columns if one.qualifier and _qualified(one, qualifier)]

    def aliased(self, alias: str, names: Iterable[str] | None = None) -> Scope:
        """The same columns as those of a table with that name, and with other names if given."""
        shown = self.star()
        called = list(names) if names is not None else [one.name for one in shown]
        columns = [
            replace(one, name=name, qualifier=(alias,), by_name=True, by_star=True)
            for one, name in zip(shown, called, strict=True)
        ]
        return Scope(tuple(columns))

    def __add__(self, other: Scope) -> Scope:
        return Scope(self.columns + other.columns)


def _fits(column: Visible, qualifier: tuple[str, ...]) -> bool:
    return _qualified(column, qualifier) if qualifier else column.by_name


def _qualified(column: Visible, qualifier: tuple[str, ...]) -> bool:
    wanted = tuple(part.lower() for part in qualifier)
    return tuple(part.lower() for part in column.qualifier[-len(wanted) :]) == wanted


@dataclass(frozen=True)
class Named:
    """A query that a WITH clause names, and what was known where it stands."""

    query: exp.Expr
    names: tuple[str, ...]
    around: Around


@dataclass(frozen=True)
class Around:
    """What surrounds a query: the named queries it can read, and the query it is a part of."""

    named: Mapping[str, Named] = field(default_factory=dict)
    outer: Resolver | None = None

    def without_outer(self) -> Around:
        """For what cannot speak of the columns around it."""
        return replace(self, outer=None)


@dataclass(frozen=True)
class Built:
    """A query as a relation, with the columns it shows. The relation may have more."""

    relation: Relation
    columns: tuple[Visible, ...]
    #: Conditions on columns of the query around it, still to be applied.
    correlated: tuple[exp.Expr, ...] = ()
