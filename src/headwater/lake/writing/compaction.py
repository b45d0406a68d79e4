"""Files in the place of others, as an operation of a transaction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from headwater.errors import InvalidInputError
from headwater.lake.connection import Connection
from headwater.lake.model import Table
from headwater.lake.writing.draft import Draft, FileReplacement
from headwater.lake.writing.whole import WholeOperations, whole
from headwater.typedefs import FileId, TableName

if TYPE_CHECKING:
    from headwater.lake.writing.transaction import LakeContext


class FileReplacements(WholeOperations):
    """Compaction. Mixed into `Transaction`."""

    _context: LakeContext
    already_applied: bool

    @property
    @abstractmethod
    def _draft(self) -> Draft: ...

    @whole
    def replace_files(
        self, table: TableName | str, replacements: Iterable[FileReplacement]
    ) -> list[FileReplacement]:
        """Put stored files in the place of others that hold the same rows; returns those that still fit.

        A replacement whose files another writer changed since they were read is left out; its new files are
        the caller's to remove. One that is changed between this and the commit is a `ConflictError`.
        """
        if self.already_applied:
            return []
        found = self._draft.state.table(table)
        data = self._draft.rows(found)
        if data.inserts or data.removes or data.flush or found is not self._draft.base.table_by_id(found.id):
            raise InvalidInputError(
                f"Table {found.name} has uncommitted changes; compact it in a transaction of its own.",
                table=str(found.name),
            )
        listed = list(replacements)
        now = self._files_now(found, [source.file.id for one in listed for source in one.sources])
        fitting = [one for one in listed if _fits(one, now)]
        data.replaced += fitting
        return fitting

    def _files_now(self, table: Table, ids: Sequence[FileId]) -> dict[FileId, tuple[set[FileId], int]]:
        """Live files with their delete files and how many of their rows are deleted through the catalog."""
        db = self._context.db
        at = self._draft.base.snapshot.id
        given = {"table": table.id, "ids": list(ids), "at": at}

        def work(connection: Connection) -> dict[FileId, tuple[set[FileId], int]]:
            rows = connection.execute(
                db.text(
                    "SELECT f.data_file_id, array_remove(array_agg(d.delete_file_id), NULL) "
                    "FROM {ducklake_data_file} f LEFT JOIN {ducklake_delete_file} d "
                    "ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL "
                    "WHERE f.table_id = %(table)s AND f.data_file_id = ANY(%(ids)s) "
                    "AND f.end_snapshot IS NULL GROUP BY 1"
                ),
                given,
            ).fetchall()
            inlined: dict[FileId, int] = {}
            name = db.name(f"ducklake_inlined_delete_{table.id}")
            there = connection.execute("SELECT to_regclass(%s)", (name.as_string(None),)).fetchall()
            if there[0][0] is not None:
                query = sql.SQL(
                    "SELECT file_id, count(*) FROM {} WHERE file_id = ANY(%(ids)s) GROUP BY 1"
                ).format(name)
                inlined = dict(connection.execute(query, given).fetchall())
            return {file_id: (set(deletes), inlined.get(file_id, 0)) for file_id, deletes in rows}

        return db.read(work)


def _fits(one: FileReplacement, now: dict[FileId, tuple[set[FileId], int]]) -> bool:
    return all(
        now.get(source.file.id) == ({delete.id for delete in source.delete_files}, len(source.inlined))
        for source in one.sources
    )
