"""A small relational algebra: what a query means, as frozen data.

Inside one query every column has a name of its own, so a column is its name and nothing is ever qualified.
Scalar expressions are sqlglot expressions (Spark's dialect) whose columns are such names, quoted.

Every relation has `columns`, what its consumer sees, and `key`, names that identify a row of it among all
others (NULLs are equal to each other). Names of the key need not be among the columns: they pass through
projections unseen, down from the row ids of tables, the groups of aggregates, the ordinals of `explode`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self

from sqlglot import exp

#: The stored column that identifies a row of a lake's table.
ROW_ID = "rowid"
#: How often a row of a delta counts: 1 came, -1 went.
WEIGHT = "_hw_w"

Version = Literal["old", "new", "delta"]
Named = tuple[str, exp.Expr]


@dataclass(frozen=True)
class Relation(ABC):
    """Rows of named columns."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """What a consumer sees, in order."""

    @property
    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """What identifies a row; the empty key means at most one row."""

    @property
    def children(self) -> tuple[Relation, ...]:
        """The relations this one is made of."""
        return ()

    def with_children(self, children: tuple[Relation, ...]) -> Relation:
        """The same operator over other relations."""
        return self

    @property
    def weighted(self) -> bool:
        """Whether rows carry a weight: true of deltas."""
        return any(child.weighted for child in self.children)

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Columns, then what of the key is not among them."""
        return self.columns + tuple(name for name in self.key if name not in self.columns)

    def walk(self) -> Iterator[Relation]:
        """This relation and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Unary(Relation):
    """What is made of one other relation, and unless it says otherwise has its columns and its key."""

    child: Relation

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.child.key

    @property
    def children(self) -> tuple[Relation, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Relation, ...]) -> Self:
        return replace(self, child=children[0])


@dataclass(frozen=True)
class Scan(Relation):
    """A table of the lake, or a stage's stored rows: `fields` are (name here, stored name)."""

    source: str
    fields: tuple[tuple[str, str], ...]
    #: (name here, stored name) of what identifies a row. A table's row id is stored as `rowid`.
    key_fields: tuple[tuple[str, str], ...]
    version: Version = "new"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.fields)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.key_fields)

    @property
    def weighted(self) -> bool:
        return self.version == "delta"


@dataclass(frozen=True)
class Values(Relation):
    """Constant rows. With no columns and one row: what a SELECT without FROM reads."""

    names: tuple[str, ...]
    rows: tuple[tuple[exp.Expr, ...], ...]
    #: A column with the row's number, if there is more than one row.
    ordinal: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def key(self) -> tuple[str, ...]:
        return () if self.ordinal is None else (self.ordinal,)


@dataclass(frozen=True)
class Filter(Unary):
    """Rows for which a condition is true. It may speak of CURRENT_DATE and CURRENT_TIMESTAMP."""

    condition: exp.Expr


@dataclass(frozen=True)
class Project(Unary):
    """Columns computed from each row. The key passes through."""

    outputs: tuple[Named, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.outputs)


