"""Whether rows kept their ids when files were merged.

Row ids outlive compaction, but for a flaw of DuckDB's: if the ids of the files that it merges seem to go on
from one file to the next, by `row_id_start` alone, it writes none into the new file. Rows whose ids were
inside their files, since they were updated or flushed, then have others, and so has every row that the
table's order puts elsewhere. A new file without `row_id_start` has the ids inside; all of Headwater's have.

What a merge was made of has left the catalog, but not the list of files to be removed: as long as the files
are there, they tell. What cannot be told counts as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError, FileMissingError
from headwater.lake.connection import Connection, Database
from headwater.lake.format.changes import read_changes
from headwater.lake.format.conform import field_id
from headwater.lake.model import ROW_ID_COLUMN, ROW_ID_FIELD, SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD, Table
from headwater.lake.reading.change_plan import ChangePlan
from headwater.storage.store import Store
from headwater.typedefs import FileId, SnapshotId

_MERGES = frozenset({"merge_adjacent", "compacted_table"})
_THREADS = 8
#: More files, or files with more ids inside, are not looked at.
_MOST_FILES, _MOST_ROWS = 10_000, 10_000_000


class _Merge(NamedTuple):
    """A snapshot that may have merged files of the table; the files it stored have ids from `first` on."""

    snapshot_id: SnapshotId
    time: datetime
    changes: str | None
    first: FileId | None
    end: FileId


class _Output(NamedTuple):
    """A file that such a snapshot stored and that is still in the catalog."""

    file_id: FileId
    table_id: int
    row_id_start: int | None
    record_count: int
    begin_snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A merge of which only the files can tell whether rows kept their ids; None if they cannot either."""

    snapshot_id: SnapshotId
    files: _Files | None = None


@dataclass(frozen=True, slots=True)
class _Files:
    sources: tuple[str, ...]
    """Where the files are that it was made of."""
    later_merged: tuple[str, ...]
    """Where those are that it stored and that were merged again since."""
    rows: int
    """How many rows the others have that it stored."""
    forgetful: bool
    """Whether one of the others has no ids inside."""


class _Seen(NamedTuple):
    """What a file says of the ids of its rows."""

    rows: int
    has_ids: bool
    in_place: bool
    """Whether the catalog and the rows' places tell the same ids."""


def first_loss(db: Database, store: Store, data_path: str, plan: ChangePlan) -> SnapshotId | None:
    """The first snapshot of a plan's range whose merge may have given rows other ids; None if there is none.

    Without a merge in the range nothing is asked.
    """
    moved = plan.moves | plan.mixed
    if not moved:
        return None
    doubts = db.read(lambda connection: _doubts(db, connection, plan.table, sorted(moved), data_path))
    seen: dict[str, _Seen | None] = {}
    return next((doubt.snapshot_id for doubt in doubts if not _kept(store, doubt.files, seen)), None)


# -- what the catalog tells --------------------------------------------------------------------------

_SNAPSHOTS = (
    "SELECT s.snapshot_id, s.snapshot_time, c.changes_made, p.next_file_id, s.next_file_id "
    "FROM {ducklake_snapshot} s JOIN {ducklake_snapshot_changes} c USING (snapshot_id) "
    "LEFT JOIN {ducklake_snapshot} p ON p.snapshot_id = s.snapshot_id - 1 "
    "WHERE s.snapshot_id = ANY(%s) ORDER BY 1"
)
_OUTPUTS = (
    "SELECT data_file_id, table_id, row_id_start, record_count, begin_snapshot FROM {ducklake_data_file} "
    "WHERE data_file_id >= %s AND data_file_id < %s"
)
_SORTED = (
    "SELECT EXISTS (SELECT FROM {ducklake_sort_info} i JOIN {ducklake_sort_expression} USING (sort_id) "
    "WHERE i.table_id = %(table)s AND i.begin_snapshot <= %(at)s "
    "AND (i.end_snapshot IS NULL OR i.end_snapshot > %(at)s))"
)
#: DuckDB's own `NOW()` is both the time of a snapshot and that at which it lists files for removal.
_LISTED = (
    "SELECT data_file_id, schedule_start = %(time)s, "
    "CASE WHEN path_is_relative THEN %(data)s::text || path ELSE path END "
    "FROM {ducklake_files_scheduled_for_deletion} "
    "WHERE schedule_start = %(time)s OR data_file_id = ANY(%(ids)s)"
)


def _doubts(
    db: Database, connection: Connection, table: Table, moved: Sequence[SnapshotId], data_path: str
) -> list[_Doubt]:
    """The merges that may have lost row ids as far as the catalog tells, up to the first that surely has."""
    doubts: list[_Doubt] = []
    for row in connection.execute(db.text(_SNAPSHOTS), (list(moved),)).fetchall():
        doubt = _doubt(db, connection, table, _Merge._make(row), data_path)
        if doubt is not None:
            doubts.append(doubt)
            if doubt.files is None:
                break
    return doubts


