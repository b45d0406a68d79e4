"""`tool: duckdb`: SQL of DuckDB on a database file. The commands of a step are one transaction.

Only one process can have a DuckDB file open for writing. Tasks wait for each other instead of failing, and
give the file up when they are done; steps that should work on the same tables at once want `tool: ducklake`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import duckdb

from headwater.playbook.ducklake.guarding import Deadline
from headwater.playbook.results.envelope import MAX_ROWS, count_entry, ok_envelope, rows_entry
from headwater.playbook.results.failures import described, sql_error, timeout_error
from headwater.playbook.results.values import fetch
from headwater.playbook.task import Task, TaskError, TaskFailed, Worker

#: Seconds that a task without a timeout waits for the file.
PATIENCE = 300.0


class DuckdbTool:
    """Runs SQL in a DuckDB file, or in memory."""

    kind = "duckdb"
    where: Literal["worker", "driver"] = "worker"

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """The envelope has an entry for each command; each statement of a single `command` is one."""
        deadline = Deadline(task.timeout)
        path = task.fields.get("database_path")
        with _alone(path, deadline), _opened(path, deadline) as connection:
            return ok_envelope(_transaction(connection, task, deadline))


@contextmanager
def _alone(path: str | None, deadline: Deadline) -> Iterator[None]:
    """One task of this machine at a time, in the order of their coming as far as the system keeps one."""
    if path is None:
        yield
        return
    # Beside the file may be nobody's to write; the name is the same for every process of the user.
    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:32]
    place = Path(tempfile.gettempdir()) / f"headwater-{os.getuid()}-{name}.lock"
    handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        _wait(deadline, lambda: _locked(handle), path)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(path: str | None, deadline: Deadline) -> Iterator[duckdb.DuckDBPyConnection]:
    found: list[duckdb.DuckDBPyConnection] = []

    def attempt() -> bool:
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            found.append(duckdb.connect(":memory:" if path is None else path))
        except duckdb.IOException as error:
            if "lock" not in str(error):
                raise _refused(error) from None
            return False  # a program that is none of ours has it open
        except (duckdb.Error, OSError) as error:
            raise _refused(error) from None
        return True

    _wait(deadline, attempt, str(path))
    connection = found[0]
    try:
        connection.execute("SET errors_as_json = true")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def _refused(error: Exception) -> TaskFailed:
    return TaskFailed(TaskError("io", type(error).__name__, str(error).splitlines()[0]))


def _wait(deadline: Deadline, attempt: Any, path: str) -> None:
    """Until an attempt succeeds, or the time is over."""
    began, pause = time.monotonic(), 0.005
    while not attempt():
        if deadline.passed and deadline.seconds is not None:
            raise timeout_error(deadline.seconds)
        if time.monotonic() - began > PATIENCE:
            raise TaskFailed(
                TaskError("locked", "locked", f"Another program has {path} open.", retryable=True),
                hint="Close it there, or use `tool: ducklake`, which many can write to.",
            )
        time.sleep(pause)
        pause = min(0.1, pause * 1.5)


def _transaction(
    connection: duckdb.DuckDBPyConnection, task: Task, deadline: Deadline
) -> list[dict[str, Any]]:
    with duckdb.connect() as side:
        side.execute("SET TimeZone = 'UTC'")
        timer = None if deadline.left is None else threading.Timer(deadline.left, connection.interrupt)
        if timer is not None:
            timer.start()
        try:
            connection.execute("BEGIN")
            entries = _entries(connection, side, task.fields, deadline)
            connection.execute("COMMIT")
            return entries
        except duckdb.Error as error:
            raise _failed(error, None, deadline) from None
        finally:
            if timer is not None:
                timer.cancel()
            with suppress(duckdb.Error):  # nothing to roll back after a commit
                connection.execute("ROLLBACK")


def _entries(
    connection: duckdb.DuckDBPyConnection,
    side: duckdb.DuckDBPyConnection,
    fields: Mapping[str, Any],
    deadline: Deadline,
) -> list[dict[str, Any]]:
    listed = fields.get("commands")
    texts = [str(fields.get("command", ""))] if listed is None else [str(text) for text in listed]
    entries: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        entry = None
        try:
            for statement in connection.extract_statements(text):
                index = len(entries) if listed is None else number
                entry = _entry(connection, side, statement, index)
                if listed is None:
                    entries.append(entry)
        except duckdb.Error as error:
            raise _failed(error, len(entries) if listed is None else number, deadline) from None
        if listed is not None:
            entries.append(entry or count_entry(number, 0))
    return entries


def _entry(
    connection: duckdb.DuckDBPyConnection,
    side: duckdb.DuckDBPyConnection,
    statement: duckdb.Statement,
    index: int,
) -> dict[str, Any]:
    kinds = {str(kind).rsplit(".", 1)[-1] for kind in statement.expected_result_type}
    connection.execute(statement)
    columns, rows, count = fetch(connection, side, MAX_ROWS)
    if "CHANGED_ROWS" in kinds and columns == ["Count"] and "returning" not in statement.query.lower():
        return count_entry(index, int(rows[0]["Count"]) if rows else 0)
    if "QUERY_RESULT" not in kinds:
        return count_entry(index, 0)
    return rows_entry(index, columns, rows, count)


def _failed(error: duckdb.Error, index: int | None, deadline: Deadline) -> TaskFailed:
    if isinstance(error, duckdb.InterruptException) and deadline.seconds is not None:
        return timeout_error(deadline.seconds, index)
    _, place = described(error)
    return TaskFailed(sql_error(error, (), index, place))


TOOL = DuckdbTool()
