"""Provenance agrees with the catalog, and leads from a result to what it was made of."""

from __future__ import annotations

import json

import psycopg
import pytest

from headwater._version import __version__
from headwater.errors import NotFoundError
from headwater.refresh.lineage import lineage
from headwater.refresh.lineage_edges import edges_outside
from headwater.refresh.tracing import trace
from headwater.sources.postgres import PostgresSources
from tests.refresh.conftest import World
from tests.sinks.conftest import Elsewhere
from tests.sinks.test_home_sinks import TOTALS, change, start
from tests.support import catalog_rows

STRONG = "SELECT region, total FROM totals WHERE total > 15"


def test_eleven_refreshes_have_provenance_and_authors_that_agree(world: World) -> None:
    start(world)
    world.make("totals", TOTALS, ducklake_sink_mode="accumulate")
    world.make("strong", STRONG)
    sources = {}
    for turn in range(11):
        change(world)
        sources[turn] = world.snapshots()
        results = world.refresh()
        (newest,) = world.lake.snapshots(1)
        done = [result for result in results.values() if result.snapshot_id == newest.id]
        assert {result.name for result in done} >= {"main.totals"}
        info = json.loads(newest.extra_info or "")
        assert [each["refresh_id"] for each in info["refreshes"]] == [result.refresh_id for result in done]
        names = ",".join(result.name for result in done)
        identity = done[0].refresh_id if len(done) == 1 else done[0].wave_id
        assert newest.author == f"headwater/{__version__}/stream_table/{names}/{identity}"
        for result in done:
            row = world.streams.provenance(result.name)[0]
            assert (row.snapshot_id, row.refresh_id, row.wave_id) == (
                newest.id,
                result.refresh_id,
                result.wave_id,
            )
            assert (row.rows_inserted, row.rows_deleted) == (result.rows_inserted, result.rows_deleted)
            assert row.data_snapshot_id == sources[turn]
    rows = catalog_rows(world.lake.dsn, "provenance", "headwater")
    by_us = {
        snapshot.id
        for snapshot in world.lake.snapshots()
        if (snapshot.author or "").startswith(f"headwater/{__version__}/stream_table/")
    }
    assert {one["snapshot_id"] for one in rows} == by_us
    for one in rows:
        if one["name"] != "main.totals" or one["action"] != "INCREMENTAL":
            continue
        before = f"SELECT count(*) FROM totals AT (VERSION => {one['snapshot_id'] - 1})"
        after = f"SELECT count(*) FROM totals AT (VERSION => {one['snapshot_id']})"
        grown = world.con.execute(after).fetchone()[0] - world.con.execute(before).fetchone()[0]
        assert grown == one["rows_inserted"] - one["rows_deleted"]


def test_a_result_leads_back_through_refreshes_to_snapshots(world: World) -> None:
    start(world)
    world.make("totals", TOTALS)
    world.make("strong", STRONG)
    first = world.snapshots()
    world.run("INSERT INTO orders VALUES (50, 'west', 99)")
    inserted = world.snapshots()
    world.run("DELETE FROM orders WHERE id = 1")
    world.refresh()
    stream = world.streams.get("strong")
    found = trace(world.lake, world.streams.store, stream)  # there is no source, nor a table of captures
    assert (found.name, found.snapshot_id, found.action) == ("main.strong", world.snapshots(), "INCREMENTAL")
    (above,) = found.sources
    (refresh,) = above.refreshes
    assert (above.name, refresh.refresh_id) == (
        "main.totals",
        world.streams.provenance("totals")[0].refresh_id,
    )
    (orders,) = refresh.sources
    assert [one.snapshot_id for one in orders.snapshots] == [inserted, inserted + 1]
    assert orders.rows == 2
    assert not orders.captures
    older = trace(world.lake, world.streams.store, stream, first)
    assert (older.snapshot_id, older.action) == (first, "FULL")
    with pytest.raises(NotFoundError):
        trace(world.lake, world.streams.store, stream, 1)


def test_a_result_leads_back_to_transactions_of_postgresql(world: World, elsewhere: Elsewhere) -> None:
    elsewhere.fetch("CREATE TABLE orders (id int PRIMARY KEY, region text, amount int)")
    elsewhere.fetch("INSERT INTO orders VALUES (1, 'north', 20), (2, 'south', 30)")
    sources = PostgresSources(world.lake, lambda: world.session)
    sources.add(elsewhere.dsn, ["orders"], name="shop", capture="triggers")
    sources.capture("shop")
    world.make("totals", TOTALS)
    world.make("strong", STRONG)
    written = []
    with psycopg.connect(elsewhere.dsn) as connection:
        for statement in (
            "INSERT INTO orders VALUES (3, 'west', 99)",
            "UPDATE orders SET amount = 1 WHERE id = 1",
        ):
            connection.execute(statement.encode())
            written.append(int(connection.execute("SELECT pg_current_xact_id()::text").fetchall()[0][0]))
            connection.commit()
    sources.capture("shop")
    world.refresh()
    world.check()
    found = trace(world.lake, world.streams.store, world.streams.get("strong"))
    (orders,) = found.sources[0].refreshes[0].sources
    (capture,) = orders.captures
    assert (sorted(capture.xids), capture.source) == (written, "shop")
    assert (capture.rows_inserted, capture.rows_updated, capture.rows_deleted) == (1, 1, 0)
    assert f"transactions {written[0]}, {written[1]}" in str(found)
    edges = edges_outside(world.lake, world.streams.all())
    assert ("shop: public.orders", orders.name) in edges
    sources.close()


def test_the_lineage_shows_where_results_go(world: World, elsewhere: Elsewhere) -> None:
    start(world)
    world.make("totals", TOTALS, sink="ducklake, postgres", postgres_sink_dsn=elsewhere.dsn)
    world.make("strong", STRONG)
    streams = world.streams.all()
    found = lineage(
        world.streams.get("strong"), streams, world.lake.state(), None, edges_outside(world.lake, streams)
    )
    ((begins, ends),) = found.outside
    assert begins == "main.totals"
    assert ends.startswith("postgres: totals in ")
    assert f'"{ends}"' in found.mermaid()
    assert f"main.totals → {ends}" in str(found)