def _doubt(
    db: Database, connection: Connection, table: Table, merge: _Merge, data_path: str
) -> _Doubt | None:
    changes = read_changes(merge.changes)
    about = {change.token for change in changes if change.is_about(table.id)}
    if not about & _MERGES:
        return None
    # Headwater, unlike DuckDB, logs a flush beside, and may store files of other kinds in the same snapshot.
    ours = "inline_flush" in about
    if merge.first is None:
        return None if ours else _Doubt(merge.snapshot_id)
    found = connection.execute(db.text(_OUTPUTS), (merge.first, merge.end)).fetchall()
    stored = [_Output._make(row) for row in found]
    own = [one for one in stored if one.table_id == table.id and one.begin_snapshot < merge.snapshot_id]
    forgetful = any(one.row_id_start is not None for one in own)
    gone = set() if ours else {*range(merge.first, merge.end)} - {one.file_id for one in stored}
    if not forgetful and not gone:
        return None
    if connection.execute(db.text(_SORTED), {"table": table.id, "at": merge.snapshot_id}).fetchall()[0][0]:
        return _Doubt(merge.snapshot_id)
    given = {"time": merge.time, "data": data_path, "ids": sorted(gone)}
    listed = connection.execute(db.text(_LISTED), given).fetchall()
    if not gone <= {file_id for file_id, _, _ in listed}:
        return _Doubt(merge.snapshot_id)
    alone = all(change.is_about(table.id) for change in changes)
    mine = [each for each in listed if alone or each[2].startswith(table.path)]
    return _Doubt(
        merge.snapshot_id,
        _Files(
            sources=tuple(location for file_id, at_once, location in mine if at_once and file_id not in gone),
            later_merged=tuple(location for file_id, _, location in mine if file_id in gone),
            rows=sum(one.record_count for one in own),
            forgetful=forgetful,
        ),
    )


# -- what the files tell -----------------------------------------------------------------------------


def _kept(store: Store, files: _Files | None, seen: dict[str, _Seen | None]) -> bool:
    """Whether files prove that rows kept their ids when they were merged."""
    if files is None or len(files.sources) + len(files.later_merged) > _MOST_FILES:
        return False
    _look(store, (*files.sources, *files.later_merged), seen)
    after = [one for location in files.later_merged if (one := seen[location]) is not None]
    if len(after) < len(files.later_merged):
        return False
    if not files.forgetful and all(one.has_ids for one in after):
        return True
    before = [one for location in files.sources if (one := seen[location]) is not None]
    if len(before) < len(files.sources):
        return False
    # Some may have been cleaned up already: only if all are there, they are what was merged.
    complete = sum(one.rows for one in before) == files.rows + sum(one.rows for one in after)
    return complete and all(one.in_place for one in before)


def _look(store: Store, locations: Iterable[str], seen: dict[str, _Seen | None]) -> None:
    """Look into files that were not looked into before; None for one that tells nothing."""
    new = [location for location in dict.fromkeys(locations) if location not in seen]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-row-ids") as pool:
        seen.update(zip(new, pool.map(lambda location: _seen(store, location), new), strict=True))


def _seen(store: Store, location: str) -> _Seen | None:
    try:
        with store.reading(location), store.open_input(location) as source:
            return _ids_in(pq.ParquetFile(source))
    except (FileMissingError, CorruptFileError, pa.ArrowInvalid):
        return None  # gone, or encrypted with a key that went with its place in the catalog


def _ids_in(parquet: pq.ParquetFile) -> _Seen:
    rows = parquet.metadata.num_rows
    names = {field_id(field): field.name for field in parquet.schema_arrow}
    known = set(names.values())
    ids = names.get(ROW_ID_FIELD, ROW_ID_COLUMN if ROW_ID_COLUMN in known else None)
    if ids is None:
        return _Seen(rows, has_ids=False, in_place=True)
    if SNAPSHOT_ID_FIELD not in names and SNAPSHOT_ID_COLUMN not in known:
        # Written by an UPDATE: the ids inside are older than those that the catalog sets aside for its rows.
        return _Seen(rows, has_ids=True, in_place=False)
    # Flushed: the catalog has the least of the ids; without gaps and in order they are those of the places.
    return _Seen(rows, has_ids=True, in_place=rows <= _MOST_ROWS and _in_order(parquet, ids))


def _in_order(parquet: pq.ParquetFile, name: str) -> bool:
    column = parquet.read(columns=[name]).column(0)
    return not column.null_count and bool((np.diff(column.to_numpy()) == 1).all())
