"""Stream tables with sinks: another lake, another database, and DuckDB as the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.lake.embedded import EmbeddedServer
from headwater.lake.lake import Lake
from tests.refresh.conftest import World, rounded, world
from tests.spark.conftest import con, session, spark
from tests.support import create_database, duck


class Elsewhere:
    """A database that sinks write to: of an application, or of another lake."""

    def __init__(self, dsn: str, folder: Path):
        self.dsn = dsn
        self.folder = folder

    def fetch(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def rows(self, table: str, columns: str = "*") -> Counter[tuple[Any, ...]]:
        """Rows of a table of the application."""
        return counted(self.fetch(f"SELECT {columns} FROM {table}"))

    def lake_rows(self, text: str) -> Counter[tuple[Any, ...]]:
        """What DuckDB reads in the other lake."""
        connection = duck(self.dsn, alias="elsewhere")
        try:
            return counted(connection.execute(text).fetchall())
        finally:
            connection.close()

    def lake(self) -> Lake:
        return Lake.open(self.dsn, create=False)


def counted(rows: Sequence[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(rounded, row)) for row in rows)


@pytest.fixture
def elsewhere(pg_server: EmbeddedServer, tmp_path: Path) -> Elsewhere:
    return Elsewhere(create_database(pg_server.dsn), tmp_path / "elsewhere")


@pytest.fixture(autouse=True)
def secret_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys for stored passwords are the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


__all__: Sequence[str] = ("World", "con", "session", "spark", "world")
