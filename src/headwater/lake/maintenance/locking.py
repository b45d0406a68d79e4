"""Changing the catalog apart from any snapshot, in turn with all commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headwater.errors import ConflictError
from headwater.lake.connection import Connection, Database
from headwater.lake.own import write

Result = TypeVar("Result")
_IN_THE_WAY = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)


def in_turn(db: Database, work: Callable[[Connection], Result], *, alone: bool = True) -> Result:
    """Run `work` in a transaction during which no snapshot is committed (`alone`), or none expires.

    It may run again if a lock could not be had or the connection broke.
    """
    mode = "SHARE ROW EXCLUSIVE" if alone else "ROW EXCLUSIVE"

    def locked(connection: Connection) -> Result:
        connection.execute("SET LOCAL lock_timeout = '20s'")
        connection.execute(db.text(f"LOCK TABLE {{ducklake_snapshot}} IN {mode} MODE"))
        return work(connection)

    retry = Retrying(
        retry=retry_if_exception_type(_IN_THE_WAY),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        stop=stop_after_attempt(5),
        reraise=True,
    )
    try:
        return retry(lambda: write(db, locked))
    except _IN_THE_WAY as error:
        raise ConflictError(
            "Other writers hold the catalog.",
            detail=str(error).splitlines()[0],
            hint="Nothing was changed; run it again.",
        ) from None
