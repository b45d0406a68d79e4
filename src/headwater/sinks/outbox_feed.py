"""The changes of a stream table's result as events, in an order that is the same each time they are read.

By snapshot, then by row id; the old row of an id before the new one. Row ids stay when files are merged, so
that the third event of a snapshot is always the same event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

import pyarrow as pa

from headwater.algebra.stages import SHOWN
from headwater.errors import OutboxError, SnapshotError
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.lake.reading.change_plan import ChangePlan
from headwater.lake.reading.change_reader import read_changes
from headwater.sinks.outbox import Event, Position, json_line
from headwater.sinks.outbox_values import json_values
from headwater.typedefs import TableName, quote_name

#: Snapshots that are read at once, and rows, unless one snapshot alone has more.
WINDOW_SNAPSHOTS = 200
WINDOW_ROWS = 50_000
_PIECE = 2000
#: Columns of stored results that are not the user's begin so.
_HIDDEN = "_hw_"
_ENDS = ("delete", "update_preimage")

#: (after, count) → snapshots after one in which the stream table was refreshed, each with its refresh.
Refreshes = Callable[[int, int], Sequence[tuple[int, str]]]
Row = Mapping[str, Any]
_Change = tuple[Literal["insert", "update", "delete"], Row | None, Row | None]


@dataclass(frozen=True)
class Feed:
    """The events of one stream table."""

    lake: Lake
    stream_id: str
    stream_table: str
    storage: TableName
    refreshes: Refreshes
    window_snapshots: int = WINDOW_SNAPSHOTS

    def events(self, position: Position) -> Iterator[tuple[Event | None, Position]]:
        """All events after a position, each with the position after it.

        None stands for snapshots that have passed without an event.
        """
        table_id, after, skip = position.table_id, position.snapshot_id, position.number
        while True:
            refreshes = dict(self.refreshes(after, self.window_snapshots))
            replaced = self._ended(table_id)
            inside = [each for each in sorted(refreshes) if replaced is None or each < replaced]
            if inside:
                last, changes = self._window(table_id, inside)
                found = changes
            elif replaced is not None and replaced > after:
                last, found = replaced, self._difference(replaced)
            else:
                return
            for event in self._numbered(found, refreshes, skip):
                yield event, Position(table_id, event.snapshot_id - 1, event.number)
            skip = 0
            if last == replaced:
                table_id = self._storage(last).id
            after = last
            yield None, Position(table_id, after)

    def _numbered(
        self, found: Iterator[tuple[int, datetime, _Change]], refreshes: Mapping[int, str], skip: int
    ) -> Iterator[Event]:
        number, current, first = 0, -1, None
        for snapshot, moment, (kind, before, after) in found:
            number = number + 1 if snapshot == current else 1
            current = snapshot
            first = snapshot if first is None else first
            if snapshot == first and number <= skip:
                continue
            yield Event(
                self.stream_id,
                self.stream_table,
                snapshot,
                number,
                kind,
                moment,
                refreshes.get(snapshot),
                before,
                after,
            )

    # -- changes of one table -----------------------------------------------------------------------

    def _window(
        self, table_id: int, snapshots: Sequence[int]
    ) -> tuple[int, Iterator[tuple[int, datetime, _Change]]]:
        """The changes of the first of these snapshots, as many as are read at once; and the last of them."""
        listed = list(snapshots)
        while True:
            try:
                plan = self.lake.plan_changes(self.storage, listed[0], listed[-1])
            except SnapshotError as error:
                if len(listed) == 1:
                    raise self._lost(listed[0]) from error
                listed = listed[:1]  # a snapshot between them may have expired that is none of ours
                continue
            if plan.rows_at_most <= WINDOW_ROWS or len(listed) == 1:
                break
            listed = listed[: len(listed) // 2]
        if plan.table.id != table_id:
            raise OutboxError(
                f"Stream table {self.stream_table} was built anew meanwhile.", hint="Relay again."
            )
        return listed[-1], self._changes(plan)

    def _changes(self, plan: ChangePlan) -> Iterator[tuple[int, datetime, _Change]]:
        names = shown_columns(plan.table)
        hides = any(column.name == SHOWN for column in plan.table.columns)
        wanted = [*names, *([SHOWN] if hides else [])]
        found = read_changes(plan, self.lake.store, self.lake.db, columns=wanted, replan=True)
        for (snapshot, _), group in groupby(_rows(found, names, hides), key=lambda row: row[:2]):
            ends: list[Row] = []
            begins: list[Row] = []
            for _, _, kind, row in group:
                if row is not None:
                    (ends if kind in _ENDS else begins).append(row)
            for change in _paired(ends, begins):
                yield snapshot, plan.times[snapshot], change

    # -- a result that was built anew ---------------------------------------------------------------

    def _ended(self, table_id: int) -> int | None:
        """The snapshot at which a table was dropped, if it was."""
        text = self.lake.db.text(
            "SELECT max(end_snapshot) FROM {ducklake_table} WHERE table_id = %(table)s "
            "HAVING count(*) = count(end_snapshot) AND count(*) > 0"
        )
        row = self.lake.db.read(lambda c: c.execute(text, {"table": table_id}).fetchone())
        return None if row is None else int(row[0])

    def _storage(self, snapshot: int) -> Table:
        try:
            return self.lake.table(self.storage, snapshot)
        except SnapshotError as error:
            raise self._lost(snapshot) from error

    def _difference(self, snapshot: int) -> Iterator[tuple[int, datetime, _Change]]:
        """What differs between the old result and the one that was put in its place."""
        moment = self.lake.snapshot(snapshot).time
        left = Counter(json_line(row) for row in self._all_rows(snapshot))
        kept: Counter[str] = Counter()
        for row in self._all_rows(snapshot - 1):
            text = json_line(row)
            if left[text] > kept[text]:
                kept[text] += 1
            else:
                yield snapshot, moment, ("delete", row, None)
        for row in self._all_rows(snapshot):
            text = json_line(row)
            if kept[text] > 0:
                kept[text] -= 1
            else:
                yield snapshot, moment, ("insert", None, row)

    def _all_rows(self, snapshot: int) -> Iterator[Row]:
        table = self._storage(snapshot)
        names = shown_columns(table)
        hides = any(column.name == SHOWN for column in table.columns)
        rows = self.lake.read(
            self.storage,
            snapshot,
            columns=names,
            where=quote_name(SHOWN) if hides else None,
            hidden=("rowid",),
        )
        ordered = rows.sort_by("rowid") if "rowid" not in names else rows
        for start in range(0, ordered.num_rows, _PIECE):
            yield from _dictionaries(ordered.slice(start, _PIECE), names)

    def _lost(self, snapshot: int) -> OutboxError:
        return OutboxError(
            f"Changes of {self.stream_table} that were not relayed yet can no longer be told.",
            detail=f"Snapshot {snapshot} has expired.",
            hint="Detach the outbox and attach it again; the consumer has to begin anew.",
            stream_table=self.stream_table,
            snapshot_id=snapshot,
        )


def shown_columns(table: Table) -> list[str]:
    """The columns of a stored result that users see."""
    return [column.name for column in table.columns if not column.name.startswith(_HIDDEN)]


def _rows(
    found: pa.Table, names: Sequence[str], hides: bool
) -> Iterator[tuple[int, int, str, Mapping[str, Any] | None]]:
    """(snapshot, row id, kind, row) of each change; the row is None where it is not shown."""
    for start in range(0, found.num_rows, _PIECE):
        piece = found.slice(start, _PIECE)
        versions: list[Any] = piece.column("_commit_version").to_pylist()
        ids: list[Any] = piece.column("_rowid").to_pylist()
        kinds: list[Any] = piece.column("_change_type").to_pylist()
        shown = piece.column(SHOWN).to_pylist() if hides else [True] * len(ids)
        rows = _dictionaries(piece, names)
        for version, row_id, kind, there, row in zip(versions, ids, kinds, shown, rows, strict=True):
            yield version, row_id, kind, row if there else None


def _dictionaries(rows: pa.Table, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = [json_values(rows.column(name)) for name in names]
    if not columns:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _paired(ends: list[Row], begins: list[Row]) -> Iterator[_Change]:
    """What became of a row in one snapshot: it came, went, or changed; what users do not see is no change."""
    if len(ends) == 1 and len(begins) == 1:
        if json_line(ends[0]) != json_line(begins[0]):
            yield "update", ends[0], begins[0]
        return
    # Several rows can share an id after DuckDB merged files; which is which does not matter.
    for row in sorted(ends, key=json_line):
        yield "delete", row, None
    for row in sorted(begins, key=json_line):
        yield "insert", None, row
