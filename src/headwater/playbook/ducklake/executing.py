"""A task's commands on its lake: in one transaction or one after the other, alone or beside other workers."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import duckdb

from headwater.algebra.duckdb_keys import as_merge
from headwater.algebra.duckdb_translations import LATEST_VARIABLE
from headwater.errors import (
    CatalogError,
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    HeadwaterError,
)
from headwater.lake.duckdb_session import literal
from headwater.playbook.ducklake.appending import NotEvaluated, evaluated, reads_no_table, target_of
from headwater.playbook.ducklake.guarding import Deadline, LockNotGranted, Mark
from headwater.playbook.ducklake.keys import read_key, record_key
from headwater.playbook.ducklake.returning import run_returning
from headwater.playbook.ducklake.sessions import LakeSession
from headwater.playbook.ducklake.statements import Command, Statement, lake_name
from headwater.playbook.results.envelope import count_entry, rows_entry
from headwater.playbook.results.failures import (
    described,
    is_conflict,
    is_lost,
    lake_error,
    lost_text,
    sql_error,
    timeout_error,
)
from headwater.playbook.results.values import fetch
from headwater.playbook.task import Task, TaskError, TaskFailed
from headwater.typedefs import TableName, quote_name

_log = logging.getLogger("headwater.playbook")
#: Repetitions after other writers were faster, and seconds for a server to come back.
_ATTEMPTS, _PATIENCE = 20, 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5

Result = TypeVar("Result")
Entry = dict[str, Any]


class _Again(Exception):  # noqa: N818  (a signal: nothing is known to be committed, and it can be tried again)
    def __init__(self, failed: TaskFailed, *, lost: bool):
        self.failed = failed
        self.lost = lost


@dataclass
class Execution:
    """One run of a task's commands."""

    session: LakeSession
    task: Task
    commands: Sequence[Command]
    use_catalog: bool = True
    max_rows: int = 10_000
    _deadline: Deadline = field(init=False)
    _fired: bool = field(default=False, init=False)
    _declared: dict[TableName, tuple[str, ...]] = field(default_factory=dict, init=False)
    """Keys that this transaction has declared and nobody has recorded yet."""

    def __post_init__(self) -> None:
        self._deadline = Deadline(self.task.timeout)

    def run(self, *, transaction: bool) -> list[Entry]:
        """Entries of the envelope, one for each command."""
        try:
            if not any(command.writes for command in self.commands):
                return self._repeated(self._read)
            if transaction:
                return self._committed(self.commands, Mark(self.task))
            return [entry for command in self.commands for entry in self._alone(command)]
        finally:
            leaves = {one.leaves for command in self.commands for one in command.statements}
            if "session" in leaves:
                self.session.reset()
            elif "cursor" in leaves:
                self.session.discard()

    # -- ways to run --------------------------------------------------------------------------------

    def _alone(self, command: Command) -> list[Entry]:
        if command.writes:
            return self._committed([command], Mark(self.task, command.index))
        return self._repeated(lambda: self._entries([command]))

    def _read(self) -> list[Entry]:
        """Commands that only read see one snapshot, and wait for nobody."""
        if len(self.commands) == 1 and len(self.commands[0].statements) == 1:
            return self._entries(self.commands)
        with self._transaction():
            return self._entries(self.commands)

    def _committed(self, commands: Sequence[Command], mark: Mark) -> list[Entry]:
        statements = [one for command in commands for one in command.statements]
        if len(statements) == 1 and self.use_catalog and reads_no_table(statements[0]):
            entry = self._repeated(lambda: self._append(commands[0].index, statements[0], mark))
            if entry is not None:
                return [entry]
        return self._repeated(lambda: self._once(commands, mark))

    def _once(self, commands: Sequence[Command], mark: Mark) -> list[Entry]:
        """One attempt to commit: under the lock, on the newest snapshot, or not at all."""
        lock = self.session.lock
        keys = any(one.key for command in commands for one in command.statements)
        self._declared.clear()
        with self._locked(mark):
            done = lock.found(mark)
            if done is not None:
                entries = self._rebuilt(commands, done[1])
            else:
                with self._transaction() as cursor:
                    entries = self._entries(commands)
                    # A worker that died may have left this very commit under way.
                    done = lock.found(mark, again=True)
                    if done is None:
                        counts = [entry.get("affected_rows", entry.get("row_count")) for entry in entries]
                        self._commit(cursor, commands, mark, counts)
                done = done or (lock.found(mark, again=True) if keys else None)
        if keys and done is not None:
            self._record_keys(commands, done[0])  # a commit of its own, so after the lock
        return entries

    def _append(self, index: int, statement: Statement, mark: Mark) -> Entry | None:
        """An INSERT of given rows by Headwater's own commit; None where that is not for it."""
        session, insert = self.session, statement.insert
        if insert is None or not session.appends:
            return None
        # The commit waits for its turn by itself, but not only as long as the task may.
        with self._locked(mark, shared=True) if self.task.timeout else contextlib.nullcontext():
            try:
                with session.lake.transaction(operation_id=mark.operation_id) as tx:
                    table = target_of(insert, tx.state, session.place.catalog)
                    if table is None:
                        tx.rollback()
                        return None
                    side = session.side_cursor()
                    with self._timed(side, index):
                        rows = evaluated(session, side, statement, table)
                    text = mark.text([rows.num_rows])
                    tx.describe(author=mark.author, message=mark.message, extra_info=text)
                    tx.append(table.name, rows)
            except NotEvaluated as refused:
                raise self._explained(refused.error, index, statement.position(refused.byte)) from None
            except duckdb.Error as error:
                raise self._explained(error, index) from None
            except ConflictError:
                return None  # the table is another one now; the extension sees it as it is
            except (CatalogUnavailableError, CommitOutcomeUnknownError) as error:
                raise _Again(lake_error(error, session.place.secrets, index), lost=True) from None
            except CatalogError:
                session.appends = False  # no room for operations of our own in this database
                return None
            except TaskFailed:
                raise
            except HeadwaterError as error:
                raise lake_error(error, session.place.secrets, index) from None
        return count_entry(index, rows.num_rows)

    def _rebuilt(self, commands: Sequence[Command], counts: Sequence[int | None]) -> list[Entry]:
        """Entries of a task that was committed before: counts as they were, what only reads is read again."""
        entries = []
        for command, count in zip(commands, counts, strict=True):
            if not command.writes:
                entries += self._entries([command])
            elif command.statements[-1].gives_rows:
                entries.append(rows_entry(command.index, [], [], count or 0))
            else:
                entries.append(count_entry(command.index, count or 0))
        return entries

    # -- statements ---------------------------------------------------------------------------------

    def _entries(self, commands: Sequence[Command]) -> list[Entry]:
        entries = []
        for command in commands:
            found = [self._entry(command.index, statement) for statement in command.statements]
            entries.append(found[-1])
        return entries

    def _entry(self, index: int, statement: Statement) -> Entry:
        cursor = self._cursor()
        with self._timed(cursor, index):
            try:
                if statement.needs_latest:
                    cursor.execute(
                        f"SET VARIABLE {LATEST_VARIABLE} = (SELECT max(id) FROM ducklake_current_snapshot("
                        f"{literal(self.session.place.catalog)}))"
                    )
                if statement.returning:
                    found: Entry = run_returning(cursor, statement, lambda done: self._rows(index, done))
                    return found
                cursor.execute(self._completed(cursor, index, statement))
                if statement.gives_rows:
                    return self._rows(index, cursor)
                if statement.key is not None:
                    name = lake_name(statement.key.table, self.session.place.catalog)
                    if name is not None:
                        self._declared[name] = statement.key.columns
                return count_entry(index, _affected(cursor))
            except duckdb.Error as error:
                _, byte = described(error)
                raise self._explained(error, index, statement.position(byte)) from None

    def _rows(self, index: int, cursor: duckdb.DuckDBPyConnection) -> Entry:
        columns, rows, count = fetch(cursor, self.session.side_cursor(), self.max_rows)
        return rows_entry(index, columns, rows, count)

    def _completed(self, cursor: duckdb.DuckDBPyConnection, index: int, statement: Statement) -> str:
        """The statement with the key of its table, where it relies on one."""
        upsert, merge = statement.upsert, statement.merge
        if upsert is not None:
            key = upsert.target or self._key(index, upsert.table)
            columns = [row[0] for row in cursor.execute(f"DESCRIBE {upsert.table_text}").fetchall()]
            return as_merge(upsert, columns, key)
        if merge is not None:
            using = ", ".join(map(quote_name, self._key(index, merge.table)))
            return f"{statement.text[: merge.place]} USING ({using}) {statement.text[merge.place :]}"
        return statement.text

    def _key(self, index: int, parts: Sequence[str]) -> tuple[str, ...]:
        name = lake_name(parts, self.session.place.catalog)
        if name is not None and name in self._declared:
            return self._declared[name]
        table = None if name is None else self.session.lake.state().tables.get(name)
        key = None if table is None else read_key(table)
        if not key:
            raise TaskFailed(
                TaskError("sql", "no_key", f"Table {'.'.join(parts)} has no key.", False, index),
                hint="Declare a PRIMARY KEY in its CREATE TABLE, or name columns: ON CONFLICT (…), ON (…).",
            )
        return key

    def _record_keys(self, commands: Sequence[Command], snapshot_id: int) -> None:
        """Tag the tables that this task created; said once, by the task that did."""
        lake, catalog = self.session.lake, self.session.place.catalog
        for key in (one.key for command in commands for one in command.statements if one.key):
            name = lake_name(key.table, catalog)
            table = None if name is None else lake.state().tables.get(name)
            if table is None or table.begin_snapshot != snapshot_id or read_key(table) is not None:
                continue  # it was there before, or is gone already
            record_key(lake, table.name, key.columns)
            _log.warning(
                "The key (%s) of %s is recorded: MERGE, INSERT OR REPLACE and ON CONFLICT use it, "
                "a plain INSERT is not checked. DuckLake itself has no keys.",
                ", ".join(key.columns),
                table.name,
            )

    # -- transactions -------------------------------------------------------------------------------

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        try:
            return self.session.cursor(use=self.use_catalog)
        except duckdb.Error as error:
            raise self._explained(error, None) from None

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Everything inside is one transaction, which is rolled back unless it was committed."""
        cursor = self._cursor()
        cursor.execute("BEGIN")
        try:
            yield cursor
        finally:
            try:
                cursor.execute("ROLLBACK")
            except duckdb.TransactionException:
                pass  # it was committed
            except duckdb.Error:
                self.session.discard()

    @contextmanager
    def _locked(self, mark: Mark, *, shared: bool = False) -> Iterator[None]:
        try:
            with self.session.lock.held(mark, self._deadline, shared=shared):
                yield
        except LockNotGranted:
            raise timeout_error(self._deadline.seconds or 0.0) from None

    def _commit(
        self,
        cursor: duckdb.DuckDBPyConnection,
        commands: Sequence[Command],
        mark: Mark,
        counts: list[int | None],
    ) -> None:
        if self._deadline.passed:
            raise timeout_error(self._deadline.seconds or 0.0)
        said = any(one.sets_message for command in commands for one in command.statements)
        try:
            if not said:
                texts = map(literal, (mark.author, mark.message, mark.text(counts)))
                author, message, extra = texts
                cursor.execute(
                    f"CALL {quote_name(self.session.place.catalog)}.set_commit_message("
                    f"{author}, {message}, extra_info => {extra})"
                )
            cursor.execute("COMMIT")
        except duckdb.Error as error:
            raise self._explained(error, None) from None

    @contextmanager
    def _timed(self, cursor: duckdb.DuckDBPyConnection, index: int) -> Iterator[None]:
        """Interrupt what DuckDB does inside when the task's time is over."""
        left = self._deadline.left
        if left is None:
            yield
            return
        if self._deadline.passed:
            raise timeout_error(self._deadline.seconds or 0.0, index)

        def fire() -> None:
            self._fired = True
            cursor.interrupt()

        timer = threading.Timer(left, fire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _explained(self, error: duckdb.Error, index: int | None, position: int | None = None) -> Exception:
        """What a failure of DuckDB means for the task."""
        if isinstance(error, duckdb.InterruptException) or (self._fired and "nterrupt" in str(error)):
            return timeout_error(self._deadline.seconds or 0.0, index)
        failed = TaskFailed(sql_error(error, self.session.place.secrets, index, position))
        if is_lost(error) or is_conflict(error):
            return _Again(failed, lost=is_lost(error))
        return failed

    def _repeated(self, work: Callable[[], Result]) -> Result:
        """Work that committed nothing when it fails for a while: again, within bounds."""
        attempts, lost_since, pause = 0, None, _FIRST_PAUSE
        while True:
            attempts += 1
            try:
                return work()
            except _Again as again:
                failed, lost = again.failed, again.lost
            except HeadwaterError as error:
                if isinstance(error, TaskFailed):
                    raise
                failed = lake_error(error, self.session.place.secrets)
                lost = isinstance(error, CatalogUnavailableError) or lost_text(str(error))
                if not lost and not isinstance(error, ConflictError):
                    raise failed from None
            if lost:
                self.session.reset()
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > _PATIENCE:
                    raise failed
            elif attempts >= _ATTEMPTS:
                raise failed
            pause = min(_LONGEST_PAUSE, pause * 2)
            left = self._deadline.left
            if left is not None and left < pause:
                raise failed
            time.sleep(random.uniform(0, pause))  # noqa: S311  (no secret)


def _affected(cursor: duckdb.DuckDBPyConnection) -> int:
    """The number of rows that a statement changed, which DuckDB gives as its result."""
    description = cursor.description or []
    if [one[0] for one in description] != ["Count"]:
        with contextlib.suppress(duckdb.Error):
            cursor.fetchall()
        return 0
    row = cursor.fetchone()
    return 0 if row is None else int(row[0])
