"""Row operations of a transaction: append, delete, update, truncate, and reading its own changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from headwater.algebra.predicates import parse_predicate
from headwater.errors import InvalidInputError
from headwater.lake.catalog import no_column
from headwater.lake.format.align import align_input
from headwater.lake.format.conform import conform
from headwater.lake.format.types import arrow_schema, no_rows
from headwater.lake.format.values import can_inline
from headwater.lake.model import DataFile, StagedFile, Table
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.row_filter import HIDDEN, RowFilter
from headwater.lake.reading.scan import FileScan, InlinedScan, ScanPlan, plan_scan
from headwater.lake.writing.draft import (
    NO_POSITIONS,
    Draft,
    FileDeletes,
    InlinedRows,
    NewFile,
    Positions,
)
from headwater.lake.writing.flush import plan_flush
from headwater.lake.writing.row_sql import assign, rows_to_table
from headwater.lake.writing.staging import Stager
from headwater.lake.writing.whole import WholeOperations, whole
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.lake.writing.transaction import LakeContext

#: Rows as callers have them.
Rows = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Sequence[Mapping[str, Any]]
_CHUNK_BYTES = 256 << 20
#: The mapping of a file that has no number yet.
_OWN_MAPPING = -1


@dataclass
class Located:
    """Rows of one place (a file, the catalog, this transaction) that a condition met."""

    source: FileScan | InlinedScan | NewFile | int
    """A number is the place of rows this transaction keeps for the catalog."""
    positions: Positions
    """Positions in the source (row ids, for rows in the catalog)."""
    row_ids: list[int | None]
    rows: pa.Table
    """The rows themselves, in the table's columns, where they were asked for."""

    def without(self, row_ids: set[int]) -> Located | None:
        """The same without those row ids; None if nothing is left."""
        keep = [i for i, row_id in enumerate(self.row_ids) if row_id not in row_ids]
        if not keep:
            return None
        return Located(
            self.source,
            self.positions[keep],
            [self.row_ids[i] for i in keep],
            self.rows.take(pa.array(keep, pa.int64())),
        )


