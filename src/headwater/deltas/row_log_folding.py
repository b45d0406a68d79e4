"""Compaction of logs of whole rows: pairs that cancel each other go, what is left stays as it was written.

Nothing is folded into another table: the log itself becomes shorter. Rows that stay keep their numbers and
row ids, so that readers who follow the log see that rows went, and no row twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from headwater.deltas.compacting import Engine
from headwater.deltas.driver_folding import MOST_LOG_ROWS
from headwater.deltas.folding import live_rows, plan_rows, stored_bytes, top_columns
from headwater.deltas.model import CompactResult
from headwater.deltas.row_log import DELETE, INSERT, OPERATION, REFRESH_ID, SEQUENCE, net_rows
from headwater.deltas.store import DatasetStore
from headwater.deltas.verifying import StoredFiles
from headwater.errors import NotFoundError
from headwater.lake.format.align import align_input
from headwater.lake.lake import Lake
from headwater.lake.model import StagedFile, Table
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.storage.duckdb_engine import sandbox
from headwater.typedefs import FileId, TableId

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

_ROW_ID, _PLACE = "rowid", "_hw_file"
#: Files below this part of the target size are written together, once something is written.
_SMALL = 4


@dataclass(frozen=True)
class RowLog:
    """A log of whole rows, and what is known of it by others."""

    #: Whose log it is: the id and name of a stream table.
    owner_id: str
    name: str
    table_id: TableId
    #: The columns of the result.
    columns: tuple[str, ...]


@dataclass
class Shortened:
    """What is to become of a log."""

    inserts: int = 0
    deletes: int = 0
    deltas: int = 0
    #: What is left of both.
    inserts_left: int = 0
    deletes_left: int = 0
    #: Pairs of which one took the other away; further rows stood before a new beginning.
    pairs: int = 0
    file_ids: list[FileId] = field(default_factory=list)
    #: Row ids to end, by the table in the catalog that holds them.
    inlined: dict[str, list[int]] = field(default_factory=dict)
    staged: list[StagedFile] = field(default_factory=list)
    nulls: dict[int, int] = field(default_factory=dict)
    rows_left: int = 0
    """Rows that the new files are to hold."""

    @property
    def does_nothing(self) -> bool:
        """Whether the log is as short as it can be."""
        return not self.file_ids and not any(self.inlined.values())


@dataclass(frozen=True)
class RowLogCompaction:
    """Compacts logs of whole rows of one lake."""

    lake: Lake
    store: DatasetStore
    connector: Callable[[], LakeSpark]

    def run(
        self,
        log: RowLog,
        *,
        operation_id: str | None = None,
        engine: Engine = "auto",
        actor: str | None = None,
    ) -> CompactResult:
        """Take out what cancels, in one commit, while refreshes go on."""
        begun = time.monotonic()
        used: list[Transaction] = []

        def attempt(tx: Transaction) -> CompactResult | None:
            used[:] = [tx]
            return None if tx.already_applied else self._shorten(tx, log, operation_id, engine, begun)

        done = self.lake.run(
            attempt,
            author=actor,
            message=f"compaction of the log of {log.name}",
            operation_id=None if operation_id is None else f"compact/{log.name}/{operation_id}",
        )
        snapshot = used[0].snapshot_id
        if done is None:
            known = self.store.compaction_at(log.owner_id, snapshot)
            empty = CompactResult(log.name, "already_applied", snapshot_id=snapshot)
            return empty if known is None else replace(known, outcome="already_applied")
        return replace(done, snapshot_id=snapshot) if done.outcome == "compacted" else done

    def _shorten(
        self, tx: Transaction, log: RowLog, operation_id: str | None, engine: Engine, begun: float
    ) -> CompactResult:
        table = tx.state.table_by_id(log.table_id)
        if table is None:
            raise NotFoundError(f"The log of {log.name} is gone.", stream_table=log.name)
        plan = tx.scan(table.name)
        work = Shortening(self.lake, tx, log, table, plan)
        who: Literal["driver", "spark"] = "driver"
        found = None if engine == "spark" else work.here(engine == "auto")
        if found is None:
            from headwater.deltas.spark_row_log import shorten_on_spark

            who, found = "spark", shorten_on_spark(work, self.connector())
        result = _result(log, plan, found, operation_id)
        if found.does_nothing:
            return replace(result, outcome="nothing", files_out=0, bytes_in=0, bytes_out=0)
        tx.add_files(table.name, found.staged)
        tx.allow_inserts(table.name)
        tx.end_files(table.name, plan, found.file_ids)
        tx.remove_rows(table.name, plan, {}, found.inlined)
        stored = StoredFiles(self.lake, table, f"the log of {log.name}")
        stored.check_count("written anew", found.staged, found.rows_left)
        stored.check_files(found.staged, found.nulls)
        result = replace(result, engine=who, seconds=round(time.monotonic() - begun, 3))
        tx.join(self.store.fold(log.owner_id, result))
        return result


@dataclass(frozen=True)
class Shortening:
    """A log at one snapshot, to be shortened in a transaction."""

    lake: Lake
    tx: Transaction
    log: RowLog
    table: Table
    plan: ScanPlan

    def here(self, spark_too: bool) -> Shortened | None:
        """Find and store what is left, in this process; None if that is too much for it."""
        if spark_too and plan_rows(self.plan) > MOST_LOG_ROWS:
            return None
        rows = self._read()
        stays = self._stays(rows)
        places = rows.column(_PLACE).to_numpy()
        operations = np.array(rows.column(OPERATION).to_pylist(), dtype=object)
        short = Shortened(
            inserts=int((operations == INSERT).sum()),
            deletes=int((operations == DELETE).sum()),
            deltas=len(set(rows.column(REFRESH_ID).to_pylist())),
            inserts_left=int((stays & (operations == INSERT)).sum()),
            deletes_left=int((stays & (operations == DELETE)).sum()),
        )
        short.pairs = self._pairs(rows, operations, short)
        ids = rows.column(_ROW_ID).to_numpy()
        for number, one in enumerate(self.plan.inlined):
            gone = ids[~stays & (places == -1 - number)]
            if len(gone):
                short.inlined[one.table_name] = gone.tolist()
        affected = {self.plan.files[number].file.id for number in set(places[~stays]) if number >= 0}
        chosen = self.rewritten(affected, bool(short.inlined))
        short.file_ids = [scan.file.id for scan in chosen]
        there = np.isin(places, self.numbers(short.file_ids))
        short.rows_left = live_rows(chosen) - int((there & ~stays).sum())
        self._store(short, rows.filter(pa.array(stays & there)))
        return short

    def _read(self) -> pa.Table:
        """The rows with their row ids and, as `_PLACE`, the number of their file, or -1 - that of a table."""
        plans = [
            (number, replace(self.plan, files=(scan,), inlined=()))
            for number, scan in enumerate(self.plan.files)
        ]
        for number, one in enumerate(self.plan.inlined):
            plans.append((-1 - number, replace(self.plan, files=(), inlined=(one,))))
        pieces = []
        for number, plan in plans:
            rows = read_plan(plan, self.lake.store, self.lake.db, hidden=(_ROW_ID,))
            pieces.append(rows.append_column(_PLACE, pa.array(np.full(rows.num_rows, number), pa.int64())))
        if pieces:
            return pa.concat_tables(pieces)
        rows = read_plan(self.plan, self.lake.store, self.lake.db, hidden=(_ROW_ID,))
        return rows.append_column(_PLACE, pa.array([], pa.int64()))

    def numbers(self, file_ids: Sequence[FileId]) -> list[int]:
        """The numbers of files in the plan."""
        wanted = set(file_ids)
        return [number for number, scan in enumerate(self.plan.files) if scan.file.id in wanted]

    def rewritten(self, affected: set[FileId], something: bool) -> list[FileScan]:
        """The files that are written anew: those that lose rows, and small ones, once anything is written."""
        if not affected and not something:
            return []
        limit = self.tx.stager.target_size(self.table) // _SMALL
        small = [scan for scan in self.plan.files if scan.file.file_size_bytes < limit]
        wanted = affected | {scan.file.id for scan in small if len(small) > 1}
        return [scan for scan in self.plan.files if scan.file.id in wanted]

    def _stays(self, rows: pa.Table) -> Any:
        """Which rows are left, by the rule of the log's view, run by DuckDB."""
        numbered = rows.append_column("_hw_n", pa.array(np.arange(rows.num_rows), pa.int64()))
        with sandbox() as session:
            session.register("_hw_rows", numbered)
            left = session.execute(net_rows("_hw_rows", self.log.columns, "_hw_n")).to_arrow_table()
        mask = np.zeros(rows.num_rows, bool)
        mask[left.column(0).to_numpy()] = True
        return mask

    def _pairs(self, rows: pa.Table, operations: Any, short: Shortened) -> int:
        """How many rows deletes took away: those after the last beginning that met an insert."""
        numbers = rows.column(SEQUENCE).to_numpy()
        begins = numbers[~np.isin(operations, [INSERT, DELETE])]
        since = numbers > (begins.max() if len(begins) else -1)
        return int((since & (operations == DELETE)).sum()) - short.deletes_left

    def _store(self, short: Shortened, left: pa.Table) -> None:
        if not left.num_rows:
            return
        data = align_input(left.select([c.name for c in self.table.columns]), self.table.columns)
        for place, column in enumerate(self.table.columns):
            if column in top_columns([column]):
                short.nulls[column.id] = data.column(place).null_count
        ids = left.column(_ROW_ID).combine_chunks()
        short.staged = self.tx.stager.stage(self.table, data, ids)


def _result(log: RowLog, plan: ScanPlan, short: Shortened, operation_id: str | None) -> CompactResult:
    chosen: Sequence[FileScan] = [scan for scan in plan.files if scan.file.id in set(short.file_ids)]
    return CompactResult(
        log.name,
        "compacted",
        base_rows=0,
        final_rows=short.inserts_left,
        delta_rows=short.inserts,
        deltas_merged=short.deltas,
        tombstones_applied=short.pairs,
        rows_dropped_by_tombstones=short.pairs,
        tombstones_matched=short.pairs,
        tombstones_unmatched=short.deletes_left,
        log_files=len(chosen),
        files_out=len(short.staged),
        bytes_in=stored_bytes(chosen),
        bytes_out=sum(file.file_size_bytes for file in short.staged),
        read_snapshot_id=plan.snapshot.id,
        operation_id=operation_id,
    )
