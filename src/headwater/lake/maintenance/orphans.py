"""Files in a lake's folder that its catalog does not know: what writers leave that were killed.

A writer stores files before it commits, so a file that nobody names may be one that somebody is about to
name. Three things keep those safe: only files older than a grace period go; they go in turn with commits, a
batch at a time, compared once more with the catalog; and a transaction that took longer than a good part of
the shortest grace period looks, in its own turn, whether its files are still there.

Only files that are called as DuckDB's and Headwater's go. What somebody else keeps in the folder stays, and
so do the files of every other lake of the same database.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from headwater.errors import InvalidInputError
from headwater.lake.connection import Connection, Database
from headwater.lake.maintenance.cleaning import remove_files
from headwater.lake.maintenance.locations import has_our_name, known_files, names_in_use, one_spelling
from headwater.lake.maintenance.locking import in_turn
from headwater.lake.maintenance.model import Age, RemovalResult, moment
from headwater.lake.writing.commit import SHORTEST_GRACE
from headwater.storage.store import Store, StoredFile

GRACE = timedelta(days=1)
_AT_ONCE = 200
_SHOWN = 100


def remove_orphans(
    db: Database,
    store: Store,
    data_path: str,
    *,
    older_than: Age | None = GRACE,
    dry_run: bool = True,
) -> RemovalResult:
    """Remove files that no catalog knows and that were stored before a time (by default a day ago)."""
    began = time.monotonic()
    now = datetime.now(UTC)
    before = moment(GRACE if older_than is None else older_than, now)
    if before is None or (not dry_run and before > now - SHORTEST_GRACE):
        raise InvalidInputError(
            f"Files younger than {SHORTEST_GRACE} may belong to a commit that is under way.",
            hint="Give an older_than of at least that, or look first with dry_run.",
        )
    found, waiting = _orphans(db, store, data_path, before)
    failed: list[str] = []
    uploads = 0
    if not dry_run:
        for start in range(0, len(found), _AT_ONCE):
            failed += _remove(db, store, found[start : start + _AT_ONCE])
        uploads = store.abort_uploads(data_path, before)
    gone = [file for file in found if file.location not in set(failed)]
    return RemovalResult(
        files=len(gone),
        bytes=sum(file.size for file in gone),
        locations=tuple(file.location for file in gone[:_SHOWN]),
        waiting=waiting,
        failed=tuple(failed),
        uploads=uploads,
        dry_run=dry_run,
        seconds=time.monotonic() - began,
    )


def _orphans(db: Database, store: Store, data_path: str, before: datetime) -> tuple[list[StoredFile], int]:
    # The listing comes first: a file that is committed after it is known by then.
    stored = [file for file in store.list(data_path) if has_our_name(file.location)]
    known = db.read(lambda connection: known_files(db, connection, data_path))
    spelled = {one_spelling(location) for location in known}
    unknown = [file for file in stored if one_spelling(file.location) not in spelled]
    old = [file for file in unknown if file.modified < before]
    return old, len(unknown) - len(old)


def _remove(db: Database, store: Store, batch: list[StoredFile]) -> list[str]:
    names = {file.location: file.location.rpartition("/")[2] for file in batch}

    def work(connection: Connection) -> list[str]:
        used = names_in_use(connection, list(names.values()))
        return remove_files(store, [location for location, name in names.items() if name not in used])

    return in_turn(db, work)
