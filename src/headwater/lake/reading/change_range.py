"""Which snapshots a range of changes has, and whether all of them can still be told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headwater.errors import InvalidInputError, SnapshotError
from headwater.lake.catalog import as_time
from headwater.lake.connection import Connection, Database
from headwater.lake.format.changes import read_changes
from headwater.lake.model import Snapshot, Table
from headwater.typedefs import SnapshotId

#: A snapshot by number, or by a time.
Since = SnapshotId | datetime | str
At = Since | None

_DELETIONS = frozenset({"deleted_from_table", "inlined_delete"})


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """The snapshots from the first to the last, without a gap."""

    first: SnapshotId
    snapshots: tuple[Snapshot, ...]
    first_file: int
    """Files with smaller ids were stored before the range; 0 where that is not known."""


def find_range(
    db: Database, connection: Connection, table: Table, start: Since, end: Snapshot
) -> SnapshotRange:
    """The snapshots from `start`, or from the table's creation if that came later, to `end`.

    Raises a `SnapshotError` if any of their changes can no longer be told.
    """
    number = _number(db, connection, start)
    facts = connection.execute(
        db.text(
            "SELECT (SELECT min(begin_snapshot) FROM (SELECT begin_snapshot FROM {ducklake_table} "
            "WHERE table_id = %(table)s UNION ALL SELECT begin_snapshot FROM {ducklake_schema_versions} "
            "WHERE table_id = %(table)s) t), max(snapshot_id) FROM {ducklake_snapshot}"
        ),
        {"table": table.id},
    )
    # A table that was renamed has a row for each name.
    created, newest = facts.fetchall()[0]
    _check_order(table, number, start, end, newest)
    first = max(number, created)
    found = snapshots_between(db, connection, first - 1, end.id)
    before = found.pop(0) if found and found[0].id == first - 1 else None
    if len(found) != end.id - first + 1:
        present = {snapshot.id for snapshot in found}
        gone = next(number for number in range(first, end.id + 1) if number not in present)
        raise _incomplete(table, first, end, gone, f"Snapshot {gone} has expired.")
    if before is None and first > created and _deletes(found[0], table):
        # Files that a snapshot ended go when the last one that saw them goes.
        raise _incomplete(
            table,
            first,
            end,
            first - 1,
            f"Snapshot {first} deleted rows, and {first - 1}, the last one that had them, has expired.",
        )
    return SnapshotRange(first, tuple(found), before.next_file_id if before is not None else 0)


def snapshots_between(
    db: Database, connection: Connection, first: SnapshotId, last: SnapshotId
) -> list[Snapshot]:
    """The snapshots from the first to the last, both included, that have not expired."""
    rows = connection.execute(
        db.text(
            "SELECT s.snapshot_id, s.snapshot_time, s.schema_version, s.next_catalog_id, s.next_file_id, "
            "c.changes_made, c.author, c.commit_message, c.commit_extra_info "
            "FROM {ducklake_snapshot} s LEFT JOIN {ducklake_snapshot_changes} c USING (snapshot_id) "
            "WHERE s.snapshot_id BETWEEN %s AND %s ORDER BY s.snapshot_id"
        ),
        (first, last),
    ).fetchall()
    return [Snapshot(*row) for row in rows]


def _number(db: Database, connection: Connection, start: Since) -> SnapshotId:
    """The first snapshot not before a time, or the number that is given."""
    if isinstance(start, datetime | str):
        row = connection.execute(
            db.text("SELECT max(snapshot_id) FROM {ducklake_snapshot} WHERE snapshot_time < %s"),
            (as_time(start),),
        ).fetchall()[0]
        # Whether a snapshot that expired since would count is not known; so it counts, and is missed.
        return 0 if row[0] is None else int(row[0]) + 1
    if isinstance(start, bool) or not isinstance(start, int):
        raise InvalidInputError(
            f"Changes begin at the number of a snapshot or at a time, not at {start!r}.",
            hint="Write a number, or a time like 2026-01-31T12:00:00+00:00.",
        )
    return start


def _check_order(table: Table, number: SnapshotId, start: Since, end: Snapshot, newest: SnapshotId) -> None:
    if number <= end.id:
        return
    shown = f"Snapshot {number}" if isinstance(start, int) else f"There is no snapshot since {start}:"
    if number > newest:
        why = "is in the future: the newest" if isinstance(start, int) else "the newest"
        message = f"{shown} {why} is {newest}."
    elif isinstance(start, int):
        message = f"{shown} is after the end of the range, {end.id}."
    else:
        message = f"There is no snapshot between {start} and the end of the range, {end.id}."
    raise SnapshotError(
        f"No changes of {table.name} can be read. {message}",
        hint="Begin at or before the snapshot that the range ends at.",
        table=str(table.name),
        start=number,
        end=end.id,
        newest=newest,
    )


def _deletes(snapshot: Snapshot, table: Table) -> bool:
    changes = read_changes(snapshot.changes)
    return any(change.is_about(table.id) and change.token in _DELETIONS for change in changes)


def _incomplete(table: Table, first: SnapshotId, end: Snapshot, gone: SnapshotId, why: str) -> SnapshotError:
    return SnapshotError(
        f"The changes of {table.name} from snapshot {first} to {end.id} are no longer known completely.",
        detail=why,
        hint="Read the whole table once, and changes from there on.",
        table=str(table.name),
        snapshot_id=gone,
        start=first,
        end=end.id,
    )
