"""The few rows of large inputs that few changed rows can meet, looked up by this process.

Spark reads a table whole to join a handful of rows with it, and needs a job for it. The lake's own reader
looks at the one column of the join, a piece at a time, and takes out the rows that match. What Spark is then
given are small tables, all of them here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

from headwater.algebra.changes import PLACE
from headwater.algebra.narrowing import Link
from headwater.algebra.predicates import And, Comparison, IsNull, Or, Predicate, says_something
from headwater.algebra.relations import ROW_ID, WEIGHT, Scan
from headwater.lake.format.equality import row_keys
from headwater.lake.format.types import arrow_schema
from headwater.lake.model import Column, Table
from headwater.lake.reading import lookup
from headwater.lake.reading.members import Members, distinct
from headwater.lake.reading.scan import ScanPlan
from headwater.recent import Recent
from headwater.refresh.binding import Statement
from headwater.refresh.cutting import Cutting
from headwater.refresh.excluding import distinct_values, without_excluded
from headwater.refresh.inputs import Inputs
from headwater.refresh.local_rows import Found, most_here
from headwater.spark.types import spark_schema, to_spark
from headwater.typedefs import SnapshotId

#: Types of which Arrow calls two values equal exactly when Spark does.
_WHOLE_NUMBERS = frozenset({"int8", "int16", "int32", "int64"})
_COMPARED = _WHOLE_NUMBERS | {"varchar", "date"}
#: So many bytes of a column are looked at, at most.
_MOST_BYTES = 512 << 20
#: Tables of up to this many rows are taken whole.
_WHOLE = 20_000
#: So many changes are worth to be looked through for those of consequence; of fewer, tables of so many rows.
_MUCH, _SOME = 20_000, 2_000
#: More rows than these are looked through for repeated ones.
_MANY = 10_000
#: Rows are left out if at most this part of them is left.
_WORTH = 0.5
#: How many bytes a value has, if that depends on the value.
_USUAL = 16
_ZERO = pa.scalar(0, pa.int32())


#: A table as a statement reads it: which one, and before or after the changes.
_Read = tuple[str, str]


@dataclass(frozen=True)
class _Choice:
    """Which rows of a scan are looked up: those whose column has one of these values."""

    column: str
    values: Any
    nulls: bool


class Narrowing:
    """Cuts down what a statement reads."""

    def __init__(self, inputs: Inputs, whole_tables: Recent[Any, Found], statement: Statement):
        self.inputs = inputs
        self.whole_tables = whole_tables
        self.statement = statement
        #: So many values are looked for, and so many rows are taken of a table, at most.
        self.most = most_here(inputs.wave.session)
        self.cutting = Cutting(statement.links, _SOME)
        #: Rows, and what is left of them under a condition, or of their values: scans with the same share it.
        self._left: dict[tuple[int, Any], tuple[Found, Found]] = {}
        #: The columns that any of the scans of a table needs: what is looked up for one may do for others.
        self._names: dict[_Read, frozenset[str]] = {}
        for scan in statement.leaves.values():
            read = scan.source, scan.version
            self._names[read] = self._names.get(read, frozenset()) | _names(scan)

    def run(self, given: Mapping[str, Found]) -> dict[str, Found]:
        """Rows for as many scans of a statement as can be told by few values; `given` are known already."""
        known = dict(given)
        leaves = self.statement.leaves
        for leaf, scan in leaves.items():
            delta = self.inputs.deltas.get(scan.source)
            if scan.version == "delta" and delta is not None and delta.found is not None:
                known[leaf] = self._of_consequence(leaf, delta.found)
        # Where much changed, small tables may tell which of it is of consequence. Else they are taken as they
        # are, which Spark has been given before.
        much = sum(found.rows.num_rows for found in known.values()) > _MUCH
        small: dict[str, Found] = {}
        if much:
            self.cutting.least = 0
            small = {leaf: self._of_consequence(leaf, found) for leaf, found in self._small(known).items()}
        waiting = {
            leaf: self.statement.links.get(leaf, ())
            for leaf, scan in leaves.items()
            if leaf not in known and leaf not in small and scan.version != "delta"
        }
        while True:
            known = self._cut(known, small)
            chosen = {
                leaf: choice for leaf, links in waiting.items() if (choice := self._choices(links, known))
            }
            if not chosen:
                break
            ready = frozenset(known)
            for together in self._together(self._telling(chosen)):
                choices = _common([chosen[leaf] for leaf in together])
                version = self._versions(leaves[together[0]], choices)
                for leaf in together:
                    links = waiting.pop(leaf)
                    own = version(leaves[leaf])
                    if own is None and len(together) > 1:
                        # What is too much for all of them may still not be for one.
                        own = self._versions(leaves[leaf], chosen[leaf])(leaves[leaf])
                    if own is not None:
                        known[leaf] = self._of_consequence(leaf, own)
                    elif later := tuple(link for link in links if not ready >= link.leaves):
                        waiting[leaf] = later  # other values may be fewer
        if not much:
            return {**known, **self._small(known)}
        return self._cut({**known, **small}, {})

    def _small(self, known: Mapping[str, Found]) -> dict[str, Found]:
        """The small tables among what is not known, whole."""
        whole: dict[_Read, Found | None] = {}
        small: dict[str, Found] = {}
        for leaf, scan in self.statement.leaves.items():
            if leaf not in known and scan.version != "delta":
                read = scan.source, scan.version
                if read not in whole:
                    whole[read] = self._whole(scan)
                if (found := whole[read]) is not None:
                    small[leaf] = found
        return small

    def _cut(self, known: Mapping[str, Found], small: dict[str, Found]) -> dict[str, Found]:
        """What is known, and small tables, without rows that lead to nothing."""
        everything = {**known, **small}
        self.cutting.run(everything)
        small.update((leaf, everything[leaf]) for leaf in small)
        return {leaf: everything[leaf] for leaf in known}

    def _telling(self, chosen: Mapping[str, Sequence[_Choice]]) -> Mapping[str, Sequence[_Choice]]:
        """Scans that are looked up before the others: conditions may leave few of their rows, and those then
        few of the others'."""
        leaves = self.statement.leaves
        telling = {leaves[leaf].source for leaf in chosen if self._has_condition(leaf)}
        return {leaf: chosen[leaf] for leaf in chosen if leaves[leaf].source in telling} or chosen

    def _has_condition(self, leaf: str) -> bool:
        condition = self.statement.conditions.get(leaf)
        return condition is not None and says_something(condition)

    def _of_consequence(self, leaf: str, found: Found) -> Found:
        """Rows without those that the statement's conditions exclude, and without repeated ones where only
        values matter, if these are worth leaving out."""
        condition = self.statement.conditions.get(leaf)
        if condition is not None:
            found = self._shared(found, condition, lambda rows: without_excluded(rows, condition, _WORTH))
        values = self.statement.value_columns.get(leaf)
        if values is not None and found.rows.num_rows > _MANY:
            found = self._shared(found, values, lambda rows: distinct_values(rows, values))
        return found

    def _shared(self, found: Found, what: Any, left: Callable[[pa.Table], pa.Table]) -> Found:
        """What is left of rows, if that is much less; for scans of which the same is asked, the same rows."""
        place = (id(found), what)
        if place not in self._left:
            rows = left(found.rows)
            worth = rows.num_rows <= _WORTH * found.rows.num_rows
            self._left[place] = found, Found(rows, found.schema) if worth else found
        return self._left[place][1]

    def _together(self, chosen: Mapping[str, Sequence[_Choice]]) -> Iterable[list[str]]:
        """Scans of one table by one column: their rows are looked up once, for all their values.

        (A scan that is given more rows than it needs is none the worse: its own conditions still hold.)
        """
        groups: dict[tuple[Any, ...], list[str]] = {}
        for leaf, choices in chosen.items():
            scan = self.statement.leaves[leaf]
            version = "new" if self._told_by_delta(scan) else scan.version
            place = (scan.source, version, choices[0].column, choices[0].values.type)
            groups.setdefault(place, []).append(leaf)
        return groups.values()

    def _choices(self, links: Sequence[Link], known: Mapping[str, Found]) -> list[_Choice]:
        """What the links say whose values are known, those with the fewest values first."""
        found: dict[str, _Choice] = {}
        for link in links:
            if not known.keys() >= link.leaves:
                continue
            values = self.cutting.values(link, known)
            if values is None:
                continue
            nulls = link.nulls and values.null_count > 0
            values = values.drop_null()
            other = found.get(link.column)
            if len(values) <= self.most and (other is None or len(values) < len(other.values)):
                found[link.column] = _Choice(link.column, values, nulls)
        return sorted(found.values(), key=lambda choice: len(choice.values))

    # -- tables -------------------------------------------------------------------------------------

    def _told_by_delta(self, scan: Scan) -> bool:
        """Whether a source's rows before its changes are those after them, but for the changes.

        Then nothing need be looked up twice, nor be read of rows that went: they are in the delta. Row ids
        say which rows came, so no row may have been moved to another file meanwhile.
        """
        source, delta = self.inputs.compiled.sources.get(scan.source), self.inputs.deltas.get(scan.source)
        if scan.source in self.inputs.tables or source is None or delta is None or delta.rows is None:
            return False
        return self.inputs.stayed_in_place(scan.source)

    def _versions(self, scan: Scan, choices: Sequence[_Choice]) -> Callable[[Scan], Found | None]:
        """Rows of a table for scans of it as it was or as it is; they are looked up once, if that will do."""
        if not self._told_by_delta(scan):
            found = self._look_up(scan, choices)
            return lambda _: found
        now = self._look_up(replace(scan, version="new"), choices)
        before: list[Found] = []

        def version(wanted: Scan) -> Found | None:
            if now is None or wanted.version == "new":
                return now
            if not before:
                before.append(self._before(now, scan.source, choices[0]))
            return before[0]

        return version

    def _before(self, now: Found, source: str, choice: _Choice) -> Found:
        """Rows as they were before the changes of a source, from those as they are."""
        rows = self.inputs.deltas[source].rows
        column = self.inputs.compiled.sources[source].table.column(choice.column)
        if rows is None or column is None:
            raise ValueError(f"{source} was looked up by its changes")
        came = rows.column(WEIGHT).to_numpy() > 0
        stayed = ~Members(rows.column(ROW_ID).filter(pa.array(came))).among(now.rows.column(ROW_ID))
        looked_at = rows.column(choice.column)
        chosen = Members(_alike(choice.values, column).cast(looked_at.type)).among(looked_at)
        if choice.nulls:
            chosen |= looked_at.is_null().to_numpy()
        back = rows.select(now.rows.schema.names).filter(pa.array(chosen & ~came)).cast(now.rows.schema)
        return Found(pa.concat_tables([now.rows.filter(pa.array(stayed)), back]), now.schema)

    def _needed(self, scan: Scan) -> frozenset[str]:
        """The stored columns that are read of a table for a scan, and for those that share its rows."""
        if not self._told_by_delta(scan):
            return self._names[scan.source, scan.version]
        both = (self._names.get((scan.source, version), frozenset()) for version in ("old", "new"))
        return frozenset({ROW_ID}).union(*both)

    def _look_up(self, scan: Scan, choices: Sequence[_Choice]) -> Found | None:
        name, values, nulls = choices[0].column, choices[0].values, choices[0].nulls
        table = self._table(scan)
        if table is None:
            return None
        sought = [_wanted(table, choice) for choice in choices]
        if sought[0] is None:
            return None
        column, alike = sought[0].column, sought[0].values
        moved = self._moved(scan, table)
        if moved is None:
            return None
        names = self._needed(scan)
        stored = scan.source in self.inputs.tables
        extra = self.inputs.wave.keys.get(table.id, ()) if moved.num_rows else ()
        wanted = [c for c in table.columns if c.name in names or c.name in extra]
        if not len(alike) and not nulls:
            rows = arrow_schema(wanted, field_ids=False).empty_table()
            rows = _with_hidden(
                rows, pa.array([], pa.int64()), pa.array([], pa.int64()), pa.array([], pa.int32())
            )
        else:
            plan = self._plan(scan, table, alike, column, nulls)
            looked = [each for each in sought if each is not None]
            read = [each.column for each in looked]
            if _bytes(plan, column) > _MOST_BYTES or not _same_columns(plan.table, [*read, *wanted]):
                return None
            lake = self.inputs.wave.session.lake
            got = lookup.find_rows(
                plan,
                lake.store,
                lake.db,
                looked,
                [c.name for c in wanted],
                self.most,
                replan=not stored,
                kept=lake.kept_columns,
            )
            if got is None:
                return None
            plan, rows = got
            self._count(plan)
        spark = to_spark(rows, wanted)
        if moved.num_rows:
            mask = pc.is_in(moved.column(name), value_set=values.cast(moved.schema.field(name).type))
            if nulls:
                mask = pc.or_(mask, pc.is_null(moved.column(name)))
            spark = self._after(table, spark, moved, moved.filter(mask))
        return _found(spark, [c for c in wanted if c.name in names], names)

    def _whole(self, scan: Scan) -> Found | None:
        """A small table, all of it."""
        table = self._table(scan)
        moved = None if table is None else self._moved(scan, table)
        if table is None or moved is None:
            return None
        plan = self._plan(scan, table)
        if _rows(plan) + moved.num_rows > _WHOLE:
            return None
        names = self._names[scan.source, scan.version]
        extra = self.inputs.wave.keys.get(table.id, ()) if moved.num_rows else ()
        columns = [c for c in plan.table.columns if c.name in names or c.name in extra]
        lake = self.inputs.wave.session.lake
        stored = scan.source in self.inputs.tables
        kinds = tuple((c.id, c.name, c.type) for c in columns)
        # A delete file may hold deletes of several snapshots: what is left then depends on when one looks.
        at = plan.snapshot.id if any(each.deletes for each in plan.files) else None
        place = (table.id, kinds, names - {c.name for c in columns}, tuple(plan.files), at)
        keep = not plan.inlined and not moved.num_rows
        found = self.whole_tables.known(place) if keep else None
        self._count(plan)
        if found is not None:
            return found
        got = lookup.find_rows(
            plan, lake.store, lake.db, (), [c.name for c in columns], _WHOLE, replan=not stored
        )
        if got is None:
            return None
        rows = to_spark(got[1], columns)
        if moved.num_rows:
            rows = self._after(table, rows, moved, moved)
        found = _found(rows, [c for c in columns if c.name in names], names)
        if keep:
            self.whole_tables.put(place, found)
        return found

    def _count(self, plan: ScanPlan) -> None:
        reading = self.inputs.reading
        reading.files += len(plan.files)
        reading.bytes += sum(scan.file.file_size_bytes for scan in plan.files)

    def _table(self, scan: Scan) -> Table | None:
        inputs = self.inputs
        table = inputs.tables.get(scan.source)
        if table is None and scan.source in inputs.compiled.sources and inputs.compiled.function is None:
            table = inputs.compiled.sources[scan.source].table
        if table is None or table.id in inputs.wave.made:
            return None
        # Columns that hide those which say where a row is leave the table to Spark.
        return None if any(table.column(name) is not None for name in lookup.HIDDEN) else table

    def _moved(self, scan: Scan, table: Table) -> pa.Table | None:
        """What this wave did to a table's rows: nothing if they are read as they were; None: Spark has it."""
        delta = self.inputs.wave.moved.get(table.id)
        nothing = pa.table({})
        if scan.version == "old" or delta is None or delta.empty:
            return nothing
        return delta.rows

    def _plan(
        self, scan: Scan, table: Table, values: Any = None, column: Column | None = None, nulls: bool = False
    ) -> ScanPlan:
        wave = self.inputs.wave
        if scan.source in self.inputs.tables:
            return wave.stored_plan(table)
        at: SnapshotId = self.inputs.since(scan.source) if scan.version == "old" else wave.snapshot_id
        where = None if column is None else _between(column, values, nulls)
        return wave.session.lake.scan(table.name, at, where)

    def _after(self, table: Table, before: pa.Table, moved: pa.Table, matching: pa.Table) -> pa.Table:
        """Rows with this wave's changes: those whose key went are taken out, and what came is added."""
        names = [name for name in before.schema.names if name in moved.schema.names]
        came = matching.filter(pc.greater(matching.column(WEIGHT), _ZERO)).select(names)
        key = self.inputs.wave.keys[table.id]
        if not key:
            return came
        went = moved.filter(pc.less(moved.column(WEIGHT), _ZERO))
        gone = set(row_keys(went.select(key)))
        kept = before.filter(
            pa.array([each not in gone for each in row_keys(before.select(key))], pa.bool_())
        )
        return pa.concat_tables([kept.select(names).cast(came.schema), came])


