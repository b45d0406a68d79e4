"""`headwater tables`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, moment, size

if TYPE_CHECKING:
    from headwater.lake.model import Snapshot
    from headwater.lake.summary import TableSummary


@dataclass(frozen=True)
class TableList:
    """Tables and views at one snapshot."""

    snapshot: Snapshot
    tables: tuple[TableSummary, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        listed = [
            {
                "kind": t.kind,
                "schema": t.name.schema,
                "name": t.name.name,
                "id": t.id,
                "columns": [{"name": name, "type": type_} for name, type_ in t.columns],
                "rows": t.rows,
                "files": t.files,
                "file_bytes": t.file_bytes,
                "deleted_rows": t.deleted_rows,
                "inlined_rows": t.inlined_rows,
                "path": t.path,
                "partitioned_by": t.partitioned_by,
                "comment": t.comment,
            }
            for t in self.tables
        ]
        return {"snapshot": {"id": self.snapshot.id, "time": self.snapshot.time}, "tables": listed}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        yield Line.of(f"snapshot {self.snapshot.id} of {moment(self.snapshot.time)} UTC", "dim")
        if not self.tables:
            yield Line.of("no tables")
            return
        yield Grid(
            ("name", "kind", "columns", "rows", "files", "size", "deleted", "in catalog"),
            tuple(
                (str(t.name), t.kind, "", "", "", "", "", "")
                if t.kind == "view"
                else (
                    str(t.name),
                    t.kind,
                    f"{len(t.columns)}",
                    f"{t.rows:,}",
                    f"{t.files:,}",
                    size(t.file_bytes),
                    f"{t.deleted_rows:,}",
                    f"{t.inlined_rows:,}",
                )
                for t in self.tables
            ),
            right=frozenset(range(2, 8)),
        )


@click.command("tables")
@click.option(
    "--at",
    metavar="SNAPSHOT|TIME",
    help="A snapshot's number, or a time such as '2026-01-31 12:00:00+00' (the newest one not after it).",
)
@click.option("--all", "everything", is_flag=True, help="With what Headwater stores behind its views.")
@common_options
def command(at: str | None, everything: bool) -> TableList:
    """List tables and views, with rows, files and sizes."""
    from headwater.engine import connect
    from headwater.lake.summary import summarize
    from headwater.typedefs import STORAGE_SCHEMA

    with connect(config=current().config, create=False) as hw:
        wanted = int(at) if at is not None and at.strip().isdigit() else at
        snapshot, tables = summarize(hw.lake, wanted)
        shown = (table for table in tables if everything or table.name.schema != STORAGE_SCHEMA)
        return TableList(snapshot, tuple(shown))
