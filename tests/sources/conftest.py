"""A source database beside the lake, both on the PostgreSQL of the tests, and DuckDB as the judge."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.lake.embedded import EmbeddedServer
from headwater.lake.lake import Lake
from headwater.sources.model import Captured, Source
from headwater.sources.postgres import PostgresSources
from headwater.spark.connector import LakeSpark
from tests.servers import OtherPostgres
from tests.spark.conftest import spark
from tests.support import create_database, duck


def no_spark() -> LakeSpark:
    raise AssertionError("Spark was started for something small")


class World:
    """A source, a lake, and DuckDB on the lake."""

    def __init__(self, lake: Lake, source_dsn: str, con: Any):
        self.lake = lake
        self.dsn = source_dsn
        self.pg = psycopg.connect(source_dsn, autocommit=True)
        self.con = con
        self.sources = PostgresSources(lake, no_spark)
        self.method = "triggers"

    def run(self, *statements: str) -> None:
        """Statements at the source, each a transaction."""
        for text in statements:
            self.pg.execute(text.encode())

    def add(self, *tables: str, **options: Any) -> Source:
        given = {"capture": self.method, **options}
        return self.sources.add(self.dsn, list(tables), name="shop", **given)

    def capture(self) -> Captured:
        (result,) = self.sources.capture("shop")
        assert result.error is None, result.error
        return result

    def there(self, text: str) -> Counter[tuple[Any, ...]]:
        """Rows at the source."""
        return Counter(map(_hashable, self.pg.execute(text.encode()).fetchall()))

    def here(self, text: str) -> Counter[tuple[Any, ...]]:
        """Rows in the lake, as DuckDB reads them."""
        return Counter(map(_hashable, self.con.execute(text).fetchall()))

    def check(self, table: str = "t", query: str | None = None) -> None:
        """The mirror is the source, row by row."""
        assert self.here(f"FROM {table}") == self.there(query or f"SELECT * FROM {table}")


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


@pytest.fixture(scope="session")
def source_server(pg_server: EmbeddedServer) -> Iterator[str]:
    """Where sources are: beside the lake, or in another PostgreSQL.

    `HEADWATER_SOURCE_POSTGRES` may name the folder of the programs of another version.
    """
    programs = os.environ.get("HEADWATER_SOURCE_POSTGRES")
    if not programs:
        yield pg_server.dsn
        return
    with other_postgres(Path(programs)) as dsn:
        yield dsn


@contextmanager
def other_postgres(programs: Path) -> Iterator[str]:
    """The address of a PostgreSQL that these programs make."""
    server = OtherPostgres(programs)
    server.start()
    try:
        yield server.dsn
    finally:
        server.stop()


@pytest.fixture
def source_dsn(source_server: str) -> str:
    return create_database(source_server)


@contextmanager
def world_of(lake: Lake, source_dsn: str) -> Iterator[World]:
    """A lake and a source, as long as they are needed."""
    con = duck(lake.dsn)
    world = World(lake, source_dsn, con)
    try:
        yield world
    finally:
        world.sources.close()
        world.pg.close()
        con.close()


@pytest.fixture
def world(lake: Lake, source_dsn: str) -> Iterator[World]:
    with world_of(lake, source_dsn) as world:
        yield world


__all__ = ("World", "spark")
