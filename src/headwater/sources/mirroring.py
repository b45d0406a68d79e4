"""What a batch means for the lake's rows, put into a transaction of the lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.errors import SourceChangedError
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.sources.images import Row, reader, to_table
from headwater.sources.locating import find_keys, find_rows, fingerprints
from headwater.sources.model import Layout, SourceTable
from headwater.sources.resync import stored_rows
from headwater.sources.triggers import TROUBLE, Net

#: Images that are taken apart before they become Arrow, which needs far less room.
_AT_ONCE = 50_000


def apply(lake: Lake, tx: Transaction, table: SourceTable, layout: Layout, net: Net) -> tuple[int, int, int]:
    """Apply what the changes of a table come to; returns rows inserted, updated and deleted.

    The lake must hold exactly the rows that go: if it does not, somebody else changed it.
    """
    name = str(table.lake_table)
    removed, added = _split(net, layout)
    if net.truncated:
        # What goes was counted from the TRUNCATE on, so it cancelled out, or else was never in the lake.
        if removed.num_rows:
            raise _out_of_step(table, removed.num_rows)
        before = stored_rows(tx.scan(name))
        tx.truncate(name)
        return tx.append(name, added), 0, before
    if not layout.key:
        return _apply_rows(lake, tx, table, removed, added)
    return _apply_keys(lake, tx, table, layout, removed, added)


def _apply_keys(
    lake: Lake, tx: Transaction, table: SourceTable, layout: Layout, removed: pa.Table, added: pa.Table
) -> tuple[int, int, int]:
    name = str(table.lake_table)
    gone = {key: number for number, key in enumerate(_keys(removed, layout.key))}
    if len(gone) < removed.num_rows:
        raise _out_of_step(table, removed.num_rows - len(gone))
    replaced = [gone.get(key, -1) for key in _keys(added, layout.key)]
    if removed.num_rows:
        found = find_keys(lake, tx, name, removed.select(list(layout.key)))
        ids = found.ids(removed.num_rows)
        if found.count != removed.num_rows or (ids < 0).any():
            raise _out_of_step(table, abs(removed.num_rows - found.count) or 1)
        found.remove(tx)
        partner = np.array(replaced, np.int64)
        updates = np.flatnonzero(partner >= 0)
        if len(updates):
            tx.replace_rows(name, added.take(pa.array(updates, pa.int64())), ids[partner[updates]])
            added = added.take(pa.array(np.flatnonzero(partner < 0), pa.int64()))
        inserted = tx.append(name, added) if added.num_rows else 0
        return inserted, len(updates), removed.num_rows - len(updates)
    return tx.append(name, added) if added.num_rows else 0, 0, 0


def _apply_rows(
    lake: Lake, tx: Transaction, table: SourceTable, removed: pa.Table, added: pa.Table
) -> tuple[int, int, int]:
    name = str(table.lake_table)
    if removed.num_rows:
        found = find_rows(lake, tx, name, removed)
        if found.count != removed.num_rows:
            raise _out_of_step(table, removed.num_rows - found.count)
        found.remove(tx)
    inserted = tx.append(name, added) if added.num_rows else 0
    return inserted, 0, removed.num_rows


def _out_of_step(table: SourceTable, rows: int) -> SourceChangedError:
    return SourceChangedError(
        f"The mirror {table.lake_table} is out of step with {table.source_name}.",
        detail=f"{rows} rows that were changed or deleted at the source are not in the lake as they were.",
        hint="Somebody else wrote to the mirror. Run a resync, which replaces what differs.",
        table=str(table.lake_table),
        rows=rows,
    )


# -- images as rows ---------------------------------------------------------------------------------------


@dataclass
class _Parts:
    layout: Layout
    waiting: list[Row] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    def add(self, row: Row, times: int) -> None:
        self.waiting += [row] * times
        if len(self.waiting) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        self.tables.append(to_table(self.waiting, self.layout.columns))
        self.waiting = []

    def whole(self) -> pa.Table:
        if self.waiting or not self.tables:
            self.flush()
        return pa.concat_tables(self.tables)


def _split(net: Net, layout: Layout) -> tuple[pa.Table, pa.Table]:
    """Rows that go, and rows that come."""
    removed, added = _Parts(layout), _Parts(layout)
    fields = reader(layout.columns)
    filled = False
    for image, amount in net.images:
        row = fields(image)
        if TROUBLE in row:
            raise SourceChangedError(
                "A changed row could not be captured: the columns or the condition do not fit the table.",
                detail=row[TROUBLE],
                hint="Remove the source and add it again with columns and a condition that fit.",
            )
        for column in layout.columns:
            if column.name not in row:
                # Written before the column was there.
                row[column.name] = column.missing
                filled = True
        (added if amount > 0 else removed).add(row, abs(amount))
    if filled:
        return _cancelled(removed.whole(), added.whole())
    return removed.whole(), added.whole()


def _cancelled(removed: pa.Table, added: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same without rows that both come and go: images of before and after a column was added."""
    both = Counter(fingerprints(removed)) & Counter(fingerprints(added))
    return _without(removed, both.copy()), _without(added, both.copy())


def _without(rows: pa.Table, spare: dict[tuple[str, ...], int]) -> pa.Table:
    kept = []
    for number, row in enumerate(fingerprints(rows)):
        if spare.get(row, 0) > 0:
            spare[row] -= 1
        else:
            kept.append(number)
    return rows.take(pa.array(kept, pa.int64()))


def _keys(rows: pa.Table, key: Sequence[str]) -> list[tuple[str, ...]]:
    return list(fingerprints(rows.select(list(key))))
