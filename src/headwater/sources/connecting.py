"""Connections to a source: consistent reads, short locks, errors without secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import conninfo

from headwater.errors import HeadwaterError, SourceError, SourceUnavailableError
from headwater.lake.connection import CONNECTION_LOST, Connection, Database
from headwater.sources.types import PRINTING

Result = TypeVar("Result")

SCHEMA = "headwater_capture"
#: A source that does not answer must not keep the others waiting.
_PATIENCE_SECONDS = 5.0
#: Writers queue up behind a lock that we wait for; rather try again later.
_LOCK_TIMEOUT = "3s"
OLDEST_VERSION = 140000
#: A copy takes as long as it takes, and its moment is kept open while others read it.
_NO_LIMITS = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}


class Moment(NamedTuple):
    """The state of the source that a transaction reads."""

    snapshot: str
    """`pg_current_snapshot()`: which transactions are in it."""
    lsn: str | None
    """A place in the write-ahead log behind all that is in the snapshot; None on a standby."""


class SourceDatabase:
    """The database of one source."""

    def __init__(self, dsn: str):
        try:
            parameters = conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            raise SourceError(
                "The source's address cannot be understood.",
                hint="Use postgresql://user@host:port/database or `host=… dbname=…`.",
            ) from None
        parameters.setdefault("application_name", "headwater source")
        parameters["client_encoding"] = "UTF8"  # COPY sends bytes as they are
        self._db = Database(conninfo.make_conninfo("", **parameters), SCHEMA, patience=_PATIENCE_SECONDS)

    @property
    def dsn(self) -> str:
        """The address, password included: for workers, never for people."""
        return self._db.dsn

    @property
    def shown(self) -> str:
        """The address without anything secret."""
        return self._db.shown

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except HeadwaterError as error:
            if isinstance(error, SourceError) or not error.code.startswith("catalog"):
                raise
            kind = SourceUnavailableError if error.retryable else SourceError
            raise kind(error.message, detail=error.detail, hint=error.hint) from None
        except psycopg.Error as error:
            found = self._db.explain(error)
            retryable = isinstance(error, CONNECTION_LOST)
            raise (SourceUnavailableError if retryable else SourceError)(
                found.message, detail=found.detail, hint=found.hint
            ) from None

    def read(self, work: Callable[[Connection, Moment], Result]) -> Result:
        """Run `work` in one read-only transaction that sees one moment of the source."""

        def attempt(connection: Connection) -> Result:
            return work(connection, begin(connection))

        with self._explained():
            return self._db.read(attempt)

    def ask(self, work: Callable[[Connection], Result]) -> Result:
        """Run a short query, in no transaction."""

        def attempt() -> Result:
            with self._db.connection() as connection:
                return work(connection)

        with self._explained():
            return self._db.retrying(attempt)

    def change(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in a transaction; one that bears being run twice."""

        def attempt() -> Result:
            with self._db.connection() as connection, connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                try:
                    return work(connection)
                except psycopg.errors.LockNotAvailable:
                    raise SourceUnavailableError(
                        "A table of the source is locked by a long transaction.",
                        detail=f"We wait {_LOCK_TIMEOUT} at most: writers would have to wait behind us.",
                        hint="Try again, or end the transaction that holds the table.",
                    ) from None

        with self._explained():
            return self._db.retrying(attempt)

    @contextmanager
    def shared_moment(self) -> Iterator[tuple[Connection, Moment, str]]:
        """A transaction whose moment others can read too, while it is open: by the id given last."""
        with self._explained(), self._db.reading() as connection:
            moment = begin(connection)
            exported = connection.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
            yield connection, moment, str(exported)

    def version(self) -> int:
        """PostgreSQL's version as a number; refuses what is too old."""
        found = self.ask(lambda connection: connection.info.server_version)
        if found < OLDEST_VERSION:
            raise SourceError(
                f"The source runs PostgreSQL {found // 10000}; Headwater captures 14 and newer.",
                hint="Upgrade the source, or mirror a replica that is newer.",
            )
        return found

    def close(self) -> None:
        """Close this process's connections."""
        self._db.close()


def begin(connection: Connection) -> Moment:
    """Fix how values are printed, and say which moment this transaction reads."""
    settings = ", ".join(
        f"set_config('{name}', '{value}', true)" for name, value in (PRINTING | _NO_LIMITS).items()
    )
    row = connection.execute(
        "SELECT pg_current_snapshot()::text, "
        "CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_insert_lsn()::text END, " + settings
    ).fetchall()[0]
    return Moment(str(row[0]), row[1])
