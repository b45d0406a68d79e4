"""`headwater lineage`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Line
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from headwater.refresh.lineage import Lineage


@dataclass(frozen=True)
class Traced:
    """Where columns come from."""

    lineage: Lineage
    graph: bool
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return self.lineage.as_dict()

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        text = self.lineage.mermaid() if self.graph else str(self.lineage)
        for line in text.splitlines():
            yield Line.of(line)


@click.command("lineage")
@click.argument("name")
@click.argument("column", required=False)
@click.option("--graph", is_flag=True, help="A graph in Mermaid's language: of tables, or of one column.")
@common_options
def command(name: str, column: str | None, graph: bool) -> Traced:
    """Show the columns that a stream table's columns come from."""
    with opened("looking") as (hw, _):
        return Traced(hw.lineage(name, column), graph)
