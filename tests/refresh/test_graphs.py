"""Stream tables that read each other: one snapshot for a wave, whatever its shape."""

from __future__ import annotations

import threading

import pytest

from headwater.errors import StreamTableError
from headwater.refresh.model import Action, Definition, Mode
from headwater.typedefs import TableName
from tests.refresh.conftest import World, actions
from tests.support import duck

BASE = (
    "CREATE TABLE base (k INT, v INT)",
    "INSERT INTO base SELECT range % 5, range FROM range(50)",
)


@pytest.fixture
def diamond(world: World) -> World:
    """base → left, right → bottom, and a tail behind the bottom."""
    world.run(*BASE)
    world.make("left_", "SELECT k, sum(v) AS total FROM base GROUP BY k")
    world.make("right_", "SELECT k, count(*) AS n FROM base GROUP BY k HAVING count(*) > 1")
    world.make("bottom", "SELECT l.k, l.total, r.n FROM left_ l JOIN right_ r ON l.k = r.k")
    world.make("tail", "SELECT sum(total) AS total, sum(n) AS n FROM bottom")
    return world


def test_a_diamond_is_one_snapshot(diamond: World) -> None:
    diamond.check()
    before = diamond.snapshots()
    diamond.run("INSERT INTO base VALUES (0, 1000), (9, 1)")
    results = diamond.refresh()
    assert set(actions(results).values()) == {Action.INCREMENTAL}
    assert {result.snapshot_id for result in results.values()} == {before + 2}
    assert diamond.snapshots() == before + 2
    diamond.check()
    assert set(actions(diamond.refresh()).values()) == {Action.NO_DATA}


def test_modes_that_choose_follow_what_the_same_wave_changed(world: World) -> None:
    """Nothing is known yet of what a refresh costs, and the table above has been changed already."""
    world.run(*BASE)
    world.make("first", "SELECT k, sum(v) AS total FROM base GROUP BY k", mode=Mode.AUTO)
    world.make("second", "SELECT max(total) AS most FROM first", mode=Mode.AUTO)
    world.run("INSERT INTO base VALUES (0, 1000)")
    assert set(actions(world.refresh()).values()) <= {Action.INCREMENTAL, Action.FULL}
    world.check()


def test_what_is_asked_for_brings_what_it_reads(diamond: World) -> None:
    diamond.run("DELETE FROM base WHERE k = 1")
    assert set(diamond.refresh("left_")) == {"left_"}
    assert set(diamond.refresh("bottom")) == {"left_", "right_", "bottom"}
    diamond.run("INSERT INTO base VALUES (7, 7), (7, 8)")
    diamond.refresh("right_")
    diamond.run("UPDATE base SET k = 2 WHERE k = 3")
    assert diamond.refresh()["tail"].action is Action.INCREMENTAL
    diamond.check()


def test_no_change_above_ends_the_wave_there(diamond: World) -> None:
    diamond.run("INSERT INTO base VALUES (8, 5)", "DELETE FROM base WHERE k = 8")
    results = diamond.refresh()
    assert results["tail"].action is Action.NO_DATA
    diamond.check()


def test_one_failure_stops_only_what_reads_it(diamond: World) -> None:
    diamond.run("CREATE TABLE side (a INT)")
    diamond.make("apart", "SELECT a FROM side")
    diamond.run(
        "ALTER TABLE base RENAME COLUMN v TO w",
        "INSERT INTO base VALUES (1, 1)",
        "INSERT INTO side VALUES (1)",
    )
    results = diamond.refresh()
    assert results["left_"].action is results["bottom"].action is results["tail"].action is Action.FAILED
    assert "left_" in results["bottom"].reason
    assert results["right_"].action is results["apart"].action is Action.INCREMENTAL


def test_a_stream_table_cannot_read_itself(diamond: World) -> None:
    with pytest.raises(StreamTableError, match="itself") as refused:
        diamond.streams.create(
            Definition(TableName("main", "left_"), "SELECT k, n AS total FROM bottom", mode=Mode.AUTO),
            or_replace=True,
        )
    assert "bottom" in str(refused.value)
    with pytest.raises(StreamTableError, match="bottom"):
        diamond.streams.drop("left_")


def test_readers_never_see_half_a_wave(diamond: World) -> None:
    """In every snapshot a reader finds, the tail is the sum of the bottom."""
    stop = threading.Event()
    seen: list[bool] = []

    def read() -> None:
        with duck(diamond.lake.dsn) as other:
            while not stop.is_set():
                found = other.execute(
                    "SELECT (SELECT sum(total) FROM bottom) IS NOT DISTINCT FROM (SELECT total FROM tail)"
                ).fetchone()
                seen.append(bool(found and found[0]))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(4):
            diamond.run(f"INSERT INTO base VALUES ({number}, {number * 100})")
            diamond.refresh()
    finally:
        stop.set()
        reader.join()
    assert len(seen) > 4
    assert all(seen)


def test_views_and_stream_tables_over_them_are_followed(world: World) -> None:
    world.run(*BASE, "CREATE VIEW big AS SELECT k, v FROM base WHERE v > 10")
    world.make("of_view", "SELECT k, count(*) AS n FROM big GROUP BY k")
    world.run("INSERT INTO base VALUES (3, 11), (3, 2)")
    assert actions(world.refresh()) == {"of_view": Action.INCREMENTAL}
    world.check()
