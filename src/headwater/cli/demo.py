"""`headwater demo`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, moment, open_output, progress

if TYPE_CHECKING:
    from headwater.cli.demo_story import Comparison, Story
    from headwater.lake.model import Snapshot


@dataclass(frozen=True)
class DemoResult:
    """The story, and where everything lies."""

    story: Story
    snapshots: tuple[Snapshot, ...]
    folder: str
    catalog: str
    data_path: str
    attach_sql: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether both readers saw the same every time."""
        return all(comparison.equal for comparison in self.story.comparisons)

    @property
    def exit_code(self) -> int:
        """1 if they did not."""
        return 0 if self.equal else 1

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "equal": self.equal,
            "steps": self.story.steps,
            "comparisons": self.story.comparisons,
            "snapshots": [
                {"id": s.id, "time": s.time, "author": s.author, "message": s.message, "changes": s.changes}
                for s in self.snapshots
            ],
            "folder": self.folder,
            "catalog": self.catalog,
            "data_path": self.data_path,
            "files": self.story.files,
            "attach_sql": self.attach_sql,
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        yield Line.of("Six commits with Headwater, each one snapshot of the lake:", "bold")
        yield Grid(
            ("snapshot", "time (UTC)", "author", "message"),
            tuple((str(s.id), moment(s.time), s.author or "", s.message or "") for s in self.snapshots),
            right=frozenset({0}),
        )
        for comparison in self.story.comparisons:
            yield Line.of()
            yield from _compared(comparison)
        yield Line.of()
        yield Line.of("Where it lies", "bold")
        yield Line.of(f"  catalog  {self.catalog}")
        yield Line.of(f"  data     {self.data_path}")
        for location in self.story.files:
            yield Line.of(f"           {location.removeprefix(self.data_path)}", "dim")
        yield Line.of()
        yield Line.of("Look at it yourself, in Python:", "bold")
        yield Line.of(f'  import headwater; hw = headwater.connect(folder="{self.folder}")')
        yield Line.of('  hw.duckdb().sql("FROM shop.orders")')
        yield Line.of(
            "or, while `headwater demo --wait` keeps its PostgreSQL running, in any DuckDB:", "bold"
        )
        for statement in self.attach_sql:
            yield Line.of(f"  {statement}")


def _compared(comparison: Comparison) -> Iterator[Block]:
    yield Line.of(
        f"shop.orders at snapshot {comparison.snapshot_id} ({comparison.when}), read by both:", "bold"
    )
    yield Grid(
        ("region", "Headwater: rows", "revenue", "DuckDB: rows", "revenue"),
        tuple(
            (
                total.region,
                f"{total.headwater[0]:,}",
                f"{total.headwater[1]:,}",
                f"{total.duckdb[0]:,}",
                f"{total.duckdb[1]:,}",
            )
            for total in comparison.totals
        ),
        right=frozenset({1, 2, 3, 4}),
    )
    verdict = ("equal", "ok") if comparison.equal else ("DIFFERENT", "fail")
    columns = ", ".join(comparison.columns)
    yield Line((("all ", ""), (f"{comparison.rows:,}", ""), (f" rows of ({columns}): ", ""), verdict))


@click.command("demo")
@click.option("--folder", type=click.Path(path_type=Path), help="Where (default: .headwater/demo).")
@click.option("--wait", is_flag=True, help="Keep the lake's PostgreSQL running until Ctrl-C.")
@common_options
def command(folder: Path | None, wait: bool) -> DemoResult | int:
    """Create a small lake, change it, and read it at two snapshots.

    Everything happens in a lake of its own, made anew each time. Your own lake is not touched.
    """
    from headwater.cli.demo_story import folder_of, tell
    from headwater.engine import connect
    from headwater.engine.scratch import fresh_folder
    from headwater.settings import DEFAULT_FOLDER

    where = folder or folder_of(Path(DEFAULT_FOLDER))
    asked = current()
    with fresh_folder(where), connect(folder=where, config=asked.config) as hw:
        with progress("running the demo", quiet=asked.output == "json"):
            story = tell(hw)
            newest = hw.lake.snapshots(len(story.steps))
        result = DemoResult(
            story=story,
            snapshots=tuple(reversed(newest)),
            folder=str(where),
            catalog=hw.lake.uri,
            data_path=hw.lake.data_path,
            attach_sql=_attach_sql(hw.lake.dsn, hw.lake.data_path),
        )
        if not wait:
            return result
        open_output(asked.output).show(result)
        return _wait(result)


def _attach_sql(dsn: str, data_path: str) -> tuple[str, ...]:
    from headwater.lake.duckdb_session import literal

    address = literal(f"ducklake:postgres:{dsn}")
    return (
        "INSTALL ducklake; INSTALL postgres;",
        f"ATTACH {address} AS lake (DATA_PATH {literal(data_path)});",
        "FROM lake.shop.orders AT (VERSION => 2);",
    )


def _wait(result: DemoResult) -> int:
    """Wait for Ctrl-C, which here is how it ends and no accident."""
    click.echo("\nThe lake stays open until you press Ctrl-C.", err=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo(err=True)
    return result.exit_code
