"""Expiring snapshots: which go, which somebody needs, and everything that only they could see.

No snapshot is made. What no snapshot names any more leaves the catalog, and its files are scheduled to be
removed by `cleanup`, after a grace period: readers that planned before may still be reading them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import psycopg

from headwater.errors import InvalidInputError, SnapshotError
from headwater.lake.connection import Connection, Database
from headwater.lake.maintenance.expired_rows import ExpiredRows
from headwater.lake.maintenance.leases import live_leases
from headwater.lake.maintenance.locking import in_turn
from headwater.lake.maintenance.model import Age, ExpireResult, Hold, Kept, moment
from headwater.typedefs import SnapshotId

Listed = Sequence[tuple[SnapshotId, datetime]]


def expire_snapshots(
    db: Database,
    *,
    older_than: Age | None = None,
    keep_last: int | None = None,
    versions: Collection[SnapshotId] | None = None,
    holds: Iterable[Hold] = (),
    dry_run: bool = False,
) -> ExpireResult:
    """Expire the snapshots that are older than a time and not among the newest `keep_last`, or those named.

    The latest always stays, and so does every snapshot that a hold or a reader's lease needs.
    """
    _check(older_than, keep_last, versions)
    began = time.monotonic()
    known = tuple(holds)

    def work(connection: Connection) -> ExpireResult:
        listed = connection.execute(
            db.text("SELECT snapshot_id, snapshot_time FROM {ducklake_snapshot} ORDER BY snapshot_id")
        ).fetchall()
        now = connection.execute("SELECT clock_timestamp()").fetchall()[0][0]
        wanted = choose(listed, moment(older_than, now), keep_last, versions)
        needed = (*known, *(lease.hold for lease in live_leases(db, connection)))
        expired, kept = spare(wanted, needed)
        result = ExpireResult(tuple(expired), len(listed) - len(expired), kept, dry_run=dry_run)
        if expired:
            gone = ExpiredRows(db, connection).remove(expired)
            result = replace(
                result, tables=gone.tables, files=gone.files, bytes=gone.bytes, inlined_rows=gone.inlined_rows
            )
        return result

    def attempt(connection: Connection) -> ExpireResult:
        # A dry run does everything and takes it back: what it says is what would happen.
        found: list[ExpireResult] = []
        with connection.transaction():
            found.append(work(connection))
            if dry_run:
                raise psycopg.Rollback
        return found[0]

    return replace(in_turn(db, attempt), seconds=time.monotonic() - began)


def choose(
    listed: Listed,
    before: datetime | None,
    keep_last: int | None,
    versions: Collection[SnapshotId] | None,
) -> list[SnapshotId]:
    """Which of the live snapshots (oldest first) are asked to go; never the latest."""
    if not listed:
        return []
    latest = listed[-1][0]
    if versions is not None:
        unknown = set(versions) - {number for number, _ in listed}
        if unknown:
            raise SnapshotError(
                f"There is no snapshot {min(unknown)}.",
                hint="It may have expired already; `headwater snapshots` lists those that are there.",
                snapshot_id=min(unknown),
            )
        if latest in versions:
            raise SnapshotError(f"Snapshot {latest} is the latest, which never expires.", snapshot_id=latest)
        return sorted(set(versions))
    older = listed[: len(listed) - max(1, keep_last or 1)]
    return [number for number, at in older if before is None or at < before]


def spare(wanted: Sequence[SnapshotId], holds: Iterable[Hold]) -> tuple[list[SnapshotId], tuple[Kept, ...]]:
    """Those that nobody needs; the others with the first (lowest) hold that needs each of them."""
    ordered = sorted(holds, key=lambda hold: (hold.snapshot_id, hold.reason))
    expired: list[SnapshotId] = []
    kept: dict[Hold, int] = {}
    for number in wanted:
        hold = next((hold for hold in ordered if hold.needs(number)), None)
        if hold is None:
            expired.append(number)
        else:
            kept[hold] = kept.get(hold, 0) + 1
    return expired, tuple(Kept(count, hold.reason, hold.snapshot_id) for hold, count in kept.items())


def _check(older_than: Age | None, keep_last: int | None, versions: Collection[SnapshotId] | None) -> None:
    if older_than is None and keep_last is None and versions is None:
        raise InvalidInputError(
            "Nothing says which snapshots are to expire.",
            hint="Give older_than, keep_last or versions.",
        )
    if versions is not None and (older_than is not None or keep_last is not None):
        raise InvalidInputError("Name versions, or give an age and a number to keep, not both.")
    if keep_last is not None and keep_last < 1:
        raise InvalidInputError("At least one snapshot stays.", hint="keep_last is 1 or more.")
