"""The names and types that the columns of a table have had."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.lake.connection import Connection, Database
from headwater.lake.model import Table
from headwater.typedefs import ColumnId, SnapshotId


@dataclass(frozen=True, slots=True)
class ColumnVersion:
    """A column or nested field as it was from one snapshot until another."""

    id: ColumnId
    name: str
    type: str
    parent: ColumnId | None
    begin: SnapshotId
    end: SnapshotId | None


def column_history(db: Database, table: Table) -> list[ColumnVersion]:
    """Every version of every column that the table has or had, oldest first."""

    def work(connection: Connection) -> list[ColumnVersion]:
        found = connection.execute(
            db.text(
                "SELECT column_id, column_name, column_type, parent_column, begin_snapshot, end_snapshot "
                "FROM {ducklake_column} WHERE table_id = %s ORDER BY begin_snapshot, column_id"
            ),
            (table.id,),
        )
        return [ColumnVersion(*row) for row in found.fetchall()]

    return db.read(work)
