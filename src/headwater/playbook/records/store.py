"""Runs of playbooks in the catalog: what was run, what became of each step and each item of a loop.

A run belongs to one process, by a lease that it renews. What that process writes is refused as soon as
another one has taken the run over, so no two processes ever go on with the same run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from headwater.errors import PlaybookRunError
from headwater.lake.connection import Connection
from headwater.lake.lake import Lake
from headwater.lake.own import ComponentStore, write
from headwater.playbook.records import catalog_tables as sql
from headwater.playbook.records.events import Event
from headwater.playbook.records.liveness import known_to_be_gone, this_process

#: Seconds for which a run belongs to its process after the last beat.
LEASE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run, as the catalog has it."""

    id: str
    name: str
    file: str
    digest: str
    workload: Mapping[str, Any]
    """Without secrets."""
    given: Mapping[str, Any] | None = field(repr=False)
    """What was given for the workload, beside the document's own; None where it holds secrets."""
    sealed: str | None = field(repr=False)
    """Then the reference to it, kept encrypted until the run is done."""
    status: str
    """`running`, `done`, `failed`, `cancelled`; `interrupted` where the process of a running one is gone."""
    runner: str
    started_at: datetime
    ended_at: datetime | None
    error: Mapping[str, Any] | None
    based_on: str | None
    """The run whose results it uses for steps before `from_step`."""
    from_step: str | None
    parent: str | None
    """The run that called it."""
    holder: str | None
    lease_left: float = 0.0
    """Seconds for which its process still counts as alive."""

    @property
    def unfinished(self) -> bool:
        """Whether it can be resumed."""
        return self.status != "done"

    def as_dict(self) -> dict[str, Any]:
        """The run as plain data."""
        hidden = ("given", "sealed", "holder", "lease_left")
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in hidden}