class DataOperations(WholeOperations):
    """Changes to rows. Mixed into `Transaction`."""

    _context: LakeContext

    @property
    @abstractmethod
    def _draft(self) -> Draft: ...

    _stager: Stager
    already_applied: bool

    @abstractmethod
    def _inlining_limit(self, schema_id: int | None, table_id: int | None) -> int: ...

    # -- writing ------------------------------------------------------------------------------------

    @whole
    def append(self, table: TableName | str, rows: Rows) -> int:
        """Add rows; columns are matched by name, missing ones get their default. Returns their number.

        A stream (`RecordBatchReader`) is stored piece by piece and never held in memory as a whole.
        """
        if self.already_applied:
            return 0
        found = self._draft.state.table(table)
        if isinstance(rows, pa.RecordBatchReader):
            return self._append_stream(found, rows)
        return self._add(found, align_input(as_arrow(rows, found), found.columns))

    @whole
    def add_files(self, table: TableName | str, files: Iterable[StagedFile]) -> int:
        """Add files that are stored already, in the table's folder or anywhere else. Returns their rows."""
        if self.already_applied:
            return 0
        found = self._draft.state.table(table)
        listed = list(files)
        if self._stager.options.encrypted and any(file.encryption_key is None for file in listed):
            raise InvalidInputError(
                f"A file without a key cannot be added to table {found.name}: the lake is encrypted.",
                hint="Store files with tx.stager, which encrypts them.",
                table=str(found.name),
            )
        self._draft.rows(found).files += map(NewFile, listed)
        return sum(file.record_count for file in listed)

    @whole
    def truncate(self, table: TableName | str) -> None:
        """Remove every row, without reading any."""
        if self.already_applied:
            return
        found = self._draft.state.table(table)
        data = self._draft.rows(found)
        self._discard(found, data.files)
        data.files.clear()
        data.inlined.clear()
        data.deletes.clear()
        data.inlined_deletes.clear()
        if found.id >= 0:
            plan = plan_scan(self._context.db, self._draft.base, found)
            data.ended_files = {scan.file.id for scan in plan.files}
            data.truncated = True

    @whole
    def delete(self, table: TableName | str, where: str | None = None) -> int:
        """Remove the rows that meet a condition (all without one). Returns how many there were."""
        if self.already_applied:
            return 0
        found = self._draft.state.table(table)
        count = 0
        for located in self._locate(found, where or "true"):
            count += len(located.positions)
            self._remove(found, located)
        return count

    @whole
    def update(self, table: TableName | str, set: Mapping[str, Any], where: str | None = None) -> int:
        """Change columns of the rows that meet a condition; rows keep their ids. Returns their number.

        A text is an SQL expression over the row (`{"price": "price * 1.1"}`), anything else a value.
        """
        if self.already_applied:
            return 0
        found = self._draft.state.table(table)
        for name in set:
            if found.column(name) is None:
                raise no_column(found, name)
        if not set:
            raise InvalidInputError("An update needs at least one column to set.", table=str(found.name))
        count = 0
        waiting: list[InlinedRows] = []
        for located in self._locate(found, where or "true", with_rows=True):
            changed = align_input(assign(located.rows, found.columns, set), found.columns)
            self._remove(found, located)
            waiting.append(InlinedRows(changed, tuple(located.row_ids)))
            count += changed.num_rows
            if sum(part.table.nbytes for part in waiting) > _CHUNK_BYTES:
                self._add_replacements(found, waiting, count)
                waiting = []
        self._add_replacements(found, waiting, count)
        return count

    @whole
    def flush_inlined(self, table: TableName | str) -> int:
        """Write rows and deletes kept in the catalog to Parquet files. Returns how many there were."""
        if self.already_applied:
            return 0
        found = self._draft.state.table(table)
        data = self._draft.rows(found)
        if data.inserts or data.removes or found is not self._draft.base.table_by_id(found.id):
            raise InvalidInputError(
                f"Table {found.name} has uncommitted changes; flush it in a transaction of its own.",
                table=str(found.name),
            )
        data.flush = plan_flush(self._context.db, self._draft.base, found, self._stager)
        return data.flush.count if data.flush else 0

    # -- reading ------------------------------------------------------------------------------------

    def read(
        self,
        table: TableName | str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """The table's rows as this transaction sees them, its own changes included."""
        found = self._draft.state.table(table)
        located = list(self._locate(found, where or "true", with_rows=True))
        tables = [part.rows for part in located]
        empty = no_rows(arrow_schema(found.columns, field_ids=False))
        result = pa.concat_tables(tables) if tables else empty
        return result.select(list(columns)) if columns is not None else result

    # -- helpers ------------------------------------------------------------------------------------

    @abstractmethod
    def _discard(self, table: Table, files: Iterable[NewFile]) -> None: ...

    def _add(self, table: Table, rows: pa.Table) -> int:
        if rows.num_rows == 0:
            return 0
        data = self._draft.rows(table)
        limit = self._inlining_limit(table.schema_id, table.id)
        if rows.num_rows <= limit and can_inline(table.columns):
            data.inlined.append(InlinedRows(rows, (None,) * rows.num_rows))
        else:
            data.files += map(NewFile, self._stager.stage(table, rows))
        return rows.num_rows

    def _append_stream(self, table: Table, reader: pa.RecordBatchReader) -> int:
        limit = self._inlining_limit(table.schema_id, table.id)
        batches = (batch for batch in reader if batch.num_rows)
        head: list[pa.RecordBatch] = []
        for batch in batches:
            head.append(batch)
            if sum(b.num_rows for b in head) > limit:
                break
        else:
            return self._add(table, align_input(pa.Table.from_batches(head, reader.schema), table.columns))

        def aligned() -> Iterator[pa.RecordBatch]:
            for part in (*head, *batches):
                yield from align_input(pa.Table.from_batches([part]), table.columns).to_batches()

        data = self._draft.rows(table)
        count = 0
        for staged in self._stager.stage_stream(table, aligned()):
            data.files.append(NewFile(staged))
            count += staged.record_count
        return count

    def _add_replacements(self, table: Table, parts: Sequence[InlinedRows], total: int) -> None:
        """Store changed rows under the ids they had; rows this transaction added have none yet."""
        if not parts:
            return
        data = self._draft.rows(table)
        if total <= self._inlining_limit(table.schema_id, table.id) and can_inline(table.columns):
            data.inlined += parts
            return
        rows = pa.concat_tables([part.table for part in parts])
        row_ids = [row_id for part in parts for row_id in part.row_ids]
        known = np.array([row_id is not None for row_id in row_ids], bool)
        for mask, ids in (
            (known, pa.array([i for i in row_ids if i is not None], pa.int64())),
            (~known, None),
        ):
            if mask.any():
                part = rows if mask.all() else rows.filter(pa.array(mask))
                data.files += map(NewFile, self._stager.stage(table, part, ids))

    def _remove(self, table: Table, located: Located) -> None:
        data = self._draft.rows(table)
        source = located.source
        if isinstance(source, NewFile):
            source.deleted = _united(source.deleted, located.positions)
        elif isinstance(source, FileScan):
            known = data.deletes.get(source.file.id)
            before = known.positions if known else NO_POSITIONS
            data.deletes[source.file.id] = FileDeletes(
                source.file,
                source.deletes,
                np.array(source.inlined_deletes, np.int64) if known is None else known.inlined,
                _united(before, located.positions),
            )
        elif isinstance(source, InlinedScan):
            data.inlined_deletes.setdefault(source.table_name, set()).update(located.positions.tolist())
        else:
            part = data.inlined[source]
            keep = np.ones(part.table.num_rows, bool)
            keep[located.positions] = False
            data.inlined[source] = InlinedRows(
                part.table.filter(pa.array(keep)),
                tuple(row_id for row_id, kept in zip(part.row_ids, keep, strict=True) if kept),
            )

    def _locate(self, table: Table, where: str, *, with_rows: bool = False) -> Iterator[Located]:
        """Rows that meet a condition, one place after the other; what was deleted already is left out.

        Rows of this transaction come first, so that replacing rows on the way does not meet them again.
        """
        predicate = parse_predicate(where)
        yield from self._locate_own(table, where, with_rows)
        data = self._draft.data.get(table.id)
        if table.id < 0 or (data is not None and data.truncated):
            return
        plan = plan_scan(self._context.db, self._draft.base, table, where=predicate)
        for scan in plan.files:
            if data is not None and scan.file.id in data.ended_files:
                continue
            mine = data.deletes.get(scan.file.id) if data else None
            if mine is not None:
                gone = np.union1d(np.array(scan.inlined_deletes, np.int64), mine.positions)
                scan = scan._replace(inlined_deletes=tuple(gone.tolist()))
            located = self._match(replace(plan, files=(scan,), inlined=()), scan, where, with_rows)
            if located is not None:
                yield located
        for inlined in plan.inlined:
            located = self._match(replace(plan, files=(), inlined=(inlined,)), inlined, where, with_rows)
            gone_ids = data.inlined_deletes.get(inlined.table_name) if data else None
            if located is not None and gone_ids:
                located = located.without(gone_ids)
            if located is not None:
                yield located

    def _locate_own(self, table: Table, where: str, with_rows: bool) -> Iterator[Located]:
        """Matches among the rows this transaction added itself."""
        data = self._draft.data.get(table.id)
        if data is None:
            return
        files, kept = list(data.files), list(data.inlined)
        for new in files:
            scan = FileScan(_as_data_file(table, new.staged), inlined_deletes=tuple(new.deleted.tolist()))
            names = {_OWN_MAPPING: new.staged.mapping} if new.staged.mapping is not None else {}
            plan = ScanPlan(table, self._draft.base.snapshot, (scan,), mappings=names)
            located = self._match(plan, new, where, with_rows)
            if located is not None:
                if not new.staged.has_row_ids:
                    located.row_ids = [None] * len(located.positions)
                yield located
        for number, part in enumerate(kept):
            current = conform(part.table, table.columns)
            places = np.flatnonzero(RowFilter.of(where, table).matches(_with_hidden(current)))
            if len(places):
                yield Located(
                    number,
                    places,
                    [part.row_ids[place] for place in places.tolist()],
                    current.take(pa.array(places, pa.int64())),
                )

    def _match(
        self, plan: ScanPlan, source: FileScan | InlinedScan | NewFile, where: str, with_rows: bool
    ) -> Located | None:
        """Matches in one place."""
        in_file = not isinstance(source, InlinedScan)
        hidden = ["rowid", "file_row_number"] if in_file else ["rowid"]
        rows = read_plan(
            plan,
            self._context.store,
            self._context.db,
            columns=None if with_rows else [],
            where=where,
            hidden=hidden,
        )
        if rows.num_rows == 0:
            return None
        row_ids = rows.column("rowid").to_pylist()
        positions = rows.column(hidden[-1]).to_numpy().astype(np.int64)
        return Located(source, positions, row_ids, rows.drop_columns(hidden))


def _united(before: Positions, more: Positions) -> Positions:
    """Positions of both, ascending. `more` comes from one pass over a file, so it is in order by itself."""
    return np.union1d(before, more) if len(before) else more


def _with_hidden(rows: pa.Table) -> pa.Table:
    """Rows that were never committed have no row id, file or snapshot yet."""
    for name, kind in HIDDEN.items():
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, cast(Any, kind)))
    return rows


def _as_data_file(table: Table, staged: StagedFile) -> DataFile:
    return DataFile(
        id=-1,
        path=table.path + staged.path if staged.path_is_relative else staged.path,
        record_count=staged.record_count,
        file_size_bytes=staged.file_size_bytes,
        footer_size=staged.footer_size,
        row_id_start=0,
        begin_snapshot=0,
        end_snapshot=None,
        partition_id=None,
        encryption_key=staged.encryption_key,
        mapping_id=None if staged.mapping is None else _OWN_MAPPING,
        partial_max=None,
    )


def as_arrow(rows: Any, table: Table) -> pa.Table:
    """Rows that a caller has, as an Arrow table."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, Mapping):
        return pa.table(dict(rows))
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return rows_to_table(rows, table.columns)
    raise InvalidInputError(
        f"Rows of type {type(rows).__name__} cannot be appended.",
        hint="Pass an Arrow table, record batch or reader, or a list of dictionaries.",
    )
