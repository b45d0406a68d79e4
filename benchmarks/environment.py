"""Where the benchmarks run: one PostgreSQL for both sides, fresh lakes, DuckDB with its own extension."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import psycopg
from psycopg import conninfo, sql

from headwater.lake.duckdb_session import literal
from headwater.lake.embedded import open_server
from headwater.lake.lake import Lake
from headwater.storage.duckdb_engine import extension_file


@dataclass
class Environment:
    """A server and a folder, both gone afterwards."""

    folder: Path
    server_dsn: str
    quick: bool = False
    """Fewer rounds: to see that everything runs, not to judge."""
    shares: tuple[float, ...] | None = None
    """How much of the data changes, where a benchmark has several measures of that; None for all of them."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def rounds(self, wanted: int) -> int:
        return 2 if self.quick else wanted

    def say(self, text: str) -> None:
        """How far a long benchmark is."""
        print(f"  {text}", file=sys.stderr, flush=True)

    def place(self) -> Place:
        """A database and a data folder that nobody has used."""
        number = next(self._numbers)
        name = f"lake_{number}"
        with psycopg.connect(self.server_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return Place(conninfo.make_conninfo(self.server_dsn, dbname=name), f"{self.folder}/lakes/{number}/")

    def scratch(self, name: str) -> Path:
        """A path for a file outside any lake, on the same disk."""
        folder = self.folder / "scratch"
        folder.mkdir(exist_ok=True)
        return folder / name


@dataclass(frozen=True)
class Place:
    """Where one lake is. Cheap to send to other processes, which open it by themselves."""

    dsn: str
    data_path: str

    def lake(self) -> Lake:
        """Opened (or created) by Headwater."""
        return Lake.open(self.dsn, data_path=self.data_path)

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """Attached (or created) by DuckDB's extension, with its default settings, as `lake`, and in use."""
        session = duckdb.connect()
        for name in ("ducklake", "postgres_scanner"):
            session.execute(f"LOAD {literal(str(extension_file(name)))}")
        session.execute(
            f"ATTACH {literal('ducklake:postgres:' + self.dsn)} AS lake (DATA_PATH {literal(self.data_path)})"
        )
        session.execute("USE lake")
        return session


@contextmanager
def environment(*, quick: bool = False, shares: tuple[float, ...] | None = None) -> Iterator[Environment]:
    """Start the server; stop it and remove everything at the end."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        server = open_server(folder / "postgres")
        try:
            yield Environment(folder, server.dsn, quick, shares)
        finally:
            server.stop_if_unused()
