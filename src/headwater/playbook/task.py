"""What passes between a playbook's flow, the runners and the tools: a task, and what became of it.

A task is one run of a tool: a step, or one item of its loop. Tasks and outcomes are plain data, so they
can go to another process or to a Spark executor and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from headwater.errors import HeadwaterError


@dataclass(frozen=True, slots=True)
class TaskError:
    """Why a task failed, in the fields that playbooks and people see."""

    kind: str
    """What sort of failure: `sql`, `conflict`, `connection`, `credential`, `timeout`, `template`, …"""
    code: str
    """The exact one: an SQLSTATE, a class of DuckDB's errors, an HTTP status."""
    message: str
    retryable: bool = False
    command_index: int | None = None
    """Which of the step's commands."""
    position: int | None = None
    """The character of that command, counted from 0, where it is known."""

    def as_dict(self) -> dict[str, Any]:
        """The error as an envelope shows it."""
        return asdict(self)


class TaskFailed(HeadwaterError):  # noqa: N818  (a tool's verdict, which a retry may still turn)
    """A tool could not do what its step asks."""

    def __init__(self, error: TaskError, hint: str | None = None):
        super().__init__(error.message, hint=hint)
        self.error = error


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a tool, with everything it needs."""

    run_id: str
    step: str
    tool: str
    fields: Mapping[str, Any] = field(repr=False)
    """The step's fields with their templates rendered. Secrets are references (`secret:…`, `env:…`,
    `credential:NAME`): the worker has the text behind them."""
    item: int | None = None
    """Which item of the loop; None for a step without one."""
    attempt: int = 1
    timeout: float | None = None
    """Seconds after which it is stopped and fails with kind `timeout`."""
    visit: int = 1
    """How often the flow has come to the step. (run_id, step, visit, item) stays the same when a task is
    tried again or its run is resumed, so that it tells whether the task was applied already."""

    @property
    def identity(self) -> tuple[str, str, int, int | None]:
        """What this task is in its run, whichever attempt it is."""
        return (self.run_id, self.step, self.visit, self.item)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: an envelope, or an error."""

    task: Task
    envelope: Mapping[str, Any] | None = field(default=None, repr=False)
    error: TaskError | None = None
    seconds: float = 0.0
    worker: str = ""
    """The id of the worker that did it; what `current_setting('worker_id')` says."""


class Worker(Protocol):
    """Where a tool runs. It stays while tasks come and go, so what it opened stays open."""

    @property
    def id(self) -> str:
        """Its name within the run."""

    def secret(self, reference: str) -> str:
        """The text behind a reference to a secret."""

    def kept(self, key: tuple[Any, ...], make: Any) -> Any:
        """What `make()` returned when this worker was first asked for `key`: sessions, connections."""


class Tool(Protocol):
    """A kind of step."""

    kind: str
    where: Literal["worker", "driver"]
    """Tools that need the Spark session or the stream tables run in the process of the flow itself."""

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """Do what the task's fields say; returns the envelope, or raises `TaskFailed`."""


class Runner(Protocol):
    """Runs tasks of worker tools, many at once."""

    def run(self, tasks: Iterable[Task], in_flight: int) -> Iterator[Outcome]:
        """Outcomes as they come; at most `in_flight` tasks are under way, and no more are drawn than that."""

    def close(self) -> None:
        """Stop the workers."""
