"""Servers that tests share. Each starts when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.lake.embedded import EmbeddedServer, open_server
from headwater.lake.lake import Lake
from tests.servers import S3Server
from tests.support import create_database

# Every JVM of the tests, those of programs that they start too: little data is computed by much code, so what
# the second compiler and the collector's threads would win is less than they take from the other processes.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def pg_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """One PostgreSQL for the whole run.

    No test pulls the plug, so it need not wait for the disk; and it need not visit, several times a second,
    one after the other of the hundreds of databases that tests leave behind.
    """
    server = open_server(tmp_path_factory.mktemp("pg") / "postgres")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("ALTER SYSTEM SET autovacuum = off")
        connection.execute("SELECT pg_reload_conf()")
    yield server
    server.stop_if_unused()


@pytest.fixture
def new_database(pg_server: EmbeddedServer) -> str:
    """The libpq address of an empty database."""
    return create_database(pg_server.dsn)


@pytest.fixture
def lake(new_database: str, tmp_path: Path) -> Iterator[Lake]:
    """An empty lake of its own."""
    opened = Lake.open(new_database, data_path=tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """The S3 server, running; a test may stop it, the next one finds it running again."""
    s3_server.start()
    yield s3_server
    s3_server.start()
