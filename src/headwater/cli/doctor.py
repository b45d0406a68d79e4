"""`headwater doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Line, progress

if TYPE_CHECKING:
    from headwater.engine.doctor import Diagnosis


@dataclass(frozen=True)
class DoctorReport:
    """What was checked and what was found."""

    diagnosis: Diagnosis

    @property
    def exit_code(self) -> int:
        """1 when anything failed."""
        return 0 if self.diagnosis.ok else 1

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "ok": self.diagnosis.ok,
            "checks": self.diagnosis.checks,
            "findings": self.diagnosis.findings,
        }

    def blocks(self) -> Iterator[Block]:
        """One line per check, then the findings, each with what it means and what to do."""
        width = max(len(check.name) for check in self.diagnosis.checks)
        for check in self.diagnosis.checks:
            label = (f"{check.status:<5}", check.status)
            yield Line((label, (f"{check.name:<{width}}  ", "bold"), (check.message, "")))
            if check.hint:
                yield Line.of(f"{'':<{width + 7}}{check.hint}", "dim")
        for finding in self.diagnosis.findings:
            yield Line.of()
            where = "" if finding.table is None else f" in {finding.table}"
            label = (f"{finding.severity:<5}", finding.severity)
            yield Line((label, (finding.code, "bold"), (f"{where}: {finding.message}", "")))
            yield Line.of(f"     why: {finding.meaning}")
            yield Line.of(f"     do:  {finding.hint}")
            for example in finding.examples:
                yield Line.of(f"       - {example}", "dim")
            if finding.count > len(finding.examples) > 0:
                yield Line.of(f"       … and {finding.count - len(finding.examples):,} more", "dim")


@click.command("doctor")
@click.option("--deep", is_flag=True, help="Read the end of every file, and every delete file as a whole.")
@common_options
def command(deep: bool) -> DoctorReport:
    """Check this machine, the connections and the health of the lake.

    Nothing is changed. Exits with 1 when anything failed.
    """
    from headwater.engine.doctor import diagnose

    with progress("checking", quiet=current().output == "json") as tell:
        return DoctorReport(diagnose(current().config, deep=deep, progress=tell))
