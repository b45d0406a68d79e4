"""Removing files that no snapshot names any more, once nobody can be reading them.

The catalog lists them in `ducklake_files_scheduled_for_deletion`. A file goes first, its row after: what is
killed in between is done again, and removing a file that is not there is fine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from headwater.errors import StorageError
from headwater.lake.connection import Connection, Database
from headwater.lake.maintenance.leases import live_leases
from headwater.lake.maintenance.locations import is_ours, named_files
from headwater.lake.maintenance.model import Age, RemovalResult, moment
from headwater.lake.own import write
from headwater.storage.locations import parse_location
from headwater.storage.store import Store

log = logging.getLogger("headwater.maintenance")

#: How long a file stays by default after it left the catalog.
GRACE = timedelta(days=1)
_AT_ONCE = 1000
_SHOWN = 100


class _Scheduled(NamedTuple):
    file_id: int
    path: str
    is_relative: bool
    since: datetime
    location: str


def clean_up(
    db: Database,
    store: Store,
    data_path: str,
    *,
    older_than: Age | None = GRACE,
    dry_run: bool = False,
) -> RemovalResult:
    """Remove the files that left the catalog before a time (by default a day ago).

    Files that left it after the start of a reader's lease wait for its end.
    """
    began = time.monotonic()
    due, waiting, left = _due(db, data_path, older_than)
    size, failed = 0, []
    if dry_run or parse_location(data_path).is_local:  # object stores would be asked for every file
        size = sum(_size(store, file.location) for file in due)
    if not dry_run:
        _forget(db, left)
        for start in range(0, len(due), _AT_ONCE):
            batch = due[start : start + _AT_ONCE]
            undone = remove_files(store, [file.location for file in batch])
            failed += undone
            _forget(db, [file for file in batch if file.location not in set(undone)])
    return RemovalResult(
        files=len(due) - len(failed),
        bytes=size,
        locations=tuple(file.location for file in due[:_SHOWN]),
        waiting=waiting,
        failed=tuple(failed),
        left=tuple(file.location for file in left),
        dry_run=dry_run,
        seconds=time.monotonic() - began,
    )


def _due(
    db: Database, data_path: str, older_than: Age | None
) -> tuple[list[_Scheduled], int, list[_Scheduled]]:
    """Files to remove, how many others wait, and files that are not ours to remove."""

    def work(connection: Connection) -> tuple[list[_Scheduled], int, list[_Scheduled]]:
        rows = connection.execute(
            db.text(
                "SELECT data_file_id, path, path_is_relative, schedule_start, "
                "CASE WHEN path_is_relative THEN %s::text || path ELSE path END "
                "FROM {ducklake_files_scheduled_for_deletion} ORDER BY schedule_start, data_file_id"
            ),
            (data_path,),
        ).fetchall()
        now = connection.execute("SELECT clock_timestamp()").fetchall()[0][0]
        before = moment(older_than, now) or now
        readers = [lease.started_at for lease in live_leases(db, connection)]
        before = min([before, *readers])
        old = [_Scheduled._make(row) for row in rows if row[3] < before]
        named = named_files(db, connection, data_path, [file.location for file in old])
        # A name that some snapshot still has (a table that was dropped and restored by hand) stays.
        free = [file for file in old if file.location not in named]
        due = [file for file in free if is_ours(file.location, data_path)]
        left = [file for file in free if not is_ours(file.location, data_path)]
        return due, len(rows) - len(due) - len(left), left

    return db.read(work)


def _forget(db: Database, files: Sequence[_Scheduled]) -> None:
    if not files:
        return

    def work(connection: Connection) -> None:
        connection.execute(
            db.text(
                "DELETE FROM {ducklake_files_scheduled_for_deletion} d "
                "USING unnest(%s::text[], %s::bool[]) u(p, r) WHERE d.path = u.p AND d.path_is_relative = u.r"
            ),
            ([file.path for file in files], [file.is_relative for file in files]),
        )

    write(db, work)


def remove_files(store: Store, locations: Sequence[str]) -> list[str]:
    """Remove files; returns those that could not be, after each was tried by itself."""
    try:
        store.delete_many(locations)
        return []
    except StorageError:
        failed: list[str] = []
        for location in locations:
            try:
                store.delete(location)
            except StorageError as error:
                log.warning("cannot be removed: %s (%s)", location, error.message)
                failed.append(location)
        return failed


def _size(store: Store, location: str) -> int:
    try:
        return store.size(location)
    except StorageError:
        return 0
