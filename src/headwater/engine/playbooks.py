"""Playbooks of an open Headwater: running them, resuming runs, looking at them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import HeadwaterError, PlaybookError, PlaybookRunError
from headwater.lake.secrets import Secrets
from headwater.playbook.credentials import Credentials
from headwater.playbook.driver import DriverRunner
from headwater.playbook.events import Listener, nobody
from headwater.playbook.masking import Masking
from headwater.playbook.model import Playbook
from headwater.playbook.reading import load_playbook
from headwater.playbook.recording import Recorder
from headwater.playbook.reporting import RunReport, report
from headwater.playbook.running import Running
from headwater.playbook.scopes import Finished, Scopes
from headwater.playbook.store import Run, RunStore, StepRecord
from headwater.playbook.task import Runner, Task, TaskError, TaskFailed
from headwater.playbook.tasks import TaskMaker
from headwater.playbook.tools import tool
from headwater.playbook.workload import Workload, given_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.engine.headwater import Headwater

RUNNERS: Final = ("local", "spark")
#: How deep playbooks may call playbooks.
MOST_CALLS: Final = 8


class RunCancelled(KeyboardInterrupt):
    """A run was stopped by Ctrl-C, and is marked so; it can be resumed."""

    def __init__(self, run_id: str):
        super().__init__(run_id)
        self.run_id = run_id


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


@dataclass(frozen=True)
class _Caller:
    """What called a run: the files on the way there, and the step."""

    files: tuple[str, ...]
    task: Task


class Playbooks:
    """Runs playbooks, and knows their runs."""

    def __init__(self, hw: Headwater):
        self._hw = hw

    @cached_property
    def store(self) -> RunStore:
        """The runs of this lake."""
        return RunStore(self._hw.lake)

    def credentials(self, paths: Sequence[str | Path] = ()) -> Credentials:
        """The credentials that playbooks can name."""
        return Credentials(self._hw.lake, paths)

    def runs(self, limit: int = 20, *, file: str | Path | None = None) -> list[Run]:
        """Runs, newest first; of one file, if it is named."""
        return self.store.runs(limit, file=None if file is None else _file(file))

    def report(self, run_id: str, *, items: int = 1000) -> RunReport:
        """What became of a run."""
        return report(self.store, run_id, items=items)

    def unfinished(self, path: str | Path) -> Run | None:
        """The newest run of a file, if it can be resumed."""
        found = self.runs(1, file=path)
        return found[0] if found and found[0].unfinished else None

    # -- running ------------------------------------------------------------------------------------

    def run(
        self,
        path: str | Path,
        workload: Mapping[str, Any] | None = None,
        options: RunOptions = RunOptions(),  # noqa: B008  (frozen)
        *,
        from_step: str | None = None,
    ) -> RunReport:
        """Run a playbook from its start, or from a step on with the results of its last run."""
        playbook = load_playbook(path)
        return self._start(playbook, workload or {}, options, from_step=from_step)

    def resume(
        self,
        path: str | Path,
        run_id: str | None = None,
        options: RunOptions = RunOptions(),  # noqa: B008  (frozen)
    ) -> RunReport:
        """Go on with a run that failed, was cancelled or interrupted: what is done is not repeated."""
        return self._resume(load_playbook(path), self.resumable(path, run_id), options)

    def resumable(self, path: str | Path, run_id: str | None = None) -> Run:
        """The run that `resume` goes on with: the one of that id, or the last one of a file."""
        run = self.unfinished(path) if run_id is None else self.store.get(run_id)
        if run is None:
            raise PlaybookRunError(
                f"There is no unfinished run of {path}.", hint="Run it without --resume.", file=str(path)
            )
        if not run.unfinished:
            raise PlaybookRunError(f"Run {run.id} is done.", hint="Run it without --resume.", run=run.id)
        return run

    def given(self, run: Run) -> Mapping[str, Any]:
        """What was given for the workload when an unfinished run began."""
        return given_before(run, self._hw.lake)

    def _start(
        self,
        playbook: Playbook,
        given: Mapping[str, Any],
        options: RunOptions,
        *,
        from_step: str | None = None,
        caller: _Caller | None = None,
    ) -> RunReport:
        masking = Masking()
        workload = Workload.of(playbook.workload, given)
        masking.learn_from(workload.values)
        base = None if from_step is None else self._base(playbook, from_step)
        kept, sealed = workload.sealed(self._hw.lake, masking)
        run_id = self.store.begin(
            name=playbook.name,
            file=_file(playbook.file),
            digest=playbook.digest,
            workload=masking.value(workload.values),
            given=kept,
            sealed=sealed,
            runner=_runner(playbook, options),
            based_on=None if base is None else base.id,
            from_step=from_step,
            parent=None if caller is None else caller.task.run_id,
            caller=None if caller is None else _place(caller.task),
        )
        return self._go(playbook, self.store.get(run_id), workload, masking, options, caller, [])

    def _resume(
        self, playbook: Playbook, run: Run, options: RunOptions, caller: _Caller | None = None
    ) -> RunReport:
        if run.file != _file(playbook.file) and not options.force:
            raise PlaybookRunError(
                f"Run {run.id} is of another playbook: {run.file}.",
                hint="Name that file, or go on with --force.",
                run=run.id,
            )
        if run.digest != playbook.digest and not options.force:
            raise PlaybookRunError(
                f"{playbook.file} has changed since run {run.id} began.",
                hint="Begin anew with --new, or go on with --force if finished steps still mean the same.",
                run=run.id,
            )
        masking = Masking()
        workload = Workload.of(playbook.workload, given_before(run, self._hw.lake))
        masking.learn_from(workload.values)
        self.store.take(run, playbook.digest)
        return self._go(playbook, run, workload, masking, options, caller, self.store.steps(run.id))

    def _go(
        self,
        playbook: Playbook,
        run: Run,
        workload: Workload,
        masking: Masking,
        options: RunOptions,
        caller: _Caller | None,
        earlier: Sequence[StepRecord],
    ) -> RunReport:
        # Functions that steps name are found beside their playbook.
        folder = str(Path(playbook.file).absolute().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        credentials = self.credentials(options.credentials)
        services = _Services(self._hw, self, run.id, playbook, options, caller)
        runners = _Runners(
            _runner(playbook, options), options.workers or playbook.workers, credentials, services
        )
        scopes = Scopes(self.store, run.id, workload.values, {})
        self._recall(run, scopes)
        with Recorder(self.store, run.id, masking, options.listener, options.stopped) as recorder:
            running = Running(
                playbook,
                run.id,
                run.from_step or playbook.first.name,
                scopes,
                self.store,
                recorder,
                runners,
                TaskMaker(run.id, Path(folder), credentials, masking),
                {(each.step, each.visit): each for each in earlier},
                options.force,
            )
            try:
                _to_the_end(running, recorder, runners, resumed=bool(earlier))
            finally:
                services.close()
        if run.sealed is not None and self.store.get(run.id).status == "done":
            Secrets(self._hw.lake).delete(run.sealed)
        return self.report(run.id)

    def _recall(self, run: Run, scopes: Scopes) -> None:
        """What the run that this one is based on has found."""
        if run.based_on is None:
            return
        for record in self.store.steps(run.based_on):
            if record.status == "done":
                count = None if record.loop is None else int(record.loop["count"])
                scopes.finish(Finished(run.based_on, record.step, record.visit, count))
                scopes.vars.update(record.vars or {})

    def _base(self, playbook: Playbook, from_step: str) -> Run | None:
        known = [step.name for step in playbook.steps]
        if from_step not in known:
            raise PlaybookError(
                f"There is no step {from_step!r} in {playbook.file}.",
                hint=f"Steps: {', '.join(known)}.",
                step=from_step,
            )
        found = self.runs(1, file=playbook.file)
        return found[0] if found else None

    # -- playbooks that playbooks call ---------------------------------------------------------------

    def call(self, path: str, workload: Mapping[str, Any], options: RunOptions, caller: _Caller) -> RunReport:
        """Run a playbook for a step of another one; a call that is repeated goes on where it was."""
        if path in caller.files:
            chain = " → ".join(Path(each).name for each in (*caller.files, path))
            raise PlaybookError(f"Playbooks call each other in a circle: {chain}.", file=path)
        if len(caller.files) >= MOST_CALLS:
            raise PlaybookError(f"Playbooks call each other more than {MOST_CALLS} deep.", file=path)
        playbook = load_playbook(path)
        before = self.store.called(caller.task.run_id, _place(caller.task))
        if before is not None and before.digest == playbook.digest:
            if before.status == "done":
                return self.report(before.id)
            return self._resume(playbook, before, options, caller)
        return self._start(playbook, workload, options, caller=caller)


def _to_the_end(running: Running, recorder: Recorder, runners: _Runners, *, resumed: bool) -> None:
    """Run all steps and enter how it ended; what a step did is never an exception here."""
    try:
        recorder.event("run.resumed" if resumed else "run.started", playbook=running.playbook.name)
        running.run()
        recorder.event("run.done")
        recorder.finish("done")
    except KeyboardInterrupt:
        runners.close()
        recorder.event("run.cancelled")
        recorder.finish("cancelled")
        raise RunCancelled(running.run_id) from None
    except PlaybookRunError:
        raise  # the run is another process's, or was not begun
    except HeadwaterError as error:
        recorder.event("run.failed", error=error.message)
        recorder.finish("failed", error.as_dict())
    finally:
        runners.close()


class _Runners:
    """Who does the tasks of a run: workers of one kind, and this process."""

    def __init__(self, kind: str, workers: int | None, credentials: Credentials, services: _Services):
        self._kind = kind
        self._credentials = credentials
        self._services = services
        self._workers = workers or os.cpu_count() or 1
        self._started: dict[str, Runner] = {}

    @property
    def workers(self) -> int:
        return self._workers

    def of(self, kind: str) -> Runner:
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
        for runner in self._started.values():
            runner.close()
        self._started.clear()


class _Services:
    """What this process offers to tools that run in it."""

    def __init__(
        self,
        hw: Headwater,
        playbooks: Playbooks,
        run_id: str,
        playbook: Playbook,
        options: RunOptions,
        caller: _Caller | None,
    ):
        self.headwater = hw
        self._playbooks = playbooks
        self._run_id = run_id
        self._options = options
        self._files = (*(caller.files if caller else ()), _file(playbook.file))
        self._used_spark = False
        self._stopped = threading.Event()

    @property
    def spark(self) -> SparkSession:
        session = self.headwater.spark
        # Belongs to the thread, so that what this run has under way can be stopped, and nothing else.
        session.sparkContext.addJobTag(self._tag)
        self._used_spark = True
        return session

    @property
    def _tag(self) -> str:
        return f"headwater-run-{self._run_id}"

    def fetch(self, text: str, limit: int) -> Any:
        self.spark  # noqa: B018  (tags what follows)
        return self.headwater.fetch(text, limit)

    def refresh(self, names: Sequence[str] | None, *, full: bool) -> Sequence[Any]:
        self.spark  # noqa: B018
        return self.headwater.refresh(names, full=full)

    def call_playbook(self, path: str, workload: Mapping[str, Any], caller: Task) -> Mapping[str, Any]:
        options = replace(self._options, listener=nobody, stopped=self._stopped)
        found = self._playbooks.call(path, workload, options, _Caller(self._files, caller))
        if not found.ok:
            why = (found.error or {}).get("message", found.status)
            raise TaskFailed(TaskError("playbook", found.status, f"Playbook {found.run.name}: {why}"))
        last = next((step for step in reversed(found.steps) if step.envelope is not None), None)
        return {
            "run_id": found.id,
            "name": found.run.name,
            "status": found.status,
            "vars": found.vars,
            "steps": {step.record.step: step.record.status for step in found.steps},
            "result": None if last is None or last.envelope is None else last.envelope.get("result"),
        }

    def cancel(self) -> None:
        if self._used_spark:
            self.headwater.spark.sparkContext.cancelJobsWithTag(self._tag)

    def stop(self) -> None:
        self._stopped.set()
        self.cancel()

    def close(self) -> None:
        """What this thread does in Spark from now on is no part of the run."""
        if self._used_spark:
            self.headwater.spark.sparkContext.removeJobTag(self._tag)


def _runner(playbook: Playbook, options: RunOptions) -> str:
    chosen = options.runner or playbook.runner or "local"
    if chosen not in RUNNERS:
        raise PlaybookError(f"There is no runner {chosen!r}.", hint="Known: " + ", ".join(RUNNERS) + ".")
    return chosen


def _file(path: str | Path) -> str:
    return str(Path(path).resolve())


def _place(task: Task) -> str:
    return f"{task.step}/{task.visit}/{'' if task.item is None else task.item}"
