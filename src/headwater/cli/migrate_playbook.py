"""`headwater migrate-playbook`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, progress

if TYPE_CHECKING:
    from headwater.playbook.migration.copying import Copied, OldDatabase
    from headwater.playbook.migration.migrating import Destination, Migration


@dataclass(frozen=True)
class Migrated:
    """What became of a playbook and its databases."""

    migration: Migration
    written: str | None
    """The file with the new text; None where nothing was written."""
    copied: tuple[tuple[str, tuple[Copied, ...]], ...]
    notes: tuple[str, ...]
    dry_run: bool
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "file": self.migration.file,
            "written": self.written,
            "dry_run": self.dry_run,
            "steps": [step.as_dict() for step in self.migration.steps],
            "databases": [
                {"catalog_name": name, "copied": [one.as_dict() for one in copied]}
                for name, copied in self.copied
            ],
            "notes": list(self.notes),
            "text": self.migration.after,
        }

    def blocks(self) -> Iterator[Block]:
        """What changed, what was copied, what needs a look."""
        if not self.migration.steps:
            yield Line.of("nothing to do: no step works on a database file", "ok")
        elif self.dry_run:
            old, new = self.migration.before.splitlines(), self.migration.after.splitlines()
            for line in difflib.unified_diff(old, new, "before", "after", lineterm="", n=2):
                yield Line.of(line, {"+": "ok", "-": "fail"}.get(line[:1], "dim"))
        rows = [
            (name, one.name, one.kind, "" if one.rows is None else f"{one.rows:,}", one.action)
            for name, copied in self.copied
            for one in copied
        ]
        if rows:
            header = ("catalog", "name", "kind", "rows", "would be" if self.dry_run else "")
            yield Grid(header, tuple(rows), right=frozenset({3}))
        for note in self.notes:
            yield Line((("note ", "warn"), (note, "")))
        if self.written is not None:
            count = len(self.migration.steps)
            yield Line.of(f"{count} step{'' if count == 1 else 's'} changed: {self.written}", "ok")


@click.command("migrate-playbook")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--out", type=click.Path(path_type=Path), help="Write there, and leave FILE as it is.")
@click.option("--auth", metavar="NAME", help="Credential of the PostgreSQL database for the catalogs.")
@click.option("--catalog-connection", metavar="URL", help="Address of that database, without a password.")
@click.option(
    "--data-path", metavar="PATH", help="Where data files go (default: ducklake, beside the database)."
)
@click.option("--copy/--no-copy", default=True, help="Copy the tables of the database file into the lake.")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@common_options
def command(
    file: Path,
    out: Path | None,
    auth: str | None,
    catalog_connection: str | None,
    data_path: str | None,
    copy: bool,
    dry_run: bool,
) -> Migrated:
    """Turn steps on DuckDB files into steps on lakes, and copy the tables.

    The file is changed in place, only where it must be; what it was stays beside it as FILE.orig. A second
    run copies nothing twice.
    """
    from headwater.playbook.migration.migrating import Destination, plan_migration

    if (auth is None) == (catalog_connection is None):
        raise click.UsageError("Say where the catalogs are: either --auth NAME or --catalog-connection URL.")
    if catalog_connection is not None:
        _refuse_password(catalog_connection)
    destination = Destination(auth, catalog_connection, data_path)
    migration = plan_migration(file, destination)
    copied, notes = [], list(migration.notes)
    if copy and migration.steps:
        for step in migration.databases:
            found = _described(Path(step.database), step.catalog_name, notes)
            if found is not None:
                done = (
                    _pending(found)
                    if dry_run
                    else _copied(found, step.catalog_name, step.data_path, destination)
                )
                copied.append((step.catalog_name, done))
    written = None
    if migration.steps and not dry_run:
        written = _written(file, out, migration)
    return Migrated(migration, written, tuple(copied), tuple(notes), dry_run)


def _refuse_password(address: str) -> None:
    from headwater.playbook.credentials.types import dsn_secrets

    if dsn_secrets(address):
        raise click.UsageError(
            "The address has a password, which would be in the file and in the list of processes. "
            "Keep it as a credential (headwater credential add NAME), and pass --auth NAME."
        )


def _described(database: Path, catalog: str, notes: list[str]) -> OldDatabase | None:
    from headwater.playbook.migration.copying import describe

    if not database.exists():
        notes.append(f"there is no file {database}, so nothing is copied from it.")
        return None
    found = describe(database, catalog)
    notes += [f"{database}: {note}" for note in found.notes]
    return found


def _pending(found: OldDatabase) -> tuple[Copied, ...]:
    from headwater.playbook.migration.copying import Copied

    tables = [Copied(str(one.name), "table", one.rows, "copied") for one in found.tables]
    return (*tables, *(Copied(str(one.name), "view", None, "copied") for one in found.views))


def _copied(found: OldDatabase, catalog: str, data_path: str, destination: Destination) -> tuple[Copied, ...]:
    from headwater.playbook.ducklake.sessions import LakePlace, open_lake
    from headwater.playbook.migration.copying import copy

    local = data_path if "://" in data_path else str(Path(data_path).expanduser().absolute())
    with (
        progress(f"copying {found.file}", quiet=current().output == "json"),
        _address(destination) as dsn,
        closing(open_lake(LakePlace(dsn, catalog, local))) as lake,
    ):
        return copy(found, lake)


@contextmanager
def _address(destination: Destination) -> Iterator[str]:
    """Where PostgreSQL is. An embedded one runs as long as somebody has the project's lake open."""
    from headwater.engine.connecting import connect, resolve
    from headwater.playbook.credentials.registry import Credentials
    from headwater.settings import load_settings

    target = resolve(load_settings(current().config))
    with ExitStack() as stack:
        lake = None
        if target.dsn is not None or target.server_folder.exists():
            lake = stack.enter_context(connect(config=current().config, create=False)).lake
        yield destination.catalog_connection or Credentials(lake).get(str(destination.auth)).dsn


def _written(file: Path, out: Path | None, migration: Migration) -> str:
    """Write the new text; the old one stays beside it."""
    target = out or file
    if out is None:
        before = file.with_name(file.name + ".orig")
        if not before.exists():
            before.write_text(migration.before, encoding="utf-8")
    new = target.with_name(target.name + ".new")
    new.write_text(migration.after, encoding="utf-8")
    new.replace(target)
    return str(target)
