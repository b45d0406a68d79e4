"""`headwater verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from headwater.refresh.model import VerifyResult


@dataclass(frozen=True)
class Verified:
    """Whether stream tables are what their queries say."""

    results: tuple[VerifyResult, ...]

    @property
    def exit_code(self) -> int:
        """1 when one is not."""
        return 0 if all(result.ok for result in self.results) else 1

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "ok": self.exit_code == 0,
            "stream_tables": [
                {
                    **vars(result),
                    "differences": [
                        {"kind": kind, "row": row, "times": times} for kind, row, times in result.differences
                    ],
                }
                for result in self.results
            ],
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        for result in self.results:
            yield from _told(result)


def _told(result: VerifyResult) -> Iterator[Block]:
    verdict = ("ok   ", "ok") if result.ok else ("fail ", "fail")
    if result.ok:
        said = f"{result.rows:,} rows, equal to what DuckDB computes"
    else:
        said = f"{result.missing:,} rows are missing, {result.unexpected:,} should not be there"
    where = f" at snapshot {result.data_snapshot_id} ({result.seconds:.2f} s)"
    yield Line((verdict, (result.name, "bold"), (f": {said}{where}", "")))
    if result.detail:
        yield Line.of(f"     {result.detail}")
    if result.differences:
        columns = tuple(dict.fromkeys(name for _, row, _ in result.differences for name in row))
        yield Grid(
            ("", *columns, "times"),
            tuple(
                (kind, *("NULL" if row.get(name) is None else str(row[name]) for name in columns), str(times))
                for kind, row, times in result.differences
            ),
            right=frozenset({len(columns) + 1}),
        )
        more = result.missing + result.unexpected - sum(times for *_, times in result.differences)
        if more > 0:
            yield Line.of(f"(and {more:,} more; --limit shows more)", "dim")


@click.command("verify")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--limit", type=click.IntRange(min=0), default=10, show_default=True, help="Differing rows to show."
)
@common_options
def command(names: tuple[str, ...], limit: int) -> Verified:
    """Compare stream tables with what DuckDB computes.

    All of them or the named ones, at the snapshot that they are of. Exits with 1 when one
    differs, and shows its first differences.
    """
    with opened("verifying") as (hw, tell):
        wanted = list(names) or [str(stream.name) for stream in hw.stream_tables.store.all()]
        results = []
        for done, name in enumerate(wanted):
            tell(f"verifying {name}", done, len(wanted))
            results.append(hw.verify(name, limit=limit))
        return Verified(tuple(results))
