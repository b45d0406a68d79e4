"""Rows as multisets: what is left of rows that came and went, and which stored rows equal given ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format.align import align_input
from headwater.lake.format.equality import row_keys
from headwater.lake.lake import Lake
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import TableName

#: More rows than this are not compared with each other: that a row went and came again is no mistake.
MOST_COMPARED = 200_000


def net(came: pa.Table, went: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows that came and that went without those that are in both, each as often as it is left.

    >>> came, went = net(pa.table({"a": [1, 1, 2]}), pa.table({"a": [1, 3]}))
    >>> came["a"].to_pylist(), went["a"].to_pylist()
    ([1, 2], [3])
    """
    if not came.num_rows or not went.num_rows or came.num_rows + went.num_rows > MOST_COMPARED:
        return came, went
    new, old = row_keys(came), row_keys(went)
    both = Counter(new) & Counter(old)
    if not both:
        return came, went
    return _without(came, new, both), _without(went, old, both)


def _without(rows: pa.Table, keys: Sequence[Any], gone: Counter[Any]) -> pa.Table:
    left = Counter(gone)
    keep = np.ones(rows.num_rows, bool)
    for place, key in enumerate(keys):
        if left[key]:
            left[key] -= 1
            keep[place] = False
    return rows.filter(pa.array(keep))


def remove_equal(lake: Lake, tx: Transaction, name: TableName, gone: pa.Table) -> int:
    """Remove from a table, for each given row, one that is equal to it. Returns how many were found.

    Of the table no more than a file is held; what this transaction changed before is not looked at.
    """
    if not gone.num_rows:
        return 0
    plan = tx.scan(name)
    columns = [column.name for column in plan.table.columns if column.name in gone.schema.names]
    wanted = align_input(gone.select(columns), plan.table.columns).select(columns)
    finder = _Finder(wanted)
    positions = {
        scan.file.id: found
        for scan in plan.files
        if finder.left
        and (found := finder.places(_read(lake, replace(plan, files=(scan,), inlined=()), columns)))
    }
    inlined = {
        part.table_name: found
        for part in plan.inlined
        if finder.left
        and (found := finder.places(_read(lake, replace(plan, files=(), inlined=(part,)), columns, "rowid")))
    }
    return tx.remove_rows(name, plan, positions, inlined)


def _read(lake: Lake, plan: ScanPlan, columns: Sequence[str], place: str = "file_row_number") -> pa.Table:
    # Rows flushed from the catalog meanwhile are a conflict, and the transaction runs again.
    return read_plan(plan, lake.store, lake.db, columns=columns, hidden=(place,))


class _Finder:
    """Looks for rows, each as often as it is wanted."""

    def __init__(self, wanted: pa.Table):
        self._wanted = Counter(row_keys(wanted))
        self._telling = _telling(wanted)
        self._values = None if self._telling is None else wanted.column(self._telling).combine_chunks()

    @property
    def left(self) -> bool:
        """Whether some are not found yet."""
        return bool(self._wanted)

    def places(self, rows: pa.Table) -> list[int]:
        """The places, which the last column has, of rows that are wanted."""
        if self._telling is not None and self._values is not None:
            rows = rows.filter(pc.is_in(rows.column(self._telling), value_set=self._values))
        return list(self._taken(rows))

    def _taken(self, rows: pa.Table) -> Iterator[int]:
        last = rows.num_columns - 1
        values = rows.select(list(range(last)))
        for key, place in zip(row_keys(values), rows.column(last).to_numpy().tolist(), strict=True):
            if key in self._wanted:
                self._wanted[key] -= 1
                if not self._wanted[key]:
                    del self._wanted[key]
                yield place


def _telling(rows: pa.Table) -> int | None:
    """The column that tells rows apart best, among those that Arrow can look values up in."""
    able = [
        place
        for place, field in enumerate(rows.schema)
        if pa.types.is_integer(field.type)
        or pa.types.is_string(field.type)
        or pa.types.is_date(field.type)
        or pa.types.is_timestamp(field.type)
        or pa.types.is_binary(field.type)
    ]
    if not able:
        return None
    return max(able, key=lambda place: int(pc.count_distinct(rows.column(place), mode="all").as_py()))
