"""Full refreshes by choice: the result alone is computed, and what was left behind is caught up with once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.refresh import computing, deciding
from headwater.refresh.deciding import Decision
from headwater.refresh.deltas import Delta
from headwater.refresh.model import Action, Definition, Frontier, Mode
from headwater.refresh.shared_changes import SharedChanges
from headwater.refresh.streams import Streams
from headwater.typedefs import TableName
from tests.refresh.conftest import World

#: The two inner aggregates are stages of their own, which hold more rows than the result.
BUSY = """
    SELECT n, count(*) AS customers, max(last) AS last FROM (
        SELECT customer, count(*) AS n, max(id) AS last FROM orders GROUP BY customer
    ) WHERE customer IN (SELECT customer FROM orders GROUP BY customer HAVING sum(amount) > 100)
    GROUP BY n
"""


@pytest.fixture(params=["compared here", "compared by Spark"])
def busy(world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> World:
    if request.param == "compared by Spark":
        monkeypatch.setattr(computing, "FEW", -1)
    world.run(
        "CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10, 2))",
        "INSERT INTO orders SELECT range, range % 7, range FROM range(100)",
    )
    world.make("busy", BUSY, Mode.AUTO)
    return world


def choose(monkeypatch: pytest.MonkeyPatch, code: str | None) -> None:
    decision = None if code is None else Decision(Action.FULL, code, "The test says so.")
    monkeypatch.setattr(deciding, "_cheaper", lambda *_: decision)


def step(world: World, change: str) -> tuple[Action, str, bool]:
    """What a refresh does after a change, and whether it leaves anything behind; the result is right."""
    world.run(change)
    (result,) = world.refresh().values()
    world.check()
    return result.action, result.reason_code, frontier(world).behind


def frontier(world: World) -> Frontier:
    # Another object, as another process has it: what counts is what is stored.
    found = Streams(world.lake, lambda: world.session).get("busy").frontier
    assert found is not None
    return found


def test_what_is_left_behind_is_caught_up_with_before_changes_are_followed(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, "cheaper")
    assert step(busy, "DELETE FROM orders WHERE id % 3 = 0") == (Action.FULL, "cheaper", True)
    assert step(busy, "INSERT INTO orders VALUES (500, 3, NULL)") == (Action.FULL, "cheaper", True)
    assert step(busy, "DELETE FROM orders WHERE id = -1") == (Action.NO_DATA, "no_changes", True)
    # Nothing that is in use changed, which only reading it tells.
    busy.run("ALTER TABLE orders ADD COLUMN note VARCHAR")
    assert step(busy, "UPDATE orders SET note = 'x' WHERE id = 1") == (Action.NO_DATA, "no_changes", True)
    choose(monkeypatch, None)
    assert "left what is stored in between behind" in str(busy.streams.explain("busy"))
    assert [status.catch_up_due for status in busy.streams.status()] == [True]
    assert step(busy, "UPDATE orders SET customer = 2 WHERE id < 9") == (Action.FULL, "caught_up", False)
    assert "behind" not in str(busy.streams.explain("busy"))
    assert [status.catch_up_due for status in busy.streams.status()] == [False]
    assert step(busy, "DELETE FROM orders WHERE customer = 4") == (Action.INCREMENTAL, "incremental", False)
    busy.run("UPDATE orders SET amount = amount + 1")
    assert busy.refresh(full=True)["busy"].reason_code == "requested"
    busy.check()
    assert not frontier(busy).behind


def test_a_trial_of_computing_anew_leaves_nothing_behind(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, "untried")
    assert step(busy, "DELETE FROM orders WHERE id % 3 = 0") == (Action.FULL, "untried", False)
    (result,) = busy.streams.history("busy", limit=1)
    assert len(result.stages) > 1
    assert result.stages[-1].source == "@"
    assert step(busy, "DELETE FROM orders WHERE id = -1") == (Action.NO_DATA, "no_changes", False)
    choose(monkeypatch, None)
    assert step(busy, "UPDATE orders SET customer = 2 WHERE id < 9") == (
        Action.INCREMENTAL,
        "incremental",
        False,
    )
    choose(monkeypatch, "cheaper")
    assert step(busy, "DELETE FROM orders WHERE customer = 4") == (Action.FULL, "cheaper", True)
    choose(monkeypatch, "untried")  # which is not chosen for what was left behind
    assert step(busy, "INSERT INTO orders VALUES (500, 3, 9)") == (Action.FULL, "caught_up", False)


def test_only_the_result_is_touched(busy: World) -> None:
    busy.streams.alter("busy", mode=Mode.FULL)
    assert step(busy, "DELETE FROM orders WHERE customer > 1") == (Action.FULL, "mode_full", True)
    (result,) = busy.streams.history("busy", limit=1)
    assert [stage.source for stage in result.stages] == ["@"]
    busy.streams.alter("busy", mode=Mode.STRICT)
    assert step(busy, "INSERT INTO orders SELECT 900, 5, 1000") == (Action.FULL, "caught_up", False)
    assert step(busy, "INSERT INTO orders SELECT 901, 5, 1000") == (Action.INCREMENTAL, "incremental", False)


def test_large_changes_are_not_read_before_they_are_followed(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    changed_rows: Callable[..., Delta] = SharedChanges._changed_rows

    def counted(self: SharedChanges, *given: object) -> Delta:
        read.append(1)
        return changed_rows(self, *given)

    monkeypatch.setattr(SharedChanges, "_changed_rows", counted)
    insert = "INSERT INTO orders SELECT {0} + range, range % 7, 1 FROM range(30000)"
    choose(monkeypatch, "cheaper")
    assert step(busy, insert.format(100_000)) == (Action.FULL, "cheaper", True)
    assert not read
    choose(monkeypatch, None)
    assert step(busy, insert.format(200_000)) == (Action.FULL, "caught_up", False)
    assert step(busy, insert.format(300_000)) == (Action.INCREMENTAL, "incremental", False)
    assert read


def test_large_changes_are_counted_exactly(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "cheaper")
    busy.run("INSERT INTO orders SELECT 1000 + range, range % 7, 1 FROM range(60000)")
    busy.refresh()
    for gone, came in ((30_000, 0), (0, 25_000), (12_345, 23_456), (40_000, 1)):
        busy.run(
            f"DELETE FROM orders WHERE id IN (FROM (SELECT id FROM orders ORDER BY id DESC LIMIT {gone}))",
            f"INSERT INTO orders SELECT 100000 + range, range % 7, 1 FROM range({came})",
        )
        (result,) = busy.refresh().values()
        assert (result.reason_code, result.rows_in) == ("cheaper", gone + came)
        busy.check()


def test_a_result_of_one_row_is_compared_by_its_values(world: World) -> None:
    world.run(
        "CREATE TABLE t (a INT, x DOUBLE, d DECIMAL(9, 2))",
        "INSERT INTO t VALUES (1, 'nan', 1.10), (2, 2, 0)",
    )
    world.make(
        "one", "SELECT count(*) AS n, sum(x) AS s, max(d) AS most, collect_list(x) AS all FROM t", Mode.FULL
    )
    world.make("largest", "SELECT max(a) AS most FROM t HAVING count(*) > 1", Mode.FULL)
    del world.queries["one"]

    def changed(statement: str) -> dict[str, tuple[int, int]]:
        world.run(statement)
        results = world.refresh()
        world.check()
        return {name: (each.rows_inserted, each.rows_deleted) for name, each in results.items()}

    assert changed("UPDATE t SET a = 3 WHERE a = 1") == {"one": (0, 0), "largest": (1, 1)}
    assert changed("DELETE FROM t WHERE a = 3") == {"one": (1, 1), "largest": (1, 1)}
    assert changed("DELETE FROM t") == {"one": (1, 1), "largest": (1, 1)}
    assert changed("INSERT INTO t VALUES (NULL, NULL, NULL)") == {"one": (1, 1), "largest": (1, 1)}
    (row,) = world.con.execute("FROM one").fetchall()
    assert row == (1, None, None, [])


def test_what_a_full_refresh_stored_stays_readable_at_its_snapshot(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, "cheaper")
    known = {busy.snapshots(): busy.rows("FROM busy")}
    for text in (
        "DELETE FROM orders WHERE customer < 3",
        "UPDATE orders SET customer = NULL WHERE id % 2 = 0",
        "DELETE FROM orders",
        "INSERT INTO orders SELECT range, range % 3, 50 FROM range(20)",
    ):
        step(busy, text)
        known[busy.snapshots()] = busy.rows("FROM busy")
    storage = str(busy.streams.get("busy").storage.table)
    for snapshot, rows in known.items():
        assert busy.rows(f"SELECT n, customers, last FROM {storage} AT (VERSION => {snapshot})") == rows


@pytest.mark.parametrize("action", [Action.FULL, Action.INCREMENTAL])
def test_rows_are_compared_as_sql_compares_them(
    world: World, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    """NULLs and NaN equal themselves, also as keys; Python has no dates before the year 1 and after 9999."""
    choose(monkeypatch, "cheaper" if action is Action.FULL else None)
    world.run(
        "CREATE TABLE t (k DATE, since TIMESTAMPTZ, x DOUBLE, n INT)",
        "INSERT INTO t VALUES ('12000-02-03', '20000-01-01 00:00:00+00', 'nan', 1), (NULL, NULL, NULL, 1),"
        "('0044-03-15 (BC)', '0044-03-15 (BC) 12:00:00+00', '-1.5', 1), ('2020-01-01', NULL, 'inf', 1)",
        "CREATE TABLE names AS SELECT DISTINCT k, k::VARCHAR AS name FROM t",
        "INSERT INTO names VALUES ('13000-01-01', 'moved')",
    )
    summed = "SELECT k, since, x, sum(n) AS n, max(since) AS last FROM t GROUP BY k, since, x"
    named = "SELECT t.k, name, n FROM t JOIN names ON t.k = names.k"
    for name, query in (("summed", summed), ("named", named)):
        world.streams.create(Definition(TableName("main", name), query, mode=Mode.AUTO))

    def changed(text: str) -> tuple[int, int]:
        world.run(text)
        results = world.refresh()
        assert {result.action for result in results.values()} == {action}, results
        shown = "SELECT k::VARCHAR, epoch_us(since), x::VARCHAR, n, epoch_us(last) FROM ({})"
        assert world.rows(shown.format("FROM summed")) == world.rows(shown.format(summed))
        shown = "SELECT k::VARCHAR, name, n FROM ({})"
        assert world.rows(shown.format("FROM named")) == world.rows(shown.format(named))
        return results["summed"].rows_inserted, results["summed"].rows_deleted

    assert changed("INSERT INTO t VALUES ('2021-01-01', NULL, 1, 1)") == (1, 0)
    assert changed("UPDATE t SET n = 2 WHERE k > '9999-01-01'") == (1, 1)
    assert changed("UPDATE t SET n = 2 WHERE k IS NULL") == (1, 1)
    assert changed("UPDATE t SET n = 2 WHERE k < '0001-01-01'") == (1, 1)
    assert changed("UPDATE t SET k = '13000-01-01', n = 5 WHERE k > '9999-01-01'") == (1, 1)
    assert changed("DELETE FROM t WHERE k > '2020-06-01'") == (0, 2)


def test_what_an_older_version_stored_under_the_same_names_is_computed_anew_once(world: World) -> None:
    """Rows of a group below which there is a left join were counted otherwise: its partners, or one."""
    world.run(
        "CREATE TABLE customers (id INT)",
        "INSERT INTO customers SELECT range FROM range(20)",
        "CREATE TABLE orders (customer INT)",
        "INSERT INTO orders SELECT range % 10 FROM range(30)",
    )
    world.make(
        "counts",
        "SELECT c.id, count(o.customer) AS n FROM customers c LEFT JOIN orders o ON o.customer = c.id "
        "GROUP BY c.id",
    )
    storage = world.streams.get("counts").storage.table
    world.run(f"UPDATE {storage} SET _hw_rows = greatest(n, 1)")
    with world.lake.db.connection() as connection, connection.transaction():
        connection.execute("UPDATE headwater.component SET version = 3 WHERE name = 'stream_tables'")
    world.streams = Streams(world.lake, lambda: world.session)
    world.run("DELETE FROM orders WHERE customer < 3")
    assert [result.reason_code for result in world.refresh().values()] == ["caught_up"]
    world.check()
    world.run("INSERT INTO orders VALUES (1), (NULL), (15)", "DELETE FROM orders WHERE customer = 4")
    assert [result.action for result in world.refresh().values()] == [Action.INCREMENTAL]
    world.check()
