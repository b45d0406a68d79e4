"""`headwater compact`."""

from __future__ import annotations

import click

from headwater.cli.maintenance import Maintained
from headwater.cli.options import common_options
from headwater.cli.refreshes import opened


@click.command("compact")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option("--target-size", metavar="SIZE", help="Size of a good file (default: the table's option).")
@click.option(
    "--delete-ratio",
    type=click.FloatRange(0, 1),
    help="Write a file again if this part of its rows is deleted (default: the table's option, else 0.3).",
)
@click.option("--sort-by", multiple=True, metavar="KEY", help="Sort within and across files: 'day desc'.")
@click.option("--flush", is_flag=True, help="First write rows that are kept in the catalog to files.")
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@common_options
def command(
    tables: tuple[str, ...],
    target_size: str | None,
    delete_ratio: float | None,
    sort_by: tuple[str, ...],
    flush: bool,
    dry_run: bool,
) -> Maintained:
    """Merge small files, and leave deleted rows behind.

    Of all tables or of the named ones. Every snapshot reads the same as before.
    """
    with opened("compacting") as (hw, tell):
        return Maintained(
            hw.maintenance.compact(
                list(tables) or None,
                target_size=target_size,
                delete_ratio=delete_ratio,
                sort_by=list(sort_by) or None,
                flush=flush,
                dry_run=dry_run,
                tell=tell,
            )
        )
