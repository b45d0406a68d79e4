"""`headwater runs`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line, moment
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from datetime import datetime

    from headwater.playbook.records.events import Event
    from headwater.playbook.records.reporting import RunReport
    from headwater.playbook.records.store import Run


_MOST_EVENTS = 10_000


@dataclass(frozen=True)
class RunList:
    """Runs, newest first."""

    runs: tuple[Run, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"runs": [run.as_dict() for run in self.runs]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.runs:
            yield Line.of("no runs")
            return
        yield Grid(
            ("run", "playbook", "status", "runner", "started (UTC)", "seconds", "error"),
            tuple(
                (
                    run.id,
                    run.name,
                    run.status,
                    run.runner,
                    moment(run.started_at),
                    seconds_between(run.started_at, run.ended_at),
                    "" if run.error is None else str(run.error.get("message", "")),
                )
                for run in self.runs
            ),
            right=frozenset({5}),
        )


@dataclass(frozen=True)
class OneRun:
    """A run with its steps and events."""

    report: RunReport
    events: tuple[Event, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**self.report.as_dict(), "events": [event.as_dict() for event in self.events]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        run = self.report.run
        yield Line(((f"{run.name} ", "bold"), (run.status, "ok" if self.report.ok else "fail")))
        yield Line.of(f"run {run.id} of {run.file}, by runner {run.runner}", "dim")
        if run.workload:
            yield Line.of(f"workload: {json.dumps(run.workload, ensure_ascii=False, default=str)}", "dim")
        yield from step_blocks(self.report)
        if self.events:
            yield Line.of()
            yield Grid(
                ("time (UTC)", "event", "step", "data"),
                tuple(
                    (
                        moment(event.at),
                        event.name,
                        _place(event),
                        json.dumps(event.data, ensure_ascii=False, default=str) if event.data else "",
                    )
                    for event in self.events
                ),
            )


def step_blocks(report: RunReport) -> Iterator[Block]:
    """The steps of a run for people, and why it failed."""
    if report.steps:
        yield Grid(
            ("step", "status", "attempt", "items", "seconds", "result"),
            tuple(
                (
                    step.record.step + (f" ({step.record.visit})" if step.record.visit > 1 else ""),
                    step.record.status,
                    str(step.record.attempt),
                    "" if step.record.loop is None else f"{step.record.loop['count']:,}",
                    "" if step.record.seconds is None else f"{step.record.seconds:.2f}",
                    _summary(step.envelope),
                )
                for step in report.steps
            ),
            right=frozenset({2, 3, 4}),
        )
    for name, value in report.vars.items():
        yield Line.of(f"{name} = {json.dumps(value, ensure_ascii=False, default=str)[:200]}", "dim")
    if report.error is not None:
        yield Line((("fail ", "fail"), (str(report.error.get("message", "")), "")))
        for label, key in (("why", "detail"), ("do", "hint")):
            if report.error.get(key):
                yield Line.of(f"     {label + ':':<5}{report.error[key]}")


def seconds_between(start: datetime, end: datetime | None) -> str:
    """How long something took, in seconds."""
    return "" if end is None else f"{(end - start).total_seconds():.2f}"


def _summary(envelope: Any) -> str:
    """A result in a few words."""
    if not envelope:
        return ""
    if envelope.get("error"):
        return str(envelope["error"].get("message", ""))[:120]
    result = envelope.get("result")
    commands = result.get("commands") if isinstance(result, dict) else None
    if isinstance(commands, list):
        return ", ".join(
            f"{each['row_count']:,} rows"
            if "row_count" in each
            else f"{each.get('affected_rows', 0) or 0:,} affected"
            for each in commands[:8]
        ) + (", …" if len(commands) > 8 else "")
    if isinstance(result, dict) and {"count", "succeeded", "failed"} <= set(result):
        return f"{result['succeeded']:,} done" + (
            f", {result['failed']:,} failed" if result["failed"] else ""
        )
    return "" if result in (None, {}) else json.dumps(result, ensure_ascii=False, default=str)[:120]


def _place(event: Event) -> str:
    if event.step is None:
        return ""
    visit = f" ({event.visit})" if event.visit and event.visit > 1 else ""
    return event.step + visit + ("" if event.item is None else f"[{event.item}]")


@click.command("runs")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many to list.")
@click.option("--file", type=click.Path(), help="Only runs of this playbook.")
@click.option("--items", is_flag=True, help="Of one run, the events of the items of its loops, too.")
@common_options
def command(run_id: str | None, limit: int, file: str | None, items: bool) -> RunList | OneRun:
    """List runs of playbooks, or show one with its steps and events.

    RUN is a run's id, or enough of its beginning.
    """
    with opened("looking") as (hw, _):
        if run_id is None:
            return RunList(tuple(hw.playbooks.runs(limit, file=file)))
        report = hw.playbooks.report(run_id)
        events = hw.playbooks.store.events(report.id, limit=_MOST_EVENTS, items=items)
        return OneRun(report, tuple(events))
