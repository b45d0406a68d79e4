"""`headwater demo`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.demo_display import Display, board, orders_board
from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, open_output

if TYPE_CHECKING:
    from headwater.engine import Headwater
    from headwater.engine.demos.latency import Latencies
    from headwater.engine.demos.leaderboard import LeaderboardStory
    from headwater.engine.demos.orders import OrdersStory


@dataclass(frozen=True)
class Place:
    """Where a demo's data lies."""

    folder: str
    catalog: str
    data_path: str
    attach_sql: tuple[str, ...]

    @classmethod
    def of(cls, hw: Headwater, folder: Path, query: str) -> Place:
        """The place of an open lake."""
        from headwater.lake.duckdb_session import literal

        address = literal(f"ducklake:postgres:{hw.lake.dsn}")
        attach = f"ATTACH {address} AS lake (DATA_PATH {literal(hw.lake.data_path)});"
        statements = ("INSTALL ducklake; INSTALL postgres;", attach, query)
        return cls(str(folder), hw.lake.uri, hw.lake.data_path, statements)

    def blocks(self, commands: tuple[str, ...], name: str) -> Iterator[Block]:
        """Where it lies, and what to try next."""
        yield Line.of()
        yield Line.of("Where it lies", "bold")
        yield Line.of(f"  catalog  {self.catalog}")
        yield Line.of(f"  data     {self.data_path}")
        yield Line.of()
        yield Line.of("Next", "bold")
        yield Line.of(f'  python   import headwater; hw = headwater.connect(folder="{self.folder}")')
        for command in commands:
            yield Line.of(f"           {command}")
        yield Line.of(f"  DuckDB   while `headwater demo {name} --wait` keeps PostgreSQL running:")
        for statement in self.attach_sql:
            yield Line.of(f"           {statement}")


@dataclass(frozen=True)
class OrdersResult:
    """What `headwater demo` did."""

    story: OrdersStory
    place: Place

    @property
    def exit_code(self) -> int:
        """1 if the readers disagree or something failed."""
        story = self.story
        return 0 if story.agrees and story.verified and not story.problems else 1

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"demo": "orders", **asdict(self.story), **asdict(self.place)}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        story = self.story
        yield Line.of("revenue_by_region, as DuckDB reads it from the lake", "bold")
        yield Grid(
            ("region", "orders", "revenue"),
            tuple((region, f"{orders:,}", f"{revenue:,}") for region, orders, revenue in story.regions),
            right=frozenset({1, 2}),
        )
        yield _verdict("PostgreSQL's own GROUP BY says the same", story.agrees)
        yield _verdict("so does DuckDB, computing the query from the mirrored orders", story.verified)
        yield Line.of()
        yield Line.of("History, read by DuckDB at old snapshots", "bold")
        yield Grid(
            ("snapshot", "time (UTC)", "orders", "revenue"),
            tuple((str(p.snapshot_id), p.time, f"{p.orders:,}", f"{p.revenue:,}") for p in story.trend),
            right=frozenset({0, 2, 3}),
        )
        yield Line.of()
        yield Line.of("From COMMIT in PostgreSQL to visible in DuckDB", "bold")
        yield _latency("", story.latencies)
        refreshes = ", ".join(f"{count} {action}" for action, count in sorted(story.refreshes.items()))
        yield Line.of(
            f"  {story.orders_written:,} orders in {story.seconds:.0f} s, "
            f"the first {story.warm_up_seconds:.0f} s not counted; refreshes: {refreshes}",
            "dim",
        )
        yield Line.of(f"  captured by {story.capture}", "dim")
        yield from _problems(story.problems)
        commands = (
            'hw.explain("revenue_by_region"), hw.history("revenue_by_region")',
            'hw.sql("SELECT * FROM revenue_by_region").show()',
        )
        yield from self.place.blocks(commands, "orders")


