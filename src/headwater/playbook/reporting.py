"""A run as people and programs get to see it: the run, its steps, their envelopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.errors import NotFoundError
from headwater.playbook.store import Run, RunStore, StepRecord

#: Items of a loop that a report holds; all of them stay in the store.
MOST_ITEMS: Final = 1000


@dataclass(frozen=True)
class StepReport:
    """A step of a run, with its envelope."""

    record: StepRecord
    envelope: Mapping[str, Any] | None = field(repr=False)
    items: tuple[StepReport, ...] = field(default=(), repr=False)
    """Of a loop, in their order; at most `MOST_ITEMS`."""

    def as_dict(self) -> dict[str, Any]:
        """The step as plain data."""
        told = self.record.as_dict()
        del told["number"]
        if self.record.item is not None:
            told = {name: value for name, value in told.items() if value is not None}
        told["envelope"] = self.envelope
        if self.record.loop is not None:
            told["loop"] = {"count": self.record.loop["count"]}
            told["items"] = [item.as_dict() for item in self.items]
        return told


@dataclass(frozen=True)
class RunReport:
    """What became of a run."""

    run: Run
    steps: tuple[StepReport, ...]

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.id

    @property
    def status(self) -> str:
        """`done`, `failed`, `cancelled`, `running` or `interrupted`."""
        return self.run.status

    @property
    def ok(self) -> bool:
        """Whether every step is done, or taken care of."""
        return self.run.status == "done"

    @property
    def error(self) -> Mapping[str, Any] | None:
        """Why it failed."""
        return self.run.error

    @property
    def vars(self) -> dict[str, Any]:
        """What its steps set."""
        found: dict[str, Any] = {}
        for step in self.steps:
            found.update(step.record.vars or {})
        return found

    def step(self, name: str) -> StepReport:
        """The last visit to a step."""
        for step in reversed(self.steps):
            if step.record.step == name:
                return step
        raise NotFoundError(f"Run {self.id} has not come to a step {name!r}.", step=name)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "run": self.run.as_dict(),
            "vars": self.vars,
            "steps": [step.as_dict() for step in self.steps],
        }


def report(store: RunStore, run_id: str, *, items: int = MOST_ITEMS) -> RunReport:
    """The report of a run, with up to so many items of each loop."""
    run = store.get(run_id)
    return RunReport(run, tuple(_step(store, run.id, record, items) for record in store.steps(run.id)))


def _step(store: RunStore, run_id: str, record: StepRecord, items: int) -> StepReport:
    envelope = store.envelope(run_id, record.step, record.visit)
    if record.loop is None or items == 0:
        return StepReport(record, envelope)
    listed = store.items(run_id, record.step, record.visit, limit=items)
    if not listed:
        return StepReport(record, envelope)
    envelopes = store.envelopes(run_id, record.step, record.visit, 0, listed[-1].item or 0)
    found = tuple(StepReport(each, envelopes.get(each.item or 0)) for each in listed)
    return StepReport(record, envelope, found)
