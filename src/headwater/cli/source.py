"""`headwater source`: PostgreSQL tables mirrored into the lake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line, moment
from headwater.cli.refreshes import error_lines, opened

if TYPE_CHECKING:
    from headwater.sources.model import Captured, Source


@dataclass(frozen=True)
class SourceList:
    """Sources and how their tables are."""

    sources: tuple[Source, ...]
    done: str = ""
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"sources": [source.as_dict() for source in self.sources]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if self.done:
            yield Line.of(self.done)
        if not self.sources:
            yield Line.of("no sources")
            return
        yield Grid(
            ("source", "status", "capture", "table", "mirror", "key", "captured (UTC)"),
            tuple(
                (
                    source.name,
                    str(source.status if str(table.status) == "active" else table.status),
                    str(source.capture),
                    table.source_name + ("" if table.where is None else f" where {table.where}"),
                    str(table.lake_table),
                    ", ".join(table.layout.key) if table.layout and table.layout.key else "(whole rows)",
                    "" if source.captured_at is None else moment(source.captured_at),
                )
                for source in self.sources
                for table in source.tables
            ),
        )
        for source in self.sources:
            yield Line.of(f"{source.name}: {source.shown}; {source.capture}: {source.reason}", "dim")
            if source.last_error is not None:
                yield from error_lines(source.name, source.last_error)
            for table in source.tables:
                if table.error is not None:
                    yield from error_lines(table.source_name, table.error)


@dataclass(frozen=True)
class Captures:
    """What a pass over sources did."""

    results: tuple[Captured, ...]

    @property
    def exit_code(self) -> int:
        """1 when one failed, or a table stopped."""
        return 1 if any(result.error or result.stopped for result in self.results) else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"captures": [result.as_dict() for result in self.results]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.results:
            yield Line.of("no active sources")
            return
        header = ("source", "transactions", "changes", "inserted", "updated", "deleted", "copied", "snapshot")
        yield Grid(
            (*header, "seconds"),
            tuple(
                (
                    result.source,
                    f"{result.transactions:,}",
                    f"{result.changes:,}",
                    f"{result.rows_inserted:,}",
                    f"{result.rows_updated:,}",
                    f"{result.rows_deleted:,}",
                    f"{result.rows_copied:,}",
                    "" if result.snapshot_id is None else str(result.snapshot_id),
                    f"{result.seconds:.2f}",
                )
                for result in self.results
            ),
            right=frozenset(range(1, 9)),
        )
        for result in self.results:
            if result.error is not None:
                yield from error_lines(result.source, result.error)
            for table in result.stopped:
                yield Line(
                    (("fail ", "fail"), (table, "bold"), (" stopped; `headwater source list` says why", ""))
                )


@dataclass(frozen=True)
class Removed:
    """A source that is gone."""

    name: str
    tables: tuple[str, ...]
    dropped: bool
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"removed": self.name, "tables": list(self.tables), "dropped": self.dropped}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        kept = "dropped" if self.dropped else "kept"
        yield Line.of(f"removed source {self.name}; {kept} {', '.join(self.tables)}")


@click.group("source")
def command() -> None:
    """Mirror tables of PostgreSQL databases into the lake."""


@command.command("add")
@click.argument("url", metavar="URL")
@click.option("--table", "tables", multiple=True, required=True, help="A table to mirror; may be repeated.")
@click.option("--columns", help="Its columns, separated by commas (with one --table).")
@click.option("--where", help="Which of its rows, as in a partial index of PostgreSQL (with one --table).")
@click.option("--name", help="The source's name (default: the database's).")
@click.option("--schema", help="Schema of the lake (default: the table's own; `public` becomes `main`).")
@click.option("--capture", type=click.Choice(("auto", "triggers", "replication")), default="auto")
@common_options
def add(
    url: str,
    tables: tuple[str, ...],
    columns: str | None,
    where: str | None,
    name: str | None,
    schema: str | None,
    capture: str,
) -> SourceList:
    """Copy tables of a PostgreSQL database, and follow them from then on.

    URL is postgresql://user@host/database, or env:NAME to take it from the environment: so the password is
    not in the list of processes.
    """
    chosen = None if columns is None else [column.strip() for column in columns.split(",")]
    with opened("copying") as (hw, _):
        source = hw.add_postgres_source(
            url, list(tables), name=name, schema=schema, columns=chosen, where=where, capture=capture
        )
        return SourceList((source,), done=f"added source {source.name}")


@command.command("list")
@common_options
def list_() -> SourceList:
    """List sources, their tables and what is wrong with them."""
    with opened("looking") as (hw, _):
        return SourceList(tuple(hw.sources()))


@command.command("capture")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@common_options
def capture_(names: tuple[str, ...]) -> Captures:
    """Bring mirrors up to date once, of all sources or of the named ones. Exits with 1 when one failed."""
    with opened("capturing") as (hw, _):
        return Captures(tuple(hw.capture(list(names) or None)))


@command.command("pause")
@click.argument("name")
@common_options
def pause(name: str) -> SourceList:
    """Stop capturing a source for a while; its changes wait in its database."""
    with opened("pausing") as (hw, _):
        return SourceList((hw.postgres_sources.pause(name),), done=f"paused source {name}")


@command.command("resume")
@click.argument("name")
@common_options
def resume(name: str) -> SourceList:
    """Capture a paused source again."""
    with opened("resuming") as (hw, _):
        return SourceList((hw.postgres_sources.resume(name),), done=f"resumed source {name}")


@command.command("resync")
@click.argument("name")
@click.option("--table", "tables", multiple=True, help="Only this table; may be repeated.")
@common_options
def resync(name: str, tables: Sequence[str]) -> Captures:
    """Copy a source's tables again, and replace in the lake what differs.

    Tables that stopped because they were altered start again, with the columns that they have now.
    """
    with opened("copying") as (hw, _):
        return Captures((hw.postgres_sources.resync(name, list(tables) or None),))


@command.command("remove")
@click.argument("name")
@click.option("--drop-tables", is_flag=True, help="Drop the mirrors in the lake, too.")
@click.option("--force", is_flag=True, help="Also if its database does not answer any more.")
@common_options
def remove(name: str, drop_tables: bool, force: bool) -> Removed:
    """Forget a source and remove everything that was installed in its database."""
    with opened("removing") as (hw, _):
        source = hw.postgres_sources.get(name)
        hw.postgres_sources.remove(name, drop_tables=drop_tables, force=force)
        return Removed(source.name, tuple(str(table.lake_table) for table in source.tables), drop_tables)
