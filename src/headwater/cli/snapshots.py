"""`headwater snapshots`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, moment

if TYPE_CHECKING:
    from headwater.lake.model import Snapshot


@dataclass(frozen=True)
class SnapshotList:
    """The newest snapshots, and whether there are more."""

    snapshots: tuple[Snapshot, ...]
    changes: Mapping[int, list[str]]
    more: bool
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        listed = [
            {
                "id": s.id,
                "time": s.time,
                "schema_version": s.schema_version,
                "author": s.author,
                "message": s.message,
                "extra_info": s.extra_info,
                "changes": self.changes[s.id],
                "changes_made": s.changes,
            }
            for s in self.snapshots
        ]
        return {"snapshots": listed, "more": self.more}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        yield Grid(
            ("snapshot", "time (UTC)", "author", "message", "changes"),
            tuple(
                (str(s.id), moment(s.time), s.author or "", s.message or "", ", ".join(self.changes[s.id]))
                for s in self.snapshots
            ),
            right=frozenset({0}),
        )
        if self.more:
            yield Line.of(f"(the newest {len(self.snapshots)}; --limit 0 for all)", "dim")


@click.command("snapshots")
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="How many; 0 for all."
)
@common_options
def command(limit: int) -> SnapshotList:
    """List snapshots, newest first."""
    from headwater.engine import connect
    from headwater.lake.summary import changes_in_words

    with connect(config=current().config, create=False) as hw:
        found = hw.lake.snapshots(limit + 1 if limit else None)
        kept = found[:limit] if limit else found
        return SnapshotList(tuple(kept), changes_in_words(hw.lake, kept), len(found) > len(kept))
