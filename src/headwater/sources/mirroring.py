"""What a batch means for the lake's rows, put into a transaction of the lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import SourceChangedError
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.sources.batches import UNCHANGED, Changes, Latest, Net, NetRows, Row
from headwater.sources.images import reader, to_table
from headwater.sources.locating import Found, Numbers, find_keys, find_rows, fingerprints
from headwater.sources.model import Layout, SourceTable
from headwater.sources.resync import stored_rows
from headwater.sources.triggers import TROUBLE

#: Images that are taken apart before they become Arrow, which needs far less room.
_AT_ONCE = 50_000
_READ_AT_ONCE = 5_000


def apply(
    lake: Lake, tx: Transaction, table: SourceTable, layout: Layout, changes: Changes
) -> tuple[int, int, int]:
    """Apply what the changes of a table come to; returns rows inserted, updated and deleted.

    Where both images of changed rows are known, the lake must hold exactly the rows that go: if it does not,
    somebody else changed it.
    """
    name = str(table.lake_table)
    if isinstance(changes, Latest):
        return _apply_latest(lake, tx, table, layout, changes)
    removed, added = _split(changes, layout)
    if changes.truncated:
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
    coming = _keys(added, layout.key)
    if len(set(coming)) < len(coming):
        raise _out_of_step(table, len(coming) - len(set(coming)))
    replaced = [gone.get(key, -1) for key in coming]
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


def _apply_latest(
    lake: Lake, tx: Transaction, table: SourceTable, layout: Layout, changes: Latest
) -> tuple[int, int, int]:
    """Apply the last that was said of each key, whatever the lake had of it."""
    name = str(table.lake_table)
    left = [row for row in changes.rows.values() if row is not None]
    keys = list(dict.fromkeys([*changes.rows, *changes.bases.values()]))
    before = 0
    if changes.truncated:
        before = stored_rows(tx.scan(name))
        tx.truncate(name)
        return tx.append(name, to_table(_filled(left, layout), layout.columns)), 0, before
    if not keys:
        return 0, 0, 0
    if changes.only_came:
        return tx.append(name, to_table(_filled(left, layout), layout.columns)), 0, 0
    key_columns = [column for name_ in layout.key if (column := layout.column(name_)) is not None]
    wanted = to_table([dict(zip(layout.key, key, strict=True)) for key in keys], key_columns)
    kept = sorted({name_ for row in left for name_, value in row.items() if value is UNCHANGED})
    found = find_keys(lake, tx, name, wanted, kept)
    places = {key: number for number, key in enumerate(keys)}
    ids = found.ids(len(keys))
    touched = np.array([places[key] for key in changes.rows], np.int64)
    found.only(touched).remove(tx)
    numbers = [places[key] for key, row in changes.rows.items() if row is not None]
    bases = [places[changes.bases.get(key, key)] for key, row in changes.rows.items() if row is not None]
    rows = _completed(table, _filled(left, layout), layout, found, np.array(bases, np.int64), kept)
    mine = ids[np.array(numbers, np.int64)]
    updates, inserts = np.flatnonzero(mine >= 0), np.flatnonzero(mine < 0)
    if len(updates):
        tx.replace_rows(name, rows.take(pa.array(updates, pa.int64())), mine[updates])
    if len(inserts):
        tx.append(name, rows.take(pa.array(inserts, pa.int64())))
    return len(inserts), len(updates), int((ids[touched] >= 0).sum()) - len(updates)


def _completed(
    table: SourceTable,
    rows: Sequence[Row],
    layout: Layout,
    found: Found,
    bases: Numbers,
    kept: Sequence[str],
) -> pa.Table:
    """Rows with the values that were left alone, as the lake has them under the keys of `bases`."""
    given = [{name: None if value is UNCHANGED else value for name, value in row.items()} for row in rows]
    whole = to_table(given, layout.columns)
    if not kept:
        return whole
    stored, places = found.values()
    at = np.array([places.get(base, -1) for base in bases.tolist()], np.int64)
    for name in kept:
        alone = np.array([row[name] is UNCHANGED for row in rows], bool)
        if (at[alone] < 0).any():
            raise _out_of_step(table, int((at[alone] < 0).sum()))
        place = whole.schema.get_field_index(name)
        both = pa.chunked_array([*whole.column(name).chunks, *stored.column(name).chunks])
        order = np.where(alone, len(rows) + at, np.arange(len(rows)))
        whole = whole.set_column(place, name, both.take(pa.array(order, pa.int64())))
    return whole


def _filled(rows: Sequence[Row], layout: Layout) -> list[Row]:
    """Rows with all columns: those that came later hold what older rows hold."""
    missing = {column.name: column.missing for column in layout.columns}
    return [{**missing, **row} for row in rows]


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
    waiting: list[Mapping[str, Any]] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    def add(self, row: Mapping[str, Any], times: int) -> None:
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


def _split(changes: Net | NetRows, layout: Layout) -> tuple[pa.Table, pa.Table]:
    """Rows that go, and rows that come."""
    removed, added = _Parts(layout), _Parts(layout)
    filled = isinstance(changes, NetRows)
    names = {column.name for column in layout.columns}
    for row, amount in _rows(changes, layout):
        if not names <= row.keys():
            # Written before some column was there.
            row = {**{column.name: column.missing for column in layout.columns}, **row}
            filled = True
        (added if amount > 0 else removed).add(row, abs(amount))
    if filled:
        return _cancelled(removed.whole(), added.whole())
    return removed.whole(), added.whole()


def _rows(changes: Net | NetRows, layout: Layout) -> Iterator[tuple[Mapping[str, Any], int]]:
    if isinstance(changes, NetRows):
        yield from changes.rows
        return
    read = reader(layout.columns)
    for start in range(0, len(changes.images), _READ_AT_ONCE):
        part = changes.images[start : start + _READ_AT_ONCE]
        for row, (_, amount) in zip(read([image for image, _ in part]), part, strict=True):
            if TROUBLE in row:
                raise SourceChangedError(
                    "A changed row could not be captured: the columns or the condition do not fit the table.",
                    detail=row[TROUBLE],
                    hint="Remove the source and add it again with columns and a condition that fit.",
                )
            yield row, amount


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
