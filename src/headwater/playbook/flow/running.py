"""One run of a playbook, from its first step to its last.

A run that is resumed walks the same way again: what is done is read from the store instead of run, and so are
the variables that it set and the steps that it led to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from headwater.errors import HeadwaterError, PlaybookError, PlaybookRunError
from headwater.playbook.flow.arms import Flow, after_failure, after_success
from headwater.playbook.flow.looping import Items, elements_of, fingerprint
from headwater.playbook.flow.retrying import Condition, tried_again, wait_before
from headwater.playbook.flow.tasks import TaskMaker
from headwater.playbook.language.model import Loop, Playbook, Step
from headwater.playbook.records.recording import Recorder
from headwater.playbook.records.store import RunStore, StepRecord, as_json
from headwater.playbook.runners.worker import task_error
from headwater.playbook.task import Outcome, Runner, Task, TaskError
from headwater.playbook.templates.engine import holds, render
from headwater.playbook.templates.scopes import Finished, Scopes, loop_names

#: Characters of one envelope. Data of this size belongs into a table.
MAX_ENVELOPE: Final = 32 << 20


class StepFailedError(PlaybookError):
    """A step failed, and no arm of its `next` took care of it."""

    code = "step_failed"


class CollectionChangedError(PlaybookError):
    """A loop that was interrupted goes over other elements than before."""

    code = "collection_changed"


class Runners(Protocol):
    """Who does the tasks of a run."""

    def of(self, kind: str) -> Runner:
        """Who runs tools of that kind; started when first asked for."""

    @property
    def workers(self) -> int:
        """How many tasks can be under way at once."""

    def close(self) -> None:
        """Stop everything."""


@dataclass
class Running:
    """A run under way."""

    playbook: Playbook
    run_id: str
    first: str
    """The step to begin with."""
    scopes: Scopes
    store: RunStore
    recorder: Recorder
    runners: Runners
    tasks: TaskMaker
    earlier: Mapping[tuple[str, int], StepRecord] = field(default_factory=dict)
    """What is known of this run from before it was interrupted, by step and visit."""
    force: bool = False
    """Go on although a collection is not what it was."""

    def run(self) -> None:
        """Run all steps; raises what makes the run fail."""
        flow = Flow(self.first)
        number = 0
        while (found := flow.next()) is not None:
            number += 1
            name, visit = found
            self.recorder.check()
            flow.enter(_Visit(self, self.playbook.step(name), visit, number).run())


class _Visit:
    """One visit of the flow to a step."""

    def __init__(self, running: Running, step: Step, visit: int, number: int):
        self._running = running
        self._recorder = running.recorder
        self._scopes = running.scopes
        self._step = step
        self._visit = visit
        self._earlier = running.earlier.get((step.name, visit))
        self._record = StepRecord(step.name, visit, None, number)

    def run(self) -> Sequence[str]:
        """Run the step, unless that is done; returns the steps that follow."""
        error = None
        if self._earlier is not None and self._earlier.status in ("done", "handled"):
            self._record = self._earlier
            self._scopes.finish(self._finished())
            if self._earlier.next is not None:
                self._scopes.vars.update(self._earlier.vars or {})
                return self._earlier.next
        else:
            error = self._do()
        try:
            return self._succeed() if error is None else self._fail(error)
        finally:
            # Also if what follows cannot be told: from here on the tool is not run again.
            self._recorder.step(replace(self._record))
            self._recorder.flush()

    # -- the tool -----------------------------------------------------------------------------------

    def _do(self) -> TaskError | None:
        """Run the tool; returns why it failed."""
        record = self._record
        record.started_at = datetime.now(UTC)
        began = time.monotonic()
        self._event("step.enter", tool=self._step.tool, desc=self._step.desc)
        try:
            if self._step.loop is not None:
                envelope, error = self._loop(self._step.loop)
            elif self._step.tool is not None:
                envelope, error = self._call()
            else:
                envelope, error = {"status": "ok", "result": {}}, None
        except (PlaybookRunError, CollectionChangedError):
            raise  # about the run, not about the step
        except HeadwaterError as failure:
            envelope, error = {}, task_error(failure)
        if error is not None:
            envelope = {"status": "error", "error": error.as_dict()}
        record.status = "done" if error is None else "failed"
        record.envelope = as_json(envelope)
        if error is not None:
            record.error = {**error.as_dict(), **(record.error or {})}
        record.ended_at = datetime.now(UTC)
        record.seconds = time.monotonic() - began
        self._scopes.finish(self._finished(), record.envelope)
        return error

    def _call(self) -> tuple[Mapping[str, Any], TaskError | None]:
        names = self._scopes.names()
        runner = self._running.runners.of(self._step.tool or "")
        self._recorder.step(replace(self._record))
        attempt = 1
        while True:
            task = self._running.tasks.make(self._step, self._visit, names, attempt=attempt)
            (outcome,) = runner.run((task,), 1)
            envelope, error = _checked(outcome)
            status = "ok" if error is None else "error"
            self._record.attempt, self._record.worker = attempt, outcome.worker
            self._event("call.done", status=status, attempt=attempt, worker=outcome.worker)
            if error is None or not self._tried_again(error, attempt, names):
                return envelope, error
            attempt += 1
            self._wait(attempt, error)

    def _tried_again(self, error: TaskError, attempt: int, names: Mapping[str, Any]) -> bool:
        return tried_again(self._step.retry, error, attempt, self._condition(names, attempt))

    def _wait(self, attempt: int, error: TaskError) -> None:
        if self._step.retry is not None:
            seconds = wait_before(self._step.retry, attempt)
            self._event("retry", attempt=attempt, seconds=round(seconds, 3), error=error.message)
            time.sleep(seconds)

    def _condition(self, names: Mapping[str, Any], attempt: int) -> Condition:
        when = self._step.retry.when if self._step.retry is not None else None
        inside = {**names, "attempt": attempt}
        return lambda error: when is not None and holds(when, {**inside, "error": error})

    # -- loops --------------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> tuple[Mapping[str, Any], TaskError | None]:
        names = self._scopes.names()
        elements = elements_of(render(loop.collection, names))
        self._record.loop = {"count": len(elements), "collection": fingerprint(elements)}
        done = self._done_before(self._record.loop)
        self._recorder.step(replace(self._record))
        kind = self._step.tool
        if kind is None:
            raise PlaybookError(f"Step {self._step.name!r} has a loop and no tool.", step=self._step.name)
        runners = self._running.runners
        runner = runners.of(kind)

        def inside(item: int) -> dict[str, Any]:
            return {**names, **loop_names(loop.element, elements[item], item, len(elements))}

        def make(item: int, attempt: int) -> Task:
            return self._running.tasks.make(self._step, self._visit, inside(item), item=item, attempt=attempt)

        items = Items(
            make=make,
            runner=runner,
            in_flight=1 if loop.mode == "sequential" else loop.max_in_flight or runners.workers,
            retry=self._step.retry,
            holds=lambda item, attempt: self._condition(inside(item), attempt),
            settled=self._settled,
            retried=self._retried,
            stop_on_error=loop.on_error == "stop",
        )
        wanted = (item for item in range(len(elements)) if item not in done)
        items.run(wanted, ordered=loop.mode == "sequential")
        self._recorder.flush()
        counts = {"count": len(elements), "succeeded": items.succeeded + len(done), "failed": items.failed}
        self._event("loop.done", **counts)
        if items.failed and items.stop_on_error:
            self._record.error = {"errors": items.listed_errors()}
            return {}, _error_of(items)
        return {"status": "ok", "result": {**counts, "errors": items.listed_errors()}}, None

    def _done_before(self, loop: Mapping[str, Any]) -> set[int]:
        """Which items are done already, of a loop that was interrupted."""
        if self._earlier is None or self._earlier.loop is None:
            return set()
        if self._earlier.loop != loop and not self._running.force:
            raise CollectionChangedError(
                f"The loop of step {self._step.name!r} has another collection than when the run began.",
                detail=f"It had {self._earlier.loop['count']} elements, and has {loop['count']} now, not all "
                "of them the same.",
                hint="Start anew with --new, or go on with --force: items that are done, by their numbers, "
                "are not repeated.",
                step=self._step.name,
            )
        return self._running.store.done_items(self._running.run_id, self._step.name, self._visit)

    def _settled(self, item: int, attempt: int, what: Outcome | TaskError) -> None:
        if isinstance(what, Outcome):
            envelope, error = _checked(what)
        else:
            envelope, error = None, what
        outcome = what if isinstance(what, Outcome) else None
        seconds = 0.0 if outcome is None else outcome.seconds
        status = "done" if error is None else "failed"
        now = datetime.now(UTC)
        self._recorder.step(
            StepRecord(
                self._step.name,
                self._visit,
                item,
                self._record.number,
                attempt=attempt,
                status=status,
                envelope=as_json(envelope) if error is None else None,
                error=None if error is None else error.as_dict(),
                ended_at=now,
                seconds=seconds,
                worker=None if outcome is None else outcome.worker,
            )
        )
        told = {"status": status, "seconds": round(seconds, 3)}
        if error is not None:
            told["error"] = error.message
        self._recorder.event("loop.item", self._step.name, self._visit, item, **told)

    def _retried(self, item: int, attempt: int, error: TaskError, seconds: float) -> None:
        told = {"attempt": attempt, "seconds": round(seconds, 3), "error": error.message}
        self._recorder.event("retry", self._step.name, self._visit, item, **told)

    # -- what follows -------------------------------------------------------------------------------

    def _succeed(self) -> Sequence[str]:
        name = "step.done" if self._step.loop is None else "loop.done"
        names = self._after(name)
        found: dict[str, Any] = {}
        for variable, value in self._step.vars.items():
            found[variable] = render(value, names)
            self._scopes.vars[variable] = found[variable]  # later ones may use it
        self._record.vars = found or None
        self._record.next = after_success(self._step, names)
        return self._leave("step.exit")

    def _fail(self, error: TaskError) -> Sequence[str]:
        taken = after_failure(self._step, {**self._after("step.failed"), "error": error.as_dict()})
        if taken is None:
            self._event("step.failed", error=error.message, kind=error.kind)
            raise StepFailedError(
                f"Step {self._step.name!r} failed: {error.message}",
                step=self._step.name,
                error=error.as_dict(),
            )
        self._record.status = "handled"
        self._record.next = taken
        return self._leave("step.failed", error=error.message, kind=error.kind)

    def _leave(self, event: Any, **told: Any) -> Sequence[str]:
        seconds = round(self._record.seconds or 0.0, 3)
        self._event(event, next=list(self._record.next or ()), seconds=seconds, **told)
        return self._record.next or ()

    def _after(self, event: str) -> dict[str, Any]:
        view = self._scopes.view(self._finished())
        more: dict[str, Any] = {
            "result": view.get("result"),
            "event": {"name": event, "step": self._step.name, "visit": self._visit},
        }
        if self._record.loop is not None and event == "loop.done":
            result = more["result"]
            more["loop"] = {"length": self._record.loop["count"], "done": True, "failed": result["failed"]}
        return self._scopes.names(**more)

    def _finished(self) -> Finished:
        count = None if self._record.loop is None else int(self._record.loop["count"])
        return Finished(self._running.run_id, self._step.name, self._visit, count)

    def _event(self, name: Any, **told: Any) -> None:
        given = {key: value for key, value in told.items() if value is not None}
        self._recorder.event(name, self._step.name, self._visit, **given)


def _checked(outcome: Outcome) -> tuple[Mapping[str, Any], TaskError | None]:
    if outcome.error is not None:
        return {}, outcome.error
    envelope = outcome.envelope or {"status": "ok", "result": None}
    size = len(as_json(envelope))
    if size > MAX_ENVELOPE:
        return {}, TaskError(
            "result",
            "too_large",
            f"The result has {size >> 20} MiB, more than the {MAX_ENVELOPE >> 20} that a step may keep. "
            "Write rows of that number into a table.",
        )
    return envelope, None


def _error_of(items: Items) -> TaskError:
    """What a loop failed of: its first error, and how many there are."""
    item, first = min(items.errors, key=lambda each: each[0])
    more = f" ({items.failed - 1} more of the items failed)" if items.failed > 1 else ""
    return replace(first, message=f"Item {item}: {first.message}{more}")
