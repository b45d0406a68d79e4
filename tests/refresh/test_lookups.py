"""What a small change meets in large tables is looked up: how often, and as of which snapshot."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.compacting import compact
from headwater.lake.reading import lookup
from headwater.refresh import narrowing
from headwater.refresh.model import Action
from tests.refresh.conftest import World

JOINED = "SELECT region, sum(amount) AS total, count(*) AS n FROM o JOIN l ON o.id = l.oid GROUP BY region"
NONE_LEFT = "SELECT id, region FROM o WHERE NOT EXISTS (SELECT 1 FROM l WHERE l.oid = o.id AND amount > 5)"

#: Rows that go on both sides, that come, that move from group to group, that change nothing that is used,
#: that change and change back, that are gone before anybody saw them.
CHANGES = (
    ("DELETE FROM l WHERE oid < 20", "DELETE FROM o WHERE id < 20"),
    (
        "INSERT INTO o VALUES (1000, 'n', ''), (1001, NULL, '')",
        "INSERT INTO l VALUES (1000, 3), (30, 9), (NULL, 1)",
    ),
    ("UPDATE o SET region = 'w' WHERE id % 7 = 0", "UPDATE l SET oid = oid + 1 WHERE oid % 5 = 0"),
    (
        "UPDATE o SET note = 'x' WHERE id = 40",
        "UPDATE l SET amount = amount WHERE oid = 40",
        "DELETE FROM l WHERE oid = 41",
    ),
    (
        "UPDATE o SET region = 'e' WHERE id = 50",
        "UPDATE o SET region = 's' WHERE id = 50",
        "DELETE FROM l WHERE oid = 50",
    ),
    (
        "INSERT INTO l VALUES (60, 60)",
        "DELETE FROM l WHERE amount = 60",
        "UPDATE o SET region = NULL WHERE id = 60",
    ),
    ("UPDATE o SET id = id + 5000 WHERE id BETWEEN 70 AND 80", "UPDATE l SET oid = NULL WHERE oid = 75"),
)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """The lookups in tables of more than a row, by the table's name and the snapshot."""
    found: Counter[tuple[str, int]] = Counter()
    find_rows = lookup.find_rows

    def counted(plan: Any, *given: Any, **options: Any) -> Any:
        if given[2]:
            found[plan.table.name.name, plan.snapshot.id] += 1
        return find_rows(plan, *given, **options)

    monkeypatch.setattr(narrowing, "_WHOLE", 1)
    monkeypatch.setattr(lookup, "find_rows", counted)
    return found


def fill(world: World) -> None:
    world.run(
        "CREATE TABLE o (id INT, region VARCHAR, note VARCHAR)",
        "CREATE TABLE l (oid INT, amount INT)",
        "INSERT INTO o SELECT range, ['n', 's', NULL][range % 3 + 1], '' FROM range(100)",
        "INSERT INTO l SELECT range % 100, range % 9 FROM range(300)",
    )
    world.make("joined", JOINED)
    world.make("none_left", NONE_LEFT)


@pytest.mark.parametrize("at_once", [True, False])
def test_tables_are_looked_up_as_they_are(
    world: World, looked: Counter[tuple[str, int]], at_once: bool
) -> None:
    fill(world)
    for statements in CHANGES:
        world.run(*(("BEGIN", *statements, "COMMIT") if at_once else statements))
        looked.clear()
        world.refresh()
        world.check()
        now = max(snapshot for _, snapshot in looked)
        sources = {place: times for place, times in looked.items() if place[0] in ("o", "l")}
        # For both stream tables and for each side of a join once: as they are, and never as they were.
        assert {snapshot for _, snapshot in sources} <= {now}, looked
        assert max(sources.values(), default=0) <= 4, looked


@pytest.mark.parametrize("first", [True, False])
def test_rows_that_were_moved_are_looked_up_as_they_were(
    world: World, looked: Counter[tuple[str, int]], first: bool
) -> None:
    fill(world)
    earlier = 0
    for statements in CHANGES:
        moves = [lambda: compact(world.lake, ["o", "l"], Wishes(delete_ratio=0.0), flush=True)]
        changes = [lambda: world.run(*statements)]  # noqa: B023
        before = world.snapshots()
        looked.clear()
        for step in (moves + changes) if first else (changes + moves):
            step()
        results = world.refresh()
        assert all(result.error is None for result in results.values()), results
        world.check()
        earlier += sum(snapshot <= before for _, snapshot in looked)
    assert earlier


def test_rows_that_were_inlined_are_looked_up(world: World, looked: Counter[tuple[str, int]]) -> None:
    fill(world)
    for number, statements in enumerate(CHANGES):
        world.run(*statements, *(["CALL ducklake_flush_inlined_data('lake')"] if number % 2 else []))
        world.refresh()
        world.check()
    assert looked


def test_small_tables_are_taken_as_of_their_snapshot_where_deletes_of_several_share_a_file(
    world: World,
) -> None:
    world.run(
        "CREATE TABLE t (id INT, v BOOLEAN, w BOOLEAN)",
        "INSERT INTO t VALUES (0, true, true), (1, true, NULL), (2, false, NULL), (3, false, true), "
        "(4, true, false)",
    )
    world.make(
        "windows",
        "SELECT v, sum(id) OVER (PARTITION BY v) AS s, "
        "first_value(id) OVER (PARTITION BY w, v ORDER BY id) AS f FROM t",
    )
    world.run("DELETE FROM t WHERE id = 4")
    world.refresh()
    world.check()
    # One file of rows, one of deletes: those of before and those that are new.
    world.run("DELETE FROM t", "CALL ducklake_flush_inlined_data('lake')")
    world.refresh()
    world.check()


def test_groups_whose_largest_value_went_are_found_by_keys_that_are_not_shown(world: World) -> None:
    world.run(
        "CREATE TABLE r (k INT, v VARCHAR)",
        "CREATE TABLE s (k INT)",
        "INSERT INTO r SELECT range % 4, 'v' || range FROM range(40)",
        "INSERT INTO s FROM range(6)",
    )
    world.make(
        "most",
        "SELECT count(*) AS n, max(c.v) AS most FROM r AS a FULL JOIN s AS b ON a.k = b.k "
        "JOIN r AS c ON a.k = c.k GROUP BY c.k",
    )
    world.run("DELETE FROM r WHERE v IN ('v9', 'v36')", "INSERT INTO r VALUES (NULL, 'x'), (7, 'y')")
    assert world.refresh()["most"].action is Action.INCREMENTAL
    world.check()
