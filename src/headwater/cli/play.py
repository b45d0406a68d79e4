"""`headwater play`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.check import Checked
from headwater.cli.given_values import given_option, read_given
from headwater.cli.main import EXIT_INTERRUPTED
from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Line, open_output
from headwater.cli.runs import seconds_between, step_blocks

if TYPE_CHECKING:
    from types import FrameType

    from headwater.engine import Headwater
    from headwater.engine.playbook_services import RunOptions
    from headwater.playbook.flow.rehearsing import Rehearsed
    from headwater.playbook.records.reporting import RunReport


@dataclass(frozen=True)
class Played:
    """What became of a run."""

    report: RunReport

    @property
    def exit_code(self) -> int:
        """0 done, 1 failed, 130 cancelled."""
        return {"done": 0, "cancelled": EXIT_INTERRUPTED}.get(self.report.status, 1)

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return self.report.as_dict()

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        run = self.report.run
        yield from step_blocks(self.report)
        took = seconds_between(run.started_at, run.ended_at)
        style = "ok" if self.report.ok else "fail"
        yield Line(((f"{run.name}: ", "bold"), (run.status, style), (f" in {took} s, run {run.id}", "")))
        if not self.report.ok:
            yield Line.of(f"go on with: headwater play {run.file} --resume {run.id}", "dim")


@dataclass(frozen=True)
class Rehearsal:
    """What would be run."""

    steps: tuple[Rehearsed, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"steps": [step.as_dict() for step in self.steps]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        for number, step in enumerate(self.steps, 1):
            tool = f" ({step.tool})" if step.tool else ""
            yield Line(((f"{number}. ", "dim"), (step.step, "bold"), (tool, "")))
            for way in step.after:
                yield Line.of(f"     after {way}", "dim")
            if step.loop is not None:
                told = ", ".join(f"{name}: {value}" for name, value in step.loop.items())
                yield Line.of(f"     loop: {told}")
            for name, value in step.fields.items():
                yield from _field_lines(name, value)


def _field_lines(name: str, value: Any) -> Iterator[Line]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        lines = [f"- {each}" for each in value]
    elif isinstance(value, str):
        lines = value.splitlines()
    else:
        lines = [json.dumps(value, ensure_ascii=False, default=str)]
    if len(lines) == 1 and not isinstance(value, list):
        yield Line.of(f"     {name}: {lines[0]}")
        return
    yield Line.of(f"     {name}:")
    yield from (Line.of(f"       {line}") for text in lines for line in text.splitlines())


class Refused(Checked):
    """A playbook that has mistakes is not run."""

    @property
    def exit_code(self) -> int:
        """2: nothing was done."""
        return 2


@click.command("play")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@given_option
@click.option("--from", "from_step", metavar="STEP", help="Begin at a step, with the last run's results.")
@click.option("--dry-run", is_flag=True, help="Show what would be run, and run nothing.")
@click.option(
    "--resume",
    metavar="RUN",
    is_flag=False,
    flag_value="",
    help="Go on with the last run, or the one of that id; what is done is not repeated.",
)
@click.option("--new", is_flag=True, help="Begin anew although the last run was interrupted.")
@click.option("--force", is_flag=True, help="Resume although the file or a collection has changed.")
@click.option(
    "--runner", type=click.Choice(("local", "spark")), help="Worker processes, or Spark's executors."
)
@click.option("--workers", type=click.IntRange(1), help="How many tasks are under way at once.")
@click.option("--credentials", metavar="PATH", multiple=True, help="A file or folder of credentials.")
@common_options
def command(
    path: Path,
    given: tuple[str, ...],
    from_step: str | None,
    dry_run: bool,
    resume: str | None,
    new: bool,
    force: bool,
    runner: str | None,
    workers: int | None,
    credentials: tuple[str, ...],
) -> Played | Rehearsal | Refused:
    """Run a playbook: steps of SQL and other tools, from a YAML file.

    It is checked first. Exits with 0 when all is done, 1 when a step failed, 2 when the file has mistakes,
    130 when it was cancelled. Ctrl-C stops it; a run that failed or was stopped can be resumed.
    """
    if resume is not None and (given or from_step or new):
        raise click.UsageError("A run is resumed with what it began with: --resume stands alone.")
    from headwater.cli.play_display import PlayDisplay
    from headwater.engine import connect
    from headwater.engine.playbook_services import RunOptions
    from headwater.engine.playbooks import RunCancelled

    workload = read_given(given)
    # Functions that steps name are imported as `python` would, which sees the current folder.
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    with (
        connect(config=current().config, create=False) as hw,
        PlayDisplay.opened(sys.stderr, quiet=current().output == "json") as display,
    ):
        if resume is not None:  # with what it began with
            workload = dict(hw.playbooks.given(hw.playbooks.resumable(path, resume or None)))
        refused = _refused(hw, path, workload, credentials)
        if refused is not None:
            return refused
        if dry_run:
            return _rehearsal(path, workload, from_step)
        options = RunOptions(runner, workers, credentials, force, display)
        if resume is None and not new:
            _check_interrupted(hw, path)
        with _terminated_as_interrupted():
            try:
                return Played(_play(hw, path, workload, from_step, resume, options))
            except RunCancelled as cancelled:
                played = Played(hw.playbooks.report(cancelled.run_id))
                _leave_if_busy(played)
                return played


def _leave_if_busy(played: Played) -> None:
    """End the process although threads of it are still busy, with playbooks that the run called."""
    if any(thread.name.startswith("headwater-driver") for thread in threading.enumerate()):
        open_output(current().output).show(played)
        sys.stdout.flush()
        os._exit(played.exit_code)


def _play(
    hw: Headwater,
    path: Path,
    workload: Mapping[str, Any],
    from_step: str | None,
    resume: str | None,
    options: RunOptions,
) -> RunReport:
    if resume is not None:
        return hw.playbooks.resume(path, resume or None, options)
    return hw.playbooks.run(path, workload, options, from_step=from_step)


def _refused(hw: Headwater, path: Path, workload: Mapping[str, Any], paths: Sequence[str]) -> Refused | None:
    from headwater.playbook.checking.checks import check_file

    findings = check_file(path, credentials=hw.playbooks.credentials(paths).names(), workload=workload)
    if any(one.severity == "error" for one in findings):
        return Refused((str(path),), findings)
    return None


def _rehearsal(path: Path, workload: Mapping[str, Any], from_step: str | None) -> Rehearsal:
    from headwater.playbook.flow.rehearsing import rehearse
    from headwater.playbook.language.reading import load_playbook
    from headwater.playbook.language.workload import Workload

    playbook = load_playbook(path)
    if from_step is not None and from_step not in [step.name for step in playbook.steps]:
        raise click.BadParameter(f"There is no step {from_step!r}.", param_hint="--from")
    return Rehearsal(rehearse(playbook, Workload.of(playbook.workload, workload).values, from_step))


def _check_interrupted(hw: Headwater, path: Path) -> None:
    """A run that a crash left behind is not simply run once more: half of it may be done."""
    from headwater.errors import PlaybookRunError

    run = hw.playbooks.unfinished(path)
    if run is not None and run.status == "interrupted":
        raise PlaybookRunError(
            f"The last run of {path} was interrupted, and is not finished.",
            detail=f"Run {run.id} began at {run.started_at:%Y-%m-%d %H:%M:%S} UTC.",
            hint="Go on where it stopped with --resume, or begin anew with --new.",
            run=run.id,
        )


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: cleanly, marked as cancelled."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