@dataclass(slots=True)
class StepRecord:
    """What became of a step (`item` None), or of one item of its loop."""

    step: str
    visit: int
    item: int | None
    number: int
    """The place of the step in its run, counted from 1."""
    attempt: int = 1
    status: str = "running"
    """`running`, `done`, `failed`, or `handled` where an arm of `next` took the failure."""
    envelope: str | None = field(default=None, repr=False)
    """JSON."""
    error: Mapping[str, Any] | None = None
    vars: Mapping[str, Any] | None = None
    """The variables that the step set."""
    next: Sequence[str] | None = None
    """The steps that it led to."""
    loop: Mapping[str, Any] | None = None
    """Of a loop: how many items, and what tells its collection from another one."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    seconds: float | None = None
    worker: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The record as plain data, without the envelope."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "envelope"}


class RunStore(ComponentStore):
    """The runs of one lake."""

    def __init__(self, lake: Lake):
        super().__init__(lake.db, sql.COMPONENT, sql.VERSIONS)
        self.holder = str(uuid4())
        """Who writes: this object, in this process."""

    # -- runs ---------------------------------------------------------------------------------------

    def begin(
        self,
        *,
        name: str,
        file: str,
        digest: str,
        workload: Mapping[str, Any],
        given: Mapping[str, Any] | None,
        sealed: str | None,
        runner: str,
        based_on: str | None = None,
        from_step: str | None = None,
        parent: str | None = None,
        caller: str | None = None,
    ) -> str:
        """Enter a run that begins now, as this process's own; returns its id."""
        row = {
            "lake": self.ensure(),
            "id": str(uuid4()),
            "name": name,
            "file": file,
            "digest": digest,
            "workload": as_json(workload),
            "given": None if given is None else as_json(given),
            "sealed": sealed,
            "runner": runner,
            "based_on": based_on,
            "from_step": from_step,
            "parent": parent,
            "caller": caller,
            **self._mine(),
        }
        write(self._db, lambda connection: connection.execute(sql.BEGIN, row))
        return str(row["id"])

    def take(self, run: Run, digest: str) -> None:
        """Make an unfinished run this process's own; refused while the process that runs it is alive."""
        given = {
            "lake": self.ensure(),
            "id": run.id,
            "digest": digest,
            "dead": self.holder_if_dead(run.id),
            **self._mine(),
        }
        if not write(self._db, lambda connection: connection.execute(sql.TAKE, given).fetchall()):
            raise PlaybookRunError(
                f"Run {run.id} is still under way.",
                detail=f"Its process gave a sign of life a moment ago; it counts as gone in "
                f"{max(1, round(self.get(run.id).lease_left))} seconds, if it gives no other.",
                hint="Wait for its end, or stop it.",
                run=run.id,
            )

    def renew(self, run_id: str) -> bool:
        """Say that this process is alive; False if the run is another's by now."""
        given = {"lake": self.ensure(), "id": run_id, **self._mine()}

        def work(connection: Connection) -> bool:
            connection.execute("SET LOCAL synchronous_commit = off")
            return bool(connection.execute(sql.RENEW, given).fetchall())

        return write(self._db, work)

    def finish(self, run_id: str, status: str, error: Mapping[str, Any] | None = None) -> None:
        """Enter how a run ended, and let go of it."""
        given = {
            "lake": self.ensure(),
            "id": run_id,
            "status": status,
            "error": None if error is None else as_json(error),
            **self._mine(),
        }
        if not write(self._db, lambda connection: connection.execute(sql.FINISH, given).fetchall()):
            raise _taken_over(run_id)

    def get(self, run_id: str) -> Run:
        """The run whose id begins like that."""
        found = self.rows(sql.RUN, id=run_id.lower())
        if len(found) == 1:
            return _run(found[0])
        if found:
            raise PlaybookRunError(f"Several runs have an id that begins with {run_id}.", run=run_id)
        raise PlaybookRunError(
            f"There is no run {run_id}.", hint="`headwater runs` lists them all.", run=run_id
        )

    def runs(self, limit: int = 20, *, file: str | None = None, called: bool = False) -> list[Run]:
        """Runs, newest first: all or those of one file; with `called` also those that other runs called."""
        return [_run(row) for row in self.rows(sql.RUNS, file=file, parents=called, limit=limit)]

    def called(self, parent: str, caller: str) -> Run | None:
        """The newest run that a step of another run called."""
        rows = self.rows(sql.CALLED, parent=parent, caller=caller)
        return _run(rows[0]) if rows else None

    def holder_if_dead(self, run_id: str) -> str | None:
        """The holder of a run, if it was a process of this machine that is not there any more."""
        rows = self.rows(sql.RUN, id=run_id)
        holder, machine = rows[0][14], rows[0][15]
        return holder if machine is not None and known_to_be_gone(machine) else None

    # -- steps and events ---------------------------------------------------------------------------

    def record(self, run_id: str, steps: Sequence[StepRecord], events: Sequence[Event]) -> None:
        """Write what happened, in one round trip; refused if the run is another process's by now."""
        run = {"lake": self.ensure(), "run": run_id}
        step_rows = [{**run, **_step_row(each)} for each in steps]
        event_rows = [{**run, **each.as_dict(), "data": as_json(each.data)} for each in events]
        held = {"lake": run["lake"], "id": run_id, "holder": self.holder}

        def work(connection: Connection) -> None:
            if not connection.execute(sql.HELD, held).fetchall():
                raise _taken_over(run_id)
            cursor = connection.cursor()
            if step_rows:
                cursor.executemany(sql.STEP, step_rows)
            if event_rows:
                cursor.executemany(sql.EVENT, event_rows)

        write(self._db, work)

    def steps(self, run_id: str) -> list[StepRecord]:
        """The steps of a run in their order, without envelopes."""
        return [_step(row) for row in self.rows(sql.STEPS, run=run_id)]

    def items(
        self,
        run_id: str,
        step: str,
        visit: int = 1,
        *,
        status: str | None = None,
        after: int = -1,
        limit: int = 1000,
    ) -> list[StepRecord]:
        """Items of a loop in their order, without envelopes."""
        given = {"step": step, "visit": visit, "status": status, "after": after, "limit": limit}
        return [_step(row) for row in self.rows(sql.ITEMS, run=run_id, **given)]

    def done_items(self, run_id: str, step: str, visit: int) -> set[int]:
        """Which items of a loop are done."""
        return {int(row[0]) for row in self.rows(sql.DONE_ITEMS, run=run_id, step=step, visit=visit)}

    def envelope(self, run_id: str, step: str, visit: int, item: int | None = None) -> dict[str, Any] | None:
        """The envelope of a step or an item, or None."""
        place = sql.WHOLE_STEP if item is None else item
        return self.envelopes(run_id, step, visit, place, place).get(place)

    def envelope_text(self, run_id: str, step: str, visit: int) -> str | None:
        """The envelope of a step as JSON, or None."""
        place = {"step": step, "visit": visit, "first": sql.WHOLE_STEP, "last": sql.WHOLE_STEP}
        rows = self.rows(sql.ENVELOPES, run=run_id, **place)
        return rows[0][1] if rows else None

    def envelope_sizes(self, run_id: str, step: str, visit: int, first: int, last: int) -> dict[int, int]:
        """The bytes of the envelopes of some items, by item; of the step itself as item -1."""
        given = {"step": step, "visit": visit, "first": first, "last": last}
        return {int(item): int(size) for item, size in self.rows(sql.SIZES, run=run_id, **given)}

    def envelopes(self, run_id: str, step: str, visit: int, first: int, last: int) -> dict[int, Any]:
        """The envelopes of some items of a loop, by item."""
        given = {"step": step, "visit": visit, "first": first, "last": last}
        rows = self.rows(sql.ENVELOPES, run=run_id, **given)
        return {int(item): json.loads(text) for item, text in rows}

    def events(self, run_id: str, *, after: int = 0, limit: int = 1000, items: bool = True) -> list[Event]:
        """The events of a run in their order; those of single items of loops can be left out."""
        rows = self.rows(sql.EVENTS, run=run_id, after=after, limit=limit, items=items)
        return [
            Event(number, name, at, step, visit, item, json.loads(data))
            for number, name, at, step, visit, item, data in rows
        ]

    def last_event(self, run_id: str) -> int:
        """The number of a run's last event."""
        rows = self.rows(sql.LAST_EVENT, run=run_id)
        return int(rows[0][0]) if rows else 0

    def _mine(self) -> dict[str, Any]:
        return {"holder": self.holder, "machine": this_process(), "seconds": LEASE_SECONDS}


