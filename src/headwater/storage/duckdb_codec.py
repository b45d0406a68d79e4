"""DuckDB as the codec of files that pyarrow cannot write as DuckDB reads them, and of encrypted files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

_lock = threading.Lock()
_connections: dict[tuple[int, bool], duckdb.DuckDBPyConnection] = {}


@contextmanager
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor on this process's in-memory DuckDB, which reads and writes files."""
    with _cursor(sealed=False) as found:
        yield found


@contextmanager
def sandbox() -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor on an in-memory DuckDB that reaches no file and no network: for text from a catalog."""
    with _cursor(sealed=True) as found:
        yield found


@contextmanager
def _cursor(*, sealed: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    key = os.getpid(), sealed
    with _lock:
        # A forked child must not use its parent's DuckDB: its threads did not come along.
        if key not in _connections:
            _connections[key] = _connect(sealed=sealed)
        child = _connections[key].cursor()
    try:
        yield child
    finally:
        child.close()


def _connect(*, sealed: bool) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            # Nothing is downloaded at run time; what is needed is loaded from installed packages.
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_unsigned_extensions": "true",
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    if sealed:
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    return connection
