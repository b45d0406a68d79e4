"""Compacting a table: what is worth moving is chosen, moved, and put in the place of what was there.

The data work happens outside of any transaction, and its result is committed in one that lasts for
milliseconds. A file that another writer changed meanwhile stays as it is; what the others gained is kept. A
process that is killed leaves stored files that nobody names, and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from headwater.errors import CommitOutcomeUnknownError, ConflictError, HeadwaterError, NotFoundError
from headwater.lake.catalog import CatalogState
from headwater.lake.lake import Lake
from headwater.lake.maintenance.choosing import (
    Choice,
    Move,
    Wishes,
    deleted_rows,
)
from headwater.lake.maintenance.model import CompactionResult, Limits, TableCompaction
from headwater.lake.maintenance.moving import LocalMover, Moved, Mover
from headwater.lake.maintenance.ordering import sorted_as
from headwater.lake.maintenance.spreading import files_in_order
from headwater.lake.maintenance.table_files import TableFiles, table_files
from headwater.lake.model import Table
from headwater.lake.writing.draft import FileReplacement
from headwater.lake.writing.parquet_files import can_stream
from headwater.lake.writing.staging import Stager
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import TableName

log = logging.getLogger("headwater.maintenance")

AUTHOR = "headwater"
#: Files that must be in memory as a whole to be written are kept smaller.
_IN_MEMORY = 64 << 20
Tell = Callable[[str], None]


def compact(
    lake: Lake,
    tables: Iterable[TableName | str] | None = None,
    wishes: Wishes | None = None,
    *,
    flush: bool = False,
    mover: Mover | None = None,
    limits: Limits | None = None,
    dry_run: bool = False,
    tell: Tell | None = None,
) -> CompactionResult:
    """Compact the tables of those names, or all, one after the other."""
    began = time.monotonic()
    names = _all_tables(lake) if tables is None else list(tables)
    done: list[TableCompaction] = []
    left = limits or Limits()
    complete = True
    for name in sorted(names) if tables is None else names:
        passed = time.monotonic() - began
        if left.reached(passed):
            complete = False
            break
        allowed = replace(left, seconds=None if left.seconds is None else left.seconds - passed)
        work = _TableWork(lake, name, wishes or Wishes(), mover or LocalMover(), allowed, tell or log.debug)
        result = work.run(flush=flush, dry_run=dry_run)
        if result is not None:
            done.append(result)
            complete = complete and work.complete
            if left.bytes is not None:
                left = replace(left, bytes=max(0, left.bytes - work.moved_bytes))
    return CompactionResult(tuple(done), complete, dry_run, time.monotonic() - began)


def _all_tables(lake: Lake) -> list[TableName]:
    """Those that nobody wants to be left alone (DuckDB's option `auto_compact`)."""
    options = lake.options()
    return [
        table.name
        for table in lake.state().tables.values()
        if options.flag("auto_compact", True, schema_id=table.schema_id, table_id=table.id)
    ]


class _TableWork:
    def __init__(
        self,
        lake: Lake,
        name: TableName | str,
        wishes: Wishes,
        mover: Mover,
        limits: Limits,
        tell: Tell,
    ):
        self.lake = lake
        self.name = name
        self.wishes = wishes
        self.mover = mover
        self.limits = limits
        self.tell = tell
        self.began = time.monotonic()
        self.complete = True
        self.moved_bytes = 0

    def run(self, *, flush: bool, dry_run: bool) -> TableCompaction | None:
        state = self.lake.state()
        table = state.find_table(self.name)
        if table is None:
            if isinstance(self.name, str):
                state.table(self.name)  # says what is wrong with the name
            return None  # dropped since it was listed
        result = TableCompaction(str(table.name))
        if flush and not dry_run:
            result = replace(result, flushed=self._flush(table))
            state = self.lake.state()
        stager = Stager(self.lake.store, self.lake.options())
        own = stager.options.get("rewrite_delete_threshold", schema_id=table.schema_id, table_id=table.id)
        if self.wishes.delete_ratio is None and own is not None:
            self.wishes = replace(self.wishes, delete_ratio=float(own))
        files, moves = self._choose(state, table, stager)
        if not flush and not dry_run and any(map(_needs_flush, moves)):
            result = replace(result, flushed=self._flush(table))
            files, moves = self._choose(self.lake.state(), table, stager)
        count, size = len(files.plan.files), sum(scan.file.file_size_bytes for scan in files.plan.files)
        result = replace(result, files_before=count, files_after=count, bytes_before=size, bytes_after=size)
        if dry_run:
            return _expected(result, moves)
        rewrites = [move for move in moves if not move.keeps_history and not _needs_flush(move)]
        merges = [move for move in moves if move.keeps_history]
        if rewrites:
            result = self._carry_out(table, stager, rewrites, result)
            state = self.lake.state()
            now = state.table_by_id(table.id)
            if now is None:
                return result  # dropped meanwhile
            again = self.complete and (self.wishes.merge or self.wishes.sort_by)
            if result.rewritten_files and again and now == table:
                # What was written again is without deletes now, and goes along with the others.
                merges = [move for move in self._choose(state, table, stager)[1] if move.keeps_history]
        return self._carry_out(table, stager, merges, result)

    def _choose(self, state: CatalogState, table: Table, stager: Stager) -> tuple[TableFiles, list[Move]]:
        files = table_files(self.lake.db, state, sorted_as(table, self.wishes.sort_by))
        look = partial(files_in_order, self.lake.store)
        choice = Choice(files, self.wishes, self._target(stager, files.plan.table), look)
        return files, self._bounded(choice.moves())

    def _carry_out(
        self, table: Table, stager: Stager, moves: Sequence[Move], result: TableCompaction
    ) -> TableCompaction:
        for wave in self.mover.waves(moves):
            if self.limits.reached(time.monotonic() - self.began):
                self.complete = False
                break
            result = self._commit(table, stager, result, self.mover.carry_out(wave, stager))
            self.moved_bytes += sum(move.bytes for move in wave)
            self.tell(
                f"{table.name}: {result.merged_files + result.rewritten_files} files "
                f"into {result.files_written}"
            )
        return result

    def _flush(self, table: Table) -> int:
        def work(tx: Transaction) -> int:
            if tx.state.table_by_id(table.id) is None:
                return 0
            return tx.flush_inlined(table.name)

        try:
            return self.lake.run(work, author=AUTHOR, message=f"flush {table.name}")
        except ConflictError as error:
            log.info("%s is not flushed now: %s", table.name, error.message)
            return 0

    def _target(self, stager: Stager, table: Table) -> int:
        size = self.wishes.target_size or stager.target_size(table)
        if table.sort or not can_stream(table.columns, stager.file_format(table)):
            return min(size, _IN_MEMORY)
        return size

    def _bounded(self, moves: Sequence[Move]) -> list[Move]:
        """As many as fit into the limit of bytes; the first always does, or nothing would ever be done."""
        if self.limits.bytes is None:
            return list(moves)
        chosen: list[Move] = []
        total = self.moved_bytes
        for move in moves:
            total += move.bytes
            if total > self.limits.bytes and (chosen or self.moved_bytes or not self.limits.bytes):
                self.complete = False
                break
            chosen.append(move)
        return chosen

    def _commit(
        self,
        table: Table,
        stager: Stager,
        result: TableCompaction,
        outcomes: Sequence[Moved | HeadwaterError],
    ) -> TableCompaction:
        moved = [one for one in outcomes if isinstance(one, Moved)]
        errors = [one for one in outcomes if not isinstance(one, Moved)]
        offered = [(one, one.replacement) for one in moved]
        accepted: list[FileReplacement] = []
        snapshot: int | None = None
        try:
            accepted, snapshot = self._replace(table, [r for _, r in offered])
        except CommitOutcomeUnknownError:
            raise  # the files may belong to a snapshot
        except BaseException:
            for one in moved:
                stager.discard(table, one.staged)
            raise
        kept = {id(replacement) for replacement in accepted}
        for one, replacement in offered:
            if id(replacement) in kept:
                result = _counted(result, one)
            else:
                stager.discard(table, one.staged)
                result = replace(result, skipped=result.skipped + len(one.move.sources))
        if snapshot is not None and accepted:
            result = replace(result, snapshots=(*result.snapshots, snapshot))
        if errors:
            result = self._failed(table, result, errors)
        return result

    def _replace(
        self, table: Table, replacements: Sequence[FileReplacement]
    ) -> tuple[list[FileReplacement], int | None]:
        taken: list[FileReplacement] = []
        transactions: list[Transaction] = []

        def work(tx: Transaction) -> None:
            taken.clear()
            transactions[:] = [tx]
            now = tx.state.table_by_id(table.id)
            if now is None:
                return  # dropped meanwhile
            # A rewritten file begins now, so it must have the columns of now.
            fitting = [r for r in replacements if r.keeps_history or now.columns == table.columns]
            taken.extend(tx.replace_files(now.name, fitting))

        if not replacements:
            return [], None
        try:
            self.lake.run(work, author=AUTHOR, message=f"compact {table.name}")
        except ConflictError as error:
            log.info("%s is not compacted now: %s", table.name, error.message)
            return [], None
        return taken, transactions[0].snapshot_id

    def _failed(
        self, table: Table, result: TableCompaction, errors: Sequence[HeadwaterError]
    ) -> TableCompaction:
        """Files that cannot be read may have been replaced by another compaction, and removed since."""
        try:
            now = self.lake.scan(table.name)
        except NotFoundError:
            return result
        live = {scan.file.path for scan in now.files}
        for error in errors:
            location = error.facts.get("location")
            if location is None or location in live:
                raise error
        return replace(result, skipped=result.skipped + len(errors))


def _needs_flush(move: Move) -> bool:
    """Whether a file would end while deletes of it are in the catalog.

    DuckDB's flush makes a delete file of those, beside the one that the file has, and then reads one of the
    two. So they are flushed before, into one.
    """
    return not move.keeps_history and any(scan.inlined_deletes for scan in move.sources)


def _expected(result: TableCompaction, moves: Sequence[Move]) -> TableCompaction:
    """What a dry run says; how large the new files become is not known before they are written."""
    sources = [scan for move in moves for scan in move.sources]
    written = sum(move.outputs for move in moves)
    return replace(
        result,
        merged_files=sum(len(move.sources) for move in moves if move.keeps_history),
        rewritten_files=sum(len(move.sources) for move in moves if not move.keeps_history),
        files_written=written,
        files_after=result.files_before - len(sources) + written,
        rows_moved=sum(scan.file.record_count - deleted_rows(scan) for scan in sources),
        deleted_rows=sum(map(deleted_rows, sources)),
    )


def _counted(result: TableCompaction, one: Moved) -> TableCompaction:
    count = len(one.move.sources)
    merged = one.move.keeps_history
    return replace(
        result,
        merged_files=result.merged_files + (count if merged else 0),
        rewritten_files=result.rewritten_files + (0 if merged else count),
        files_written=result.files_written + len(one.staged),
        files_after=result.files_after - count + len(one.staged),
        bytes_after=result.bytes_after - one.move.bytes + sum(f.file_size_bytes for f in one.staged),
        rows_moved=result.rows_moved + one.rows,
        deleted_rows=result.deleted_rows + one.deleted,
    )
