"""`headwater optimize`."""

from __future__ import annotations

import click

from headwater.cli.maintenance import Maintained
from headwater.cli.options import common_options
from headwater.cli.refreshes import opened


@click.command("optimize")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option("--target-size", metavar="SIZE", help="Size of a good file (default: the table's option).")
@click.option("--sort-by", multiple=True, metavar="KEY", help="Sort within and across files: 'day desc'.")
@click.option("--expire-older-than", metavar="AGE", help="First expire snapshots that are older: 7d, 36h.")
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="But keep the newest N.")
@click.option(
    "--cleanup-older-than", metavar="AGE", help="At last remove files that left the catalog before."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@common_options
def command(
    tables: tuple[str, ...],
    target_size: str | None,
    sort_by: tuple[str, ...],
    expire_older_than: str | None,
    keep_last: int | None,
    cleanup_older_than: str | None,
    dry_run: bool,
) -> Maintained:
    """Flush, compact and, if asked, expire and clean up, in the right order."""
    with opened("optimizing") as (hw, tell):
        done = hw.maintenance.optimize(
            list(tables) or None,
            target_size=target_size,
            sort_by=list(sort_by) or None,
            expire_older_than=expire_older_than,
            keep_last=keep_last,
            cleanup_older_than=cleanup_older_than,
            dry_run=dry_run,
            tell=tell,
        )
        return Maintained(done.compaction, done.expired, done.removed)
