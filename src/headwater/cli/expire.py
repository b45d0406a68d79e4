"""`headwater expire`."""

from __future__ import annotations

import click

from headwater.cli.maintenance import Maintained
from headwater.cli.options import common_options
from headwater.cli.refreshes import opened


@click.command("expire")
@click.option("--older-than", metavar="AGE", help="Expire what is older: 7d, 36h, or a time.")
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="Keep the newest N in any case.")
@click.option("--version", "versions", type=int, multiple=True, metavar="ID", help="Expire this snapshot.")
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@common_options
def command(
    older_than: str | None, keep_last: int | None, versions: tuple[int, ...], dry_run: bool
) -> Maintained:
    """Expire old snapshots.

    The latest stays, and so does every snapshot that a stream table, a sink, an outbox or a reader needs.
    """
    if older_than is None and keep_last is None and not versions:
        raise click.UsageError("Say which: --older-than, --keep-last or --version.")
    with opened("expiring") as (hw, _):
        return Maintained(
            expired=hw.expire(
                older_than=older_than, keep_last=keep_last, versions=list(versions) or None, dry_run=dry_run
            )
        )
