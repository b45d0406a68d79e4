"""What a refresh does, and what it leaves alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from headwater.errors import QueryError, StreamTableError
from headwater.refresh import computing
from headwater.refresh import wave as waves
from headwater.refresh.deltas import Delta, read_changed_rows
from headwater.refresh.model import Action, Definition, Mode, Status
from headwater.refresh.verifying import verify
from headwater.spark.sql import run_sql
from headwater.typedefs import TableName
from tests.refresh.conftest import World, actions
from tests.support import duck

ORDERS = (
    "CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10, 2))",
    "INSERT INTO orders SELECT range, range % 7, range FROM range(100)",
    "CREATE TABLE customers (id INT, region VARCHAR)",
    "INSERT INTO customers VALUES (0, 'n'), (1, 's'), (2, 'n'), (3, NULL), (4, 'w'), (4, 'w')",
)
TOTALS = """
    SELECT c.region, sum(o.amount) AS total, count(*) AS n, avg(o.amount) AS mean, max(o.amount) AS most
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region
"""


@pytest.fixture
def totals(world: World) -> World:
    world.run(*ORDERS)
    world.make("totals", TOTALS)
    return world


def test_changes_of_all_inputs_are_followed_at_once(totals: World) -> None:
    totals.check()
    totals.run(
        "INSERT INTO orders VALUES (1000, 3, 5.25), (1001, NULL, 1), (1002, 4, NULL)",
        "UPDATE orders SET customer = customer + 1 WHERE id % 5 = 0",
        "DELETE FROM orders WHERE id BETWEEN 40 AND 60",
        "UPDATE customers SET region = 's' WHERE id = 2",
        "DELETE FROM customers WHERE id = 1",
        "INSERT INTO customers VALUES (6, 'new'), (0, 'n')",
    )
    assert actions(totals.refresh()) == {"totals": Action.INCREMENTAL}
    totals.check()


def test_nothing_changed_is_no_job_and_no_snapshot(totals: World, jobs: Callable[[], int]) -> None:
    before = totals.snapshots()
    jobs()
    (result,) = totals.refresh().values()
    assert (result.action, result.reason_code, jobs()) == (Action.NO_DATA, "no_changes", 0)
    assert totals.snapshots() == before


def test_compaction_and_changes_of_other_tables_are_no_changes(totals: World) -> None:
    totals.run("DELETE FROM orders WHERE id < 10")
    totals.refresh()
    totals.run(
        "CALL ducklake_flush_inlined_data('lake')",
        "CALL ducklake_rewrite_data_files('lake', 'orders', delete_threshold => 0.01)",
        "CREATE TABLE other AS SELECT 1 AS a",
    )
    assert actions(totals.refresh()) == {"totals": Action.NO_DATA}


def test_a_small_refresh_is_one_query_and_reads_what_changed(totals: World, jobs: Callable[[], int]) -> None:
    totals.run("INSERT INTO orders VALUES (2000, 0, 5)")
    totals.refresh()
    totals.run("INSERT INTO orders VALUES (2001, 0, 5)")
    jobs()
    (result,) = totals.refresh().values()
    # One query: a join with two tables and the stored rows, of which small ones are sent round first.
    assert jobs() <= 5
    assert (result.rows_in, result.rows_inserted, result.rows_deleted) == (1, 1, 1)


def test_an_update_of_columns_that_are_not_used_is_nothing(world: World) -> None:
    world.run(*ORDERS)
    world.make("counted", "SELECT customer, count(*) AS n FROM orders GROUP BY customer")
    world.run("UPDATE orders SET amount = amount + 1")
    before = world.snapshots()
    assert actions(world.refresh()) == {"counted": Action.NO_DATA}
    assert world.snapshots() == before
    assert actions(world.refresh()) == {"counted": Action.NO_DATA}


def test_a_change_and_its_inverse_are_nothing(totals: World) -> None:
    totals.run("UPDATE orders SET amount = amount + 1", "UPDATE orders SET amount = amount - 1")
    before = totals.snapshots()
    totals.refresh()
    assert totals.snapshots() == before
    totals.check()


def test_a_full_refresh_commits_only_what_differs(totals: World) -> None:
    totals.run("INSERT INTO orders VALUES (3000, 0, 7)")
    (result,) = totals.refresh(full=True).values()
    assert (result.action, result.reason_code) == (Action.FULL, "requested")
    assert (result.rows_inserted, result.rows_deleted) == (1, 1)
    totals.check()
    assert totals.refresh("totals", full=True)["totals"].rows_inserted == 0


def test_changed_groups_keep_their_row_ids_and_history(totals: World) -> None:
    created = totals.snapshots()
    totals.run("INSERT INTO orders VALUES (3000, 0, 7)")
    totals.refresh()
    (stream,) = totals.streams.all()
    feed = totals.session.table(str(stream.storage.table)).changes(created + 1).toArrow().to_pylist()
    assert {row["_change_type"] for row in feed} == {"update_preimage", "update_postimage"}
    old = totals.rows(f"SELECT region, total FROM {stream.storage.table} AT (VERSION => {created})")
    assert old != totals.rows("SELECT region, total FROM totals")


def test_the_result_is_a_view_in_duckdb_under_any_alias_and_in_spark(totals: World) -> None:
    from headwater.spark.sql import run_sql

    with duck(totals.lake.dsn, alias="other_name") as elsewhere:
        assert elsewhere.execute("SELECT count(*) FROM other_name.main.totals").fetchall() == [(4,)]
    assert run_sql(totals.session, "SELECT region FROM totals WHERE n > 0").count() == 4
    names = [row[0] for row in totals.con.execute("DESCRIBE totals").fetchall()]
    assert names == ["region", "total", "n", "mean", "most"]


def test_groups_that_having_hides_come_and_go(world: World) -> None:
    world.run(*ORDERS)
    world.make("busy", "SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING count(*) > 14")
    world.check()
    world.run("DELETE FROM orders WHERE id IN (0, 7)", "INSERT INTO orders VALUES (500, 5, 1), (501, 6, 1)")
    world.refresh()
    world.check()


def test_rows_are_counted_of_which_no_column_is_used(world: World) -> None:
    world.run("CREATE TABLE t (a INT, b VARCHAR)", "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (NULL, NULL)")
    world.make("counted", "SELECT count(*) AS n FROM t")
    world.make("paired", "SELECT count(*) AS n FROM t CROSS JOIN t AS u")
    world.run("DELETE FROM t WHERE a IS NULL", "INSERT INTO t VALUES (2, 'y'), (3, NULL)")
    assert {result.action for result in world.refresh().values()} == {Action.INCREMENTAL}
    world.check()


def test_what_several_follow_is_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE t (a INT, b INT, c VARCHAR)", "INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y')")
    world.make("by_a", "SELECT a, count(*) AS n FROM t GROUP BY a")
    world.make("by_c", "SELECT c, sum(b) AS total FROM t GROUP BY c")
    world.run("INSERT INTO t VALUES (3, 30, 'x')")
    world.refresh()  # from now on it is known what both use
    reads: list[object] = []

    def counted(session: Any, plan: Any, wanted: Any) -> Any:
        reads.append(sorted({*wanted} - {"rowid"}))
        return read_changed_rows(session, plan, wanted)

    monkeypatch.setattr("headwater.refresh.shared_changes.read_changed_rows", counted)
    world.run("UPDATE t SET b = 11 WHERE a = 1", "DELETE FROM t WHERE a = 2")
    assert world.refresh("by_a")["by_a"].rows_in == 1, "an update of b is nothing to it"
    assert world.refresh("by_c")["by_c"].rows_in == 3
    assert reads == [["a", "b", "c"]]
    world.check()


def test_columns_that_were_others_before_are_followed(world: World) -> None:
    world.run(
        "CREATE TABLE a (k INT, v INT)",
        "CREATE TABLE b (k INT, w INT)",
        "INSERT INTO a SELECT range, range FROM range(100)",
        "INSERT INTO b SELECT range, range * 2 FROM range(100)",
    )
    world.make("joined", "SELECT a.k, v, w FROM a JOIN b ON a.k = b.k", mode=Mode.AUTO)
    world.run(
        "ALTER TABLE b ADD COLUMN extra INT", "INSERT INTO b VALUES (5, 1, 9)", "DELETE FROM a WHERE k = 7"
    )
    world.refresh()
    world.check()


def test_time_alone_moves_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(
        "CREATE TABLE events (id INT, happened TIMESTAMPTZ)",
        "INSERT INTO events SELECT range, now() - to_hours(range) FROM range(48)",
    )
    world.make("recent", "SELECT id FROM events WHERE happened > now() - INTERVAL 24 HOURS")
    assert world.rows("SELECT count(*) FROM recent") == world.rows("SELECT 24")
    later = datetime.now(UTC) + timedelta(hours=6)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return later

    monkeypatch.setattr(waves, "datetime", Later)
    (result,) = world.refresh().values()
    assert (result.action, result.rows_deleted) == (Action.INCREMENTAL, 6)
    assert world.rows("SELECT min(id), max(id) FROM recent") == world.rows("SELECT 0, 17")


def test_a_source_that_expired_is_read_anew(totals: World) -> None:
    totals.run("INSERT INTO orders VALUES (4000, 0, 1)", "DELETE FROM orders WHERE id = 1")
    newest = totals.snapshots()
    versions = ", ".join(str(snapshot.id) for snapshot in totals.lake.snapshots() if snapshot.id < newest)
    totals.run(f"CALL ducklake_expire_snapshots('lake', versions => [{versions}])")
    (result,) = totals.refresh().values()
    assert (result.action, result.reason_code) == (Action.REINITIALIZE, "snapshot_expired")
    totals.check()


def test_a_source_made_anew_is_read_anew(totals: World) -> None:
    totals.run("DROP TABLE customers", "CREATE TABLE customers AS SELECT 0 AS id, 'all' AS region")
    (result,) = totals.refresh().values()
    assert (result.action, result.reason_code) == (Action.REINITIALIZE, "source_replaced")
    totals.check()


def test_what_cannot_follow_changes_says_so(world: World) -> None:
    world.run(*ORDERS)
    query = "SELECT id, row_number() OVER (ORDER BY id) AS place FROM orders"
    with pytest.raises(StreamTableError, match="strict") as refused:
        world.make("ranked", query)
    assert "PARTITION BY" in str(refused.value)
    world.make("ranked", query, Mode.AUTO)
    world.run("DELETE FROM orders WHERE id < 3")
    (result,) = world.refresh().values()
    assert (result.action, result.reason_code) == (Action.FULL, "not_incremental")
    assert "PARTITION BY" in result.reason
    world.check()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE orders DROP COLUMN amount", "amount"),
        ("ALTER TABLE orders ALTER amount TYPE DECIMAL(12, 2)", "amount"),
        ("DROP TABLE customers", "customers"),
    ],
)
def test_a_source_that_changed_its_form_is_named(totals: World, change: str, said: str) -> None:
    totals.make("other", "SELECT id FROM orders WHERE id < 5")
    totals.run(change, "INSERT INTO orders (id, customer) VALUES (900, 1)")
    results = totals.refresh()
    assert results["totals"].action is Action.FAILED
    assert said in results["totals"].reason
    assert "totals" in str(results["totals"].error)
    assert results["other"].action is not Action.FAILED


def test_the_same_definition_builds_anew_what_does_not_fit_any_more(totals: World) -> None:
    totals.run("ALTER TABLE orders ALTER amount TYPE DECIMAL(12, 2)", "INSERT INTO orders VALUES (900, 1, 4)")
    definition = totals.streams.get("totals").definition
    planned = totals.streams.plan(definition)
    assert planned.kind == "rebuild"
    assert "'amount' of main.orders is decimal(12,2) now" in planned.reasons[0]
    assert totals.refresh()["totals"].action is Action.FAILED
    assert totals.streams.create(definition, or_replace=True).action is Action.REINITIALIZE
    totals.run("DELETE FROM orders WHERE id = 900")
    assert totals.refresh()["totals"].action is Action.INCREMENTAL
    totals.check()
    assert totals.streams.plan(definition).kind == "nothing"


def test_who_fails_too_often_is_suspended_and_resumes_on_request(totals: World) -> None:
    totals.streams.alter("totals", options={"max_failures": "2"})
    totals.run("ALTER TABLE customers RENAME COLUMN region TO area", "INSERT INTO orders VALUES (900, 1, 1)")
    assert actions(totals.refresh()) == {"totals": Action.FAILED}
    assert totals.streams.get("totals").status is Status.ACTIVE
    totals.refresh()
    stopped = totals.streams.get("totals")
    assert (stopped.status, stopped.failures) == (Status.SUSPENDED, 2)
    assert totals.refresh() == {}
    totals.run("ALTER TABLE customers RENAME COLUMN area TO region")
    totals.streams.alter("totals", status=Status.ACTIVE)
    assert actions(totals.refresh()) == {"totals": Action.INCREMENTAL}
    totals.check()


def test_failures_of_what_it_reads_do_not_suspend_a_stream_table(totals: World) -> None:
    totals.make("above", "SELECT max(total) AS most FROM totals")
    for name in ("totals", "above"):
        totals.streams.alter(name, options={"max_failures": "2"})
    totals.run("ALTER TABLE customers RENAME COLUMN region TO area", "INSERT INTO orders VALUES (900, 1, 1)")
    totals.refresh()
    assert totals.refresh()["above"].reason_code == "upstream_failed"
    above = totals.streams.get("above")
    assert (above.status, above.failures) == (Status.ACTIVE, 0)
    assert "totals, which it reads, failed" in (above.last_error or "")
    assert totals.streams.get("totals").status is Status.SUSPENDED
    assert actions(totals.refresh()) == {"above": Action.NO_DATA}
    assert totals.streams.get("above").last_error is None
    totals.run("ALTER TABLE customers RENAME COLUMN area TO region")
    totals.streams.alter("totals", status=Status.ACTIVE)
    assert set(actions(totals.refresh()).values()) == {Action.INCREMENTAL}
    totals.check()


def test_an_error_that_nobody_expected_stops_only_its_own_stream_table(
    totals: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals.make("plain", "SELECT id FROM orders WHERE amount > 50")
    totals.make("above", "SELECT max(total) AS most FROM totals")
    totals.run("INSERT INTO orders VALUES (900, 1, 100)")
    follow = computing.Computation.follow

    def broken(computation: computing.Computation, extent: Any) -> Any:
        if computation.name == "main.totals":
            raise pa.ArrowNotImplementedError("no kernel")
        return follow(computation, extent)

    with monkeypatch.context() as patched:
        patched.setattr(computing.Computation, "follow", broken)
        results = totals.refresh()
    assert actions(results) == {
        "totals": Action.FAILED,
        "above": Action.FAILED,
        "plain": Action.INCREMENTAL,
    }
    assert results["totals"].reason_code == "unexpected"
    assert results["totals"].reason == "ArrowNotImplementedError: no kernel"
    totals.check("plain")
    totals.refresh()
    totals.check()


def test_structs_lists_and_maps_are_followed(world: World) -> None:
    world.run(
        "CREATE TABLE kinds (id INT, s STRUCT(a INT, b VARCHAR), l VARCHAR[], f DOUBLE)",
        "INSERT INTO kinds SELECT range, {'a': range % 3, 'b': CASE WHEN range % 2 = 0 THEN 'x' END}, "
        "[range % 2, NULL], range % 4 FROM range(30)",
        "INSERT INTO kinds VALUES (100, NULL, NULL, 'nan'), (101, {'a': NULL, 'b': NULL}, [], -0.0)",
    )
    world.make("grouped", "SELECT s, count(*) AS n, max(id) AS m FROM kinds GROUP BY s")
    world.make("fields", "SELECT s.a, upper(s.b) AS b, count(*) AS n FROM kinds GROUP BY s HAVING s.a > 0")
    world.make("listed", "SELECT l, count(DISTINCT id) AS n FROM kinds GROUP BY l")
    world.make("each", "SELECT DISTINCT s.a AS a, l FROM kinds")
    world.make("joined", "SELECT a.id, b.id AS j FROM kinds a JOIN kinds b ON a.s = b.s AND a.id < b.id")
    world.make("without", "SELECT a.id FROM kinds a LEFT ANTI JOIN kinds b ON a.l = b.l AND a.id <> b.id")
    world.queries["without"] = (
        "SELECT a.id FROM kinds a WHERE NOT EXISTS (FROM kinds b WHERE a.l = b.l AND a.id <> b.id)"
    )
    for change in (
        "UPDATE kinds SET s = {'a': 9, 'b': 'x'} WHERE id % 5 = 0",
        "INSERT INTO kinds VALUES (200, {'a': 9, 'b': NULL}, ['only'], 1), (201, NULL, [NULL], 2)",
        "DELETE FROM kinds WHERE id > 20 AND id < 150",
    ):
        world.run(change)
        assert set(actions(world.refresh()).values()) <= {Action.INCREMENTAL, Action.NO_DATA}
        world.check()


def test_averages_of_decimals_have_all_places(world: World) -> None:
    kinds = ["DECIMAL(10, 2)", "DECIMAL(24, 18)", "DECIMAL(25, 18)", "DECIMAL(28, 6)", "DECIMAL(38, 10)"]
    columns = ", ".join(f"d{place} {kind}" for place, kind in enumerate(kinds))
    world.run(
        f"CREATE TABLE amounts (g INT, {columns})",
        f"INSERT INTO amounts SELECT range % 3, {', '.join(['range / 7'] * len(kinds))} FROM range(20)",
    )
    means = ", ".join(f"avg(d{place}) AS m{place}, sum(d{place}) AS s{place}" for place in range(len(kinds)))
    query = f"SELECT g, {means} FROM amounts GROUP BY g"
    world.make("means", query)
    for change in ("DELETE FROM amounts WHERE d0 > 2", "INSERT INTO amounts (g, d2, d4) VALUES (1, 2, 0.7)"):
        world.run(change)
        assert actions(world.refresh()) == {"means": Action.INCREMENTAL}
        stored, computed = (run_sql(world.session, text).collect() for text in ("FROM means", query))
        assert sorted(stored) == sorted(computed)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ", "DATE"])
def test_time_windows_are_followed_as_spark_computes_them(world: World, kind: str) -> None:
    world.run(
        f"CREATE TABLE seen (id INT, ts {kind}, place VARCHAR)",
        "INSERT INTO seen SELECT range, (TIMESTAMP '2026-03-28 22:10:00' + range * INTERVAL 37 MINUTE), "
        "range % 3 FROM range(200)",
        "INSERT INTO seen VALUES (900, NULL, 'x')",
    )
    queries = {
        "tumbling": "SELECT window.start AS b, window.end AS e, count(*) AS n, max(id) AS m FROM seen "
        "GROUP BY window(ts, '6 hours')",
        "sliding": "SELECT place, window, count(*) AS n FROM seen "
        "GROUP BY place, window(ts, '3 hours', '50 minutes', '-5 minutes') HAVING count(*) > 1",
        "shown": "SELECT id, window(ts, '1 day').end AS e FROM seen WHERE place <> '1'",
        "again": "SELECT window_time(w) AS t, n FROM "
        "(SELECT window(ts, '2 hours') AS w, count(*) AS n FROM seen GROUP BY w)",
    }
    for name, query in queries.items():
        world.make(name, query)
    for change in (
        "UPDATE seen SET ts = ts + INTERVAL 1 DAY WHERE id % 7 = 0",
        "DELETE FROM seen WHERE id BETWEEN 50 AND 90",
        "INSERT INTO seen VALUES (901, '1969-12-31', 'y'), (902, NULL, 'z')",
    ):
        world.run(change)
        assert set(actions(world.refresh()).values()) <= {Action.INCREMENTAL, Action.NO_DATA}
        for name, query in queries.items():
            stored, computed = (
                Counter(map(repr, run_sql(world.session, text).collect()))
                for text in (f"SELECT * FROM {name}", query)
            )
            assert stored == computed
            assert verify(world.lake, world.streams.store, world.streams.get(name)).ok


def test_many_changes_are_written_by_spark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.refresh import shared_changes, storing

    world.run(*ORDERS)
    world.make(
        "wide", "SELECT o.id, o.amount, c.region FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    )
    world.make("totals", TOTALS)
    world.make("counted", "SELECT count(*) AS n FROM customers")
    monkeypatch.setattr(storing, "most_rows", lambda frame: 0)
    monkeypatch.setattr(shared_changes, "most_here", lambda session: 0)
    world.run(
        "INSERT INTO orders SELECT range, range % 9, range FROM range(200, 400)",
        "DELETE FROM orders WHERE id % 3 = 0",
        "UPDATE customers SET region = 'x' WHERE id < 2",
        "INSERT INTO customers VALUES (7, 'seven')",
    )
    assert set(actions(world.refresh()).values()) == {Action.INCREMENTAL}
    world.check()
    kept = world.session.spark.sparkContext._jsc.getPersistentRDDs()
    assert not kept, "what Spark keeps for a wave goes with it"
    world.run("DELETE FROM orders", "DELETE FROM customers")
    world.refresh()
    world.check()


def test_few_changed_rows_that_mean_many_stay_with_spark(
    totals: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.refresh import storing

    totals.make("first_two", "SELECT id, amount FROM orders ORDER BY amount DESC LIMIT 2")
    monkeypatch.setattr(storing, "most_rows", lambda frame: 0)
    totals.run("UPDATE orders SET amount = amount + 1 WHERE id > 90", "DELETE FROM customers WHERE id = 0")
    assert set(actions(totals.refresh()).values()) == {Action.INCREMENTAL}
    totals.check()


def test_replacing_builds_beside_the_old_and_swaps(totals: World) -> None:
    before = totals.streams.get("totals")
    same = Definition(
        TableName("main", "totals"), "-- a note\n" + TOTALS.lower().replace("main", "main"), mode=Mode.STRICT
    )
    assert totals.streams.plan(same).kind in ("nothing", "alter")
    other = Definition(
        TableName("main", "totals"), "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
    )
    assert totals.streams.plan(other).kind == "rebuild"
    at = totals.snapshots()
    totals.streams.create(other, or_replace=True)
    assert totals.snapshots() == at + 1
    after = totals.streams.get("totals")
    assert (after.id, after.storage.table_id) != (before.id, before.storage.table_id)
    assert after.id == before.id
    totals.queries["totals"] = other.query or ""
    totals.check()
    assert totals.con.execute(f"SELECT count(*) FROM totals AT (VERSION => {at})").fetchall()


def test_dropping_leaves_nothing(totals: World) -> None:
    assert totals.streams.drop("totals")
    assert not totals.streams.drop("totals", if_exists=True)
    state = totals.lake.state()
    assert not [view for view in state.views.values() if view.name.name == "totals"]
    assert not [table for table in state.tables.values() if table.name.schema == "_headwater"]
    assert totals.streams.all() == []


def test_rows_behind_an_empty_piece_of_a_delta_reach_spark(world: World) -> None:
    schema = st.StructType([st.StructField("a", st.LongType())])
    rows = pa.table({"a": pa.chunked_array([[1], [], [2, 3]], pa.int64())})
    assert Delta(schema, rows).data(world.session).count() == 3


@pytest.mark.parametrize("name", ["place", "filename", "snapshot_id", "file_row_number", "_metadata"])
def test_columns_may_be_called_like_hidden_ones(world: World, name: str) -> None:
    world.run(
        f"CREATE TABLE t (id INT, {name} INT)",
        "INSERT INTO t VALUES (1, 10), (2, 20), (2, 30)",
        f"CREATE TABLE u (id INT, {name} INT)",
        "INSERT INTO u VALUES (1, 100), (2, 200)",
    )
    world.make("joined", f"SELECT t.id, t.{name} AS a, u.{name} FROM t JOIN u ON t.id = u.id")
    world.make("totals", f"SELECT id, sum({name}) AS {name} FROM t GROUP BY id")
    world.make("copied", f"SELECT {name}, id FROM t", Mode.FULL)
    world.check()
    world.run(
        "INSERT INTO t VALUES (1, 11), (3, 5)",
        "DELETE FROM u WHERE id = 2",
        "UPDATE t SET id = 1 WHERE id = 2",
    )
    world.refresh()
    world.check()


def test_a_column_that_hides_row_ids_is_refused(world: World) -> None:
    world.run("CREATE TABLE t (id INT, rowid INT)", "CREATE TABLE u (id INT)")
    with pytest.raises(QueryError, match="hides the ids of the table's rows"):
        world.make("a", "SELECT id FROM t")
    with pytest.raises(QueryError, match="A column of the result is called `RowId`"):
        world.make("b", "SELECT id AS RowId FROM u")


def test_small_results_in_between_are_one_file(world: World) -> None:
    """Spark leaves what it holds in as many parts as it was computed in, unless it is told otherwise."""
    world.run("CREATE TABLE t (id INT, k INT)", "INSERT INTO t SELECT range, range % 5000 FROM range(10000)")
    world.make(
        "small", "SELECT n, count(*) AS times FROM (SELECT k, count(*) AS n FROM t GROUP BY k) GROUP BY n"
    )
    stages = world.streams.get("small").stages
    assert [len(world.lake.scan(stage.table).files) for stage in stages] == [1, 0]


def test_parts_that_are_hardly_worth_a_file_are_united(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "FILE_ROWS", 40)
    for rows, parts in ((100, 3), (1, 1), (0, 1), (1000, 8)):
        united = computing._in_few_files(spark.range(0, rows, numPartitions=8).toDF("id"))
        assert united.rdd.getNumPartitions() == parts
        assert united.count() == rows
