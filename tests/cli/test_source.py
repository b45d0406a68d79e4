"""`headwater source`, against a real source."""

from __future__ import annotations

import psycopg
import pytest

from headwater.lake.embedded import EmbeddedServer
from headwater.lake.lake import Lake
from tests.cli.running import run
from tests.support import create_database


@pytest.fixture
def shop(pg_server: EmbeddedServer) -> str:
    dsn = create_database(pg_server.dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, region text, secret text)")
        connection.execute("INSERT INTO orders SELECT i, 'eu', 'x' FROM generate_series(1, 5) i")
    return dsn


def test_a_source_from_its_beginning_to_its_end(
    project: Lake, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", shop)
    added = run(
        "source", "add", "env:SHOP", "--table", "public.orders", "--columns", "id, region",
        "--where", "id > 1", "--name", "shop", "--schema", "mirror", "--capture", "triggers",
    )  # fmt: skip
    assert added.code == 0, added.err
    assert "added source shop" in added.out
    assert project.read("mirror.orders").num_rows == 4
    with psycopg.connect(shop) as connection:
        connection.execute("INSERT INTO orders VALUES (10, 'us', 'y')")
    captured = run("source", "capture", "--output", "json").json
    assert captured["captures"][0]["rows_inserted"] == 1
    listed = run("source", "list", "--output", "json").json["sources"][0]
    assert listed["tables"][0]["lake_table"] == "mirror.orders"
    assert listed["status"] == "active"
    text = run("source", "list").out
    assert "public.orders where id > 1" in text
    assert "triggers: asked for" in text
    assert run("source", "pause", "shop").code == 0
    assert "no active sources" in run("source", "capture").out
    assert run("source", "resume", "shop").code == 0
    with psycopg.connect(shop) as connection:
        connection.execute("ALTER TABLE orders RENAME COLUMN region TO area")
    stopped = run("source", "capture")
    assert stopped.code == 1
    assert "stopped" in stopped.out
    assert "do:" in run("source", "list").out
    removed = run("source", "remove", "shop", "--drop-tables")
    assert "removed source shop" in removed.out
    assert "no sources" in run("source", "list").out


def test_mistakes_are_explained(project: Lake, shop: str) -> None:
    nothing = run("source", "add", shop, "--table", "nothing", "--output", "json")
    assert nothing.code == 1
    assert "no table public.nothing" in nothing.error["message"]
    assert run("source", "capture", "nobody").code == 1
    assert run("source", "add", shop).code == 2
    assert "Commands" in run("source", "--help").out
