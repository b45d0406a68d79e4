"""Commits of many workers, one after the other, each at most once.

DuckDB's extension commits optimistically, and what it does when somebody was faster has doubled and lost
rows. So its own retries are off: a transaction either commits on exactly the snapshot that it read, or not at
all. To keep them from failing all the time, workers wait for each other, and Headwater's own commits for
them, by an advisory lock in PostgreSQL, which the server releases when a worker dies. Who is outside the lock
(other DuckDBs) costs a repetition, never a row.

Every commit carries a mark that names its task. A task whose mark is found is done, whatever became of the
worker that did it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo

from headwater.errors import HeadwaterError
from headwater.lake.connection import CONNECT_TIMEOUT_SECONDS, CONNECTION_LOST, Connection, Database
from headwater.lake.writing.commit import turn_key
from headwater.playbook.ducklake import catalog_info
from headwater.playbook.task import Task

_MARKED = "headwater_run"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a commit says about the task it belongs to."""

    task: Task
    part: int | None = None
    """Which command, where each commits by itself."""

    @property
    def author(self) -> str:
        """Who committed."""
        return "headwater"

    @property
    def message(self) -> str:
        """In words."""
        task = self.task
        item = "" if task.item is None else f", item {task.item}"
        return f"playbook step {task.step}{item}"

    @property
    def name(self) -> str:
        """The task, the same in each attempt."""
        task = self.task
        return json.dumps([task.step, task.visit, task.item, self.part])

    @property
    def operation_id(self) -> str:
        """The same among all runs."""
        return f"playbook {self.task.run_id} {self.name}"

    def text(self, counts: list[int | None]) -> str:
        """As it stands in the snapshot; `counts` are the rows that its commands changed."""
        return json.dumps({_MARKED: self.task.run_id, "task": self.name, "affected": counts})


def run_prefix(run_id: str) -> str:
    """How the marks of a run begin."""
    return json.dumps({_MARKED: run_id})[:-1]


class Deadline:
    """When a task has to be done."""

    def __init__(self, seconds: float | None):
        self.seconds = seconds
        self._ends = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds; None without a limit."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.left == 0.0


class LockNotGranted(Exception):  # noqa: N818  (a signal, not an error)
    """The lock did not come within the task's time."""


class CommitLock:
    """The lock of a lake, held by a connection of its own that the worker keeps."""

    def __init__(self, db: Database):
        self._db = db
        self._key = turn_key(db.schema)
        self._kept: Connection | None = None
        self._run: str | None = None
        self._seen = -1
        self._marks: dict[str, tuple[int, list[int | None]]] = {}

    @contextmanager
    def held(self, mark: Mark, deadline: Deadline, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock: alone for the extension's commits, shared to see when our own may go on.

        The newest marks are read with it, see `found`.
        """
        connection = self._connection()
        lock = "SELECT pg_advisory_lock_shared(%s, %s)" if shared else "SELECT pg_advisory_lock(%s, %s)"
        try:
            with connection.pipeline():
                limit = 0 if deadline.left is None else max(1, int(deadline.left * 1000))
                connection.execute("SELECT set_config('lock_timeout', %s, false)", (str(limit),))
                connection.execute(lock, self._key)
                marks = None if shared else self._ask_marks(connection, mark)
            if marks is not None:
                self._keep_marks(marks)
        except psycopg.errors.LockNotAvailable:
            raise LockNotGranted from None
        except psycopg.Error as error:
            raise self._lost(error) from None  # closed, so that a lock that came is not kept
        try:
            yield
        finally:
            self._release(connection, shared=shared)

    def found(self, mark: Mark, *, again: bool = False) -> tuple[int, list[int | None]] | None:
        """The snapshot that a task became and how many rows its commands changed; None if it did not yet.

        `again` asks the lake once more: a worker that died may have left a commit under way.
        """
        if again:
            connection = self._connection()
            try:
                self._keep_marks(self._ask_marks(connection, mark))
            except psycopg.Error as error:
                raise self._lost(error) from None
        return self._marks.get(mark.name)

    def catalog_info(self, catalog: str) -> dict[str, Any]:
        """What the envelope says about the catalog."""
        for last in (False, True):
            try:
                return catalog_info.answer(catalog, catalog_info.ask(self._db, self._connection()))
            except CONNECTION_LOST as error:
                failed = self._lost(error)
                if last:
                    raise failed from None
        raise AssertionError("one of the two attempts returns or raises")

    def close(self) -> None:
        """Close the connection; the server releases what it holds."""
        if self._kept is not None:
            with contextlib.suppress(*CONNECTION_LOST):
                self._kept.close()
            self._kept = None

    def _connection(self) -> Connection:
        if self._kept is None or self._kept.closed:
            address = conninfo.make_conninfo(
                self._db.dsn, application_name="headwater playbook", connect_timeout=CONNECT_TIMEOUT_SECONDS
            )
            try:
                self._kept = psycopg.connect(address, autocommit=True)
                self._kept.prepare_threshold = 2
                self._kept.execute("SET TIME ZONE 'UTC'")
            except psycopg.Error as error:
                raise self._db.explain(error) from None
        return self._kept

    def _lost(self, error: psycopg.Error) -> HeadwaterError:
        self.close()
        return self._db.explain(error)

    def _release(self, connection: Connection, *, shared: bool) -> None:
        unlock = "SELECT pg_advisory_unlock_shared(%s, %s)" if shared else "SELECT pg_advisory_unlock(%s, %s)"
        try:
            connection.execute(unlock, self._key)
        except CONNECTION_LOST:
            self.close()  # the server has released it

    def _ask_marks(self, connection: Connection, mark: Mark) -> Any:
        if self._run != mark.task.run_id:
            self._run, self._seen = mark.task.run_id, -1
            self._marks.clear()
        return connection.execute(
            self._db.text(
                "SELECT s.snapshot_id, CASE WHEN starts_with(c.commit_extra_info, %s) "
                "THEN c.commit_extra_info END FROM {ducklake_snapshot} s "
                "LEFT JOIN {ducklake_snapshot_changes} c USING (snapshot_id) WHERE s.snapshot_id > %s"
            ),
            (run_prefix(mark.task.run_id), self._seen),
        )

    def _keep_marks(self, cursor: Any) -> None:
        for snapshot_id, text in cursor.fetchall():
            self._seen = max(self._seen, snapshot_id)
            if text is not None:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    facts = json.loads(text)
                    self._marks[facts["task"]] = snapshot_id, list(facts["affected"])
