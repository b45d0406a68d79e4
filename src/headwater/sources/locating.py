"""Where the rows are that a batch removes or replaces: found by the lake's own reader, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from headwater.algebra.literals import Literal
from headwater.algebra.predicates import And, Comparison, In, Predicate
from headwater.lake.format.types import AnyArray, decimal_parts, no_rows
from headwater.lake.lake import Lake
from headwater.lake.reading.file_reader import read_file
from headwater.lake.reading.read import ROWS_AT_ONCE, inlined_of_plan, read_concurrently
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import FileId

#: Columns whose values PostgreSQL can compare with the bounds of files.
_BOUNDED = frozenset({"int16", "int32", "int64", "varchar", "uuid"})
#: More values than these are looked for by their bounds alone.
_MOST_VALUES = 500
_PLACE, _WANTED = "headwater place", "headwater wanted"
Numbers = npt.NDArray[np.int64]
#: Its stubs know arrays of one known type each.
pc: Any = pyarrow.compute


@dataclass(frozen=True)
class _Part:
    """Rows that were found in one place: a file, or a table of inlined rows by its name."""

    source: FileScan | str
    places: Numbers
    """Positions in a file; row ids in the catalog."""
    row_ids: Numbers
    wanted: Numbers
    """Which of the wanted rows each of them is."""


@dataclass
class Found:
    """Rows of a plan, for `tx.remove_rows`."""

    plan: ScanPlan
    _parts: list[_Part] = field(default_factory=list)
    _values: list[pa.Table] = field(default_factory=list)

    def remove(self, tx: Transaction) -> None:
        """Remove them all."""
        positions: dict[FileId, list[Numbers]] = {}
        inlined: dict[str, list[int]] = {}
        for part in self._parts:
            if isinstance(part.source, str):
                inlined.setdefault(part.source, []).extend(part.places.tolist())
            else:
                positions.setdefault(part.source.file.id, []).append(part.places)
        whole = {file: np.concatenate(parts) for file, parts in positions.items()}
        tx.remove_rows(self.plan.table.name, self.plan, whole, inlined)

    def ids(self, count: int) -> Numbers:
        """The row ids by wanted row, of which there are `count`; -1 where nothing was found."""
        result = np.full(count, -1, np.int64)
        for part in self._parts:
            result[part.wanted] = part.row_ids
        return result

    def keep(self, values: pa.Table) -> None:
        """Keep values of the rows that were added last."""
        self._values.append(values)

    def values(self) -> tuple[pa.Table, dict[int, int]]:
        """Values that were kept, and the place of each wanted row among them."""
        numbers = [number for part in self._parts for number in part.wanted.tolist()]
        tables = [table.replace_schema_metadata(None) for table in self._values]
        whole = pa.concat_tables(tables) if tables else no_rows(pa.schema([]))
        return whole, {number: place for place, number in enumerate(numbers)}

    def only(self, wanted: Numbers) -> Found:
        """The same with these wanted rows alone."""
        chosen = Found(self.plan)
        for rows in self._parts:
            mask = np.isin(rows.wanted, wanted)
            chosen.add(rows.source, rows.places[mask], rows.row_ids[mask], rows.wanted[mask])
        return chosen

    @property
    def count(self) -> int:
        """How many rows were found."""
        return sum(len(part.row_ids) for part in self._parts)

    def add(self, source: FileScan | str, places: Numbers, row_ids: Numbers, wanted: Numbers) -> None:
        """Add rows of one place: their positions there (row ids in the catalog), ids, and wanted rows."""
        if len(places):
            self._parts.append(_Part(source, places, row_ids, wanted))


def find_keys(lake: Lake, tx: Transaction, table: str, keys: pa.Table, values: Sequence[str] = ()) -> Found:
    """The rows that have one of these keys; `keys` holds each key once. `values` of them are kept."""
    names = keys.schema.names
    plan = tx.scan(table, _bounds(tx, table, keys))
    found = Found(plan)
    match = _matcher(keys)
    for source, rows in _pieces(lake, plan, [*names, *values]):
        at, wanted = match(rows.select(names))
        if len(at):
            found.add(source, _numbers(rows, _PLACE)[at], _numbers(rows, "rowid")[at], wanted)
            if values:
                found.keep(rows.select(list(values)).take(pa.array(at, pa.int64())))
    return found


def every_row(lake: Lake, plan: ScanPlan, names: Sequence[str]) -> tuple[pa.Table, Found]:
    """All rows of a plan, and where they are; each is wanted, in the order of the table."""
    found, tables, count = Found(plan), [], 0
    for source, rows in _pieces(lake, plan, names):
        numbers = np.arange(count, count + rows.num_rows, dtype=np.int64)
        found.add(source, _numbers(rows, _PLACE), _numbers(rows, "rowid"), numbers)
        tables.append(rows.select(list(names)).replace_schema_metadata(None))
        count += rows.num_rows
    if not tables:
        return no_rows(Request.of(plan.table, names, None, ()).schema), found
    return pa.concat_tables(tables), found


def find_rows(lake: Lake, tx: Transaction, table: str, wanted: pa.Table) -> Found:
    """As many rows that look like the wanted ones, column by column, as there are of each."""
    names = wanted.schema.names
    plan = tx.scan(table, _bounds(tx, table, wanted))
    left: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(fingerprints(wanted)):
        left.setdefault(row, []).append(number)
    probes = [
        (name, pc.unique(_plain(wanted.column(name))))
        for name in names
        if not pa.types.is_nested(wanted.schema.field(name).type)
    ]
    found = Found(plan)
    for source, rows in _pieces(lake, plan, names):
        # Floats are left to the comparison of texts: NaN equals nothing.
        kept = np.ones(rows.num_rows, bool)
        for name, values in probes:
            if not pa.types.is_floating(values.type):
                kept &= pc.is_in(_plain(rows.column(name)), value_set=values).to_numpy(zero_copy_only=False)
        candidates = np.flatnonzero(kept)
        at, numbers = [], []
        for place, row in zip(
            candidates.tolist(),
            fingerprints(rows.select(names).take(pa.array(candidates, pa.int64()))),
            strict=True,
        ):
            if waiting := left.get(row):
                at.append(place)
                numbers.append(waiting.pop())
        chosen = np.array(at, np.int64)
        found.add(
            source,
            _numbers(rows, _PLACE)[chosen],
            _numbers(rows, "rowid")[chosen],
            np.array(numbers, np.int64),
        )
    return found


def fingerprints(rows: pa.Table) -> Iterator[tuple[str, ...]]:
    """Rows as texts that are equal exactly if the rows are: NaN equals itself, -0.0 does not equal 0.0."""
    columns = [[repr(value) for value in _listed(column)] for column in rows.columns]
    return zip(*columns, strict=True) if columns else iter(())


def _listed(column: AnyArray) -> list[Any]:
    plain = _plain(column)
    kind = plain.type
    # Days and ticks as they are stored: Python has no year 0 and no infinity.
    if pa.types.is_date32(kind):
        plain = plain.cast(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        plain = plain.cast(pa.int64())
    return list(plain.to_pylist())


def _pieces(lake: Lake, plan: ScanPlan, names: Sequence[str]) -> Iterator[tuple[FileScan | str, pa.Table]]:
    """Columns of the plan's rows with `_PLACE` and `rowid`, piece by piece."""
    request = Request.of(plan.table, names, None, ["rowid"])
    _, inlined = inlined_of_plan(plan, lake.db, request, replan=False)
    for scan, rows in zip(plan.inlined, inlined, strict=True):
        yield scan.table_name, rows.append_column(_PLACE, rows.column("rowid"))
    request = Request.of(plan.table, names, None, ["rowid", "file_row_number"])
    numbered = list(enumerate(plan.files))

    def read(item: tuple[int, FileScan]) -> Iterator[pa.Table]:
        number, scan = item
        for piece in read_file(lake.store, plan, scan, request, rows_at_once=ROWS_AT_ONCE):
            renamed = piece.rename_columns([*names, "rowid", _PLACE])
            yield renamed.replace_schema_metadata({"number": str(number)})

    for rows in read_concurrently(numbered, read):
        number = int((rows.schema.metadata or {})[b"number"])
        yield plan.files[number], rows