def _common(choices: Sequence[Sequence[_Choice]]) -> list[_Choice]:
    """What may be asked of rows that are looked up for several scans: any of the values of all of them."""
    if len(choices) == 1:
        return list(choices[0])
    by_column = [{(choice.column, choice.values.type): choice for choice in each} for each in choices]
    common = []
    for place, first in by_column[0].items():
        same = [each[place] for each in by_column if place in each]
        if len(same) < len(by_column):
            continue
        values = {id(choice.values): choice.values for choice in same}.values()
        everything = distinct(pa.chunked_array(list(values)))
        common.append(_Choice(first.column, everything, any(choice.nulls for choice in same)))
    return common


def _wanted(table: Table, choice: _Choice) -> lookup.Wanted | None:
    """A choice in the words of the lake's reader; None if it cannot look for that."""
    column = table.column(choice.column)
    if column is None or column.name != choice.column:
        return None
    alike = _alike(choice.values, column)
    return None if alike is None else lookup.Wanted(column, alike, choice.nulls)


def _same_columns(table: Table, columns: Sequence[Column]) -> bool:
    """Whether a table had these columns as they are now."""
    then = {column.id: (column.name, column.type) for column in table.columns}
    return all(then.get(column.id) == (column.name, column.type) for column in columns)


def _names(scan: Scan) -> frozenset[str]:
    return frozenset(stored for _, stored in (*scan.fields, *scan.key_fields))


