"""`headwater sql`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, progress

if TYPE_CHECKING:
    from headwater.spark.sql.fetching import QueryResult

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@dataclass(frozen=True)
class SqlResult:
    """What a statement returned."""

    result: QueryResult
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        names = self.result.columns
        return {
            "columns": [
                {"name": name, "type": kind} for name, kind in zip(names, self.result.types, strict=True)
            ],
            "rows": [dict(zip(names, row, strict=True)) for row in self.result.rows],
            "more": self.result.more,
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.result.columns:
            yield Line.of("done", "ok")
            return
        right = {i for i, kind in enumerate(self.result.types) if kind.split("(")[0] in _NUMBERS}
        rows = tuple(tuple("NULL" if v is None else str(v) for v in row) for row in self.result.rows)
        yield Grid(self.result.columns, rows, right=frozenset(right))
        count = len(rows)
        shown = f"the first {count} rows; --limit shows more" if self.result.more else f"{count} rows"
        yield Line.of(shown, "dim")


@click.command("sql")
@click.argument("statement", metavar="STATEMENT|-")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Rows to show.")
@common_options
def command(statement: str, limit: int) -> SqlResult:
    """Run one statement of Spark's SQL on the lake.

    With - as the statement it is read from standard input.
    """
    from headwater.engine import connect

    text = sys.stdin.read() if statement == "-" else statement
    with (
        progress("starting Spark", quiet=current().output == "json"),
        connect(config=current().config, create=False) as hw,
    ):
        return SqlResult(hw.fetch(text, limit))
