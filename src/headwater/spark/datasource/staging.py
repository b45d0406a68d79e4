"""Storing rows in the workers, and committing what they stored with one transaction on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headwater.errors import CommitOutcomeUnknownError, InvalidInputError
from headwater.lake.lake import Lake
from headwater.lake.model import StagedFile, Table
from headwater.lake.options import LakeOptions
from headwater.lake.reading.row_filter import RowFilter
from headwater.lake.writing.staging import Stager
from headwater.lake.writing.transaction import Transaction
from headwater.spark.datasource.place import OpenLake
from headwater.spark.datasource.target import Target, as_lake_rows, changed_meanwhile, same_layout
from headwater.storage.options import StorageOptions
from headwater.storage.store import Store

#: A task with no more than this sends its rows to the driver, which inlines them or makes one file of all.
_FEW_ROWS = 4096
_FEW_BYTES = 256 << 10


@dataclass
class Written(WriterCommitMessage):
    """What one task has: files that it stored, or its few rows."""

    table: Table
    """The table that they were stored for, as it was then."""
    files: tuple[StagedFile, ...] = ()
    rows: pa.Table | None = None
    query_id: str | None = None
    """The streaming query that the task was of: the same after a restart."""

    @property
    def locations(self) -> list[str]:
        """Where the files are."""
        return [self.table.path + file.path for file in self.files]


@dataclass(frozen=True)
class TaskWriter:
    """Stores the rows of tasks for a table. Travels to the workers, which need no catalog for it."""

    opened: OpenLake
    table: Table
    options: LakeOptions
    must_match: str | None = None
    """A condition that every row has to meet (`replaceWhere`)."""
    keep_few: bool = True

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Store the rows of one task; if that fails, nothing of it is left."""
        few, rest = self._head(self._aligned(batches)) if self.keep_few else (None, self._aligned(batches))
        if rest is None:
            return Written(self.table, rows=few, query_id=_query_id())
        stager = Stager(self.opened.lake.store, self.options)
        files: list[StagedFile] = []
        try:
            files.extend(stager.stage_stream(self.table, rest))
        except BaseException:
            stager.discard(self.table, files)
            raise
        return Written(self.table, tuple(files), query_id=_query_id())

    def _aligned(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = 0
        condition = None if self.must_match is None else RowFilter.of(self.must_match, self.table)
        for batch in batches:
            rows = as_lake_rows([batch], self.table, count)
            count += batch.num_rows
            if condition is not None and not condition.matches(rows).all():
                raise InvalidInputError(
                    f"Some rows do not meet the condition of replaceWhere: {self.must_match}.",
                    hint="Filter the rows that are written, or widen the condition.",
                    table=str(self.table.name),
                )
            yield from rows.to_batches()

    @staticmethod
    def _head(
        batches: Iterator[pa.RecordBatch],
    ) -> tuple[pa.Table | None, Iterator[pa.RecordBatch] | None]:
        """All rows if they are few; else None, and a stream of all."""
        head: list[pa.RecordBatch] = []
        for batch in batches:
            head.append(batch)
            if sum(b.num_rows for b in head) > _FEW_ROWS or sum(b.nbytes for b in head) > _FEW_BYTES:
                return None, _chained(head, batches)
        return (pa.Table.from_batches(head) if head else None), None

    def discard(self, messages: Iterable[Written | None]) -> None:
        """Remove what tasks stored in vain. (A task that failed left nothing, and no message.)"""
        stager = Stager(self.opened.open().store, self.options)
        for message in messages:
            if message is not None:
                stager.discard(message.table, message.files)


def _query_id() -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("sql.streaming.queryId")


def _chained(head: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from head
    yield from rest


class _KeepingStore(Store):
    """A store that refuses to lose certain files.

    A transaction that meets a conflict removes what was stored for it. What workers stored is needed again
    by the next attempt.
    """

    def __init__(self, options: StorageOptions, kept: frozenset[str]):
        super().__init__(options)
        self._kept = kept

    def delete(self, location: str) -> None:
        """Delete a file, unless it is to be kept."""
        if location not in self._kept:
            super().delete(location)


@dataclass(frozen=True, slots=True)
class CommitNote:
    """What the snapshot says about itself, and the id under which it is applied only once."""

    operation_id: str
    message: str | None = None
    extra_info: str | None = None


def commit_all(
    writer: TaskWriter,
    target: Target,
    messages: Sequence[Written | None],
    note: CommitNote,
    replace_rows: Callable[[Transaction, Table, Sequence[StagedFile]], None],
) -> int | None:
    """Commit what the tasks have, as one snapshot; returns its number.

    `replace_rows` removes what the rows replace. Conflicts with other writers are tried again on the new
    state. If the operation was applied before, what the tasks stored is removed.
    """
    lake = writer.opened.open()
    written = [message for message in messages if message is not None]
    few = [message.rows for message in written if message.rows is not None]
    kept = frozenset(location for message in written for location in message.locations)
    patient = Lake(lake.db, _KeepingStore(lake.store.options, kept), lake.data_path)

    def work(tx: Transaction) -> Transaction:
        if tx.already_applied:
            return tx
        table = target.make(tx)
        for message in written:
            if not same_layout(message.table, table):
                raise changed_meanwhile(table)
        fitted = [_for_table(file, message.table, table) for message in written for file in message.files]
        replace_rows(tx, table, fitted)
        tx.add_files(table.name, fitted)
        if few:
            tx.append(table.name, pa.concat_tables(few))
        return tx

    def attempt() -> Transaction:
        return patient.run(
            work, message=note.message, extra_info=note.extra_info, operation_id=note.operation_id
        )

    again = Retrying(
        # Asked again under the same operation id, the lake knows what became of it.
        retry=retry_if_exception_type(CommitOutcomeUnknownError),
        wait=wait_random_exponential(multiplier=0.1, max=5),
        stop=stop_after_attempt(5),
        reraise=True,
    )
    done = again(attempt)
    if done.already_applied:
        writer.discard(messages)
    return done.snapshot_id


def _for_table(file: StagedFile, staged: Table, now: Table) -> StagedFile:
    """The file as the commit must name it: a table that is new has other provisional numbers and folders."""
    if staged.path != now.path and file.path_is_relative:
        file = replace(file, path=staged.path + file.path, path_is_relative=False)
    if staged.id < 0 and file.partition_id is not None and now.partition is not None:
        file = replace(file, partition_id=now.partition.id)
    return file
