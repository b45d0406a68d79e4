"""`headwater refresh`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Line
from headwater.cli.refreshes import error_lines, opened, refresh_grid

if TYPE_CHECKING:
    from headwater.refresh.model import RefreshResult


@dataclass(frozen=True)
class Refreshes:
    """What a wave did."""

    results: tuple[RefreshResult, ...]

    @property
    def exit_code(self) -> int:
        """1 when one failed."""
        return 1 if any(result.action == "FAILED" for result in self.results) else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"refreshes": [result.as_dict() for result in self.results]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.results:
            yield Line.of("no active stream tables")
            return
        yield refresh_grid(self.results)
        for result in self.results:
            if result.action == "FAILED":
                yield from error_lines(result.name, result.error)


@click.command("refresh")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--full", is_flag=True, help="Compute the named ones anew; what differs is stored.")
@common_options
def command(names: tuple[str, ...], full: bool) -> Refreshes:
    """Bring stream tables up to date, all of them or the named ones.

    With those that they read, as one snapshot. Exits with 1 when one failed.
    """
    with opened("refreshing") as (hw, _):
        return Refreshes(tuple(hw.refresh(list(names) or None, full=full)))