def _with_hidden(rows: pa.Table, positions: Any, row_ids: Any, places: Any) -> pa.Table:
    arrays = [*rows.columns, positions, row_ids, places]
    return pa.Table.from_arrays(arrays, names=[*rows.schema.names, *lookup.HIDDEN, lookup.PLACE])


def _found(rows: pa.Table, columns: Sequence[Column], names: Collection[str]) -> Found:
    """Rows as a statement reads them: the columns, and row id or place if they are asked for."""
    schema = spark_schema(columns)
    taken = {column.name: rows.column(column.name) for column in columns}
    if ROW_ID in names and ROW_ID not in taken:
        taken[ROW_ID] = rows.column("rowid").cast(pa.int64())
        schema = schema.add(ROW_ID, st.LongType())
    kinds = ((lookup.PLACE, st.IntegerType()), ("file_row_number", st.LongType()), ("rowid", st.LongType()))
    for name, (own, kind) in zip(PLACE, kinds, strict=True):
        if name in names:
            taken[name] = rows.column(own)
            schema = schema.add(name, kind)
    # All at once: a table without any column does not know how many rows it has.
    return Found(pa.table(taken), schema)


def _alike(values: Any, column: Column) -> Any:
    """Values as a column has them; None if the two are not surely compared as Spark compares them."""
    kind = arrow_schema([column], field_ids=False).field(0).type
    if values.type.equals(kind):
        return values if column.type in _COMPARED or pa.types.is_decimal(kind) else None
    if column.type in _WHOLE_NUMBERS and pa.types.is_signed_integer(values.type):
        limits = np.iinfo(kind.to_pandas_dtype())
        kept = values.to_numpy()
        return pa.array(kept[(kept >= limits.min) & (kept <= limits.max)], kind)
    if column.type == "varchar" and (
        pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    ):
        return values.cast(kind)
    return None


def _between(column: Column, values: Any, nulls: bool) -> Predicate | None:
    """A condition that prunes files: the column is not outside of all values."""
    if not len(values):
        return IsNull((column.name,)) if nulls else None
    try:
        bounds: Any = pc.min_max(values).as_py()
    except OverflowError:  # Python has no date before the year 1 and after 9999
        return None
    inside = And(
        (
            Comparison((column.name,), ">=", bounds["min"]),
            Comparison((column.name,), "<=", bounds["max"]),
        )
    )
    return Or((inside, IsNull((column.name,)))) if nulls else inside


def _rows(plan: ScanPlan) -> int:
    return sum(scan.file.record_count for scan in plan.files) + sum(i.row_count for i in plan.inlined)


def _bytes(plan: ScanPlan, column: Column) -> int:
    kind = arrow_schema([column], field_ids=False).field(0).type
    fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return _rows(plan) * (max(1, kind.bit_width // 8) if fixed else _USUAL)


__all__ = ["Narrowing"]
