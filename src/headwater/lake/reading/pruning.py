"""Which data files can hold a row that matches, decided inside PostgreSQL.

A predicate becomes joins and a condition for a query over `ducklake_data_file f`, so that a file that cannot
match costs the reader nothing. Statistics and partition values say only what is *impossible*: every leaf of
the predicate becomes the set of files in which no row can satisfy it; AND unites those sets, OR intersects
them. A file without statistics, or with ones that say nothing, is in none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
from psycopg import sql

from headwater.algebra.literals import Literal
from headwater.algebra.predicates import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Not,
    Or,
    Path,
    Predicate,
    StartsWith,
)
from headwater.errors import InvalidInputError
from headwater.lake.connection import Database
from headwater.lake.format.partitions import CALENDAR, transformed_text
from headwater.lake.format.values import UNBOUNDED
from headwater.lake.model import Column, PartitionField, PartitionSpec, Table
from headwater.lake.reading.bounds import Bounds, Kind, bounds, constant, kind_of
from headwater.lake.reading.indexes import SHORT_STATISTICS, SHORT_VALUE

#: More joins than this cost PostgreSQL more to plan than they save.
MAX_SETS = 12
#: A longer IN list is looked up as this many ranges.
MAX_RANGES = 16
#: A longer IN list meets most buckets anyway.
MAX_HASHED = 64

_FALSE = sql.SQL("FALSE")
_MIN, _MAX = sql.SQL("s.min_value"), sql.SQL("s.max_value")


@dataclass(frozen=True, slots=True)
class Pruning:
    """Parts of a query over `ducklake_data_file f`: `… f {joins} WHERE … AND {condition}`."""

    joins: sql.Composable
    condition: sql.Composable
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where facts about a column come from: its statistics, or key `key_index` of the partition spec."""

    column_id: int
    partition_id: int | None = None
    key_index: int | None = None


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Facts of one source; `possible` is FALSE for files without a match, NULL where that is not known."""

    source: _Source
    possible: sql.Composable


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple[_Node, ...]


#: None stands for "every file may match"; `_Never` for "no file can".
@dataclass(frozen=True, slots=True)
class _Never:
    pass


_Node = _Leaf | _All | _Any | _Never


def prune(db: Database, table: Table, predicate: Predicate, *, guarded: bool = False) -> Pruning | None:
    """What to add to the query over a table's data files; None if the predicate excludes nothing.

    Statistics are text, and PostgreSQL refuses to cast one that is malformed. `guarded` checks each before
    its cast, which costs more than the casts; callers do that only after the plain query was refused.
    """
    compiler = _Compiler(table, guarded)
    node = compiler.node(predicate)
    if node is None:
        return None
    if isinstance(node, _Never):
        return Pruning(sql.SQL(""), _FALSE, {})
    joins: list[sql.Composable] = []
    condition = _emit(db, node, joins)
    return Pruning(sql.SQL(" ").join(joins), condition, {**compiler.parameters, "table": table.id})


def resolve(table: Table, path: Path) -> Column | None:
    """The column or struct field that a path of names means; None for anything else.

    As in DuckDB a column wins over the table's own name in front: `t.a` is field `a` of column `t`, if there
    is such a column.
    """
    for skip, names in ((0, ()), (1, (table.name.name,)), (2, (table.name.schema, table.name.name))):
        if tuple(name.lower() for name in path[:skip]) == tuple(name.lower() for name in names):
            column = table.column(path[skip]) if len(path) > skip else None
            if column is not None:
                return _descend(column, path[skip + 1 :])
    return None


def _descend(column: Column, names: Iterable[str]) -> Column | None:
    for name in names:
        inner = [c for c in column.children if c.name.lower() == name.lower()]
        if column.type != "struct" or not inner:
            return None
        column = inner[0]
    return column


def _emit(db: Database, node: _Node, joins: list[sql.Composable]) -> sql.Composable:
    """The condition that keeps a file, with the joins it needs added to `joins`."""
    if isinstance(node, _Leaf):
        alias = sql.Identifier(f"x{len(joins)}")
        joins.append(_excluded(db, node, alias))
        return sql.SQL("{}.data_file_id IS NULL").format(alias)
    if isinstance(node, _Never):
        return _FALSE
    word = " AND " if isinstance(node, _All) else " OR "
    return sql.SQL("({})").format(sql.SQL(word).join([_emit(db, part, joins) for part in node.parts]))


def _excluded(db: Database, leaf: _Leaf, alias: sql.Identifier) -> sql.Composable:
    source = leaf.source
    if source.key_index is None:
        return sql.SQL(
            "LEFT JOIN (SELECT s.data_file_id FROM {} s WHERE s.table_id = %(table)s AND s.column_id = {} "
            "AND {} AND ({}) IS FALSE) {alias} ON {alias}.data_file_id = f.data_file_id"
        ).format(
            db.name("ducklake_file_column_stats"),
            sql.Literal(source.column_id),
            sql.SQL(SHORT_STATISTICS.format("s.")),
            leaf.possible,
            alias=alias,
        )
    return sql.SQL(
        "LEFT JOIN (SELECT s.data_file_id FROM {} s WHERE s.table_id = %(table)s "
        "AND s.partition_key_index = {} AND {} AND ({}) IS FALSE) {alias} "
        "ON {alias}.data_file_id = f.data_file_id AND f.partition_id = {}"
    ).format(
        db.name("ducklake_file_partition_value"),
        sql.Literal(source.key_index),
        sql.SQL(SHORT_VALUE.format("s.")),
        leaf.possible,
        sql.Literal(source.partition_id),
        alias=alias,
    )


@dataclass
class _Compiler:
    table: Table
    guarded: bool
    parameters: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _sets: int = 0

    def node(self, predicate: Predicate) -> _Node | None:
        """What the predicate excludes; None for nothing."""
        match predicate:
            case And(parts):
                return self._all(self.node(part) for part in parts)
            case Or(parts):
                return self._any(self.node(part) for part in _joined_equalities(parts))
            case Constant(value):
                return None if value else _Never()
            case Not(In(column, values)) if None in values:
                return _Never()  # a row that equals none of the others is compared with NULL
            case Not(In(column, values)):
                if len(values) > MAX_RANGES:
                    return None
                return self._all(self._leaf(Comparison(column, "<>", value)) for value in values)
            case In(column, values):
                return self._leaf(predicate) if any(value is not None for value in values) else _Never()
            case Comparison() | IsNull() | StartsWith() | Not(IsNull() | StartsWith()):
                return self._leaf(predicate)
            case _:
                return None

    def _all(self, nodes: Iterable[_Node | None]) -> _Node | None:
        parts: list[_Node] = []
        for node in nodes:
            if isinstance(node, _Never):
                return node
            if node is not None:
                parts.extend(node.parts if isinstance(node, _All) else (node,))
        parts = _merged(parts, " AND ")[:MAX_SETS]
        return parts[0] if len(parts) == 1 else _All(tuple(parts)) if parts else None

    def _any(self, nodes: Iterable[_Node | None]) -> _Node | None:
        parts: list[_Node] = []
        for node in nodes:
            if node is None:
                return None
            if not isinstance(node, _Never):
                parts.extend(node.parts if isinstance(node, _Any) else (node,))
        parts = _merged(parts, " OR ")
        if not parts:
            return _Never()
        if sum(map(_size, parts)) > MAX_SETS:
            return None
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _leaf(self, predicate: Predicate) -> _Node | None:
        """One condition on one column, from all that is known of that column."""
        inner = predicate.part if isinstance(predicate, Not) else predicate
        assert isinstance(inner, Comparison | In | IsNull | StartsWith)  # noqa: S101 - `node` saw to it
        column = resolve(self.table, inner.column)
        if column is None or column.is_nested or column.type in UNBOUNDED:
            # DuckDB keeps no bounds of these, and its counts are no counts: 0 and 0 for intervals, no NULL in
            # a variant.
            return None
        facts: list[_Node | None] = [self._from_statistics(predicate, column)]
        spec = self.table.partition
        for index, key in enumerate(spec.fields if spec else ()):
            if spec is not None and key.column_id == column.id and _adds_to_statistics(spec, key):
                possible = self._from_partition(predicate, column, key)
                if possible is not None:
                    facts.append(_Leaf(_Source(column.id, spec.id, index), possible))
        return self._all(facts)

    def _from_statistics(self, predicate: Predicate, column: Column) -> _Leaf | None:
        source = _Source(column.id)
        match predicate:
            case IsNull():
                return _Leaf(source, sql.SQL("s.null_count <> 0"))
            case Not(IsNull()):
                return _Leaf(source, sql.SQL("s.value_count <> 0"))
        possible = self._within_bounds(predicate, column)
        if possible is None:
            # Of this type no bounds are known, but a file of nothing but NULL matches no condition.
            return _Leaf(source, sql.SQL("s.value_count <> 0"))
        return _Leaf(source, sql.SQL("s.value_count <> 0 AND ({})").format(possible))

    def _from_partition(
        self, predicate: Predicate, column: Column, key: PartitionField
    ) -> sql.Composable | None:
        wanted = _transformed(predicate, column, key.transform)
        if wanted is None:
            return None
        values = [self._parameter(text, "text") for text in sorted(wanted)]
        return sql.SQL("s.partition_value IN ({})").format(sql.SQL(", ").join(values))

    def _within_bounds(self, predicate: Predicate, column: Column) -> sql.Composable | None:
        """Whether some value between the least and the greatest can satisfy the predicate."""
        kind = kind_of(column.type, _constants(predicate))
        if kind is None:
            return None
        low, high = (kind.key(text, guarded=self.guarded) for text in (_MIN, _MAX))
        match predicate:
            case Comparison(_, op, value):
                found = bounds(column.type, value)
                possible = None if found is None else self._compared(kind, op, found, low, high)
                if kind.name == "float" and op in (">", ">=") and possible is not None:
                    # NaN is above everything, and never part of the bounds.
                    return sql.SQL("(s.contains_nan IS NOT FALSE OR {})").format(possible)
                return possible
            case In(_, values):
                return self._in(kind, column.type, values, low, high)
            case StartsWith(_, prefix) if kind.name == "text" and "\0" not in prefix:
                start = self._parameter(prefix, kind.parameter_type)
                return sql.SQL("left({}, {}) <= {} AND {} >= {}").format(
                    low, sql.Literal(len(prefix)), start, high, start
                )
            case Not(StartsWith(_, prefix)) if kind.name == "text" and "\0" not in prefix:
                start = self._parameter(prefix, "text")
                return sql.SQL("NOT (starts_with({}, {}) AND starts_with({}, {}))").format(
                    low, start, high, start
                )
            case _:
                return None

    def _compared(
        self, kind: Kind, op: str, found: Bounds, low: sql.Composable, high: sql.Composable
    ) -> sql.Composable | None:
        least = self._parameter(found.least, kind.parameter_type)
        most = self._parameter(found.most, kind.parameter_type)
        match op:
            case "=":
                return sql.SQL("{} <= {} AND {} >= {}").format(low, most, high, least)
            case "<" if found.exact:
                return sql.SQL("{} < {}").format(low, most)
            case "<" | "<=":
                return sql.SQL("{} <= {}").format(low, most)
            case ">" if found.exact:
                return sql.SQL("{} > {}").format(high, least)
            case ">" | ">=":
                return sql.SQL("{} >= {}").format(high, least)
            case "<>" if found.exact:
                return sql.SQL("{} <> {} OR {} <> {}").format(low, least, high, least)
            case _:
                return None

    def _in(
        self, kind: Kind, type_: str, values: Iterable[Literal], low: sql.Composable, high: sql.Composable
    ) -> sql.Composable | None:
        found = [bounds(type_, value) for value in values if value is not None]
        known = sorted((b for b in found if b is not None), key=lambda b: kind.order(b.least))
        if len(known) < len(found):
            return None
        step = -(-len(known) // MAX_RANGES)
        ranges = [known[i : i + step] for i in range(0, len(known), step)]
        return sql.SQL(" OR ").join(
            sql.SQL("({} <= {} AND {} >= {})").format(
                low,
                self._parameter(max((b.most for b in some), key=kind.order), kind.parameter_type),
                high,
                self._parameter(some[0].least, kind.parameter_type),
            )
            for some in ranges
        )

    def _parameter(self, value: Any, type_: str) -> sql.Composable:
        name = f"v{next(self._numbers)}"
        self.parameters[name] = value
        collation = sql.SQL(' COLLATE "C"' if type_ == "text" else "")
        return sql.SQL("{}::{}{}").format(sql.Placeholder(name), sql.SQL(type_), collation)


def _constants(predicate: Predicate) -> tuple[Literal, ...]:
    match predicate:
        case Comparison(_, _, value):
            return (value,)
        case In(_, values):
            return values
        case _:
            return ()


def _joined_equalities(parts: Iterable[Predicate]) -> list[Predicate]:
    """`a = 1 OR a = 2 OR …` as one IN per column, so that a long chain is one lookup."""
    values: dict[tuple[Path, type], list[Literal]] = {}
    others: list[Predicate] = []
    for part in parts:
        match part:
            case Comparison(column, "=", value):
                values.setdefault((column, type(value)), []).append(value)
            case _:
                others.append(part)
    return [
        Comparison(column, "=", found[0]) if len(found) == 1 else In(column, tuple(found))
        for (column, _), found in values.items()
    ] + others


def _merged(parts: list[_Node], word: str) -> list[_Node]:
    """Leaves of one source as one leaf: each leaf costs a pass over the statistics."""
    leaves: dict[_Source, list[sql.Composable]] = {}
    merged: list[_Node] = []
    for part in parts:
        if isinstance(part, _Leaf):
            leaves.setdefault(part.source, []).append(sql.SQL("({})").format(part.possible))
        else:
            merged.append(part)
    return [_Leaf(source, sql.SQL(word).join(found)) for source, found in leaves.items()] + merged


def _size(node: _Node) -> int:
    return sum(map(_size, node.parts)) if isinstance(node, _All | _Any) else 1


def _adds_to_statistics(spec: PartitionSpec, key: PartitionField) -> bool:
    """Whether a file's partition value says more than the least and greatest value of the column.

    One value, one year, or one month of one year is a range of the column, and the statistics know it. A
    bucket is none, nor is one month of any year.
    """
    if key.transform not in CALENDAR:
        return key.transform != "identity"
    coarser = CALENDAR[: CALENDAR.index(key.transform)]
    present = {other.transform for other in spec.fields if other.column_id == key.column_id}
    return not present.issuperset(coarser)


def _transformed(predicate: Predicate, column: Column, transform: str) -> set[str] | None:
    """The partition values that rows equal to the predicate's constants have; None where that is unknown."""
    match predicate:
        case Comparison(_, "=", value):
            values: tuple[Literal, ...] = (value,)
        case In(_, values):
            pass
        case _:
            return None
    if len(values) > MAX_HASHED:
        return None
    found = {_partition_text(value, column, transform) for value in values if value is not None}
    return None if None in found else {text for text in found if text is not None}


def _partition_text(value: Literal, column: Column, transform: str) -> str | None:
    if transform in CALENDAR and column.type == "timestamptz":
        return None  # DuckDB takes the parts in the time zone of the session that wrote the file
    plain = constant(column.type, value)
    if plain is None:
        return None
    try:
        return transformed_text(plain, column, transform)
    except (pa.ArrowException, InvalidInputError, OverflowError):
        return None  # not a value the column could have
