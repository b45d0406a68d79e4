"""Questions about a PostgreSQL server and an object store, answered by trying."""

from __future__ import annotations

from uuid import uuid4

import psycopg
from psycopg import sql

from headwater.errors import CatalogError, CorruptFileError
from headwater.lake.connection import Database
from headwater.lake.own import SCHEMA
from headwater.storage.store import Store

OLDEST_POSTGRESQL = 14
_ATTEMPTS = 3


def server_version(db: Database) -> tuple[int, str]:
    """The server's major version, and its version in words."""

    def work(connection: psycopg.Connection[tuple[object, ...]]) -> tuple[int, str]:
        number, text = connection.execute(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version')"
        ).fetchall()[0]
        return int(str(number)) // 10000, str(text).split(" ")[0]

    return db.read(work)


def try_own_schema(db: Database) -> None:
    """Create a table in schema `headwater` and take it back; raises where that is not allowed."""
    for _ in range(_ATTEMPTS):
        try:
            _create_and_take_back(db)
            return
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema):
            continue  # somebody else created the schema at the same moment
        except psycopg.errors.InsufficientPrivilege as error:
            raise CatalogError(
                f"This user may not write to schema {SCHEMA!r} ({db.shown}).",
                detail=str(error).splitlines()[0],
                hint=f"As owner of the database: CREATE SCHEMA IF NOT EXISTS {SCHEMA}; "
                f"GRANT USAGE, CREATE ON SCHEMA {SCHEMA} TO the user.",
            ) from None


def _create_and_take_back(db: Database) -> None:
    table = sql.Identifier(SCHEMA, f"probe_{uuid4().hex}")
    with db.connection() as connection, connection.transaction(force_rollback=True):
        exists = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (SCHEMA,)).fetchall()[0][0]
        if not exists:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
        connection.execute(sql.SQL("CREATE TABLE {} (id int)").format(table))


def try_store(store: Store, data_path: str) -> None:
    """Write a small object, read it back, delete it."""
    location = f"{data_path}.headwater-probe-{uuid4().hex}"
    content = uuid4().bytes
    store.write(location, content)
    try:
        if store.read(location) != content:
            raise CorruptFileError(
                f"What was read from {data_path} is not what was written.", location=location
            )
    finally:
        store.delete(location)
