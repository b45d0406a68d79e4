"""Playbooks of an open Headwater: running them, resuming runs, looking at them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.engine.playbook_services import (
    Caller,
    RunOptions,
    RunRunners,
    RunServices,
    place_of,
    real_path,
    runner_of,
)
from headwater.errors import HeadwaterError, PlaybookError, PlaybookRunError
from headwater.lake.secrets import Secrets
from headwater.playbook.credentials.registry import Credentials
from headwater.playbook.flow.running import Running
from headwater.playbook.flow.tasks import TaskMaker
from headwater.playbook.language.model import Playbook
from headwater.playbook.language.reading import load_playbook
from headwater.playbook.language.workload import Workload, given_before
from headwater.playbook.records.masking import Masking
from headwater.playbook.records.recording import Recorder
from headwater.playbook.records.reporting import RunReport, report
from headwater.playbook.records.store import Run, RunStore, StepRecord
from headwater.playbook.templates.scopes import Finished, Scopes

if TYPE_CHECKING:
    from headwater.engine.headwater import Headwater

#: How deep playbooks may call playbooks.
MOST_CALLS: Final = 8


class RunCancelled(KeyboardInterrupt):
    """A run was stopped by Ctrl-C, and is marked so; it can be resumed."""

    def __init__(self, run_id: str):
        super().__init__(run_id)
        self.run_id = run_id


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
        return self.store.runs(limit, file=None if file is None else real_path(file))

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
        caller: Caller | None = None,
    ) -> RunReport:
        masking = Masking()
        workload = Workload.of(playbook.workload, given)
        masking.learn_from(workload.values)
        base = None if from_step is None else self._base(playbook, from_step)
        kept, sealed = workload.sealed(self._hw.lake, masking)
        run_id = self.store.begin(
            name=playbook.name,
            file=real_path(playbook.file),
            digest=playbook.digest,
            workload=masking.value(workload.values),
            given=kept,
            sealed=sealed,
            runner=runner_of(playbook, options),
            based_on=None if base is None else base.id,
            from_step=from_step,
            parent=None if caller is None else caller.task.run_id,
            caller=None if caller is None else place_of(caller.task),
        )
        return self._go(playbook, self.store.get(run_id), workload, masking, options, caller, [])

    def _resume(
        self, playbook: Playbook, run: Run, options: RunOptions, caller: Caller | None = None
    ) -> RunReport:
        if run.file != real_path(playbook.file) and not options.force:
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
        caller: Caller | None,
        earlier: Sequence[StepRecord],
    ) -> RunReport:
        # Functions that steps name are found beside their playbook.
        folder = str(Path(playbook.file).absolute().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        credentials = self.credentials(options.credentials)
        services = RunServices(self._hw, self.call, run.id, playbook, options, caller)
        runners = RunRunners(
            runner_of(playbook, options), options.workers or playbook.workers, credentials, services
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
                TaskMaker(run.id, Path(folder), credentials, masking, options.deadline),
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

    def call(self, path: str, workload: Mapping[str, Any], options: RunOptions, caller: Caller) -> RunReport:
        """Run a playbook for a step of another one; a call that is repeated goes on where it was."""
        if path in caller.files:
            chain = " → ".join(Path(each).name for each in (*caller.files, path))
            raise PlaybookError(f"Playbooks call each other in a circle: {chain}.", file=path)
        if len(caller.files) >= MOST_CALLS:
            raise PlaybookError(f"Playbooks call each other more than {MOST_CALLS} deep.", file=path)
        playbook = load_playbook(path)
        before = self.store.called(caller.task.run_id, place_of(caller.task))
        if before is not None and before.digest == playbook.digest:
            if before.status == "done":
                return self.report(before.id)
            return self._resume(playbook, before, options, caller)
        return self._start(playbook, workload, options, caller=caller)


def _to_the_end(running: Running, recorder: Recorder, runners: RunRunners, *, resumed: bool) -> None:
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
