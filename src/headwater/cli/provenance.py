"""`headwater provenance`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line, moment
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from headwater.refresh.provenance import Provenance
    from headwater.refresh.tracing import Trace


@dataclass(frozen=True)
class ProvenanceList:
    """What wrote which snapshot, whether there is more, and what one of them was made of."""

    rows: tuple[Provenance, ...]
    more: bool
    trace: Trace | None = None
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "provenance": [row.as_dict() for row in self.rows],
            "more": self.more,
            "trace": None if self.trace is None else self.trace.as_dict(),
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.rows:
            yield Line.of("nothing was written yet")
            return
        yield Grid(
            ("snapshot", "written (UTC)", "name", "action", "inserted", "deleted", "refresh", "read"),
            tuple(
                (
                    str(row.snapshot_id),
                    moment(row.written_at),
                    row.name,
                    str(row.action),
                    f"{row.rows_inserted:,}",
                    f"{row.rows_deleted:,}",
                    row.refresh_id,
                    ", ".join(f"{source.name} at {source.snapshot_id}" for source in row.sources),
                )
                for row in self.rows
            ),
            right=frozenset({0, 4, 5}),
        )
        if self.more:
            yield Line.of(f"(the newest {len(self.rows)}; --limit shows more)", "dim")
        if self.trace is not None:
            yield Line.of()
            for line in self.trace.lines():
                yield Line.of(line)


@click.command("provenance")
@click.argument("name", required=False)
@click.option("--snapshot", type=click.IntRange(min=0), help="Walk back from this snapshot, not the newest.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@common_options
def command(name: str | None, snapshot: int | None, limit: int) -> ProvenanceList:
    """Show which refresh wrote which snapshot, and from what.

    Of one stream table also the way back to its sources, and to the transactions of PostgreSQL.
    """
    if snapshot is not None and name is None:
        raise click.UsageError("--snapshot needs the name of a stream table.")
    with opened("looking") as (hw, _):
        found = tuple(hw.provenance(name, limit + 1))
        trace = hw.trace(name, snapshot) if name is not None and found else None
        return ProvenanceList(found[:limit], len(found) > limit, trace)
