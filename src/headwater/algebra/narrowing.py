"""Which rows of its large inputs a relation can depend on, told by values in its small ones.

In `ΔL ⋈ O ⋈ C` only those rows of O matter that have the key of a row of ΔL, and of C only those that one of
these rows of O leads to. Such a *link* says: of what a scan reads, only rows whose column has one of the
values that certain columns of other scans have are of consequence. Links hold for the relation as a whole:
each scan may be cut down by any of its links, in any order, if what it is cut down by is known by then.

The values are always too many rather than too few: conditions on the way are left to the relation itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from sqlglot import exp

from headwater.algebra.relations import (
    Aggregate,
    Concat,
    Filter,
    Generate,
    Join,
    Net,
    Project,
    Relation,
    Scan,
    Semi,
    Side,
    Signed,
    TopK,
    UnionAll,
    Values,
    Window,
    conjuncts,
)

#: A scan by its name, and a stored column of it.
Place = tuple[str, str]


@dataclass(frozen=True)
class Link:
    """Of a scan's rows only those matter whose column has one of the values of other places."""

    column: str
    places: frozenset[Place]
    #: Whether NULL is a value like any other: where it is not, rows without a value do not matter.
    nulls: bool

    @property
    def leaves(self) -> frozenset[str]:
        """The scans that have to be known before."""
        return frozenset(leaf for leaf, _ in self.places)


@dataclass(frozen=True)
class _Wish:
    """What a consumer wants of a relation: rows with a value of some places in a column."""

    name: str
    places: frozenset[Place]
    nulls: bool


def numbered(relation: Relation) -> tuple[Relation, dict[str, Scan]]:
    """The relation with a name of its own for each scan in it, and the scans by these names."""
    scans: dict[str, Scan] = {}

    def visit(node: Relation) -> Relation:
        if isinstance(node, Scan):
            name = f"_hw_leaf_{len(scans)}"
            scans[name] = node
            return replace(node, source=name)
        return node.with_children(tuple(map(visit, node.children)))

    return visit(relation), scans


def links(relation: Relation) -> Mapping[str, tuple[Link, ...]]:
    """The links of each scan of a `numbered` relation."""
    finder = _Finder()
    finder.visit(relation, ())
    return {name: tuple(dict.fromkeys(found)) for name, found in finder.found.items()}


def surely_empty(relation: Relation, empty: Collection[str]) -> bool:
    """Whether a `numbered` relation has no rows, since certain scans have none."""
    match relation:
        case Scan():
            return relation.source in empty
        case Aggregate():
            return bool(relation.groups) and surely_empty(relation.child, empty)
        case Join(kind="inner"):
            return any(surely_empty(child, empty) for child in relation.children)
        case Join(kind="left"):
            return surely_empty(relation.left, empty)
        case Semi():
            if surely_empty(relation.left, empty):
                return True
            return not relation.anti and surely_empty(relation.right, empty)
        case Concat() | UnionAll() | Join():
            return all(surely_empty(child, empty) for child in relation.children)
        case Filter() | Project() | Generate() | Window() | TopK() | Signed() | Side() | Net():
            return surely_empty(relation.child, empty)
    return isinstance(relation, Values) and not relation.rows


