"""`tool: postgres`: SQL of PostgreSQL. The commands of a step are one transaction."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import psycopg
from psycopg import conninfo
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from headwater.playbook.credentials.types import dsn_for
from headwater.playbook.ducklake.guarding import Deadline
from headwater.playbook.results.envelope import MAX_ROWS, count_entry, ok_envelope, rows_entry
from headwater.playbook.results.failures import masked, timeout_error
from headwater.playbook.results.json_values import json_value
from headwater.playbook.results.values import unique_names
from headwater.playbook.task import Task, TaskError, TaskFailed, Worker

_CONNECT_SECONDS = 10
#: Classes of SQLSTATE that a later attempt may not meet.
_LATER = ("08", "40", "53", "57P")
_KINDS = {"40": "conflict", "23": "constraint", "22": "data", "08": "connection", "57": "stopped"}

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresTool:
    """Runs SQL in a PostgreSQL database."""

    kind = "postgres"
    where: Literal["worker", "driver"] = "worker"

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """The envelope has an entry for each command; each statement of a single `command` is one."""
        dsn = dsn_for(task.fields, worker, "connection")
        secrets = _secrets(dsn)
        deadline = Deadline(task.timeout)
        kept: _Kept = worker.kept(("postgres", dsn), _Kept)
        connection = kept.connection or _connected(dsn, secrets, task.timeout)
        try:
            with connection.transaction():
                entries = _entries(connection, task.fields, secrets, deadline)
        except psycopg.Error as error:  # of BEGIN or COMMIT
            raise _failed(error, secrets, None, deadline) from None
        finally:
            kept.keep(connection)
        return ok_envelope(entries)


class _Kept:
    """The connection of a worker to a database."""

    def __init__(self) -> None:
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection | None:
        """It, if it still answers: between two tasks a server may have restarted."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
            except psycopg.Error:
                self.close()
        return self._connection

    def keep(self, connection: Connection) -> None:
        """For the next task, unless it broke."""
        self._connection = connection
        if connection.closed:
            self.close()

    def close(self) -> None:
        """Close it."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


def _connected(dsn: str, secrets: list[str], timeout: float | None) -> Connection:
    """A new connection."""
    wait = _CONNECT_SECONDS if timeout is None else max(2, min(_CONNECT_SECONDS, int(timeout)))
    try:
        given = conninfo.make_conninfo(dsn, connect_timeout=wait, application_name="headwater playbook")
    except psycopg.ProgrammingError:
        # Its message may repeat the address.
        raise TaskFailed(
            TaskError("connection", "address", "The PostgreSQL address cannot be understood.")
        ) from None
    try:
        made = psycopg.connect(given, autocommit=True, prepare_threshold=None)
        made.execute("SET TIME ZONE 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'")
    except psycopg.OperationalError as error:
        message = masked(str(error).strip(), secrets)
        lost = "password" not in message and "does not exist" not in message
        code = error.sqlstate or "connection"
        raise TaskFailed(TaskError("connection", code, message, lost)) from None
    for name, loader in _LOADERS.items():
        made.adapters.register_loader(name, loader)
    return made


def _entries(
    connection: Connection, fields: Mapping[str, Any], secrets: list[str], deadline: Deadline
) -> list[dict[str, Any]]:
    given = fields.get("commands")
    if given is None:
        found = _results(connection, str(fields.get("command", "")), 0, secrets, deadline)
        return [{**entry, "command_index": index} for index, entry in enumerate(found)]
    entries = []
    for index, text in enumerate(given):
        found = _results(connection, str(text), index, secrets, deadline)
        # The result of a command is that of its last statement.
        entries.append(found[-1] if found else count_entry(index, 0))
    return entries


def _results(
    connection: Connection, text: str, index: int, secrets: list[str], deadline: Deadline
) -> list[dict[str, Any]]:
    """What each statement of a text gave; without parameters PostgreSQL takes several at once."""
    cursor = connection.cursor()
    entries = []
    limit = 0 if deadline.left is None else max(1, int(deadline.left * 1000))
    try:
        # Ends with the transaction; each command has what the ones before it left.
        connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(limit),))
        cursor.execute(text.encode())
        while True:
            if cursor.description is not None:
                columns = unique_names([column.name for column in cursor.description])
                rows = cursor.fetchmany(MAX_ROWS)
                shown = [dict(zip(columns, map(_shown, row), strict=True)) for row in rows]
                entries.append(rows_entry(index, columns, shown, cursor.rowcount))
            elif cursor.statusmessage:  # an empty statement has none
                entries.append(count_entry(index, max(0, cursor.rowcount)))
            if not cursor.nextset():
                return entries
    except psycopg.Error as error:
        raise _failed(error, secrets, index, deadline) from None


def _failed(error: psycopg.Error, secrets: list[str], index: int | None, deadline: Deadline) -> TaskFailed:
    state = error.sqlstate or ""
    if isinstance(error, psycopg.errors.QueryCanceled) and deadline.seconds is not None:
        return timeout_error(deadline.seconds, index)
    place = error.diag.statement_position
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state
    message = error.diag.message_primary or str(error).strip()
    if error.diag.message_detail:
        message = f"{message} {error.diag.message_detail}"
    return TaskFailed(
        TaskError(
            "connection" if lost else _KINDS.get(state[:2], "sql"),
            state or type(error).__name__,
            masked(message, secrets),
            retryable=lost or state.startswith(_LATER),
            command_index=index,
            position=None if place is None else int(place) - 1,
        ),
        hint=error.diag.message_hint,
    )


def _secrets(dsn: str) -> list[str]:
    try:
        parameters = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return [dsn]
    return [str(parameters[name]) for name in ("password", "sslpassword") if parameters.get(name)]


def _shown(value: Any) -> Any:
    try:
        return json_value(value)
    except TypeError:  # ranges and other types of PostgreSQL's own
        return str(value)


class _Text(Loader):
    """PostgreSQL's own text: Python's types hold neither infinity nor months, nor years after 9999."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class _Moment(Loader):
    """A time in ISO's form."""

    def load(self, data: Buffer) -> str:
        text = re.sub(r"^(\d+-\d\d-\d\d) ", r"\1T", bytes(data).decode())
        return re.sub(r"([+-]\d\d)(?= BC$|$)", r"\1:00", text) if "T" in text else text


class _MomentWithoutZone(Loader):
    def load(self, data: Buffer) -> str:
        return re.sub(r"^(\d+-\d\d-\d\d) ", r"\1T", bytes(data).decode())


class _TimeWithZone(Loader):
    def load(self, data: Buffer) -> str:
        return re.sub(r"([+-]\d\d)$", r"\1:00", bytes(data).decode())


_LOADERS: Mapping[str, type[Loader]] = {
    "date": _Text,
    "time": _Text,
    "interval": _Text,
    "timestamp": _MomentWithoutZone,
    "timestamptz": _Moment,
    "timetz": _TimeWithZone,
}

TOOL = PostgresTool()
