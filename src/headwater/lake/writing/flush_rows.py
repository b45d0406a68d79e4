"""Catalog rows of a flush."""

from __future__ import annotations

from psycopg import sql

from headwater.lake.connection import Database
from headwater.lake.format.changes import Change
from headwater.lake.writing.draft import Flush
from headwater.lake.writing.file_rows import data_file, delete_file, retire_delete_files
from headwater.lake.writing.schema_rows import Numbers
from headwater.lake.writing.statements import Statement, statement


def flush_statements(
    db: Database, table_id: int, flush: Flush, numbers: Numbers
) -> tuple[list[Statement], list[Change], int]:
    """Catalog rows of a flush, its changes, and the bytes it stored."""
    statements: list[Statement] = []
    changes = [Change("inline_flush", table_id)]
    size = 0
    for flushed in flush.files:
        file_id = numbers.file_id()
        statements += data_file(
            db, numbers, file_id, table_id, flushed.staged, flushed.first_snapshot, flushed.last_snapshot
        )
        size += flushed.staged.file_size_bytes
        if flushed.deletes is not None:
            statements += delete_file(db, numbers, table_id, file_id, flushed.deletes)
    for deletes, staged in flush.deletes:
        statements += retire_delete_files(db, deletes)
        statements += delete_file(db, numbers, table_id, deletes.file.id, staged)
        changes.append(Change("deleted_from_table", table_id))
        changes.append(Change("inserted_into_table", table_id))  # see data_rows: DuckDB's blind spot
    for name, rows in flush.rows.items():
        statements += statement(
            sql.SQL(
                "DELETE FROM {} t USING unnest(%s::bigint[], %s::bigint[], %s::bigint[]) u(r, b, e) "
                "WHERE t.row_id = u.r AND t.begin_snapshot = u.b AND t.end_snapshot IS NOT DISTINCT FROM u.e"
            ).format(db.name(name)),
            ([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]),
            expected=len(rows),
        )
    if flush.deletes:
        pairs = [(d.file.id, int(p)) for d, _ in flush.deletes for p in d.inlined]
        statements += statement(
            sql.SQL(
                "DELETE FROM {} t USING unnest(%s::bigint[], %s::bigint[]) u(f, r) "
                "WHERE t.file_id = u.f AND t.row_id = u.r"
            ).format(db.name(f"ducklake_inlined_delete_{table_id}")),
            ([f for f, _ in pairs], [r for _, r in pairs]),
            expected=len(pairs),
        )
    return statements, changes, size
