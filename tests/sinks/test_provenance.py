"""Provenance agrees with the catalog, and leads from a result to what it was made of."""

from __future__ import annotations

import json

from headwater._version import __version__
from headwater.lake.own import lake_id, write
from headwater.refresh.lineage import lineage
from headwater.refresh.lineage_edges import edges_outside
from headwater.refresh.tracing import trace
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


def test_a_result_leads_back_to_transactions_of_postgresql(world: World) -> None:
    start(world)
    world.make("totals", TOTALS)
    world.make("strong", STRONG)
    first = world.snapshots()
    world.run("INSERT INTO orders VALUES (50, 'west', 99)")
    captured = world.snapshots()
    world.run("DELETE FROM orders WHERE id = 1")
    world.refresh()
    stream = world.streams.get("strong")
    found = trace(world.lake, world.streams.store, stream)  # without any source there is no such table
    assert (found.name, found.snapshot_id, found.action) == ("main.strong", world.snapshots(), "INCREMENTAL")
    (above,) = found.sources
    (refresh,) = above.refreshes
    assert (above.name, refresh.refresh_id) == (
        "main.totals",
        world.streams.provenance("totals")[0].refresh_id,
    )
    (orders,) = refresh.sources
    assert [one.snapshot_id for one in orders.snapshots] == [captured, captured + 1]
    assert orders.rows == 2
    assert not orders.captures
    _capture(world, captured)
    found = trace(world.lake, world.streams.store, stream)
    (capture,) = found.sources[0].refreshes[0].sources[0].captures
    assert (capture.xids, capture.source, capture.lsn) == ((701, 702), "shop", "0/16B3748")
    assert "transactions 701, 702" in str(found)
    older = trace(world.lake, world.streams.store, stream, first)
    assert (older.snapshot_id, older.action) == (first, "FULL")


def _capture(world: World, snapshot: int) -> None:
    """What the capture of a source leaves behind."""
    from headwater.lake.own import ensure_component
    from headwater.sources.catalog_tables import COMPONENT, VERSIONS

    ensure_component(world.lake.db, COMPONENT, VERSIONS)
    lake = world.lake.db.read(lambda connection: lake_id(world.lake.db, connection))
    write(
        world.lake.db,
        lambda connection: connection.execute(
            "INSERT INTO headwater.capture (lake_id, source_id, source, batch_id, snapshot_id, kind, lsn, "
            "transactions, xids, changes, rows_inserted, rows_updated, rows_deleted, tables) VALUES "
            "(%s, gen_random_uuid(), 'shop', gen_random_uuid(), %s, 'changes', '0/16B3748', 2, "
            "'[701, 702]', 1, 1, 0, 0, '{}')",
            (lake, snapshot),
        ),
    )


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
