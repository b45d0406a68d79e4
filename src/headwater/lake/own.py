"""Headwater's own tables: schema `headwater` in the lake's database.

Their rows can join a lake's commit, so result and bookkeeping never disagree. One database may hold
several lakes, so every row names its lake by the id kept among the lake's own metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from psycopg import sql

from headwater.errors import CatalogError
from headwater.lake.connection import Connection, Database

Result = TypeVar("Result")

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


def write(db: Database, work: Callable[[Connection], Result]) -> Result:
    """Run `work` in a transaction of its own, apart from any snapshot; again if the connection broke.

    What it does must bear being done twice: a connection can break after the commit and before its answer.
    """

    def attempt() -> Result:
        with db.connection() as connection, connection.transaction():
            return work(connection)

    return db.retrying(attempt)


_COMPONENTS = (
    "CREATE TABLE IF NOT EXISTS headwater.component (name text PRIMARY KEY, version int NOT NULL, "
    "changed_at timestamptz NOT NULL DEFAULT now())"
)


def component_version(connection: Connection, component: str) -> int:
    """Which version of a component's tables there is; 0 before its first use."""
    found = connection.execute("SELECT to_regclass('headwater.component')").fetchone()
    if found is None or found[0] is None:
        return 0
    row = connection.execute(
        "SELECT version FROM headwater.component WHERE name = %s", (component,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def check_component(version: int, component: str, newest: int) -> None:
    """Refuse tables that a later Headwater has changed."""
    if version > newest:
        raise CatalogError(
            f"Headwater's own tables ({component}) are of version {version}; this Headwater knows {newest}.",
            hint="Upgrade Headwater: a newer one has used this database.",
            component=component,
            version=version,
        )


def ensure_component(db: Database, component: str, versions: Sequence[Sequence[str]]) -> str:
    """Create a component's tables, or bring them up to date; returns the lake's id.

    `versions` holds, for each version from 1 on, the statements that lead there from the one before.
    """
    lake = ensure_own_tables(db)

    def work(connection: Connection) -> None:
        # Held until the commit, also by others that find the same version missing.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        known = component_version(connection, component)
        check_component(known, component, len(versions))
        if known == len(versions):
            return
        connection.execute(_COMPONENTS)
        for statements in versions[known:]:
            for text in statements:
                connection.execute(text.encode())
        connection.execute(
            "INSERT INTO headwater.component (name, version) VALUES (%s, %s) "
            "ON CONFLICT (name) DO UPDATE SET version = excluded.version, changed_at = now()",
            (component, len(versions)),
        )

    write(db, work)
    return lake


class ComponentStore:
    """What a component keeps in tables of its own. They are made when something is first written."""

    def __init__(self, db: Database, component: str, versions: Sequence[Sequence[str]]):
        self._db = db
        self._component = component
        self._versions = versions
        self._lake_id: str | None = None

    def ensure(self) -> str:
        """Create the tables, or bring them up to date; returns the lake's id. Called by whatever writes."""
        if self._lake_id is None:
            self._lake_id = ensure_component(self._db, self._component, self._versions)
        return self._lake_id

    def rows(self, text: str, **given: Any) -> list[tuple[Any, ...]]:
        """The rows of a query of ours, in which `%(lake)s` is the lake; none before the tables are there."""

        def work(connection: Connection) -> list[tuple[Any, ...]] | None:
            lake = self._lake_id or lake_id(self._db, connection)
            if lake is None:
                return []
            if self._lake_id is None:
                version = component_version(connection, self._component)
                check_component(version, self._component, len(self._versions))
                if version == 0:
                    return []
                if version < len(self._versions):
                    return None
                self._lake_id = lake
            return connection.execute(text.encode(), {"lake": lake, **given}).fetchall()

        found = self._db.read(work)
        if found is None:
            self.ensure()
            return self.rows(text, **given)
        return found
