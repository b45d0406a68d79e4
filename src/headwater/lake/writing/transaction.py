"""A transaction: any number of operations on any tables, and one snapshot.

with lake.transaction(author="etl", message="orders of today") as tx:
    tx.create_table("orders", schema, if_not_exists=True)
    tx.append("orders", batch)
    tx.delete("orders", "status = 'cancelled'")
tx.snapshot_id
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Self

from psycopg import sql

from headwater.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
)
from headwater.lake.catalog import CatalogReader, CatalogState, check_text, latest_snapshot
from headwater.lake.connection import Connection, Database
from headwater.lake.model import Column, StagedFile, Table
from headwater.lake.options import LakeOptions, load_options
from headwater.lake.own import applied_snapshot, ensure_own_tables
from headwater.lake.writing.commit import Commit, CommitInfo, CommitResult, Join
from headwater.lake.writing.compaction import FileReplacements
from headwater.lake.writing.ddl import SchemaOperations
from headwater.lake.writing.draft import Draft, NewFile
from headwater.lake.writing.prepared import inlining_limit
from headwater.lake.writing.row_changes import RowChanges
from headwater.lake.writing.staging import Stager
from headwater.storage.store import Store
from headwater.typedefs import SnapshotId


@dataclass(frozen=True)
class LakeContext:
    """What everything that works on a lake shares."""

    db: Database
    store: Store
    reader: CatalogReader


class Transaction(SchemaOperations, RowChanges, FileReplacements):
    """Collects operations; leaving the `with` block commits them, an exception drops them.

    With an `operation_id` that was applied before, `already_applied` is true, operations do nothing and
    `snapshot_id` is the snapshot of the first time.
    """

    def __init__(
        self,
        context: LakeContext,
        info: CommitInfo,
        *,
        compression: str | None = None,
    ):
        for what, text in asdict(info).items():
            if text is not None:
                check_text(text, f"a text for {what}")
        self._context = context
        self._info = info
        self._compression = compression
        self._joins: list[Join] = []
        self._finished = False
        self._depth = 0
        self._waste: list[tuple[Table, StagedFile]] = []
        """Files that operations under way no longer need."""
        self._commit: Commit | None = None
        self.already_applied = False
        self.snapshot_id: SnapshotId | None = None
        """The snapshot this became; None until the commit."""
        self._begin()

    def _begin(self) -> None:
        context = self._context
        operation = self._info.operation_id
        self._lake_id = lake_id = None if operation is None else ensure_own_tables(context.db)

        def work(connection: Connection) -> tuple[CatalogState, LakeOptions, SnapshotId | None]:
            state = context.reader.state(connection, latest_snapshot(context.db, connection))
            options = load_options(context.db, connection)
            done = applied_snapshot(connection, lake_id, operation) if lake_id and operation else None
            return state, options, done

        state, options, done = context.db.read(work)
        self._current = Draft(state)
        self._options = options
        self._stager = Stager(context.store, options, self._compression)
        if done is not None:
            self.already_applied = True
            self.snapshot_id = done

    @property
    def _draft(self) -> Draft:
        self._open()
        return self._current

    @property
    def base_snapshot_id(self) -> SnapshotId:
        """The snapshot whose state this transaction sees, besides its own changes."""
        return self._current.base.snapshot.id

    @property
    def state(self) -> CatalogState:
        """The catalog with this transaction's changes."""
        return self._current.state

    def join(self, write: Join) -> None:
        """Let rows of your own tables in the same database commit with this snapshot, or not at all.

        `write(cursor, snapshot_id)` runs inside the commit and may run again if the commit is retried.
        """
        self._joins.append(write)

    def rely_on_row_ids(self, table_id: int) -> None:
        """Let the commit be a conflict if DuckDB merged files of a table meanwhile: rows that were read may
        have had the ids of before or of after."""
        self._draft.known_by_row_id.add(table_id)

    def describe(self, *, author: str, message: str, extra_info: str | None = None) -> None:
        """Say what the snapshot is about, for work that only knows when it is done."""
        for text in (author, message, extra_info):
            if text is not None:
                check_text(text, "a text about the snapshot")
        self._info = replace(self._info, author=author, message=message, extra_info=extra_info)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo everything done inside if it ends with an exception, which whoever catches it can survive."""
        joined = len(self._joins)
        try:
            with self._whole():
                yield
        except BaseException:
            del self._joins[joined:]
            raise

    def commit(self) -> CommitResult:
        """Commit now; called by itself at the end of a `with` block."""
        self._open()
        self._finished = True
        if self.already_applied and self.snapshot_id is not None:
            return CommitResult(self.snapshot_id, already_applied=True)
        self._commit = Commit(
            self._context.db,
            self._context.reader,
            self._current,
            self._info,
            self._options,
            self._stager,
            self._joins,
            self._lake_id,
        )
        try:
            result = self._commit.run()
        except CommitOutcomeUnknownError:
            raise  # the files may belong to a snapshot
        except BaseException:
            self._drop_files()
            raise
        if result.already_applied:
            self._drop_files()
            self.already_applied = True
        self.snapshot_id = result.snapshot_id
        return result

    def rollback(self) -> None:
        """Drop everything; stored files are removed."""
        if not self._finished:
            self._finished = True
            self._drop_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._finished:
            return
        if error is None:
            self.commit()
        else:
            self.rollback()

    def _open(self) -> None:
        if self._finished:
            raise InvalidInputError("This transaction has ended.", hint="Begin another one.")

    def _drop_files(self) -> None:
        for table, staged in self._current.staged_files():
            if table is not None:
                self._stager.discard(table, [staged])
        if self._commit is not None and self._commit.prepared is not None:
            for location in self._commit.prepared.stored:
                self._stager.remove(location)

    # -- what the operations need -----------------------------------------------------------------

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self.already_applied:
            yield
            return
        draft = self._draft
        saved, waste = draft.save(), len(self._waste)
        self._depth += 1
        try:
            yield
        except BaseException:
            for table, file in draft.restore(saved):
                if table is not None:
                    self._stager.discard(table, [file])
            del self._waste[waste:]
            raise
        finally:
            self._depth -= 1
        while self._waste and not self._depth:
            table, file = self._waste.pop()
            self._stager.discard(table, [file])

    def _discard(self, table: Table, files: Iterable[NewFile]) -> None:
        # Not yet: the operation may fail after this and leave everything as it was.
        self._waste += [(table, new.staged) for new in files]

    def _inlining_limit(self, schema_id: int | None, table_id: int | None) -> int:
        return inlining_limit(self._options, schema_id, table_id)

    def _largest_column_id(self, table: Table) -> int:
        if table.id < 0:
            return 0
        db = self._context.db

        def work(connection: Connection) -> int:
            row = connection.execute(
                sql.SQL("SELECT max(column_id) FROM {} WHERE table_id = %s").format(
                    db.name("ducklake_column")
                ),
                (table.id,),
            ).fetchall()
            return int(row[0][0])

        return db.read(work)

    def _refuse_nulls(self, table: Table, column: Column) -> None:
        if any(self._locate(table, f"{_quoted(column.name)} IS NULL")):
            raise InvalidInputError(
                f"Column {column.name!r} of table {table.name} holds NULL values.",
                hint="Fill them in first (update), then set NOT NULL.",
                table=str(table.name),
                column=column.name,
            )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
