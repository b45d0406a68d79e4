"""`headwater history`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line, moment, size
from headwater.cli.refreshes import error_lines, opened

if TYPE_CHECKING:
    from headwater.refresh.model import RefreshResult


@dataclass(frozen=True)
class History:
    """Past refreshes, and whether there are more."""

    results: tuple[RefreshResult, ...]
    more: bool
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"refreshes": [result.as_dict() for result in self.results], "more": self.more}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.results:
            yield Line.of("no refreshes yet")
            return
        yield Grid(
            (
                "time (UTC)",
                "name",
                "mode",
                "action",
                "strategy",
                "rows in",
                "inserted",
                "deleted",
                "files",
                "read",
                "snapshot",
                "seconds",
                "reason",
            ),
            tuple(_row(result) for result in self.results),
            right=frozenset(range(5, 12)),
        )
        last = next((result for result in self.results if result.action == "FAILED"), None)
        if last is not None:
            yield from error_lines(last.name, last.error)
        if self.more:
            yield Line.of(f"(the newest {len(self.results)}; --limit shows more)", "dim")


def _row(result: RefreshResult) -> tuple[str, ...]:
    times = getattr(result, "times", 1)
    return (
        "" if result.started_at is None else moment(result.started_at),
        result.name,
        str(result.mode),
        str(result.action) + (f" ×{times}" if times > 1 else ""),
        result.strategy,
        f"{result.rows_in:,}",
        f"{result.rows_inserted:,}",
        f"{result.rows_deleted:,}",
        f"{result.files_read:,}",
        size(result.bytes_read),
        "" if result.snapshot_id is None else str(result.snapshot_id),
        f"{result.seconds:.2f}",
        result.reason,
    )


@click.command("history")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@common_options
def command(name: str | None, limit: int) -> History:
    """List past refreshes, newest first."""
    with opened("looking") as (hw, _):
        found = tuple(hw.history(name, limit + 1))
        return History(found[:limit], len(found) > limit)
