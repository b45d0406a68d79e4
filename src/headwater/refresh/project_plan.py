"""What a project asks for against what the lake has: a list of steps that is shown, or carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, Literal

from headwater.errors import HeadwaterError
from headwater.lake.catalog import key
from headwater.refresh.model import Action, Definition, RefreshResult, StreamTable
from headwater.refresh.options import PROJECT
from headwater.refresh.project import Project
from headwater.refresh.stream_file import StreamFile
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.refresh.streams import Streams

Kind = Literal["create", "alter", "rebuild", "drop", "nothing", "invalid"]
Outcome = Literal["done", "nothing", "failed", "skipped"]
#: Hears of each step before it is carried out: what, how many are done, of how many.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Step:
    """One stream table, and what becomes of it."""

    kind: Kind
    name: TableName
    #: Why, in sentences.
    why: tuple[str, ...] = ()
    file: str | None = None
    definition: Definition | None = None
    #: Steps on other stream tables that must not have failed.
    after: tuple[TableName, ...] = ()
    #: Of `invalid`: what is wrong with it.
    error: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The step as plain data."""
        return {
            "kind": self.kind,
            "name": str(self.name),
            "why": list(self.why),
            "file": self.file,
            "error": self.error,
        }


@dataclass(frozen=True)
class ProjectPlan:
    """All steps, in the order in which they are carried out."""

    project: Project
    steps: tuple[Step, ...]
    #: Stream tables of the project whose file is gone, and that stay because pruning was not asked for.
    left: tuple[TableName, ...] = ()

    @property
    def changes(self) -> tuple[Step, ...]:
        """The steps that change something."""
        return tuple(step for step in self.steps if step.kind not in ("nothing", "invalid"))

    @property
    def invalid(self) -> tuple[Step, ...]:
        """The steps that cannot be carried out."""
        return tuple(step for step in self.steps if step.kind == "invalid")


@dataclass(frozen=True)
class StepResult:
    """What became of a step."""

    step: Step
    outcome: Outcome
    result: RefreshResult | None = None
    error: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            **self.step.as_dict(),
            "outcome": self.outcome,
            "error": self.error,
            "refresh": None if self.result is None else self.result.as_dict(),
        }


def plan_project(streams: Streams, project: Project, *, prune: bool = False) -> ProjectPlan:
    """Compare a project with the lake. Nothing is changed."""
    there = streams.all()
    known = {key(stream.name) for stream in there}
    steps: dict[tuple[str, str], Step] = {}
    for file in project.files:
        upstream = project.upstream(file)
        missing = [one for one in upstream if key(one.name) not in known]
        step = _made_later(file, missing) if missing else _planned(streams, file)
        broken = [one.name for one in upstream if steps[key(one.name)].kind == "invalid"]
        if broken and step.kind != "invalid":
            step = _refused(file, f"It reads {broken[0]}, which cannot be made.", None)
        steps[key(file.name)] = step
    gone = list(_gone(there, project))
    if not prune:
        return ProjectPlan(project, tuple(steps.values()), tuple(stream.name for stream in gone))
    return ProjectPlan(project, (*steps.values(), *_drops(gone)))


def _planned(streams: Streams, file: StreamFile) -> Step:
    try:
        planned = streams.plan(file.definition)
    except HeadwaterError as error:
        located = file.located(error)
        return _refused(file, located.message, located.as_dict())
    return Step(planned.kind, file.name, planned.reasons, str(file.path), file.definition, file.reads)


def _made_later(file: StreamFile, missing: Sequence[StreamFile]) -> Step:
    """A stream table over others that are not there yet, so that its query cannot be looked at."""
    names = ", ".join(str(one.name) for one in missing)
    why = f"It reads {names}, which this plan makes first."
    return Step("create", file.name, (why,), str(file.path), file.definition, file.reads)


def _refused(file: StreamFile, why: str, error: Mapping[str, Any] | None) -> Step:
    return Step("invalid", file.name, (why,), str(file.path), None, file.reads, error)


def _gone(there: Sequence[StreamTable], project: Project) -> Iterator[StreamTable]:
    """Stream tables that the project made once, and whose file is gone."""
    named = {key(file.name) for file in project.files}
    for stream in there:
        if stream.definition.options.get(PROJECT) == project.name and key(stream.name) not in named:
            yield stream


def _drops(gone: Sequence[StreamTable]) -> Iterator[Step]:
    """Drop what reads others before what it reads."""
    by_id = {stream.id: stream for stream in gone}
    graph: TopologicalSorter[str] = TopologicalSorter({one: by_id[one].upstream for one in by_id})
    for one in reversed([one for one in graph.static_order() if one in by_id]):
        yield Step("drop", by_id[one].name, ("The project has no file for it any more.",))


def apply_plan(streams: Streams, plan: ProjectPlan, tell: Tell | None = None) -> list[StepResult]:
    """Carry a plan out. What fails stops only what depends on it."""
    results: list[StepResult] = []
    failed: set[tuple[str, str]] = set()
    files = {key(file.name): file for file in plan.project.files}
    for done, step in enumerate(plan.steps):
        if tell is not None:
            tell(f"{step.kind} {step.name}", done, len(plan.steps))
        before = next((name for name in step.after if key(name) in failed), None)
        if before is not None:
            result = StepResult(step, "skipped", error=_because(before))
        else:
            result = _carried_out(streams, step, files.get(key(step.name)))
        if result.outcome in ("failed", "skipped"):
            failed.add(key(step.name))
        results.append(result)
    return results


def _because(name: TableName) -> dict[str, Any]:
    return {"code": "skipped", "message": f"It reads {name}, which failed."}


def _carried_out(streams: Streams, step: Step, file: StreamFile | None) -> StepResult:
    if step.kind == "nothing":
        return StepResult(step, "nothing")
    if step.kind == "invalid":
        return StepResult(step, "failed", error=step.error)
    from headwater.refresh.spark_errors import spark_errors

    try:
        if step.definition is None:
            streams.drop(step.name, if_exists=True)
            return StepResult(step, "done")
        with spark_errors(step.name):
            result = streams.create(step.definition, or_replace=True)
    except HeadwaterError as error:
        located = error if file is None else file.located(error)
        return StepResult(step, "failed", error=located.as_dict())
    if result.action is Action.FAILED:
        return StepResult(step, "failed", result, result.error)
    return StepResult(step, "done", result)
