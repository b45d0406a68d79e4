"""What a demo shows while it runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from headwater.engine.demos.leaderboard import Standing
    from headwater.engine.demos.orders import Sight

#: Seconds between two lines where there is no terminal.
_BETWEEN_LINES = 5.0


@dataclass
class Display:
    """Takes news and what was seen."""

    draw: Callable[[Any], Any]
    quiet: bool
    file: IO[str]
    _live: Live | None = None
    _last: float = field(default_factory=time.monotonic)

    @classmethod
    @contextmanager
    def opened(cls, draw: Callable[[Any], Any], *, quiet: bool, file: IO[str]) -> Iterator[Self]:
        """A display for the time of a block; `draw` makes a table of what was seen."""
        if quiet or not file.isatty():
            yield cls(draw, quiet, file)
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(file=file), refresh_per_second=8, transient=True) as live:
            yield cls(draw, quiet, file, live)

    def news(self, text: str) -> None:
        """Say what begins now."""
        if self._live is not None:
            self._live.update(f"{text} …")
        elif not self.quiet:
            print(f"{text} …", file=self.file, flush=True)

    def show(self, seen: Any) -> None:
        """Show what was seen just now."""
        if self._live is not None:
            self._live.update(self.draw(seen))
        elif not self.quiet and time.monotonic() - self._last > _BETWEEN_LINES:
            self._last = time.monotonic()
            print(f"  {seen.seconds_left:3.0f} s left, {seen.written:,} commits", file=self.file, flush=True)


def orders_board(sight: Sight) -> Table:
    """Revenue by region, as DuckDB sees it."""
    made = _table(f"revenue_by_region, read by DuckDB   ({sight.seconds_left:.0f} s left)")
    for name in ("region", "orders", "revenue"):
        made.add_column(name, justify="left" if name == "region" else "right")
    for region, orders, revenue in sight.regions:
        made.add_row(region, f"{orders:,}", f"{revenue:,}")
    p50 = sight.latencies.p50
    latency = "" if p50 is None else f", {p50:.2f} s from COMMIT to visible (p50)"
    made.caption = f"{sight.written:,} orders committed, {sight.visible:,} visible{latency}"
    return made


def board(standing: Standing) -> Table:
    """The first ten, as the game sees them."""
    made = _table(f"leaderboard, read by the game from PostgreSQL   ({standing.seconds_left:.0f} s left)")
    for name in ("player", "games", "score", "best"):
        made.add_column(name, justify="left" if name == "player" else "right")
    for player, games, score, best in standing.top:
        made.add_row(player, f"{games:,}", f"{score:,}", f"{best:,}")
    made.caption = (
        f"{standing.written:,} games committed, {standing.in_postgres:,} on the game's board, "
        f"{standing.in_lake:,} in the lake"
    )
    return made


def _table(title: str) -> Table:
    from rich.table import Table

    return Table(title=title, box=None, title_justify="left", caption_justify="left", padding=(0, 2, 0, 0))
