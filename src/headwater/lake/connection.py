"""Connections to the PostgreSQL database that holds a lake's catalog."""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, sql
from psycopg.pq import TransactionStatus
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from headwater.errors import CatalogError, CatalogUnavailableError, HeadwaterError, SettingsError

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]
Result = TypeVar("Result")

#: The connection went away; nothing that was not committed has happened.
CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)

CONNECT_TIMEOUT_SECONDS = 10


class Database:
    """One PostgreSQL database and the schema in it where the catalog tables are.

    Connections are kept per process, so a handle stays usable in a forked child.
    """

    def __init__(self, dsn: str, schema: str = "public", *, patience: float = 30.0):
        try:
            parameters = conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise CatalogError(
                "The PostgreSQL address cannot be understood.",
                detail=_without_secrets(str(error), {}),
                hint="Use postgresql://user@host:port/database or `host=… dbname=…`.",
            ) from None
        if not schema or "%" in schema:
            raise SettingsError(
                f"{schema!r} cannot be the metadata schema.", hint="Its name is any text without a % sign."
            )
        parameters.setdefault("application_name", "headwater")
        parameters.setdefault("connect_timeout", str(CONNECT_TIMEOUT_SECONDS))
        self._parameters = parameters
        self.schema = schema
        self.patience = patience
        """Seconds during which a lost connection is tried again before giving up."""
        self._idle = _IdleConnections()

    # A handle travels to worker processes as its address; connections do not.
    def __getstate__(self) -> dict[str, Any]:
        return {"parameters": self._parameters, "schema": self.schema, "patience": self.patience}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._parameters = state["parameters"]
        self.schema = state["schema"]
        self.patience = state["patience"]
        self._idle = _IdleConnections()

    def __repr__(self) -> str:
        return f"Database({self.shown!r}, schema={self.schema!r})"

    @property
    def dsn(self) -> str:
        """The address in libpq's keyword form, password included: for clients, never for people."""
        kept = {
            key: value
            for key, value in self._parameters.items()
            if key not in ("application_name", "connect_timeout")
        }
        return conninfo.make_conninfo("", **kept)

    @property
    def shown(self) -> str:
        """The address without anything secret, for messages."""
        wanted = ("host", "hostaddr", "port", "dbname", "user")
        return " ".join(f"{key}={self._parameters[key]}" for key in wanted if self._parameters.get(key))

    def name(self, table: str) -> sql.Identifier:
        """A catalog table's name, qualified and quoted."""
        return sql.Identifier(self.schema, table)

    def text(self, template: str) -> bytes:
        """SQL in which `{table}` stands for a catalog table; `template` is never a user's text.

        Composed once: that can cost more than to run it.
        """
        return _composed(self.schema, template)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection in autocommit mode, kept for the next caller afterwards."""
        connection = self._idle.take() or self._connect()
        try:
            yield connection
        finally:
            self._idle.give_back(connection)

    def _connect(self) -> Connection:
        connection = psycopg.connect(conninfo.make_conninfo("", **self._parameters), autocommit=True)
        # Prepare a statement the second time it is seen: commits repeat a handful of them.
        connection.prepare_threshold = 2
        connection.execute("SET TIME ZONE 'UTC'")
        return connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection inside one read-only transaction: all its queries see the same catalog."""
        with self.connection() as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                yield connection

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in one read-only transaction; again on a fresh connection if this one broke."""

        def attempt() -> Result:
            with self.reading() as connection:
                return work(connection)

        return self.retrying(attempt)

    def retrying(self, attempt: Callable[[], Result]) -> Result:
        """Run something harmless to repeat until the connection holds, within `patience` seconds."""
        retry = Retrying(
            retry=retry_if_exception_type((*CONNECTION_LOST, CatalogUnavailableError)),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            stop=stop_after_delay(self.patience),
            reraise=True,
        )
        try:
            return retry(attempt)
        except (*CONNECTION_LOST, psycopg.errors.InsufficientPrivilege) as error:
            raise self.explain(error) from None

    def check(self) -> None:
        """Connect once, without the pool, and say clearly what is wrong if that fails."""
        try:
            psycopg.connect(conninfo.make_conninfo("", **self._parameters)).close()
        except psycopg.Error as error:
            raise self.explain(error) from None

    def explain(self, error: psycopg.Error) -> HeadwaterError:
        """The same failure in our words, with every secret taken out."""
        text = _without_secrets(str(error).strip(), self._parameters)
        lowered = text.lower()
        if "password" in lowered or "authentication" in lowered or "role" in lowered:
            return CatalogError(
                f"PostgreSQL refused the login ({self.shown}).",
                detail=text,
                hint="Check user and password (PGPASSWORD, ~/.pgpass or the address).",
            )
        if "database" in lowered and "does not exist" in lowered:
            return CatalogError(
                f"The database does not exist ({self.shown}).", detail=text, hint="Create it with createdb."
            )
        if isinstance(error, CONNECTION_LOST):
            return CatalogUnavailableError(
                f"PostgreSQL does not answer ({self.shown}).",
                detail=text,
                hint="Check that the server runs and that host and port are right.",
            )
        return CatalogError(
            f"PostgreSQL refused a statement ({self.shown}).",
            detail=text,
            hint="Grant the user what is missing."
            if isinstance(error, psycopg.errors.InsufficientPrivilege)
            else None,
        )

    def close(self) -> None:
        """Close this process's idle connections."""
        self._idle.close()


class _IdleConnections:
    """Open connections nobody uses, newest last.

    Not psycopg's pool: its threads do not survive a fork, it hides why a connection cannot be made, and after
    an outage it goes on waiting although the server is back.
    """

    _MOST = 32
    _SECONDS = 60.0

    def __init__(self) -> None:
        self._connections: dict[int, list[tuple[Connection, float]]] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._connections)

    def take(self) -> Connection | None:
        """A connection that was used a moment ago, or None."""
        while True:
            with self._lock:
                mine = self._connections.get(os.getpid())
                if not mine:
                    return None
                connection, since = mine.pop()
            if not connection.closed and time.monotonic() - since < self._SECONDS:
                return connection
            connection.close()

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for later, unless it is broken or in the middle of something."""
        if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            connection.close()
            return
        connection.isolation_level = None
        connection.read_only = None
        with self._lock:
            mine = self._connections.setdefault(os.getpid(), [])
            if len(mine) < self._MOST:
                mine.append((connection, time.monotonic()))
                return
        connection.close()

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            mine = self._connections.pop(os.getpid(), [])
        for connection, _ in mine:
            connection.close()


def _close_all(connections: dict[int, list[tuple[Connection, float]]]) -> None:
    # Those of a parent process are its own to close.
    for connection, _ in connections.pop(os.getpid(), []):
        connection.close()


def _without_secrets(text: str, parameters: dict[str, Any]) -> str:
    for key in ("password", "passfile", "sslpassword"):
        value = parameters.get(key)
        if value:
            text = text.replace(str(value), "***")
    return text


@lru_cache(maxsize=1024)
def _composed(schema: str, template: str) -> bytes:
    names = {name: sql.Identifier(schema, name) for name in re.findall(r"{(\w+)}", template)}
    return sql.SQL(template).format(**names).as_bytes(None)
