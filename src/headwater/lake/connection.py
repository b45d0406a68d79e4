"""Connections to the PostgreSQL database that holds a lake's catalog."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, sql
from psycopg_pool import ConnectionPool, PoolTimeout
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from headwater.errors import CatalogError, CatalogUnavailableError, HeadwaterError

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]
Result = TypeVar("Result")

#: The connection went away; nothing that was not committed has happened.
CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)

CONNECT_TIMEOUT_SECONDS = 10

# The pool warns about every failed attempt; errors reach callers as exceptions. Logging that an
# application sets up still gets the warnings, a terminal without any does not.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Database:
    """One PostgreSQL database and the schema in it where the catalog tables are.

    Connections are pooled per process, so a handle stays usable in a forked child.
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
        parameters.setdefault("application_name", "headwater")
        parameters.setdefault("connect_timeout", str(CONNECT_TIMEOUT_SECONDS))
        self._parameters = parameters
        self.schema = schema
        self.patience = patience
        """Seconds during which a lost connection is tried again before giving up."""
        self._pools: dict[int, ConnectionPool[Connection]] = {}
        self._lock = threading.Lock()

    # A handle travels to worker processes as its address; connections do not.
    def __getstate__(self) -> dict[str, Any]:
        return {"parameters": self._parameters, "schema": self.schema, "patience": self.patience}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._parameters = state["parameters"]
        self.schema = state["schema"]
        self.patience = state["patience"]
        self._pools = {}
        self._lock = threading.Lock()

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

    def _pool(self) -> ConnectionPool[Connection]:
        process = os.getpid()
        with self._lock:
            pool = self._pools.get(process)
            if pool is None:
                pool = ConnectionPool(
                    conninfo.make_conninfo("", **self._parameters),
                    connection_class=psycopg.Connection[tuple[Any, ...]],
                    kwargs={"autocommit": True},
                    configure=_configure,
                    min_size=0,
                    max_size=32,
                    max_idle=60,
                    num_workers=1,
                    timeout=CONNECT_TIMEOUT_SECONDS,
                    open=True,
                    name="headwater",
                )
                self._pools[process] = pool
            return pool

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A pooled connection in autocommit mode."""
        pool = self._pool()
        try:
            connection = pool.getconn(timeout=min(CONNECT_TIMEOUT_SECONDS, self.patience))
        except PoolTimeout:
            # The pool knows only that nobody answered; a direct attempt knows why.
            self.check()
            raise CatalogUnavailableError(
                f"No connection to PostgreSQL ({self.shown}) became free in time."
            ) from None
        try:
            yield connection
        finally:
            # Resetting a broken connection would raise, and hide what broke it.
            if not connection.closed and not connection.broken:
                connection.isolation_level = None
                connection.read_only = None
            pool.putconn(connection)

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
        except CONNECTION_LOST as error:
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
        return CatalogError(f"PostgreSQL refused a statement ({self.shown}).", detail=text)

    def close(self) -> None:
        """Close this process's connections."""
        with self._lock:
            pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()


def _configure(connection: Connection) -> None:
    # Prepare a statement the second time it is seen: commits repeat a handful of them.
    connection.prepare_threshold = 2
    connection.execute("SET TIME ZONE 'UTC'")


def _without_secrets(text: str, parameters: dict[str, Any]) -> str:
    for key in ("password", "passfile", "sslpassword"):
        value = parameters.get(key)
        if value:
            text = text.replace(str(value), "***")
    return text
