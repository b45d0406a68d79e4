"""`headwater explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Line
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from headwater.refresh.explaining import Explanation


@dataclass(frozen=True)
class Explained:
    """How a stream table follows its inputs."""

    explanation: Explanation
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return self.explanation.as_dict()

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        for line in str(self.explanation).splitlines():
            yield Line.of(line)


@click.command("explain")
@click.argument("name")
@common_options
def command(name: str) -> Explained:
    """Show how a stream table follows its inputs.

    And what its next refresh would do, with its cost. Nothing is run.
    """
    with opened("starting Spark") as (hw, _):
        return Explained(hw.explain(name))
