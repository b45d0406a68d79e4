"""Catalog rows of a compaction: files in the place of others, the same rows at every snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from headwater.lake.connection import Database
from headwater.lake.format.changes import Change
from headwater.lake.writing.draft import FileReplacement
from headwater.lake.writing.file_rows import data_file, schedule_files
from headwater.lake.writing.schema_rows import Numbers
from headwater.lake.writing.statements import Statement, end, statement

#: Rows of these name a data file by `data_file_id` and go with it.
OF_FILES = ("ducklake_file_column_stats", "ducklake_file_variant_stats", "ducklake_file_partition_value")


def compaction_statements(
    db: Database,
    table_id: int,
    replaced: Iterable[FileReplacement],
    numbers: Numbers,
    *,
    has_inlined_deletes: bool,
) -> tuple[list[Statement], list[Change], int]:
    """Catalog rows of replaced files, their changes, and by how many bytes the table grew."""
    statements: list[Statement] = []
    # A DuckDB transaction that deletes a few rows of the old files through the catalog and commits later
    # does not look for compactions: its deletes would name files that are gone. It does look for flushes.
    changes = [Change("inline_flush", table_id)]
    size = 0
    for one in replaced:
        rows = _Sources(db, table_id, one, has_inlined_deletes)
        if one.keeps_history:
            statements += rows.removed()
            changes.append(Change("merge_adjacent", table_id))
        else:
            statements += rows.ended(numbers.snapshot_id)
            changes.append(Change("rewrite_delete", table_id))
        first = numbers.snapshot_id if one.first_snapshot is None else one.first_snapshot
        last = one.last_snapshot if one.last_snapshot != one.first_snapshot else None
        for staged in one.staged:
            statements += data_file(db, numbers, numbers.file_id(), table_id, staged, first, last)
            size += staged.file_size_bytes
        size -= sum(source.file.file_size_bytes for source in one.sources)
    return statements, changes, size


class _Sources:
    """The rows of the files that are replaced. Every count is checked: another writer may have been there."""

    def __init__(self, db: Database, table_id: int, replaced: FileReplacement, has_inlined_deletes: bool):
        self._db = db
        self._table_id = table_id
        self._ids = [source.file.id for source in replaced.sources]
        self._deletes = [delete.id for source in replaced.sources for delete in source.delete_files]
        self._inlined = sum(len(source.inlined) for source in replaced.sources)
        self._has_inlined_deletes = has_inlined_deletes

    def removed(self) -> list[Statement]:
        """Out of the catalog, deletes included; the files are scheduled for deletion."""
        return [
            *schedule_files(self._db, "ducklake_data_file", self._ids),
            *schedule_files(self._db, "ducklake_delete_file", self._deletes),
            *self._delete("ducklake_delete_file", "data_file_id", self._ids, len(self._deletes)),
            *(s for name in OF_FILES for s in self._delete(name, "data_file_id", self._ids)),
            *self._delete("ducklake_data_file", "data_file_id", self._ids, len(self._ids)),
            *self._inlined_deletes("DELETE"),
        ]

    def ended(self, snapshot_id: int) -> list[Statement]:
        """They end with this snapshot, and so do their delete files; older snapshots go on reading them."""
        return [
            *end(
                self._db,
                "ducklake_data_file",
                ["table_id", "data_file_id"],
                snapshot_id,
                [(self._table_id, file_id) for file_id in self._ids],
                expected=len(self._ids),
            ),
            *end(
                self._db,
                "ducklake_delete_file",
                ["table_id", "delete_file_id"],
                snapshot_id,
                [(self._table_id, delete_id) for delete_id in self._deletes],
                expected=len(self._deletes),
            ),
            *self._inlined_deletes("SELECT"),
        ]

    def _delete(
        self, table: str, key: str, ids: Sequence[int], expected: int | None = None
    ) -> list[Statement]:
        query = sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(self._db.name(table), sql.Identifier(key))
        return statement(query, (list(ids),), expected=expected)

    def _inlined_deletes(self, verb: str) -> list[Statement]:
        """Those of these files, of which there must not be more than were read."""
        if not self._has_inlined_deletes:
            return []
        query = sql.SQL("{} FROM {} WHERE file_id = ANY(%s)").format(
            sql.SQL(verb), self._db.name(f"ducklake_inlined_delete_{self._table_id}")
        )
        return statement(query, (self._ids,), expected=self._inlined)