def _numbers(rows: pa.Table, name: str) -> Numbers:
    return rows.column(name).to_numpy().astype(np.int64)


def _plain(column: AnyArray) -> AnyArray:
    """Values in the type that stores them: Arrow compares no UUIDs and no JSON."""
    whole: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.storage if isinstance(whole.type, pa.BaseExtensionType) else whole


def _matcher(keys: pa.Table) -> Callable[[pa.Table], tuple[Numbers, Numbers]]:
    """What finds rows with one of the keys: their places, and the places of their keys."""
    values = [_plain(column) for column in keys.columns]
    if len(values) == 1:

        def one(rows: pa.Table) -> tuple[Numbers, Numbers]:
            found = pc.index_in(_plain(rows.column(0)), value_set=values[0])
            at = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            return at, found.drop_null().to_numpy().astype(np.int64)

        return one
    names = [f"key {place}" for place in range(len(values))]
    wanted = pa.Table.from_arrays(
        [*values, pa.array(np.arange(keys.num_rows), pa.int64())], names=[*names, _WANTED]
    )

    def many(rows: pa.Table) -> tuple[Numbers, Numbers]:
        numbered: list[Any] = [*map(_plain, rows.columns), pa.array(np.arange(rows.num_rows), pa.int64())]
        joined = pa.Table.from_arrays(numbered, names=[*names, _PLACE]).join(
            wanted, keys=names, join_type="inner"
        )
        return _numbers(joined, _PLACE), _numbers(joined, _WANTED)

    return many


def _bounds(tx: Transaction, name: str, wanted: pa.Table) -> Predicate | None:
    """What the wanted rows say about the files that can hold them."""
    table = tx.state.table(name)
    parts: list[Predicate] = []
    for place, column_name in enumerate(wanted.schema.names):
        column = table.column(column_name)
        if column is None or not (column.type in _BOUNDED or decimal_parts(column.type)):
            continue
        values = pc.unique(_plain(wanted.column(place)))
        if values.null_count:
            continue
        path = (column.name,)
        if len(values) <= _MOST_VALUES:
            parts.append(In(path, tuple(_literal(value, column.type) for value in values.to_pylist())))
        elif column.type != "uuid":
            ends = pc.min_max(values).as_py()
            parts += [Comparison(path, ">=", ends["min"]), Comparison(path, "<=", ends["max"])]
        if len(parts) >= 3:
            break
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _literal(value: Any, type_: str) -> Literal:
    return UUID(bytes=value) if type_ == "uuid" else value
