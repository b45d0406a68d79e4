"""`headwater apply`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Line, open_output
from headwater.cli.plan import Planned, project_options
from headwater.cli.refreshes import error_lines, opened, refresh_grid

if TYPE_CHECKING:
    from headwater.refresh.project_plan import ProjectPlan, StepResult


@dataclass(frozen=True)
class Applied:
    """What became of each step."""

    plan: ProjectPlan
    results: tuple[StepResult, ...]

    @property
    def exit_code(self) -> int:
        """1 when one failed."""
        return 1 if any(result.outcome in ("failed", "skipped") for result in self.results) else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "project": self.plan.project.name,
            "ok": self.exit_code == 0,
            "steps": [result.as_dict() for result in self.results],
            "left": [str(name) for name in self.plan.left],
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        made = [result.result for result in self.results if result.result is not None]
        if made:
            yield refresh_grid(made)
        for result in self.results:
            if result.step.kind == "drop" and result.outcome == "done":
                yield Line((("dropped ", "ok"), (str(result.step.name), "bold")))
            elif result.outcome in ("failed", "skipped"):
                yield from error_lines(str(result.step.name), result.error)
        if not self.plan.changes and not self.exit_code:
            yield Line.of("nothing to do: the lake is as the project says", "ok")
        if self.plan.left:
            names = ", ".join(str(name) for name in self.plan.left)
            yield Line.of(f"without a file, and left as they are: {names}  (--prune drops them)", "warn")


@click.command("apply")
@project_options
@click.option("--yes", is_flag=True, help="Do not ask before something is rebuilt or dropped.")
@common_options
def command(folder: Path, project: str | None, prune: bool, yes: bool) -> Applied:
    """Make the lake's stream tables what a folder says.

    What is new is made and filled, what changed is altered or built anew, what is the same stays. A step that
    fails stops only those that depend on it; then the command exits with 1.
    """
    from headwater.refresh.project import load_project
    from headwater.refresh.project_plan import apply_plan, plan_project

    loaded = load_project(folder, project)
    with opened("planning") as (hw, _):
        plan = plan_project(hw.stream_tables.streams, loaded, prune=prune)
    if not yes and any(step.kind in ("rebuild", "drop") for step in plan.steps):
        _ask(plan)
    with opened("applying") as (hw, tell):
        return Applied(plan, tuple(apply_plan(hw.stream_tables.streams, plan, tell)))


def _ask(plan: ProjectPlan) -> None:
    """Show the plan and wait for consent, or refuse where nobody can be asked."""
    if current().output == "json" or not sys.stdin.isatty():
        names = ", ".join(
            f"{step.kind} {step.name}" for step in plan.steps if step.kind in ("rebuild", "drop")
        )
        raise click.UsageError(f"This would {names}. Look at it with `headwater plan`, then add --yes.")
    open_output("text").show(Planned(plan))
    click.confirm("Go on?", abort=True, err=True)
