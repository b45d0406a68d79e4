"""The service with all of its real parts: a PostgreSQL source, Spark, a sink, an outbox, DuckDB reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from headwater.engine import Headwater, connect
from headwater.engine.service import Service
from headwater.lake.embedded import EmbeddedServer
from headwater.scheduler.state import RunSummary
from headwater.settings import ServiceSettings
from tests.spark.conftest import spark  # noqa: F401  (one session for all tests of the process)
from tests.support import create_database


@pytest.fixture
def hw(
    new_database: str,
    tmp_path: Path,
    spark: SparkSession,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Headwater]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_SECRET_KEY", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    with connect(new_database, data_path=tmp_path / "data", spark=spark) as opened:
        yield opened


class Running:
    """A service in a thread."""

    def __init__(self, hw: Headwater):
        self.service = Service(hw, ServiceSettings(retry_seconds=2.0))
        self.summaries: list[RunSummary] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.summaries.append(self.service.run())

    def stop(self) -> RunSummary:
        self.service.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.summaries[0]


def until(what: Callable[[], Any], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def allow(server: EmbeddedServer, database: str, yes: bool) -> None:
    """Let a database take connections, or none."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(
                sql.Identifier(database), sql.Literal(yes)
            )
        )
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND NOT %s",
            (database, yes),
        )


def test_from_a_commit_in_postgresql_to_every_reader(hw: Headwater, pg_server: EmbeddedServer) -> None:
    shop, backend = (create_database(pg_server.dsn, name) for name in ("service_shop", "service_backend"))
    pg = psycopg.connect(shop, autocommit=True)
    pg.execute("CREATE TABLE orders (id int PRIMARY KEY, region text, amount numeric(10,2))")
    pg.execute("INSERT INTO orders VALUES (1, 'north', 10), (2, 'south', 20)")
    hw.add_postgres_source(shop, ["orders"], name="shop", capture="triggers")
    hw.capture()
    table = str(hw.sources()[0].tables[0].lake_table)
    totals = f"SELECT region, sum(amount) AS revenue FROM {table} GROUP BY region"
    hw.create_stream_table(
        "main.revenue", totals, schedule="on change", sink="ducklake, postgres", postgres_sink_dsn=backend
    )
    hw.create_stream_table("main.top", "SELECT max(revenue) AS top FROM main.revenue", schedule="downstream")
    hw.create_stream_table("main.best", "SELECT top * 2 AS best FROM main.top", schedule="on change")
    hw.attach_outbox("main.revenue", "audit", "table:audit.revenue")
    running, con = Running(hw), hw.duckdb()

    def lake(text: str) -> list[Any]:
        return list(con.execute(text).fetchall())

    pg.execute("INSERT INTO orders VALUES (3, 'west', 50)")
    until(lambda: lake("SELECT best FROM main.best") == [(100,)])  # through what is only refreshed for it
    until(lambda: lake("SELECT after->>'revenue' FROM audit.revenue") == [("50.00",)])
    app = psycopg.connect(backend, autocommit=True)
    until(lambda: app.execute("SELECT count(*) FROM revenue").fetchall() == [(3,)])
    app.close()

    allow(pg_server, "service_backend", False)
    pg.execute("DELETE FROM orders WHERE id = 1")
    until(lambda: lake("SELECT count(*) FROM main.revenue") == [(2,)])  # a sink that is down holds up nobody
    until(lambda: "sink main.revenue" in running.service.state.failing)
    allow(pg_server, "service_backend", True)
    app = psycopg.connect(backend, autocommit=True)
    until(lambda: app.execute("SELECT count(*) FROM revenue").fetchall() == [(2,)])
    app.close()
    until(lambda: not running.service.state.failing)

    summary = running.stop()
    assert summary.actions["source", "captured"] == 2
    assert summary.actions["sink", "delivered"] >= 1
    assert not summary.abandoned
    # One snapshot for the whole wave, however many stream tables are in it.
    waves = {each.snapshot_id for name in ("main.top", "main.best") for each in hw.provenance(name, 1)}
    assert len(waves) == 1
    con.close()
    pg.close()
