"""Sinks in the stream table's own lake: in the same snapshot as the result, read by DuckDB under any name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError, NotFoundError, StreamTableError
from headwater.refresh.model import Action, Mode
from tests.refresh.conftest import World
from tests.sinks.conftest import counted
from tests.support import catalog_rows, duck

TOTALS = "SELECT region, sum(amount) AS total, count(*) AS orders FROM orders GROUP BY region"
LARGE = "SELECT region, amount FROM orders WHERE amount > 5"


def start(world: World) -> None:
    world.run(
        "CREATE TABLE orders (id INTEGER, region VARCHAR, amount INTEGER)",
        "INSERT INTO orders VALUES (1,'north',10),(2,'south',20),(3,'south',6),(4,NULL,7),(5,'north',10)",
    )


def change(world: World) -> None:
    world.run(
        "INSERT INTO orders VALUES (6,'west',8),(7,'north',10)",
        "UPDATE orders SET amount = 30 WHERE id = 2",
        "DELETE FROM orders WHERE id IN (4, 5)",
    )


def seen(world: World, text: str, snapshot: int | None = None) -> Counter[tuple[Any, ...]]:
    """What DuckDB sees under two attach names."""
    found = []
    for alias in ("lake", "anything"):
        options = {} if snapshot is None else {"snapshot_version": snapshot}
        connection = duck(world.lake.dsn, alias=alias, **options)
        found.append(counted(connection.execute(text).fetchall()))
        connection.close()
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("mode", ["merge", "accumulate", "replace"])
@pytest.mark.parametrize("query", [TOTALS, LARGE])
def test_the_view_shows_the_result_in_every_mode_and_at_every_snapshot(
    world: World, mode: str, query: str
) -> None:
    start(world)
    world.make("r", query, ducklake_sink_mode=mode)
    expected = {world.snapshots(): world.rows(query)}
    assert seen(world, "FROM r") == world.rows(query)
    for _ in range(3):
        change(world)
        assert world.refresh()["r"].action is Action.INCREMENTAL
        expected[world.snapshots()] = world.rows(query)
        assert seen(world, "FROM r") == world.rows(query)
    for snapshot, rows in expected.items():
        assert seen(world, "FROM r", snapshot) == rows
    world.run("DELETE FROM orders")
    world.refresh()
    assert seen(world, "FROM r") == world.rows(query)
    assert world.streams.verify("r").ok
