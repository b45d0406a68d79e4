"""What does tasks, one after the other: the same in a process of this machine and in a Spark executor.

A worker keeps what its tools opened. References to secrets are opened where the flow runs, and the texts come
with the task that names them: a worker needs neither the lake that holds them nor the key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headwater.errors import CredentialError, HeadwaterError
from headwater.playbook.task import Outcome, Task, TaskError, TaskFailed
from headwater.playbook.tools import tool

#: How texts begin that refer to a secret.
REFERENCES = ("secret:", "env:", "credential:")

Opener = Callable[[str], str]
"""Gives the text behind a reference, as `Credentials.secret` does."""


class TaskWorker:
    """Does tasks; implements `Worker` for their tools."""

    def __init__(self, id: str = "w1", secret: Opener | None = None):
        self._id = id
        self._open = secret
        self._opened: Mapping[str, str] = {}
        self._kept: dict[tuple[Any, ...], Any] = {}

    @property
    def id(self) -> str:
        """Its name within the run."""
        return self._id

    @id.setter
    def id(self, name: str) -> None:
        self._id = name

    def secret(self, reference: str) -> str:
        """The text behind a reference; any other text stands for itself."""
        if not reference.startswith(REFERENCES):
            return reference
        if reference in self._opened:
            return self._opened[reference]
        if self._open is None:
            raise CredentialError(f"Nothing is known behind {reference!r}.", credential=reference)
        return self._open(reference)

    def kept(self, key: tuple[Any, ...], make: Any) -> Any:
        """What `make()` returned when this worker was first asked for `key`."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def work(self, task: Task, opened: Mapping[str, str] | None = None) -> Outcome:
        """Do a task. `opened` are the secrets that it refers to."""
        self._opened = opened or {}
        began = time.monotonic()
        try:
            envelope = tool(task.tool).run(task, self)
        except TaskFailed as failed:
            return self._outcome(task, began, error=failed.error)
        except HeadwaterError as error:
            return self._outcome(task, began, error=task_error(error))
        finally:
            self._opened = {}
        return self._outcome(task, began, envelope=envelope)

    def close(self) -> None:
        """Close everything that is kept."""
        for one in self._kept.values():
            if hasattr(one, "close"):
                one.close()
        self._kept.clear()

    def _outcome(self, task: Task, began: float, **what: Any) -> Outcome:
        return Outcome(task=task, seconds=time.monotonic() - began, worker=self._id, **what)


def task_error(error: HeadwaterError) -> TaskError:
    """An error of Headwater's as one of a task."""
    message = f"{error.message} {error.detail}" if error.detail else error.message
    return TaskError(error.code, error.code, message, retryable=error.retryable)


def references(value: Any) -> Iterator[str]:
    """The references to secrets among the fields of a task."""
    if isinstance(value, str):
        if value.startswith(REFERENCES):
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from references(inner)


def opened_secrets(task: Task, secret: Opener | None) -> dict[str, str]:
    """The texts behind the references of a task. What cannot be opened is left to whoever asks for it."""
    if secret is None:
        return {}
    found = {}
    for reference in references(task.fields):
        try:
            found[reference] = secret(reference)
        except HeadwaterError:
            continue  # a text that only looks like one; a tool that needs it says what is missing
    return found
