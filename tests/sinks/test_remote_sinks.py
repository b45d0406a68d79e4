"""Sinks outside the lake: applied as deltas, once, whatever fails on the way; and they catch up by themselves."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from headwater.errors import AlreadyExistsError, SettingsError, SinkError
from headwater.refresh.publishing import Publisher
from headwater.sinks.model import Delivered
from headwater.sinks.other_lake import LakeTarget
from headwater.sinks.postgres import PostgresTarget
from tests.refresh.conftest import World
from tests.sinks.conftest import Elsewhere
from tests.sinks.test_home_sinks import LARGE, TOTALS, change, start

ONE_ROW = "SELECT count(*) AS n, sum(amount) AS total FROM orders"


def only(delivered: list[Delivered]) -> Delivered:
    assert len(delivered) == 1
    return delivered[0]


def publisher(world: World) -> Publisher:
    return Publisher(world.lake, world.streams.store)


@pytest.mark.parametrize(
    ("query", "columns"), [(TOTALS, "*"), (LARGE, "region, amount"), (ONE_ROW, "*")], ids=["key", "none", "one"]
)
def test_a_table_in_postgresql_is_kept_by_deltas(
    world: World, elsewhere: Elsewhere, query: str, columns: str
) -> None:
    start(world)
    world.make("r", query, sink="ducklake, postgres", postgres_sink_dsn=elsewhere.dsn)
    assert elsewhere.rows("r", columns) == world.rows(query)
    writes = "SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relname = 'r'"
    for number in range(3):
        change(world)
        world.refresh()
        assert elsewhere.rows("r", columns) == world.rows(query)
        (state,) = world.streams.get("r").sink_states
        at = elsewhere.fetch("SELECT snapshot_id, refresh_id FROM headwater.sink_position")
        assert at == [(state.snapshot_id, state.refresh_id)]
        assert state.refresh_id == world.streams.provenance("r")[0].refresh_id, number
    assert elsewhere.fetch(writes)
    world.run("DELETE FROM orders")
    world.refresh()
    assert elsewhere.rows("r", columns) == world.rows(query)
    assert not publisher(world).pending()
    assert publisher(world).deliver() == []


@pytest.mark.parametrize("mode", ["merge", "accumulate", "replace"])
@pytest.mark.parametrize("query", [TOTALS, LARGE], ids=["key", "none"])
def test_another_lake_is_kept_in_every_mode(
    world: World, elsewhere: Elsewhere, mode: str, query: str
) -> None:
    start(world)
    world.make(
        "r",
        query,
        ducklake_sink_catalog=elsewhere.dsn,
        ducklake_sink_path=f"{elsewhere.folder}/",
        ducklake_sink_mode=mode,
    )
    seen = {}
    for _ in range(3):
        lake = elsewhere.lake()
        seen[lake.snapshot().id] = world.rows(query)
        lake.close()
        assert elsewhere.lake_rows("FROM main.r") == world.rows(query)
        assert world.rows("FROM r") == world.rows(query)
        change(world)
        world.refresh()
    assert elsewhere.lake_rows("FROM main.r") == world.rows(query)
    if mode != "accumulate":
        for snapshot, rows in seen.items():
            assert elsewhere.lake_rows(f"FROM main.r AT (VERSION => {snapshot})") == rows
    lake = elsewhere.lake()
    newest = lake.snapshot()
    assert newest.author == f"headwater/{_version()}/stream_table/main.r/{_refresh(world)}"
    lake.close()
    world.streams.drop("r")
    lake = elsewhere.lake()
    assert not [name for name in lake.state().tables if name[1].startswith("r")]
    assert not lake.state().views
    lake.close()
    assert elsewhere.fetch("SELECT * FROM headwater.sink_position") == []


def _version() -> str:
    from headwater._version import __version__

    return __version__


def _refresh(world: World) -> str:
    return world.streams.provenance("r")[0].refresh_id