@dataclass
class _Finder:
    found: dict[str, list[Link]] = field(default_factory=dict)
    _origins: dict[tuple[int, str], frozenset[Place] | None] = field(default_factory=dict)

    # -- downwards: what is wanted of each relation --------------------------------------------------

    def visit(self, node: Relation, wishes: Iterable[_Wish]) -> None:
        """Note the links of all scans below a relation of which only some rows are wanted."""
        wanted = tuple(wishes)
        match node:
            case Scan():
                stored = dict((*node.fields, *node.key_fields))
                links = [Link(stored[w.name], w.places, w.nulls) for w in wanted if w.name in stored]
                self.found.setdefault(node.source, []).extend(links)
            case Project():
                below = dict(node.outputs)
                names = {name: _plain(below[name]) if name in below else name for name in _names(wanted)}
                self.visit(node.child, _renamed(wanted, names))
            case Filter():
                self.visit(node.child, (*wanted, *self._alike(node)))
            case Signed() | Side() | Net():
                self.visit(node.child, wanted)
            case Aggregate():
                self.visit(node.child, _about(wanted, node.groups))
            case Window():
                self.visit(node.child, _about(wanted, node.partition))
            case Generate():
                self.visit(node.child, _about(wanted, node.child.all_columns))
            case Join():
                self._join(node, wanted)
            case Semi():
                self._semi(node, wanted)
            case Concat():
                for child in node.inputs:
                    self.visit(child, wanted)
            case UnionAll():
                for child in node.inputs:
                    names = dict(zip(node.names, child.columns, strict=True))
                    self.visit(child, _renamed(_about(wanted, node.names), names))
            case _:
                for child in node.children:
                    self.visit(child, ())

    def _join(self, node: Join, wanted: tuple[_Wish, ...]) -> None:
        of_left, of_right = self._partners(node.condition, node.left, node.right)
        if node.kind == "full":
            of_left = of_right = wanted = ()
        if node.kind == "left":
            # A row of the left side stays without its partners, so these cannot be left out by themselves.
            of_left = ()
            wanted = _about(wanted, node.left.all_columns)
        self.visit(node.left, (*_about(wanted, node.left.all_columns), *of_left))
        self.visit(node.right, (*_about(wanted, node.right.all_columns), *of_right))

    def _semi(self, node: Semi, wanted: tuple[_Wish, ...]) -> None:
        of_left, of_right = self._partners(node.condition, node.left, node.right)
        self.visit(node.left, wanted if node.anti else (*wanted, *of_left))
        self.visit(node.right, of_right)

    def _alike(self, node: Filter) -> Iterable[_Wish]:
        """What equalities between columns say, as they follow joins that are written with commas."""
        for part in conjuncts(node.condition):
            if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
                continue
            sides = (_plain(part.left), _plain(part.right))
            for one, other in (sides, sides[::-1]):
                places = None if one is None or other is None else self.origin(node.child, other)
                if one is not None and places:
                    yield _Wish(one, places, isinstance(part, exp.NullSafeEQ))

    def _partners(
        self, condition: exp.Expr | None, left: Relation, right: Relation
    ) -> tuple[tuple[_Wish, ...], tuple[_Wish, ...]]:
        """What equalities say about each side: only rows whose value the other side has too."""
        of_left: list[_Wish] = []
        of_right: list[_Wish] = []
        ours, theirs = frozenset(left.all_columns), frozenset(right.all_columns)
        for part in conjuncts(condition):
            if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
                continue
            one, other = _plain(part.left), _plain(part.right)
            if one in theirs and other in ours:
                one, other = other, one
            if one is None or other is None or one not in ours or other not in theirs:
                continue
            nulls = isinstance(part, exp.NullSafeEQ)
            here, there = self.origin(left, one), self.origin(right, other)
            if there:
                of_left.append(_Wish(one, there, nulls))
            if here:
                of_right.append(_Wish(other, here, nulls))
        return tuple(of_left), tuple(of_right)

    # -- upwards: where values come from -------------------------------------------------------------

    def origin(self, node: Relation, name: str) -> frozenset[Place] | None:
        """Places that have every value of a column, or None if that is not known."""
        place = (id(node), name)
        if place not in self._origins:
            self._origins[place] = self._origin(node, name)
        return self._origins[place]

    def _origin(self, node: Relation, name: str) -> frozenset[Place] | None:
        match node:
            case Scan():
                stored = dict((*node.fields, *node.key_fields)).get(name)
                return None if stored is None else frozenset({(node.source, stored)})
            case Project():
                below = dict(node.outputs)
                inner = _plain(below[name]) if name in below else name
                return None if inner is None else self.origin(node.child, inner)
            case Filter() | Signed() | Side() | Net() | TopK():
                return self.origin(node.child, name)
            case Aggregate():
                return self.origin(node.child, name) if name in node.groups else None
            case Window() | Generate():
                return self.origin(node.child, name) if name in node.child.all_columns else None
            case Join():
                return self._of_join(node, name)
            case Semi():
                return self.origin(node.left, name)
            case Concat():
                return _together(self.origin(child, name) for child in node.inputs)
            case UnionAll():
                if name not in node.names:
                    return None
                at = node.names.index(name)
                return _together(self.origin(child, child.columns[at]) for child in node.inputs)
        return None

    def _of_join(self, node: Join, name: str) -> frozenset[Place] | None:
        if name in node.left.all_columns:
            return None if node.kind == "full" else self.origin(node.left, name)
        # The other side of an outer join has NULLs that come from nowhere.
        if name in node.right.all_columns and node.kind == "inner":
            return self.origin(node.right, name)
        return None


def _plain(expression: exp.Expr) -> str | None:
    while isinstance(expression, exp.Paren):
        expression = expression.this
    return expression.name if isinstance(expression, exp.Column) else None


def _names(wishes: Iterable[_Wish]) -> frozenset[str]:
    return frozenset(wish.name for wish in wishes)


def _about(wishes: Iterable[_Wish], names: Collection[str]) -> tuple[_Wish, ...]:
    return tuple(wish for wish in wishes if wish.name in names)


def _renamed(wishes: Iterable[_Wish], names: Mapping[str, str | None]) -> tuple[_Wish, ...]:
    pairs = ((wish, names.get(wish.name)) for wish in wishes)
    return tuple(replace(wish, name=name) for wish, name in pairs if name is not None)


def _together(origins: Iterable[frozenset[Place] | None]) -> frozenset[Place] | None:
    found = list(origins)
    if any(each is None for each in found):
        return None
    return reduce(frozenset[Place].union, [each for each in found if each is not None], frozenset[Place]())


__all__ = ["Link", "Place", "links", "numbered", "surely_empty"]
