"""What a run of a playbook has to its hand: options, workers, and what this process offers to tools."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from headwater.errors import PlaybookError
from headwater.playbook.credentials.registry import Credentials
from headwater.playbook.flow.driver import DriverRunner
from headwater.playbook.language.model import Playbook
from headwater.playbook.records.events import Listener, nobody
from headwater.playbook.records.reporting import RunReport
from headwater.playbook.task import Runner, Task, TaskError, TaskFailed
from headwater.playbook.tools import tool
from headwater.playbook.tools.limits import limited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.engine.headwater import Headwater

RUNNERS: Final = ("local", "spark")


@dataclass(frozen=True)
class RunOptions:
    """How a run is to be done."""

    runner: str | None = None
    """`local` or `spark`; else what the playbook says, else `local`."""
    workers: int | None = None
    credentials: Sequence[str | Path] = ()
    """Files and folders of credentials, before all others."""
    force: bool = False
    """Resume although the document or a collection has changed."""
    listener: Listener = field(default=nobody, repr=False)
    stopped: threading.Event | None = field(default=None, repr=False)
    """Ends the run like Ctrl-C when it is set, from another thread."""
    deadline: float | None = None
    """When, by `time.monotonic`, no step of the run may be under way any more."""


@dataclass(frozen=True)
class Caller:
    """What called a run: the files on the way there, and the step."""

    files: tuple[str, ...]
    task: Task


def runner_of(playbook: Playbook, options: RunOptions) -> str:
    """Where the workers of a run are."""
    chosen = options.runner or playbook.runner or "local"
    if chosen not in RUNNERS:
        raise PlaybookError(f"There is no runner {chosen!r}.", hint="Known: " + ", ".join(RUNNERS) + ".")
    return chosen


def real_path(path: str | Path) -> str:
    """A file under the one name by which its runs are known."""
    return str(Path(path).resolve())


def place_of(task: Task) -> str:
    """What a task is within its run, as one text."""
    return f"{task.step}/{task.visit}/{'' if task.item is None else task.item}"


#: Runs another playbook: its file, the values given, the options, and who calls.
Call = Callable[[str, Mapping[str, Any], RunOptions, Caller], RunReport]


class RunRunners:
    """Who does the tasks of a run: workers of one kind, and this process."""

    def __init__(self, kind: str, workers: int | None, credentials: Credentials, services: RunServices):
        self._kind = kind
        self._credentials = credentials
        self._services = services
        self._workers = workers or os.cpu_count() or 1
        self._started: dict[str, Runner] = {}

    @property
    def workers(self) -> int:
        """How many tasks can be under way at once."""
        return self._workers

    def of(self, kind: str) -> Runner:
        """Who runs tools of that kind; started when first asked for."""
        where = "driver" if tool(kind).where == "driver" else self._kind
        if where not in self._started:
            self._started[where] = self._start(where)
        return self._started[where]

    def _start(self, where: str) -> Runner:
        if where == "driver":
            return DriverRunner(self._credentials.secret, self._services)
        if where == "spark":
            from headwater.playbook.runners.spark import SparkRunner

            return SparkRunner(self._services.spark, self._credentials.secret)
        from headwater.playbook.runners.local import LocalRunner

        return LocalRunner(self._workers, self._credentials.secret)

    def close(self) -> None:
        """Stop everything."""
        for runner in self._started.values():
            runner.close()
        self._started.clear()


class RunServices:
    """What this process offers to tools that run in it."""

    def __init__(
        self,
        hw: Headwater,
        call: Call,
        run_id: str,
        playbook: Playbook,
        options: RunOptions,
        caller: Caller | None,
    ):
        self.headwater = hw
        self._call = call
        self._run_id = run_id
        self._options = options
        self._files = (*(caller.files if caller else ()), real_path(playbook.file))
        self._used_spark = False
        #: What ends the runs that this one has called.
        self._called: list[threading.Event] = []
        self._stopping = False

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        session = self.headwater.spark
        # Belongs to the thread, so that what this run has under way can be stopped, and nothing else.
        session.sparkContext.addJobTag(self._tag)
        self._used_spark = True
        return session

    @property
    def _tag(self) -> str:
        return f"headwater-run-{self._run_id}"

    def fetch(self, text: str, limit: int) -> Any:
        """The result of a statement of Spark's SQL."""
        self.spark  # noqa: B018  (tags what follows)
        return self.headwater.fetch(text, limit)

    def refresh(self, names: Sequence[str] | None, *, full: bool) -> Sequence[Any]:
        """Bring stream tables up to date."""
        self.spark  # noqa: B018
        return self.headwater.refresh(names, full=full)

    def call_playbook(self, path: str, workload: Mapping[str, Any], caller: Task) -> Mapping[str, Any]:
        """Run another playbook to its end; what its run gave."""
        stopped = threading.Event()
        deadline = None if caller.timeout is None else time.monotonic() + caller.timeout
        options = replace(self._options, listener=nobody, stopped=stopped, deadline=deadline)
        self._called.append(stopped)
        try:
            with limited(stopped.set, caller.timeout):
                found = self._called_run(path, workload, options, caller)
        finally:
            self._called.remove(stopped)
        last = next((step for step in reversed(found.steps) if step.envelope is not None), None)
        return {
            "run_id": found.id,
            "name": found.run.name,
            "status": found.status,
            "vars": found.vars,
            "steps": {step.record.step: step.record.status for step in found.steps},
            "result": None if last is None or last.envelope is None else last.envelope.get("result"),
        }

    def _called_run(
        self, path: str, workload: Mapping[str, Any], options: RunOptions, caller: Task
    ) -> RunReport:
        try:
            found = self._call(path, workload, options, Caller(self._files, caller))
        except KeyboardInterrupt:
            if self._stopping or options.stopped is None or not options.stopped.is_set():
                raise
            raise TaskFailed(TaskError("playbook", "cancelled", "Its time was up.")) from None
        if not found.ok:
            why = (found.error or {}).get("message", found.status)
            raise TaskFailed(TaskError("playbook", found.status, f"Playbook {found.run.name}: {why}"))
        return found

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Stops what this thread has Spark do after a time, and says that this was why it failed."""
        if seconds is None:
            yield
            return
        context = self.spark.sparkContext
        tag = f"{self._tag}-{uuid4()}"
        context.addJobTag(tag)
        try:
            with limited(lambda: context.cancelJobsWithTag(tag), seconds):
                yield
        finally:
            context.removeJobTag(tag)

    def stop(self) -> None:
        """Stop what Spark is doing for this run, and the runs that this one called."""
        self._stopping = True
        for called in tuple(self._called):
            called.set()
        if self._used_spark:
            self.headwater.spark.sparkContext.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        """What this thread does in Spark from now on is no part of the run."""
        if self._used_spark:
            self.headwater.spark.sparkContext.removeJobTag(self._tag)
