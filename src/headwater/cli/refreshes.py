"""What the commands about stream tables share: opening the lake, and showing refreshes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.cli.options import current
from headwater.cli.output import Block, Grid, Line, Progress, progress

if TYPE_CHECKING:
    from headwater.engine import Headwater
    from headwater.refresh.model import RefreshResult


@contextmanager
def opened(what: str) -> Iterator[tuple[Headwater, Progress]]:
    """The lake of the settings, while a terminal shows what takes long."""
    from headwater.engine import connect

    # Functions that make stream tables are imported as `python` would, which sees the current folder.
    if (folder := os.getcwd()) not in sys.path:  # noqa: PTH109
        sys.path.insert(0, folder)
    with (
        progress(what, quiet=current().output == "json") as tell,
        connect(config=current().config, create=False) as hw,
    ):
        yield hw, tell


def refresh_grid(results: Sequence[RefreshResult]) -> Grid:
    """Refreshes as rows."""
    return Grid(
        ("name", "action", "strategy", "rows in", "inserted", "deleted", "snapshot", "seconds", "reason"),
        tuple(
            (
                result.name,
                str(result.action),
                result.strategy,
                f"{result.rows_in:,}",
                f"{result.rows_inserted:,}",
                f"{result.rows_deleted:,}",
                "" if result.snapshot_id is None else str(result.snapshot_id),
                f"{result.seconds:.2f}",
                result.reason,
            )
            for result in results
        ),
        right=frozenset(range(3, 8)),
    )


def error_lines(name: str, error: Mapping[str, Any] | None) -> Iterator[Block]:
    """An error that did not stop the command."""
    given = error or {}
    yield Line((("fail ", "fail"), (name, "bold"), (f": {given.get('message', 'failed')}", "")))
    for label, field in (("why", "detail"), ("do", "hint")):
        if given.get(field):
            first, *rest = str(given[field]).splitlines()
            yield Line.of(f"     {label + ':':<5}{first}")
            yield from (Line.of(f"          {line}") for line in rest)
