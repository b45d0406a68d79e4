"""A loop: the same step for each element of a collection, in order or several at once.

Items are drawn as workers become free, so neither tasks nor results pile up here. Items that fail in a way
that may pass are tried again together, after those that were not tried yet.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import HeadwaterError, PlaybookError
from headwater.playbook.flow.retrying import Condition, tried_again, wait_before
from headwater.playbook.language.model import Retry
from headwater.playbook.records.store import as_json
from headwater.playbook.runners.worker import task_error
from headwater.playbook.task import Outcome, Runner, Task, TaskError

#: Errors that the result of a loop lists; all of them are with their items in the store.
LISTED_ERRORS = 100


@dataclass
class Items:
    """The items of one loop, and what becomes of them."""

    make: Callable[[int, int], Task]
    """The task of an item, for an attempt; raises where its templates or credentials are wrong."""
    runner: Runner
    in_flight: int
    retry: Retry | None
    holds: Callable[[int, int], Condition]
    """Whether `retry.when` holds, for an item and its attempt."""
    settled: Callable[[int, int, Outcome | TaskError], None]
    """Called when an item is done or has failed for good."""
    retried: Callable[[int, int, TaskError, float], None]
    """Called when an item will be tried again."""
    stop_on_error: bool = True
    succeeded: int = 0
    failed: int = 0
    errors: list[tuple[int, TaskError]] = field(default_factory=list)
    _stopping: bool = False

    def run(self, wanted: Iterable[int], *, ordered: bool) -> None:
        """Run items; `ordered` ones each after the one before it has ended."""
        if not ordered:
            self._rounds(wanted, self.in_flight)
            return
        for item in wanted:
            if self._stopping:
                return
            self._rounds((item,), 1)

    def _rounds(self, wanted: Iterable[int], in_flight: int) -> None:
        attempt = 1
        while True:
            again: dict[int, TaskError] = {}
            for outcome in self.runner.run(self._tasks(wanted, attempt), in_flight):
                item = -1 if outcome.task.item is None else outcome.task.item
                error = outcome.error
                if error is not None and tried_again(self.retry, error, attempt, self.holds(item, attempt)):
                    again[item] = error
                else:
                    self._settle(item, attempt, outcome, outcome.error)
            if self._stopping:
                for item, error in again.items():
                    self._settle(item, attempt, error, error)
                return
            if not again or self.retry is None:
                return
            attempt += 1
            seconds = wait_before(self.retry, attempt)
            for item, error in again.items():
                self.retried(item, attempt, error, seconds)
            time.sleep(seconds)
            wanted = tuple(again)

    def _tasks(self, wanted: Iterable[int], attempt: int) -> Iterator[Task]:
        for item in wanted:
            if self._stopping:
                return
            try:
                task = self.make(item, attempt)
            except HeadwaterError as error:
                problem = task_error(error)
                self._settle(item, attempt, problem, problem)
                continue
            yield task

    def _settle(self, item: int, attempt: int, what: Outcome | TaskError, error: TaskError | None) -> None:
        if error is None:
            self.succeeded += 1
        else:
            self.failed += 1
            self._stopping = self._stopping or self.stop_on_error
            if len(self.errors) < LISTED_ERRORS:
                self.errors.append((item, error))
        self.settled(item, attempt, what)

    def listed_errors(self) -> list[dict[str, Any]]:
        """The errors of items, in the order of the items."""
        return [
            {"item": item, **error.as_dict()} for item, error in sorted(self.errors, key=lambda each: each[0])
        ]


def elements_of(collection: Any) -> Sequence[Any]:
    """The elements that a loop goes over: those of a list, or a mapping's pairs of `key` and `value`."""
    if isinstance(collection, Mapping):
        return [{"key": key, "value": value} for key, value in collection.items()]
    if isinstance(collection, list | tuple | range):
        return collection
    raise PlaybookError(
        f"`loop.collection` is {_kind(collection)}, not a list.",
        hint="Write a list, or `{{ name }}` of one, alone and without text around it.",
    )


def fingerprint(elements: Sequence[Any]) -> str:
    """What tells a collection from another one, without keeping it."""
    return hashlib.sha256(as_json(list(elements)).encode()).hexdigest()


def _kind(value: Any) -> str:
    return {str: "a text", type(None): "empty", bool: "true or false"}.get(
        type(value), f"of type {type(value).__name__}"
    )
