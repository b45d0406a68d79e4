"""Row changes found by somebody else: a reader took a plan, read it its own way, and says what became of it.

with lake.transaction() as tx:
    plan = tx.scan("orders", "day = DATE '2026-01-01'")  # committed files and inlined rows, as data
    ...                                                  # a reader finds rows, by position or row id
    tx.remove_rows("orders", plan, {file_id: positions}, {inlined_table: row_ids})
    tx.replace_rows("orders", changed, row_ids)          # rows that keep their ids
    tx.end_files("orders", plan, file_ids)               # whole files, unread
    tx.add_files("orders", staged)                       # files that workers stored with `tx.stager`
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.algebra.predicates import Predicate, parse_predicate
from headwater.errors import ConflictError, InvalidInputError
from headwater.lake.format.align import align_input
from headwater.lake.format.values import can_inline
from headwater.lake.model import Table
from headwater.lake.reading.deletes import deleted_positions
from headwater.lake.reading.scan import FileScan, ScanPlan, plan_scan
from headwater.lake.writing.dml import DataOperations
from headwater.lake.writing.draft import NO_POSITIONS, FileDeletes, InlinedRows, NewFile, Positions, TableData
from headwater.lake.writing.staging import Stager
from headwater.lake.writing.whole import whole
from headwater.typedefs import FileId, TableName

Numbers = Sequence[int] | npt.NDArray[np.integer[Any]]


class RowChanges(DataOperations):
    """Changes to rows by position, row id and file. Mixed into `Transaction`."""

    @property
    def stager(self) -> Stager:
        """What stores files for this transaction. It pickles, so that worker processes can use it.

        `stager.stage(table, rows, row_ids)` wants rows in the table's columns (`align_input`) and returns
        `StagedFile`s, which pickle too and go into `add_files`.
        """
        return self._stager

    def scan(self, table: TableName | str, where: Predicate | str | None = None) -> ScanPlan:
        """The table as this transaction found it: committed files and inlined rows, pruned by `where`.

        A plan cannot show what this transaction changed itself, so take it before changing the table.
        """
        found = self._draft.state.table(table)
        base = self._draft.base.table_by_id(found.id)
        data = self._draft.data.get(found.id)
        if data is not None and data.changes:
            raise _changed(found, "rows")
        if base is None:
            return ScanPlan(found, self._draft.base.snapshot, ())
        if base.columns != found.columns:
            raise _changed(found, "columns")
        predicate = parse_predicate(where) if isinstance(where, str) else where
        # Files are pruned by the partition keys they were written with.
        planned = replace(found, partition=base.partition)
        return replace(plan_scan(self._context.db, self._draft.base, planned, where=predicate), table=found)

    @whole
    def remove_rows(
        self,
        table: TableName | str,
        plan: ScanPlan,
        positions: Mapping[FileId, Numbers],
        inlined: Mapping[str, Collection[int]] | None = None,
    ) -> int:
        """Delete rows that a reader of `plan` found. Returns how many.

        `positions` are counted from 0 in each file, in any order; `inlined` has the row ids by inlined-data
        table. A row given twice is an error: whoever matched it meant two changes of one row.
        """
        if self.already_applied:
            return 0
        found, data = self._planned(table, plan)
        count = 0
        for scan in self._scans_of(found, plan, positions):
            wanted = _ascending(positions[scan.file.id], found)
            if len(wanted):
                self._remove_positions(found, data, plan, scan, wanted)
                count += len(wanted)
        for name, row_ids in (inlined or {}).items():
            if len(row_ids):
                self._remove_inlined(found, data, plan, name, row_ids)
                count += len(row_ids)
        return count

    @whole
    def allow_inserts(self, table: TableName | str) -> None:
        """Let others add rows to a table meanwhile: what this transaction removes was chosen without them."""
        if not self.already_applied:
            self._draft.rows(self._draft.state.table(table)).beside_inserts = True

    @whole
    def end_files(self, table: TableName | str, plan: ScanPlan, file_ids: Iterable[FileId]) -> int:
        """Remove whole files of `plan` without reading them. Returns how many rows they had."""
        if self.already_applied:
            return 0
        found, data = self._planned(table, plan)
        count = 0
        for scan in self._scans_of(found, plan, set(file_ids) - data.ended_files):
            gone = sum(file.delete_count for file in scan.deletes) + len(scan.inlined_deletes)
            mine = data.deletes.pop(scan.file.id, None)
            count += scan.file.record_count - gone - (len(mine.positions) if mine else 0)
            data.ended_files.add(scan.file.id)
        return count

    @whole
    def replace_rows(self, table: TableName | str, rows: pa.Table, row_ids: Numbers) -> int:
        """Add rows that keep the ids of rows this transaction removes: an update. Returns their number."""
        if self.already_applied:
            return 0
        found = self._draft.state.table(table)
        ids = np.asarray(row_ids)
        if len(ids) != rows.num_rows:
            raise InvalidInputError(
                f"{rows.num_rows} rows were given with {len(ids)} row ids.", table=str(found.name)
            )
        if not len(ids):
            return 0
        _ascending(ids, found)
        aligned = align_input(rows, found.columns)
        data = self._draft.rows(found)
        if len(ids) <= self._inlining_limit(found.schema_id, found.id) and can_inline(found.columns):
            data.inlined.append(InlinedRows(aligned, tuple(ids.tolist())))
        else:
            staged = self._stager.stage(found, aligned, pa.array(ids, pa.int64()))
            data.files += map(NewFile, staged)
        return len(ids)

    # -- helpers ------------------------------------------------------------------------------------

    def _planned(self, table: TableName | str, plan: ScanPlan) -> tuple[Table, TableData]:
        """The table and its changes, if the plan is of it as this transaction found it."""
        found = self._draft.state.table(table)
        base = self._draft.base.snapshot.id
        if plan.table.id != found.id or plan.snapshot.id != base:
            raise InvalidInputError(
                f"The plan is of table {plan.table.name} at snapshot {plan.snapshot.id}, "
                f"but this transaction changes {found.name} as of snapshot {base}.",
                hint="Use the plan that tx.scan returns.",
                table=str(found.name),
                snapshot_id=plan.snapshot.id,
            )
        data = self._draft.rows(found)
        if data.truncated:
            raise InvalidInputError(
                f"Every row of table {found.name} was removed before by this transaction.",
                hint="Remove single rows or files first, or leave it at truncate.",
                table=str(found.name),
            )
        return found, data

    def _scans_of(self, table: Table, plan: ScanPlan, file_ids: Collection[FileId]) -> list[FileScan]:
        wanted = set(file_ids)
        scans = [scan for scan in plan.files if scan.file.id in wanted]
        missing = wanted - {scan.file.id for scan in scans}
        if missing:
            raise InvalidInputError(
                f"Data file {min(missing)} is not in the plan of table {table.name}.",
                hint="Rows can only be removed from files that the plan names.",
                table=str(table.name),
                file_id=min(missing),
            )
        return scans

    def _remove_positions(
        self, table: Table, data: TableData, plan: ScanPlan, scan: FileScan, wanted: Positions
    ) -> None:
        file = scan.file
        if wanted[-1] >= file.record_count:
            raise InvalidInputError(
                f"Data file {file.id} of table {table.name} has {file.record_count} rows, "
                f"none at position {wanted[-1]}.",
                table=str(table.name),
                file_id=file.id,
            )
        known = data.deletes.get(file.id)
        before = known.positions if known else NO_POSITIONS
        if file.id in data.ended_files or len(np.intersect1d(before, wanted, assume_unique=True)):
            raise _twice(table)
        gone = deleted_positions(self._context.store, scan.deletes, scan.inlined_deletes, plan.snapshot.id)
        dead = np.intersect1d(gone, wanted, assume_unique=True)
        if len(dead):
            raise ConflictError(
                f"A row of table {table.name} was deleted before snapshot {plan.snapshot.id}.",
                detail=f"Position {dead[0]} of data file {file.id} is no row of the plan.",
                hint="Leave out what the plan's delete files and inlined deletes name.",
                table=str(table.name),
                file_id=file.id,
            )
        data.deletes[file.id] = FileDeletes(
            file,
            scan.deletes,
            np.array(scan.inlined_deletes, np.int64),
            np.union1d(before, wanted) if len(before) else wanted,
        )

    def _remove_inlined(
        self, table: Table, data: TableData, plan: ScanPlan, name: str, row_ids: Collection[int]
    ) -> None:
        if all(name != inlined.table_name for inlined in plan.inlined):
            raise InvalidInputError(
                f"The plan of table {table.name} reads no rows from {name}.",
                hint="Rows kept in the catalog are removed by the table of the plan they were read from.",
                table=str(table.name),
            )
        wanted = set(_ascending(np.fromiter(row_ids, np.int64), table).tolist())
        ended = data.inlined_deletes.setdefault(name, set())
        if wanted & ended:
            raise _twice(table)
        # Whether each of them is live is found out by the commit, which ends exactly as many.
        ended |= wanted


def _ascending(numbers: Numbers, table: Table) -> Positions:
    """Positions or row ids in order, each of them once."""
    given = np.asarray(numbers)
    if len(given) and not np.issubdtype(given.dtype, np.integer):
        raise InvalidInputError(
            f"Positions and row ids are whole numbers, not {given.dtype}.", table=str(table.name)
        )
    ordered = np.sort(given.astype(np.int64))
    if len(ordered) and ordered[0] < 0:
        raise InvalidInputError(
            f"Positions and row ids are counted from 0, but one is {ordered[0]}.", table=str(table.name)
        )
    if len(ordered) > 1 and bool((ordered[1:] == ordered[:-1]).any()):
        raise _twice(table)
    return ordered


def _twice(table: Table) -> InvalidInputError:
    return InvalidInputError(
        f"A row of table {table.name} was matched twice.",
        detail="A row can be removed or replaced only once in a transaction.",
        hint="Make the condition or the join keys match every row at most once.",
        table=str(table.name),
    )


def _changed(table: Table, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"This transaction already changed the {what} of table {table.name}; a plan would not show it.",
        detail="A plan names what is committed.",
        hint="Scan the table before changing it, or read it with tx.read.",
        table=str(table.name),
    )
