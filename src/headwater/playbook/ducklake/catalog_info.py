"""What an envelope says about the catalog, asked of PostgreSQL in one statement."""

from __future__ import annotations

from typing import Any

from headwater.lake.connection import Connection, Cursor, Database
from headwater.playbook.results.json_values import json_value

_QUERY = """
    SELECT (SELECT count(*) FROM {ducklake_snapshot}), s.snapshot_id, s.snapshot_time, s.schema_version,
        c.changes_made, c.author, c.commit_message, c.commit_extra_info,
        (SELECT coalesce(json_agg(json_build_object('schema_name', n.schema_name, 'table_name', t.table_name,
                'table_id', t.table_id, 'table_uuid', t.table_uuid)
                ORDER BY n.schema_name, t.table_name), '[]')
            FROM {ducklake_table} t JOIN {ducklake_schema} n USING (schema_id)
            WHERE t.end_snapshot IS NULL AND n.end_snapshot IS NULL)
    FROM {ducklake_snapshot} s LEFT JOIN {ducklake_snapshot_changes} c USING (snapshot_id)
    ORDER BY s.snapshot_id DESC LIMIT 1"""


def ask(db: Database, connection: Connection) -> Cursor:
    """Send the question; in a pipeline the answer comes later."""
    return connection.execute(db.text(_QUERY))


def answer(catalog: str, cursor: Cursor) -> dict[str, Any]:
    """The answer, in the fields of the envelope."""
    (count, snapshot_id, at, version, changes, author, message, extra, tables) = cursor.fetchall()[0]
    return {
        "catalog_name": catalog,
        "snapshot_count": count,
        "latest_snapshot": {
            "snapshot_id": snapshot_id,
            "snapshot_time": json_value(at),
            "schema_version": version,
            "changes": changes,
            "author": author,
            "commit_message": message,
            "commit_extra_info": extra,
        },
        "table_count": len(tables),
        "tables": tables,
    }
