"""DuckDB as the codec of files that pyarrow cannot write as DuckDB reads them, and of encrypted files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

_lock = threading.Lock()
_connections: dict[int, duckdb.DuckDBPyConnection] = {}


@contextmanager
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor on this process's in-memory DuckDB, with nothing of the outside in reach."""
    pid = os.getpid()
    with _lock:
        # A forked child must not use its parent's DuckDB: its threads did not come along.
        if pid not in _connections:
            _connections.clear()
            _connections[pid] = _connect()
        child = _connections[pid].cursor()
    try:
        yield child
    finally:
        child.close()


def _connect() -> duckdb.DuckDBPyConnection:
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
    return connection