@dataclass(frozen=True)
class Join(Relation):
    """Pairs of rows. A right join is a left join the other way round; no condition: all pairs."""

    kind: Literal["inner", "left", "full"]
    left: Relation
    right: Relation
    condition: exp.Expr | None = None
    #: The side that is small enough to be sent to every worker, where that is known.
    small: Literal["left", "right"] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns + self.right.columns

    @property
    def key(self) -> tuple[str, ...]:
        key = self.left.key + self.right.key
        return key if self.side is None else (*key, self.side)

    @property
    def side(self) -> str | None:
        """A column of full joins that says which sides a row is of: keys of NULL alone leave it open."""
        if self.kind != "full":
            return None
        named = ((side.key or side.columns)[:1] for side in (self.left, self.right))
        return "_".join(("_hw_side", *(name for names in named for name in names)))

    @property
    def children(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    def with_children(self, children: tuple[Relation, ...]) -> Join:
        return replace(self, left=children[0], right=children[1])


@dataclass(frozen=True)
class Semi(Relation):
    """Rows of `left` that have a partner in `right` (EXISTS), or with `anti` that have none (NOT EXISTS)."""

    left: Relation
    right: Relation
    condition: exp.Expr
    anti: bool = False
    #: Whether `right` is small enough to be sent to every worker.
    small: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.left.key

    @property
    def children(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    def with_children(self, children: tuple[Relation, ...]) -> Semi:
        return replace(self, left=children[0], right=children[1])

    @property
    def weighted(self) -> bool:
        return self.left.weighted


@dataclass(frozen=True)
class Aggregate(Unary):
    """One row per group; without groups exactly one row. Without aggregates: DISTINCT."""

    #: Columns of the child: expressions are computed by a projection below.
    groups: tuple[str, ...]
    #: (name, aggregate function over columns of the child), with FILTER and DISTINCT as sqlglot has them.
    aggregates: tuple[Named, ...]

    @property
    def weighted(self) -> bool:
        return False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.groups + tuple(name for name, _ in self.aggregates)

    @property
    def key(self) -> tuple[str, ...]:
        return self.groups


@dataclass(frozen=True)
class UnionAll(Relation):
    """The rows of all inputs; columns are matched by position and named anew.

    The key is a tag that says which input a row is of, then the keys of the inputs side by side, NULL in the
    rows of the others.
    """

    inputs: tuple[Relation, ...]
    names: tuple[str, ...]
    tag: str
    #: Which inputs are there, if some are left out, and what the others' keys would be.
    numbers: tuple[int, ...] = ()
    absent_key: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def key(self) -> tuple[str, ...]:
        given = (name for child in self.inputs for name in child.key)
        return (self.tag, *dict.fromkeys((*given, *self.absent_key)))

    @property
    def tagged(self) -> tuple[tuple[int, Relation], ...]:
        """The inputs with their numbers."""
        return tuple(zip(self.numbers or range(len(self.inputs)), self.inputs, strict=True))

    @property
    def children(self) -> tuple[Relation, ...]:
        return self.inputs

    def with_children(self, children: tuple[Relation, ...]) -> UnionAll:
        return replace(self, inputs=children)


@dataclass(frozen=True)
class Generate(Unary):
    """Each row as often as a generator (`explode`, `posexplode`, `inline`, `stack`) has elements for it.

    `outputs` name the generator's columns (added to the child's); `ordinal` numbers a row's elements.
    """

    generator: exp.Expr
    outputs: tuple[str, ...]
    ordinal: str
    #: Keep a row without elements, with NULLs.
    outer: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + self.outputs

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.child.key, self.ordinal)


@dataclass(frozen=True)
class Window(Unary):
    """Columns computed over the rows of the same partition, added to the child's columns."""

    #: Columns of the child by which *all* of the functions are partitioned.
    partition: tuple[str, ...]
    #: (name, exp.Window) over columns of the child.
    functions: tuple[Named, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns + tuple(name for name, _ in self.functions)


@dataclass(frozen=True)
class TopK(Unary):
    """The first rows in an order; the key breaks ties."""

    #: exp.Ordered over columns of the child.
    order: tuple[exp.Expr, ...]
    limit: int
    offset: int = 0


@dataclass(frozen=True)
class Opaque(Relation):
    """What has no rule: SQL over its inputs that is computed anew each time, with the reason.

    `sql` reads `inputs` by the names `_hw_input_0`, `_hw_input_1`, …; rows are identified by all columns and
    a copy number.
    """

    inputs: tuple[Relation, ...]
    sql: exp.Expr
    names: tuple[str, ...]
    copy: str
    reason: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.names, self.copy)

    @property
    def children(self) -> tuple[Relation, ...]:
        return self.inputs

    def with_children(self, children: tuple[Relation, ...]) -> Opaque:
        return replace(self, inputs=children)


def opaque_over(relation: Relation, names: tuple[str, ...], reason: str) -> Opaque:
    """The rows of a relation as something that has no rule."""
    chosen = exp.select(*(column(name) for name in names)).from_(exp.to_identifier("_hw_input_0"))
    return Opaque((relation,), chosen, names, "_hw_copy", reason)


@dataclass(frozen=True)
class Concat(Relation):
    """Rows of several relations with the same columns and the same key, as in the terms of a delta."""

    inputs: tuple[Relation, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.inputs[0].columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.inputs[0].key

    @property
    def children(self) -> tuple[Relation, ...]:
        return self.inputs

    def with_children(self, children: tuple[Relation, ...]) -> Concat:
        return replace(self, inputs=children)


@dataclass(frozen=True)
class Signed(Unary):
    """Rows that all came (1) or all went (-1)."""

    sign: int

    @property
    def weighted(self) -> bool:
        return True


@dataclass(frozen=True)
class Side(Unary):
    """The rows of a delta that came, or those that went, without their weights."""

    came: bool

    @property
    def weighted(self) -> bool:
        return False


@dataclass(frozen=True)
class Net(Unary):
    """A delta in which equal rows have cancelled each other."""


@dataclass(frozen=True)
class Query:
    """A parsed query: its relation, the names users see, and what people should know."""

    relation: Relation
    #: (name users see, name in the relation), in order.
    outputs: tuple[tuple[str, str], ...]
    #: Tables and views read, as written, each once.
    tables: tuple[str, ...]
    notes: tuple[str, ...] = ()


def column(name: str) -> exp.Column:
    """A reference to a column."""
    return exp.column(exp.to_identifier(name, quoted=True))


def columns_of(expression: exp.Expr) -> frozenset[str]:
    """The columns an expression speaks of."""
    return frozenset(found.name for found in expression.find_all(exp.Column))


def conjuncts(condition: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """The conditions that a condition is the conjunction of."""
    if condition is None:
        return ()
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return conjuncts(condition.left) + conjuncts(condition.right)
    return _factored(condition) if isinstance(condition, exp.Or) else (condition,)


def _factored(condition: exp.Or) -> tuple[exp.Expr, ...]:
    """`(a AND b) OR (a AND c)` as `a` and `b OR c`, which is the same where any of them is NULL, too."""
    branches = [conjuncts(branch) for branch in condition.flatten()]
    first, *others = branches
    common = [part for part in dict.fromkeys(first) if all(part in other for other in others)]
    if not common:
        return (condition,)
    rest = [[part for part in branch if part not in common] for branch in branches]
    if not all(rest):
        return tuple(common)
    return (*common, exp.or_(*(exp.and_(*parts) for parts in rest)))


def has_one_row(relation: Relation) -> bool:
    """Whether it always has exactly one row."""
    if isinstance(relation, Project):
        return has_one_row(relation.child)
    return isinstance(relation, Aggregate) and not relation.groups