@dataclass(frozen=True)
class LeaderboardResult:
    """What `headwater demo leaderboard` did."""

    story: LeaderboardStory
    place: Place

    @property
    def exit_code(self) -> int:
        """1 if the readers disagree or something failed."""
        return 0 if self.story.agree and not self.story.problems else 1

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"demo": "leaderboard", **asdict(self.story), **asdict(self.place)}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        story = self.story
        yield Line.of("The leaderboard, as both read it", "bold")
        pairs = zip(story.game[:10], story.analysts[:10], strict=False)
        yield Grid(
            ("place", "PostgreSQL: player", "games", "score", "DuckDB: player", "games", "score"),
            tuple(
                (str(place), g[0], f"{g[1]:,}", f"{g[2]:,}", a[0], f"{a[1]:,}", f"{a[2]:,}")
                for place, (g, a) in enumerate(pairs, 1)
            ),
            right=frozenset({0, 2, 3, 5, 6}),
        )
        yield _verdict(f"all {len(story.game)} players: both are what the results add up to", story.agree)
        yield Line.of()
        yield Line.of("From COMMIT of a game to visible", "bold")
        yield _latency("in PostgreSQL, for the game:   ", story.in_postgres)
        yield _latency("in the lake, for the analysts: ", story.in_lake)
        yield Line.of(
            f"  {story.games_written:,} games, the first {story.warm_up_seconds:.0f} s not counted", "dim"
        )
        yield from _problems(story.problems)
        yield from self.place.blocks(('hw.provenance("leaderboard"), hw.sinks()',), "leaderboard")


def _verdict(text: str, right: bool) -> Line:
    return Line((("yes  " if right else "NO   ", "ok" if right else "fail"), (text, "")))


def _latency(label: str, found: Latencies) -> Line:
    if found.p50 is None or found.p99 is None or found.worst is None:
        return Line.of(f"  {label}nothing was measured")
    figures = f"p50 {found.p50:.2f} s   p99 {found.p99:.2f} s   worst {found.worst:.2f} s"
    return Line(((f"  {label}", ""), (figures, "bold"), (f"   ({found.events:,} commits)", "dim")))


def _problems(problems: tuple[str, ...]) -> Iterator[Block]:
    for problem in problems:
        yield Line((("fail ", "fail"), (problem, "")))


@click.command("demo")
@click.argument("story", type=click.Choice(("orders", "leaderboard")), default="orders")
@click.option("--folder", type=click.Path(path_type=Path), help="Where (default: .headwater/demo).")
@click.option(
    "--seconds", type=click.FloatRange(1, 90), default=25.0, show_default=True, help="How long it goes on."
)
@click.option(
    "--rate", type=click.FloatRange(0.1, 500), default=10.0, show_default=True, help="Commits per second."
)
@click.option("--wait", is_flag=True, help="Keep the lake's PostgreSQL running until Ctrl-C.")
@common_options
def command(
    story: str, folder: Path | None, seconds: float, rate: float, wait: bool
) -> OrdersResult | LeaderboardResult | int:
    """From PostgreSQL to the lake, live: orders, or a leaderboard.

    `orders`: orders arrive in PostgreSQL, revenue by region is kept up to date in the lake, DuckDB reads it
    now and as it was. `leaderboard`: one stream table, published to a game's PostgreSQL and to the lake.

    Everything happens in a lake of its own, made anew each time. Your own lake is not touched.
    """
    from headwater.engine import connect
    from headwater.engine.demos import leaderboard, orders
    from headwater.engine.scratch import fresh_folder
    from headwater.settings import DEFAULT_FOLDER

    where = folder or Path(DEFAULT_FOLDER) / "demo"
    asked = current()
    result: OrdersResult | LeaderboardResult
    with fresh_folder(where), connect(folder=where, config=asked.config) as hw:
        if story == "orders":
            with _display(orders_board) as display:
                told = orders.tell(hw, seconds=seconds, per_second=rate, news=display.news, show=display.show)
            result = OrdersResult(told, Place.of(hw, where, "FROM lake.revenue_by_region;"))
        else:
            with _display(board) as display:
                played = leaderboard.tell(
                    hw, seconds=seconds, per_second=rate, news=display.news, show=display.show
                )
            result = LeaderboardResult(played, Place.of(hw, where, "FROM lake.leaderboard;"))
        if not wait:
            return result
        open_output(asked.output).show(result)
        return _wait(result.exit_code)


@contextmanager
def _display(draw: Callable[[Any], Any]) -> Iterator[Display]:
    with Display.opened(draw, quiet=current().output == "json", file=sys.stderr) as display:
        yield display


def _wait(exit_code: int) -> int:
    """Wait for Ctrl-C, which here is how it ends and no accident."""
    click.echo("\nThe lake stays open until you press Ctrl-C.", err=True)
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo(err=True)
    return exit_code
