"""A run as people and programs get to see it: the run, its steps, their envelopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headwater.errors import NotFoundError
from headwater.playbook.records.catalog_tables import WHOLE_STEP
from headwater.playbook.records.store import Run, RunStore, StepRecord

#: Items of a loop that a report holds; all of them stay in the store.
MOST_ITEMS: Final = 1000
#: Bytes of envelopes that a report holds, of steps and of items.
MOST_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class StepReport:
    """A step of a run, with its envelope."""

    record: StepRecord
    envelope: Mapping[str, Any] | None = field(repr=False)
    items: tuple[StepReport, ...] = field(default=(), repr=False)
    """Of a loop, in their order; at most `MOST_ITEMS`."""
    left_out: bool = False
    """Whether there is an envelope that was too large for the report; the store has it."""

    def as_dict(self) -> dict[str, Any]:
        """The step as plain data."""
        told = self.record.as_dict()
        del told["number"]
        if self.record.item is not None:
            told = {name: value for name, value in told.items() if value is not None}
        told["envelope"] = self.envelope
        if self.left_out:
            told["envelope_left_out"] = True
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
    reader = _Reader(store, run.id)
    return RunReport(run, tuple(reader.step(record, items) for record in store.steps(run.id)))


class _Reader:
    """Reads envelopes as long as they are not too many."""

    def __init__(self, store: RunStore, run_id: str):
        self._store = store
        self._run_id = run_id
        self._left = MOST_BYTES

    def step(self, record: StepRecord, most: int) -> StepReport:
        """A step with its envelope and those of its items."""
        whole = self._reports([record])[0]
        if record.loop is None or most == 0:
            return whole
        listed = self._store.items(self._run_id, record.step, record.visit, limit=most)
        return replace(whole, items=tuple(self._reports(listed)))

    def _reports(self, records: Sequence[StepRecord]) -> list[StepReport]:
        if not records:
            return []
        places = [WHOLE_STEP if record.item is None else record.item for record in records]
        where = (self._run_id, records[0].step, records[0].visit)
        sizes = self._store.envelope_sizes(*where, places[0], places[-1])
        fitting = -2
        for place, size in sizes.items():
            if size > self._left:
                break
            self._left -= size
            fitting = place
        found = self._store.envelopes(*where, places[0], fitting) if fitting >= places[0] else {}
        return [
            StepReport(record, found.get(place), left_out=place in sizes and place not in found)
            for record, place in zip(records, places, strict=True)
        ]
