"""Stream tables whose sources DuckDB merged: it may forget the row ids that stored rows are known by."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.lake.maintenance.compacting import compact
from headwater.refresh import wave as waves
from headwater.refresh.deciding import Decision
from headwater.refresh.model import Action, Mode, RefreshResult
from headwater.typedefs import TableName
from tests.lake.feed_model import FLUSH, MERGE
from tests.refresh.conftest import World, actions

TABLES = (
    "CREATE TABLE t (id INT, v INT)",
    "CREATE TABLE x (id INT)",
    "INSERT INTO x VALUES (1), (2), (1000)",
)
NO_INLINING = "CALL lake.set_option('data_inlining_row_limit', 0)"
PLAIN = "SELECT id, v FROM t WHERE v >= 0"
LONE = "SELECT id, v FROM t WHERE NOT EXISTS (SELECT 1 FROM x WHERE x.id = t.id)"


def insert(first: int, end: int) -> str:
    return f"INSERT INTO t SELECT range, range FROM range({first}, {end})"


def update(*ids: int) -> str:
    return f"UPDATE t SET v = v + 100 WHERE id IN ({', '.join(map(str, ids))})"


#: What DuckDB does to `t` so that its next merge forgets ids, and a row that has another one then.
FORGETS = {
    "updated rows": ((NO_INLINING, insert(0, 20), insert(20, 40), update(3, 5)), 3),
    "sorted rows": (
        (NO_INLINING, "ALTER TABLE t SET SORTED BY (v DESC)", insert(0, 20), insert(20, 40)),
        3,
    ),
    "flushed rows with a gap": (
        (
            *(insert(0, 5), insert(5, 16), insert(16, 36), "DELETE FROM t WHERE id BETWEEN 5 AND 15"),
            *(insert(36, 42), insert(42, 47), FLUSH),
        ),
        40,
    ),
}
KEEPS = {
    "inserted rows": (NO_INLINING, insert(0, 20), insert(20, 40)),
    "flushed rows": (insert(0, 20), insert(20, 25), FLUSH, insert(25, 27), FLUSH),
    "rows of other places": (insert(0, 50), update(3, 7), FLUSH, update(4, 9), FLUSH),
}


def made(world: World, *done: str, mode: Mode = Mode.STRICT) -> World:
    # What sets options comes before views: DuckDB does not survive it beside them.
    world.run(*(text for text in done if "set_option" in text), *TABLES)
    world.run(*(text for text in done if "set_option" not in text))
    world.make("plain", PLAIN, mode)
    world.make("lone", LONE, mode)
    return world


def reasons(results: dict[str, RefreshResult]) -> set[tuple[Action, str]]:
    return {(result.action, result.reason_code) for result in results.values()}


LOST = {(Action.REINITIALIZE, "row_ids_lost")}
FOLLOWED = {(Action.INCREMENTAL, "incremental")}


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.AUTO])
@pytest.mark.parametrize(("done", "row"), FORGETS.values(), ids=FORGETS)
def test_forgotten_row_ids_are_noticed_once(
    world: World, done: tuple[str, ...], row: int, mode: Mode
) -> None:
    made(world, *done, mode=mode)
    world.run(MERGE)
    merged = world.snapshots()
    world.run(f"DELETE FROM t WHERE id = {row}")
    results = world.refresh()
    assert reasons(results) == LOST
    assert results["plain"].reason == (
        f"Row ids of main.t were lost when its files were merged at snapshot {merged}."
    )
    world.check()
    for change in (update(4, 22), insert(70, 73), "DELETE FROM t WHERE id IN (1, 22, 25, 71)"):
        world.run(change)
        found = reasons(world.refresh())
        # Which is quicker on so few rows is up to the machine, and `auto` goes by it.
        assert found == FOLLOWED if mode is Mode.STRICT else found.isdisjoint(LOST)
        world.check()


@pytest.mark.parametrize("done", KEEPS.values(), ids=KEEPS)
def test_merges_that_kept_row_ids_are_no_reason(world: World, done: tuple[str, ...]) -> None:
    made(world, *done)
    before = world.snapshots()
    world.run(MERGE)
    assert world.snapshots() > before, "nothing was merged"
    world.run("DELETE FROM t WHERE id IN (3, 7, 21)", update(4, 9))
    assert reasons(world.refresh()) == FOLLOWED
    world.check()


def test_compaction_of_our_own_is_no_reason(world: World) -> None:
    made(world, *FORGETS["updated rows"][0])
    compact(world.lake, ["t"])
    assert "merge_adjacent" in str(world.lake.snapshot().changes)
    world.run("DELETE FROM t WHERE id = 3")
    assert reasons(world.refresh()) == FOLLOWED
    world.check()


def test_a_merge_alone_is_no_change_and_not_forgotten(world: World) -> None:
    done, row = FORGETS["updated rows"]
    made(world, *done)
    world.run(MERGE)
    assert set(actions(world.refresh()).values()) == {Action.NO_DATA}
    world.run("CREATE TABLE other AS SELECT 1 AS a")
    assert set(actions(world.refresh()).values()) == {Action.NO_DATA}
    world.run(f"DELETE FROM t WHERE id = {row}")
    assert reasons(world.refresh()) == LOST
    world.check()


def test_changes_of_another_source_do_not_lead_past_a_merge(world: World) -> None:
    done, row = FORGETS["updated rows"]
    made(world, *done)
    world.run(MERGE, "DELETE FROM x WHERE id = 2")
    assert actions(world.refresh()) == {"plain": Action.NO_DATA, "lone": Action.REINITIALIZE}
    world.check()
    world.run(f"DELETE FROM t WHERE id = {row}")
    assert actions(world.refresh()) == {"plain": Action.REINITIALIZE, "lone": Action.INCREMENTAL}
    world.check()


def test_time_that_passes_does_not_lead_past_a_merge(world: World) -> None:
    done, row = FORGETS["updated rows"]
    made(world, *done)
    query = (
        "SELECT id, v FROM t WHERE TIMESTAMP '2000-01-01' + make_interval(0, 0, 0, v) < current_timestamp()"
    )
    world.make("past", query)
    world.queries["past"] = "SELECT id, v FROM t"
    world.run(MERGE)
    assert reasons(world.refresh("past")) == LOST
    world.run(f"DELETE FROM t WHERE id = {row}")
    assert reasons(world.refresh("past")) == FOLLOWED
    world.check("past")


def test_full_refreshes_do_not_depend_on_row_ids(world: World) -> None:
    done, row = FORGETS["updated rows"]
    made(world, *done, mode=Mode.FULL)
    world.run(MERGE, f"DELETE FROM t WHERE id = {row}")
    assert reasons(world.refresh()) == {(Action.FULL, "mode_full")}
    world.check()
    for name in ("plain", "lone"):
        world.streams.alter(TableName("main", name), mode=Mode.STRICT)
    world.run(update(4, 5, 22))
    assert reasons(world.refresh()) == FOLLOWED
    world.check()


def test_what_is_not_known_by_row_ids_follows_on(world: World) -> None:
    done, row = FORGETS["sorted rows"]
    made(world, *done)
    world.make("sums", "SELECT id % 3 AS g, sum(v) AS s, count(*) AS n FROM t GROUP BY id % 3")
    world.make("over", "SELECT id, v + 1 AS w FROM plain WHERE v > 2")
    world.run(MERGE, f"DELETE FROM t WHERE id = {row}", update(30))
    assert actions(world.refresh()) == {
        "plain": Action.REINITIALIZE,
        "lone": Action.REINITIALIZE,
        "sums": Action.INCREMENTAL,
        "over": Action.INCREMENTAL,
    }
    world.check()
    # The table that a stream table's rows are stored in is merged too: they have a key of their own.
    world.run(FLUSH, MERGE, "DELETE FROM t WHERE id IN (5, 31)")
    assert actions(world.refresh())["over"] is Action.INCREMENTAL
    world.check()


def test_rows_that_share_an_id_are_an_error_that_says_what_to_do(world: World) -> None:
    made(world, insert(0, 50), update(3, 7), FLUSH, update(5, 9), FLUSH)
    world.run(MERGE, "DELETE FROM t WHERE id = 20")
    results = world.refresh()
    assert set(actions(results).values()) == {Action.FAILED}
    assert "same row id" in results["plain"].reason
    world.run(
        "CREATE TEMP TABLE twice AS SELECT rowid AS r FROM t GROUP BY rowid HAVING count(*) > 1",
        "CREATE TEMP TABLE kept AS SELECT * FROM t WHERE rowid IN (SELECT r FROM twice)",
        "BEGIN",
        "DELETE FROM t WHERE rowid IN (SELECT r FROM twice)",
        "INSERT INTO t FROM kept",
        "COMMIT",
    )
    assert reasons(world.refresh()) == LOST
    world.check()
    world.run("DELETE FROM t WHERE id IN (4, 7)", update(6, 9))
    assert reasons(world.refresh()) == FOLLOWED
    world.check()


def test_a_merge_during_a_refresh_is_in_its_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    done, row = FORGETS["sorted rows"]
    made(world, *done)
    world.run("DELETE FROM x WHERE id = 1000", insert(40, 60))
    usual: Callable[..., Decision] = waves.decide
    decided = []

    def after_a_merge(*given: object, **named: object) -> Decision:
        if not decided:
            world.run(MERGE)
        decided.append(usual(*given, **named))
        return decided[-1]

    monkeypatch.setattr(waves, "decide", after_a_merge)
    assert reasons(world.refresh()) == LOST
    assert len(decided) > 2
    world.check()
    world.run(f"DELETE FROM t WHERE id = {row}")
    assert reasons(world.refresh()) == FOLLOWED
    world.check()
