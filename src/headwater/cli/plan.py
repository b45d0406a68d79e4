"""`headwater plan`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import Function, common_options
from headwater.cli.output import Block, Line
from headwater.cli.refreshes import error_lines, opened

if TYPE_CHECKING:
    from headwater.refresh.project_plan import ProjectPlan, Step

_STYLES = {"create": "ok", "alter": "warn", "rebuild": "warn", "drop": "fail", "nothing": "dim"}


def project_options(function: Function) -> Function:
    """The folder, the project's name and `--prune`."""
    for option in (
        click.option("--prune", is_flag=True, help="Drop stream tables of the project that have no file."),
        click.option("--project", metavar="NAME", help="The project's name (default: that of the folder)."),
        click.argument("folder", type=click.Path(path_type=Path), default="streams"),
    ):
        function = option(function)
    return function


@dataclass(frozen=True)
class Planned:
    """What `apply` would do."""

    plan: ProjectPlan

    @property
    def exit_code(self) -> int:
        """1 when something cannot be done."""
        return 1 if self.plan.invalid else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "project": self.plan.project.name,
            "folder": str(self.plan.project.folder),
            "steps": [step.as_dict() for step in self.plan.steps],
            "left": [str(name) for name in self.plan.left],
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        yield from plan_blocks(self.plan)


def plan_blocks(plan: ProjectPlan) -> Iterator[Block]:
    """The steps that change something, each with why."""
    yield Line.of(f"project {plan.project.name} ({plan.project.folder})", "dim")
    if not plan.steps:
        yield Line.of("no .sql files")
    for step in plan.steps:
        yield from _step(step)
    unchanged = sum(step.kind == "nothing" for step in plan.steps)
    if unchanged:
        yield Line.of(f"{unchanged} stays as it is" if unchanged == 1 else f"{unchanged} stay as they are")
    if plan.left:
        names = ", ".join(str(name) for name in plan.left)
        yield Line.of(f"without a file, and left as they are: {names}  (--prune drops them)", "warn")


def _step(step: Step) -> Iterator[Block]:
    if step.kind == "nothing":
        return
    if step.kind == "invalid":
        yield from error_lines(str(step.name), step.error or {"message": " ".join(step.why)})
        return
    yield Line(((f"{step.kind:<8}", _STYLES[step.kind]), (str(step.name), "bold"), (_file(step), "dim")))
    for sentence in step.why:
        yield Line.of(f"        {sentence}")


def _file(step: Step) -> str:
    return "" if step.file is None else f"  {step.file}"


@click.command("plan")
@project_options
@common_options
def command(folder: Path, project: str | None, prune: bool) -> Planned:
    """Show what `apply` would do with a folder of stream tables.

    Nothing is changed. Exits with 1 when something in the folder cannot be made.
    """
    from headwater.refresh.project import load_project
    from headwater.refresh.project_plan import plan_project

    loaded = load_project(folder, project)
    with opened("planning") as (hw, _):
        return Planned(plan_project(hw.stream_tables.streams, loaded, prune=prune))
