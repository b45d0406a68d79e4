"""A stream table's result as sinks outside its lake take it: all rows, or what changed since a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ConflictError, SnapshotError
from headwater.lake.format.types import arrow_schema
from headwater.lake.lake import Lake
from headwater.lake.model import Column, Table
from headwater.lake.reading.change_reader import read_changes
from headwater.sinks.multiset import net
from headwater.typedefs import SnapshotId, TableName, quote_name

#: The stored row's own number, where a result has no key that is shown.
ROW_ID = "_row_id"
#: Deltas of more rows are not held in memory: then all rows are sent, piece by piece.
MOST_CHANGES = 500_000
_CAME = ("insert", "update_postimage")


@dataclass(frozen=True)
class Result:
    """What a stream table shows at one snapshot of its lake."""

    lake: Lake
    lake_id: str
    stream_id: str
    name: TableName
    storage: Table
    #: The columns that are shown.
    columns: tuple[Column, ...]
    #: Those of them that identify a row; None if no shown ones do.
    key: tuple[str, ...] | None
    #: The stored column that says whether a row is shown, if there is one.
    shown: str | None
    snapshot_id: SnapshotId
    refresh_id: str
    moment: datetime
    #: What tables and views made from it say of themselves.
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the columns that are shown."""
        return [column.name for column in self.columns]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that are shown, as Arrow has them."""
        return pa.schema([part.with_nullable(True) for part in arrow_schema(self.columns, field_ids=False)])

    def changed_rows(self, since: SnapshotId) -> int | None:
        """How many stored rows changed since a snapshot, at most; None if that cannot be told any more."""
        if since >= self.snapshot_id:
            return 0
        try:
            return self.lake.plan_changes(self.storage.name, since + 1, self.snapshot_id).rows_at_most
        except SnapshotError:
            return None

    def changes(self, since: SnapshotId, *, row_ids: bool = False) -> tuple[pa.Table, pa.Table] | None:
        """Rows that came and rows that went since a snapshot; None if all rows have to be sent.

        With `row_ids` their last column is the stored row's number.
        """
        if since >= self.snapshot_id:
            empty = self._arranged(pa.Table.from_batches([], self.schema), row_ids)
            return empty, empty
        try:
            plan = self.lake.plan_changes(self.storage.name, since + 1, self.snapshot_id)
        except SnapshotError:
            return None
        if plan.rows_at_most > MOST_CHANGES:
            return None
        if plan.table.id != self.storage.id:
            raise self._replaced()
        wanted = [*self.names, *([self.shown] if self.shown else [])]
        found = read_changes(plan, self.lake.store, self.lake.db, columns=wanted, net=True, replan=True)
        if self.shown is not None:
            found = found.filter(found.column(self.shown))
        kinds = found.column("_change_type")
        came = pc.is_in(kinds, value_set=pa.array(_CAME, kinds.type))
        rows = self._arranged(found.rename_columns({"_rowid": ROW_ID}) if row_ids else found, row_ids)
        return net(rows.filter(came), rows.filter(pc.invert(came)))

    def batches(self, *, row_ids: bool = False) -> Iterator[pa.RecordBatch]:
        """All rows, piece by piece."""
        table = self.lake.table(self.storage.name, self.snapshot_id)
        if table.id != self.storage.id:
            raise self._replaced()
        condition = None if self.shown is None else quote_name(self.shown)
        hidden = ("rowid",) if row_ids else ()
        for batch in self.lake.iter_batches(
            self.storage.name, self.snapshot_id, columns=self.names, where=condition, hidden=hidden
        ):
            rows = pa.Table.from_batches([batch])
            if row_ids:
                rows = rows.rename_columns([*rows.schema.names[:-1], ROW_ID])
            yield from self._arranged(rows, row_ids).to_batches()

    def _arranged(self, rows: pa.Table, row_ids: bool) -> pa.Table:
        """The shown columns in their order, which is not always that of the storage."""
        if not row_ids:
            return rows.select(self.names)
        if ROW_ID not in rows.schema.names:
            rows = rows.append_column(ROW_ID, pa.nulls(rows.num_rows, pa.int64()))
        return rows.select([*self.names, ROW_ID])

    def _replaced(self) -> ConflictError:
        return ConflictError(
            f"Stream table {self.name} was built anew meanwhile.", stream_table=str(self.name)
        )
