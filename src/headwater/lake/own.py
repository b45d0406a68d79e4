"""Headwater's own tables: schema `headwater` in the lake's database.

Their rows can join a lake's commit, so result and bookkeeping never disagree. One database may hold
several lakes, so every row names its lake by the id kept among the lake's own metadata.
"""

from __future__ import annotations

from uuid import uuid4

from psycopg import sql

from headwater.lake.connection import Connection, Database

SCHEMA = "headwater"
LAKE_ID_KEY = "headwater_lake_id"

_CREATE = (
    "CREATE SCHEMA IF NOT EXISTS headwater",
    "CREATE TABLE IF NOT EXISTS headwater.operation ("
    "lake_id uuid NOT NULL, operation_id text NOT NULL, snapshot_id bigint NOT NULL, "
    "committed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lake_id, operation_id))",
)
# Any number, the same in every process: who creates our schema does so alone.
_LOCK = 0x68656164


def ensure_own_tables(db: Database) -> str:
    """Create what is missing; returns the lake's id."""

    def work() -> str:
        with db.connection() as connection:
            known = lake_id(db, connection)
            if known is not None:
                return known
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                for text in _CREATE:
                    connection.execute(sql.SQL(text))
                known = lake_id(db, connection)
                if known is None:
                    known = str(uuid4())
                    connection.execute(
                        sql.SQL("INSERT INTO {} (key, value) VALUES (%s, %s)").format(
                            db.name("ducklake_metadata")
                        ),
                        (LAKE_ID_KEY, known),
                    )
                return known

    return db.retrying(work)


def lake_id(db: Database, connection: Connection) -> str | None:
    """The lake's id, or None before Headwater kept anything of its own here."""
    row = connection.execute(
        sql.SQL("SELECT value FROM {} WHERE key = %s").format(db.name("ducklake_metadata")), (LAKE_ID_KEY,)
    ).fetchone()
    return None if row is None else str(row[0])


def applied_snapshot(connection: Connection, lake: str, operation_id: str) -> int | None:
    """The snapshot that an operation was committed as, or None."""
    row = connection.execute(
        "SELECT snapshot_id FROM headwater.operation WHERE lake_id = %s AND operation_id = %s",
        (lake, operation_id),
    ).fetchone()
    return None if row is None else int(row[0])
