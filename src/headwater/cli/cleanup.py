"""`headwater cleanup`."""

from __future__ import annotations

import click

from headwater.cli.maintenance import Maintained
from headwater.cli.options import common_options
from headwater.cli.refreshes import opened


@click.command("cleanup")
@click.option(
    "--older-than",
    metavar="AGE",
    default="1d",
    show_default=True,
    help="Only files that left the catalog (or were stored) before.",
)
@click.option("--orphans", is_flag=True, help="Also look for files that no catalog knows.")
@click.option("--remove-orphans", is_flag=True, help="And remove them.")
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@common_options
def command(older_than: str, orphans: bool, remove_orphans: bool, dry_run: bool) -> Maintained:
    """Remove files that no snapshot needs any more.

    Exits with 1 when a file could not be removed; it is tried again next time.
    """
    with opened("cleaning up") as (hw, _):
        removed = hw.cleanup(older_than=older_than, dry_run=dry_run)
        found = None
        if orphans or remove_orphans:
            found = hw.remove_orphans(older_than=older_than, dry_run=dry_run or not remove_orphans)
        return Maintained(removed=removed, orphans=found)
