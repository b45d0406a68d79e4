"""DuckDB in memory, for work inside this process: nothing is downloaded, nothing of it is stored."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from headwater.errors import UnsupportedError

_lock = threading.Lock()
_connections: dict[tuple[int, str], duckdb.DuckDBPyConnection] = {}


@contextmanager
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor on this process's in-memory DuckDB, which reads and writes files."""
    with _cursor("open", lambda connection: None) as found:
        yield found


@contextmanager
def sandbox() -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor on an in-memory DuckDB that reaches no file and no network: for text from a catalog."""
    with _cursor("sandbox", _seal) as found:
        yield found


@contextmanager
def codec() -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor on an in-memory DuckDB that encrypts, and whose Arrow results keep every type."""
    with _cursor("codec", _equip) as found:
        yield found


@contextmanager
def _cursor(
    kind: str, prepare: Callable[[duckdb.DuckDBPyConnection], None]
) -> Iterator[duckdb.DuckDBPyConnection]:
    key = os.getpid(), kind
    with _lock:
        # A forked child must not use its parent's DuckDB: its threads did not come along.
        if key not in _connections:
            connection = _connect()
            prepare(connection)
            _connections[key] = connection
        child = _connections[key].cursor()
    try:
        yield child
    finally:
        child.close()


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            # What is needed is loaded from installed packages.
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_unsigned_extensions": "true",
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    # Nothing of what is in memory may reach a disk, least of all the working directory.
    connection.execute("SET temp_directory = ''")
    return connection


def _seal(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _equip(connection: duckdb.DuckDBPyConnection) -> None:
    # DuckDB alone only decrypts; the httpfs package brings the OpenSSL that encrypts.
    path = str(extension_file("httpfs")).replace("'", "''")
    connection.execute(f"LOAD '{path}'")
    connection.execute("SET arrow_lossless_conversion = true")


def extension_file(name: str) -> Path:
    """The file of an extension from its installed package."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    places = [] if spec is None or spec.origin is None else [Path(spec.origin).parent]
    for place in places:
        for found in place.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension"):
            return found
    raise UnsupportedError(
        f"DuckDB's extension {name!r} for version {duckdb.__version__} is not installed",
        hint=f"pip install duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}",
    )
