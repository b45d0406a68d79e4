"""Row changes with every file stored, so that only catalog rows are left to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.errors import ConflictError
from headwater.lake.format.conform import conform
from headwater.lake.format.statistics import row_statistics
from headwater.lake.format.values import can_inline
from headwater.lake.model import ColumnStats, StagedDeletes, Table
from headwater.lake.options import DEFAULT_INLINING_LIMIT, LakeOptions
from headwater.lake.reading.deletes import first_deletes, read_deletes
from headwater.lake.writing.draft import Draft, FileDeletes, InlinedRows, NewFile, Positions, TableData
from headwater.lake.writing.facts import TableFacts
from headwater.lake.writing.staging import Stager
from headwater.typedefs import SnapshotId


@dataclass
class PreparedFile:
    """What becomes of one committed file: rows deleted through the catalog, a delete file, or its end."""

    deletes: FileDeletes
    inline: Positions | None = None
    delete_file: StagedDeletes | None = None
    """Neither: every row is gone, and the file ends."""


@dataclass
class PreparedTable:
    """One table's row changes, with every file stored: what is left is catalog rows."""

    table: Table
    data: TableData
    new_files: list[tuple[NewFile, StagedDeletes | None]] = field(default_factory=list)
    files: list[PreparedFile] = field(default_factory=list)
    inlined: InlinedRows | None = None
    """Rows for the catalog, in the table's columns."""
    inlined_stats: tuple[ColumnStats, ...] = ()

    @property
    def looked_at(self) -> list[FileDeletes]:
        """Files whose deletes were read, and which must still be as they were."""
        flushed = [deletes for deletes, _ in self.data.flush.deletes] if self.data.flush else []
        moved = [source for one in self.data.replaced for source in one.sources]
        return [file.deletes for file in self.files] + flushed + moved

    @property
    def has_mappings(self) -> bool:
        """Do new files name their columns in a way of their own?"""
        return any(new.staged.mapping is not None for new, _ in self.new_files)

    @property
    def touched_files(self) -> set[int]:
        """Committed files that this transaction changes."""
        return {deletes.file.id for deletes in self.looked_at} | self.data.ended_files


@dataclass
class Prepared:
    """All tables of a transaction, ready for one particular snapshot number."""

    snapshot_id: SnapshotId
    tables: list[PreparedTable] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    """Locations of delete files stored on the way."""
    bound: bool = False
    """Some delete file names the snapshot number, so another number needs new files."""


def inlining_limit(options: LakeOptions, schema_id: int | None, table_id: int | None) -> int:
    """How many rows of one insert (or deletes of one file) go into the catalog instead of a file."""
    return options.number(
        "data_inlining_row_limit", DEFAULT_INLINING_LIMIT, schema_id=schema_id, table_id=table_id
    )


def prepare(draft: Draft, options: LakeOptions, stager: Stager, snapshot_id: SnapshotId) -> Prepared:
    """Store what the draft's row changes need, for a commit as `snapshot_id`."""
    result = Prepared(snapshot_id)
    for table in draft.tables.values():
        data = draft.data.get(table.id)
        if data is not None and data.changes:
            result.tables.append(_Preparation(result, table, data, options, stager).run())
    return result


class _Preparation:
    """Preparing one table."""

    def __init__(self, result: Prepared, table: Table, data: TableData, options: LakeOptions, stager: Stager):
        self.result = result
        self.table = table
        self.data = data
        self.stager = stager
        self.limit = inlining_limit(options, table.schema_id, table.id)

    def run(self) -> PreparedTable:
        prepared = PreparedTable(self.table, self.data)
        self._inlined(prepared)
        for new in self.data.files:
            if len(new.deleted) < new.staged.record_count:
                stored = self._store(new.deleted, None) if len(new.deleted) else None
                prepared.new_files.append((new, stored))
        for deletes in self.data.deletes.values():
            if deletes.file.id not in self.data.ended_files:
                prepared.files.append(self._file(deletes))
        if self.data.flush is not None:
            self.result.stored += [self.table.path + path for path in self.data.flush.stored]
        return prepared

    def _inlined(self, prepared: PreparedTable) -> None:
        if not self.data.inlined:
            return
        columns = self.table.columns
        rows = InlinedRows(
            # Columns may have changed since the rows were given.
            pa.concat_tables([conform(part.table, columns) for part in self.data.inlined]),
            tuple(row_id for part in self.data.inlined for row_id in part.row_ids),
        )
        if can_inline(columns):
            prepared.inlined = rows
            prepared.inlined_stats = row_statistics(rows.table, columns)
            return
        kept = [i for i, row_id in enumerate(rows.row_ids) if row_id is not None]
        fresh = [i for i, row_id in enumerate(rows.row_ids) if row_id is None]
        for places, row_ids in (
            (fresh, None),
            (kept, pa.array([rows.row_ids[i] for i in kept], pa.int64())),
        ):
            if places:
                part = rows.table.take(pa.array(places, pa.int64()))
                self.data.files += map(NewFile, self.stager.stage(self.table, part, row_ids))
        self.data.inlined.clear()

    def _file(self, deletes: FileDeletes) -> PreparedFile:
        if len(deletes.positions) <= self.limit:
            return PreparedFile(deletes, inline=deletes.positions)
        positions, snapshots = self._earlier(deletes)
        gone = len(positions) + len(deletes.inlined) + len(deletes.positions)
        if gone >= deletes.file.record_count:
            return PreparedFile(deletes)
        if not len(positions):
            return PreparedFile(deletes, delete_file=self._store(deletes.positions, None))
        # One cumulative file: what was deleted earlier keeps the snapshot that deleted it.
        self.result.bound = True
        positions = np.concatenate([positions, deletes.positions])
        snapshots = np.concatenate(
            [snapshots, np.full(len(deletes.positions), self.result.snapshot_id, np.int64)]
        )
        order = np.argsort(positions, kind="stable")
        return PreparedFile(deletes, delete_file=self._store(positions[order], snapshots[order]))

    def _earlier(self, deletes: FileDeletes) -> tuple[Positions, Positions]:
        """Positions deleted by files so far, each once, with the snapshot that first deleted it."""
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for file in deletes.delete_files:
            positions, snapshots = read_deletes(self.stager.store, file)
            when = np.full(len(positions), file.begin_snapshot) if snapshots is None else snapshots
            found.append((positions, when))
        positions, when = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return first_deletes(positions, when)

    def _store(self, positions: Positions, snapshots: Positions | None) -> StagedDeletes:
        staged = self.stager.stage_deletes(self.table, positions, snapshots)
        self.result.stored.append(self.table.path + staged.path)
        return staged


def check_live(prepared: Iterable[PreparedTable], facts: Mapping[int, TableFacts]) -> None:
    """Are the files rows are deleted from still live, with the delete files that were read?"""
    for item in prepared:
        fact = facts.get(item.table.id)
        touched = item.touched_files
        if fact is None or not touched:
            continue
        gone = touched - fact.live_files
        moved = [
            deletes.file.id
            for deletes in item.looked_at
            if fact.live_deletes.get(deletes.file.id, set()) != {d.id for d in deletes.delete_files}
        ]
        if gone or moved:
            raise ConflictError(
                f"Rows of table {item.table.name} were rewritten or deleted by another writer.",
                detail=f"Data file {sorted(gone)[0] if gone else moved[0]} is no longer as it was read.",
                hint="Run the transaction again; nothing of it was applied.",
                table=str(item.table.name),
            )
