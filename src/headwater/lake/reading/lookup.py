"""Rows of a plan whose value of one column is among some values: few rows of a table that may be large.

The column alone is read first, and the others only of the row groups that hold such rows. Nothing but what is
found is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.connection import Database
from headwater.lake.format.types import AnyArray, no_rows
from headwater.lake.model import Column
from headwater.lake.reading.deletes import Positions
from headwater.lake.reading.file_reader import (
    Mask,
    Selection,
    explained,
    live_rows,
    read_selected,
)
from headwater.lake.reading.kept_columns import KeptColumns
from headwater.lake.reading.members import Members
from headwater.lake.reading.read import ROWS_AT_ONCE, inlined_of_plan, read_concurrently, readers_of
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.lake.reading.searching import expected_share, search
from headwater.storage.store import Store

#: Where a column left a larger share of a file's rows than this, the next one is looked at.
_FEW = 0.1
#: … and so is it where the files together would have more than this part of the most rows that may be found.
_SHARE = 4
#: How many bytes a value has, if that depends on the value.
_USUAL = 16
#: What a row's place is called: the number of a file of the plan, or -1 - that of a table of inlined rows.
PLACE = "headwater place"
#: The hidden columns that can be asked for here, beside `PLACE`.
HIDDEN = ("file_row_number", "rowid")


@dataclass(frozen=True)
class Wanted:
    """The values that are looked for."""

    column: Column
    #: Distinct, in the type the column is read in, without NULL.
    values: AnyArray
    #: Whether rows that have no value are wanted too.
    nulls: bool = False

    @cached_property
    def members(self) -> Members:
        """The values, to be asked for."""
        return Members(self.values)

    def among(self, found: Any) -> Mask:
        """Which of the values of a column are wanted."""
        mask = self.members.among(found)
        if self.nulls and found.null_count:
            mask |= pc.is_null(found).to_numpy()
        return mask


def find_rows(
    plan: ScanPlan,
    store: Store,
    db: Database,
    wanted: Sequence[Wanted],
    columns: Sequence[str],
    most: int,
    *,
    replan: bool = False,
    kept: KeptColumns | None = None,
) -> tuple[ScanPlan, pa.Table] | None:
    """The rows with wanted values (all, if none are named): the columns, `HIDDEN`, `PLACE`; and their plan.

    Of several columns one is looked at, and the next where that left many rows: there may be rows that have
    no wanted value in a later one. None if there are more than `most`. What is read of files is
    `kept` for the next time. (An inlined row's `file_row_number` is its row id.)
    """
    sought = [each.column.name for each in wanted]
    request = Request.of(plan.table, list(dict.fromkeys((*columns, *sought))), None, ["rowid"])
    plan, inlined = inlined_of_plan(plan, db, request, replan)
    found: list[pa.Table] = []
    for number, rows in enumerate(inlined):
        for each in wanted:
            rows = rows.filter(pa.array(each.among(rows.column(each.column.name))))
        ids = rows.column("rowid")
        found.append(_placed(rows.select(list(columns)), ids, ids, -1 - number))
    rest = Request.of(plan.table, columns, None, HIDDEN)
    # Columns that would push much else out are not decoded for the few rows that are taken of them.
    keep = kept if kept is not None and kept.has_room_for(_size(plan, columns)) else None
    # A share of what may be found at all: beyond it a further column can make the difference.
    enough = most / (_SHARE * max(1, len(plan.files)))

    def read(numbered: tuple[int, FileScan]) -> Iterator[pa.Table]:
        number, scan = numbered
        with explained(plan, scan.file):
            live = live_rows(store, plan, scan, kept)
            # Whether a row is there is asked of the few that are found, if its place tells.
            selection: Selection = live if live.by_snapshot or not wanted else _All()
            for each in _in_turn(store, scan, wanted, kept):
                positions = _positions(store, plan, scan, each, selection, kept)
                if isinstance(selection, _All):
                    positions = live.among(positions)
                if not len(positions):
                    return
                selection = _Chosen(positions)
                if len(positions) <= min(_FEW * scan.file.record_count, enough):
                    break
            at = selection.positions if isinstance(selection, _Chosen) else None
            for piece in read_selected(store, plan, scan.file, rest, selection, 1, keep, at, kept):
                own = piece.select(list(columns))
                yield _placed(own, piece.column("file_row_number"), piece.column("rowid"), number)

    count = sum(rows.num_rows for rows in found)
    if count > most:
        return None
    readers = readers_of([scan.file for scan in plan.files])
    for rows in read_concurrently(list(enumerate(plan.files)), read, readers):
        count += rows.num_rows
        if count > most:
            return None
        found.append(rows)
    if not found:
        nothing = no_rows(Request.of(plan.table, columns, None, HIDDEN).schema)
        return plan, nothing.append_column(PLACE, pa.array([], pa.int32()))
    return plan, pa.concat_tables(found)


def _in_turn(
    store: Store, scan: FileScan, wanted: Sequence[Wanted], kept: KeptColumns | None
) -> Sequence[Wanted]:
    """What is looked for, that which leaves the fewest rows of a file first, as far as that is known."""
    if len(wanted) < 2 or kept is None:
        return wanted
    shares = [expected_share(store, scan.file, each.column, each.values, kept) for each in wanted]
    known = [_FEW if share is None else share for share in shares]
    return [wanted[place] for place in np.argsort(known, kind="stable")]


def _size(plan: ScanPlan, columns: Sequence[str]) -> int:
    """How many bytes the files' values of the columns take, about."""
    kinds = [field.type for field in Request.of(plan.table, columns, None, ()).schema]
    width = sum(kind.bit_width // 8 if pa.types.is_primitive(kind) else _USUAL for kind in kinds)
    return width * sum(scan.file.record_count for scan in plan.files)


def _positions(
    store: Store,
    plan: ScanPlan,
    scan: FileScan,
    wanted: Wanted,
    alive: Selection,
    kept: KeptColumns | None,
) -> Positions:
    """Where the rows of a file are that have a wanted value, ascending."""
    if isinstance(alive, _All) and kept is not None and not wanted.nulls:
        searched = search(store, scan.file, wanted.column, wanted.members, kept)
        if searched is not None:
            return searched
    keys = Request.of(plan.table, [wanted.column.name], None, ("file_row_number",))
    hits = [np.empty(0, np.int64)]
    for piece in read_selected(store, plan, scan.file, keys, alive, ROWS_AT_ONCE, kept):
        mask = wanted.among(piece.column(0))
        if mask.any():
            hits.append(piece.column(1).to_numpy()[mask])
    return np.concatenate(hits)


@dataclass(frozen=True)
class _All:
    """All rows that a file has."""

    by_snapshot: bool = False

    def none_of(self, first: int, count: int, snapshots: tuple[int, int] | None) -> bool:
        return False

    def kept(self, first: int, count: int, snapshots: Positions | None) -> Mask | None:
        return None


@dataclass(frozen=True)
class _Chosen:
    """Rows at given positions of a file."""

    positions: Positions
    by_snapshot: bool = False

    def none_of(self, first: int, count: int, snapshots: tuple[int, int] | None) -> bool:
        low, high = np.searchsorted(self.positions, (first, first + count))
        return bool(low == high)

    def kept(self, first: int, count: int, snapshots: Positions | None) -> Mask:
        low, high = np.searchsorted(self.positions, (first, first + count))
        mask = np.zeros(count, np.bool_)
        mask[self.positions[low:high] - first] = True
        return mask


def _placed(rows: pa.Table, positions: Any, row_ids: Any, number: int) -> pa.Table:
    places = pa.array(np.full(len(row_ids), number, np.int32))
    arrays = [*rows.columns, positions, row_ids, places]
    return pa.Table.from_arrays(arrays, names=[*rows.schema.names, *HIDDEN, PLACE])
