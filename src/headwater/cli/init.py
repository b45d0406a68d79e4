"""`headwater init`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Line


@dataclass(frozen=True)
class InitResult:
    """What is there now, and what of it is new."""

    lake_created: bool
    config_created: bool
    config: str
    catalog: str
    embedded: bool
    metadata_schema: str
    data_path: str
    encrypted: bool
    password_left_out: bool
    example: str | None
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {name: value for name, value in vars(self).items() if name != "exit_code"}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        yield _fact("lake", "created" if self.lake_created else "is there already, nothing changed")
        yield _fact("catalog", self.catalog + ("  (embedded)" if self.embedded else ""))
        if self.metadata_schema != "public":
            yield _fact("schema", self.metadata_schema)
        yield _fact("data", self.data_path + ("  (encrypted)" if self.encrypted else ""))
        yield _fact("settings", f"{self.config}  ({'written' if self.config_created else 'kept as it is'})")
        if self.example is not None:
            yield _fact("example", f"{self.example}  over the table example.orders")
        if self.password_left_out:
            yield Line.of(
                "The password is not in the settings file: set PGPASSWORD, or use ~/.pgpass.", "warn"
            )
        yield Line.of()
        yield Line.of("Next", "bold")
        following = _NEXT if self.example is not None else _NEXT_BARE
        width = max(len(command) for command, _ in following)
        for command, what in following:
            yield Line(((f"  {command:<{width}}  ", ""), (what, "dim")))


_NEXT = (
    ("headwater apply", "make the stream tables of ./streams"),
    ('headwater sql "SELECT * FROM example.revenue_by_region"', "look at one"),
    ("headwater sql \"INSERT INTO example.orders VALUES (7, 'east', 10, now())\"", "change what it reads"),
    ("headwater refresh", "bring it up to date, now"),
    ("headwater run", "or keep everything fresh, until stopped"),
    ("headwater source add postgresql://… --table public.orders", "mirror a table of PostgreSQL"),
)
_NEXT_BARE = (
    ("headwater doctor", "check this machine, the connections and the lake"),
    ("headwater source add postgresql://… --table public.orders", "mirror a table of PostgreSQL"),
    ("python: hw = headwater.connect()", "use it in a program"),
)


def _fact(name: str, value: str) -> Line:
    return Line(((f"{name:<9}", "bold"), (value, "")))


@click.command("init")
@click.option("--catalog", metavar="DSN", help="PostgreSQL for the catalog: postgresql://user@host/database.")
@click.option("--metadata-schema", metavar="NAME", help="Schema in that database (default: public).")
@click.option("--data-path", metavar="PATH", help="Folder or s3://bucket/prefix for the data files.")
@click.option("--folder", metavar="PATH", help="Folder of the embedded lake (default: .headwater).")
@click.option("--encrypted", is_flag=True, default=None, help="Encrypt every data file with its own key.")
@click.option(
    "--example/--no-example",
    default=None,
    help="Begin with an example: a table and a stream table (default: in an embedded lake).",
)
@common_options
def command(
    catalog: str | None,
    metadata_schema: str | None,
    data_path: str | None,
    folder: str | None,
    encrypted: bool | None,
    example: bool | None,
) -> InitResult:
    """Create a lake and a settings file here.

    Without options the lake is embedded: a PostgreSQL of its own and a folder for the data, both in
    ./.headwater. What is there already is kept, so running this again is safe.
    """
    from headwater.engine.initialise import LakeChoice, initialise

    choice = LakeChoice(catalog, metadata_schema, data_path, folder, encrypted)
    done = initialise(Path.cwd(), current().config, choice, example=example)
    return InitResult(
        lake_created=done.lake_created,
        config_created=done.config_created,
        config=str(done.config),
        catalog=done.catalog,
        embedded=done.embedded,
        metadata_schema=done.metadata_schema,
        data_path=done.data_path,
        encrypted=done.encrypted,
        password_left_out=done.password_left_out,
        example=None if done.example is None else os.path.relpath(done.example),
    )
