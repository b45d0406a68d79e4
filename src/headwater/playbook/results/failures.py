"""What goes wrong in DuckDB and PostgreSQL, as errors of a task."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import duckdb

from headwater.errors import (
    CatalogUnavailableError,
    ConflictError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    SettingsError,
)
from headwater.playbook.task import TaskError, TaskFailed

#: Said by PostgreSQL through DuckDB, whatever class of error carries it: somebody else was faster.
_CONFLICTS = (
    "could not serialize access",
    "deadlock detected",
    'violates unique constraint "ducklake_',
    "Transaction conflict",
)
#: The server, or the way to it, is gone.
_LOST = (
    "server closed the connection",
    "connection to server",
    "no connection to the server",
    "terminating connection",
    "could not connect to server",
    "Connection refused",
    "the database system is",
    "SSL connection has been closed",
    "connection has been closed",
    # What broke was met by the extension itself, which went on without saying so.
    "Current transaction is aborted",
)
_KINDS: tuple[tuple[type[duckdb.Error], str], ...] = (
    (duckdb.TransactionException, "conflict"),
    (duckdb.ConstraintException, "constraint"),
    (duckdb.ConversionException, "data"),
    (duckdb.OutOfRangeException, "data"),
    (duckdb.OutOfMemoryException, "memory"),
    (duckdb.IOException, "io"),
    (duckdb.HTTPException, "io"),
)


def is_conflict(error: duckdb.Error) -> bool:
    """Whether nothing happened because another writer committed first."""
    return isinstance(error, duckdb.TransactionException) or any(text in str(error) for text in _CONFLICTS)


def is_lost(error: duckdb.Error) -> bool:
    """Whether the connection to PostgreSQL broke."""
    return lost_text(str(error))


def lost_text(text: str) -> bool:
    """Whether a message is about a connection that broke, or could not be made."""
    return any(known in text for known in _LOST)


def described(error: duckdb.Error) -> tuple[str, int | None]:
    """What DuckDB says, and the byte of the statement that it says it about."""
    text = str(error)
    begin = text.find("{")
    if begin >= 0:
        try:
            facts: dict[str, Any] = json.loads(text[begin:])
        except json.JSONDecodeError:
            return text, None
        place = facts.get("position")
        return str(facts.get("exception_message", text)), None if place is None else int(place)
    return text.split("\n\nLINE ")[0], None


def masked(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def sql_error(
    error: duckdb.Error, secrets: Iterable[str], command_index: int | None = None, position: int | None = None
) -> TaskError:
    """DuckDB's error as one of a task."""
    message, _ = described(error)
    if is_conflict(error):
        kind, retryable = "conflict", True
    elif is_lost(error):
        kind, retryable = "connection", True
    else:
        kind = next((name for form, name in _KINDS if isinstance(error, form)), "sql")
        retryable = False
    return TaskError(kind, type(error).__name__, masked(message, secrets), retryable, command_index, position)


def lake_error(error: HeadwaterError, secrets: Iterable[str], command_index: int | None = None) -> TaskFailed:
    """An error about the lake or its database as one of a task."""
    kinds: tuple[tuple[type[HeadwaterError], str], ...] = (
        (CatalogUnavailableError, "connection"),
        (ConflictError, "conflict"),
        (NotFoundError, "catalog"),
        (SettingsError, "catalog"),
        (InvalidInputError, "data"),
    )
    kind = next((name for form, name in kinds if isinstance(error, form)), error.code)
    message = f"{error.message} {error.detail}" if error.detail else error.message
    return TaskFailed(
        TaskError(kind, error.code, masked(message, secrets), error.retryable, command_index), hint=error.hint
    )


def field_error(message: str, hint: str | None = None) -> TaskFailed:
    """A field of the step cannot be used."""
    return TaskFailed(TaskError("field", "field", message), hint=hint)


def timeout_error(seconds: float, command_index: int | None = None) -> TaskFailed:
    """The task took longer than it may; nothing of it is committed."""
    return TaskFailed(
        TaskError("timeout", "timeout", f"Not done within {seconds:g} s.", True, command_index),
        hint="Raise the step's `timeout`.",
    )