def as_json(value: Any) -> str:
    """JSON that PostgreSQL takes as text; half a surrogate pair, which it would refuse, stays an escape."""
    return json.dumps(value, ensure_ascii=True, default=str)


def _taken_over(run_id: str) -> PlaybookRunError:
    return PlaybookRunError(
        f"Another process has taken over run {run_id}.", hint="`headwater runs` shows it.", run=run_id
    )


def _run(row: Sequence[Any]) -> Run:
    status = (
        "interrupted" if row[6] == "running" and (row[16] <= 0 or known_to_be_gone(row[15] or "")) else row[6]
    )
    return Run(
        id=row[0],
        name=row[1],
        file=row[2],
        digest=row[3],
        workload=json.loads(row[4]),
        given=None if row[17] is None else json.loads(row[17]),
        sealed=row[5],
        status=status,
        runner=row[7],
        started_at=row[8],
        ended_at=row[9],
        error=None if row[10] is None else json.loads(row[10]),
        based_on=row[11],
        from_step=row[12],
        parent=row[13],
        holder=row[14],
        lease_left=row[16],
    )


def _step_row(record: StepRecord) -> dict[str, Any]:
    row = record.as_dict()
    row["item"] = sql.WHOLE_STEP if record.item is None else record.item
    row["envelope"] = record.envelope
    row["next"] = None if record.next is None else list(record.next)
    for name in ("error", "vars", "loop"):
        row[name] = None if row[name] is None else as_json(row[name])
    return row


def _step(row: Sequence[Any]) -> StepRecord:
    def parsed(text: str | None) -> Any:
        return None if text is None else json.loads(text)

    return StepRecord(
        step=row[0],
        visit=row[1],
        item=None if row[2] == sql.WHOLE_STEP else row[2],
        number=row[3],
        attempt=row[4],
        status=row[5],
        error=parsed(row[6]),
        vars=parsed(row[7]),
        next=row[8],
        loop=parsed(row[9]),
        started_at=row[10],
        ended_at=row[11],
        seconds=row[12],
        worker=row[13],
    )
