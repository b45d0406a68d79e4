"""The ducklake tool: what its commands do, and what is left when they fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo, sql

from headwater.lake.embedded import open_server
from headwater.lake.lake import Lake
from headwater.playbook.ducklake.keys import key_of, record_key
from headwater.playbook.ducklake.sessions import LakePlace, SessionPool
from headwater.playbook.runners.worker import TaskWorker
from tests.playbook.lakes import Desk
from tests.support import create_database


@pytest.fixture
def desk(new_database: str, tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(new_database, tmp_path)
    yield opened
    opened.close()


def lake_of(desk: Desk, catalog: str = "analytics") -> Lake:
    return Lake.open(desk.dsn, metadata_schema=catalog)


def test_a_failing_command_stops_its_step_and_leaves_nothing(desk: Desk) -> None:
    desk.run("CREATE TABLE t (id INTEGER)")
    error = desk.error("INSERT INTO t VALUES (1)", "SELECT 'ü', nope FROM t", "INSERT INTO t VALUES (2)")
    assert (error.kind, error.code, error.command_index, error.position) == ("sql", "BinderException", 1, 12)
    assert not error.retryable
    assert desk.rows("FROM t") == []


def test_without_a_transaction_each_command_commits_by_itself(desk: Desk) -> None:
    desk.run("CREATE TABLE t (id INTEGER)")
    commands = (
        "INSERT INTO t SELECT 1 FROM t RIGHT JOIN range(1) ON true",
        "SELECT nope",
        "INSERT INTO t VALUES (2)",
    )
    assert desk.error(*commands, transaction=False, step="s").command_index == 1
    assert desk.rows("FROM t") == [(1,)]
    # Tried again, what was committed is not done again.
    repaired = (commands[0], "SELECT 3", commands[2])
    entries = desk.run(*repaired, transaction=False, step="s")
    assert [entry.get("affected_rows") for entry in entries] == [1, None, 1]
    assert desk.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize(
    "command",
    ["INSERT INTO t VALUES (1, 'a')", "INSERT INTO t SELECT count(*), 'a' FROM t", "UPDATE t SET n = n + 1"],
)
def test_a_task_that_was_committed_is_not_applied_again(desk: Desk, command: str) -> None:
    desk.run("CREATE TABLE t (n BIGINT, w VARCHAR)", "INSERT INTO t VALUES (7, 'first')")
    first = desk.run(command, step="same")
    after = desk.rows("FROM t ORDER BY ALL")
    with_another = Desk(desk.dsn, desk.folder)
    assert with_another.run(command, step="same") == first
    with_another.close()
    assert desk.rows("FROM t ORDER BY ALL") == after


def test_counts_are_those_of_rows(desk: Desk) -> None:
    desk.run("CREATE TABLE t (id INTEGER, v INTEGER)")
    assert desk.run("INSERT INTO t SELECT i, i FROM range(30) r(i)")[0]["affected_rows"] == 30
    assert desk.run("UPDATE t SET v = 0 WHERE id < 12")[0]["affected_rows"] == 12
    assert desk.run("DELETE FROM t WHERE id >= 25")[0]["affected_rows"] == 5
    assert desk.run("CREATE TABLE u AS FROM t")[0]["affected_rows"] == 25
    assert desk.run("MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE")[0]["affected_rows"] == 25


def test_returning_gives_rows(desk: Desk) -> None:
    desk.run("CREATE TABLE t (id INTEGER, v INTEGER DEFAULT 5)")
    assert desk.rows("INSERT INTO t (id) VALUES (1), (2) RETURNING v, id") == [(5, 1), (5, 2)]
    assert desk.rows("INSERT INTO t SELECT max(id) + 1, 0 FROM t RETURNING id") == [(3,)]
    assert desk.rows("UPDATE t AS x SET v = v + 1 WHERE x.id > 1 RETURNING id, v") == [(2, 6), (3, 1)]
    assert desk.rows("DELETE FROM t WHERE id = 2 RETURNING *") == [(2, 6)]
    assert desk.rows("SELECT id, v FROM t ORDER BY id") == [(1, 5), (3, 1)]


def test_a_primary_key_is_recorded_with_one_warning_and_used(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headwater.playbook")
    for _ in range(2):
        desk.run(
            "CREATE TABLE IF NOT EXISTS sales (sale_id INTEGER PRIMARY KEY, product VARCHAR)",
            "INSERT OR REPLACE INTO sales VALUES (1, 'Widget'), (2, 'Gadget')",
        )
    assert len(caplog.records) == 1
    lake = lake_of(desk)
    assert key_of(lake, "sales") == ("sale_id",)
    desk.run("MERGE INTO sales USING (VALUES (2, 'Gizmo')) AS s(sale_id, product) "
             "WHEN MATCHED THEN UPDATE SET product = s.product")  # fmt: skip
    desk.run("INSERT INTO sales VALUES (1, 'x'), (3, 'y') ON CONFLICT DO NOTHING")
    assert desk.rows("FROM sales ORDER BY 1") == [(1, "Widget"), (2, "Gizmo"), (3, "y")]
    desk.run("ALTER TABLE sales RENAME TO sold")
    assert key_of(lake, "sold") == ("sale_id",)
    record_key(lake, "sold", ["product"])
    assert key_of(lake, "sold") == ("product",)
    desk.run("CREATE TABLE plain (id INTEGER)")
    assert desk.error("INSERT OR REPLACE INTO plain VALUES (1)").code == "no_key"
    lake.close()


def test_two_names_in_one_database_are_two_lakes(desk: Desk) -> None:
    desk.run("CREATE TABLE t (id INTEGER)")
    assert desk.rows("SHOW TABLES", catalog_name="other") == []
    desk.run("CREATE TABLE t AS SELECT 'x' AS x FROM range(20)", catalog_name="other")
    assert desk.rows("SELECT column_name FROM (DESCRIBE t)") == [("id",)]
    assert [path.name for path in (desk.folder / "files").iterdir()] == ["other"]


def test_the_lake_of_headwater_itself_is_public(desk: Desk) -> None:
    lake = Lake.open(desk.dsn, data_path=desk.folder / "own")
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int32"})
    desk.run("INSERT INTO t VALUES (1)", catalog_name="public", data_path=str(desk.folder / "own"))
    assert lake.read("t").to_pylist() == [{"id": 1}]
    lake.close()


def test_a_catalog_is_not_created_where_that_is_not_wanted(desk: Desk) -> None:
    error = desk.error("SELECT 1", create_catalog=False)
    assert (error.kind, error.code) == ("catalog", "not_found")
    with psycopg.connect(desk.dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('analytics')").fetchone() == (None,)


@pytest.mark.parametrize("name", ["headwater", "pg_x", "a/../b", "memory", ""])
def test_names_that_mean_something_else_are_refused(desk: Desk, name: str) -> None:
    assert desk.error("SELECT 1", catalog_name=name).kind == "field"


def test_another_data_path_than_the_lakes_is_refused(desk: Desk) -> None:
    desk.run("SELECT 1")
    assert desk.error("SELECT 1", data_path=str(desk.folder / "elsewhere")).kind == "catalog"


def test_workers_that_create_a_catalog_and_a_table_at_once_all_succeed(desk: Desk) -> None:
    failed = []

    def work(number: int) -> None:
        own = Desk(desk.dsn, desk.folder)
        text = f"CREATE TABLE IF NOT EXISTS t (i INTEGER); INSERT INTO t VALUES ({number})"
        outcome = own.outcome(text, step=f"from {number}")
        failed.extend([outcome.error] if outcome.error else [])
        own.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert desk.rows("SELECT i FROM t ORDER BY i") == [(number,) for number in range(5)]


def test_what_a_task_leaves_in_its_session_does_not_reach_the_next(desk: Desk) -> None:
    desk.run("CREATE TEMP TABLE secret AS SELECT 1; SET VARIABLE x = 1; USE memory")
    assert desk.error("FROM secret").code == "CatalogException"
    assert desk.rows("SELECT getvariable('x'), current_setting('worker_id'), current_database()") == [
        (None, "w1", "analytics")
    ]
    desk.run("SET memory_limit = '123MB'; ATTACH ':memory:' AS other")
    assert desk.rows("SELECT count(*) FROM duckdb_databases() WHERE database_name = 'other'") == [(0,)]


def test_settings_of_the_step_reach_duckdb(desk: Desk) -> None:
    text = "SELECT current_setting('memory_limit'), current_setting('threads'), current_database()"
    found = desk.rows(text, memory_limit="1GB", threads=1, use_catalog=False)
    assert found == [("953.6 MiB", 1, "memory")]
    assert desk.error(text, memory_limit="lots").kind == "field"


def test_time_travel_and_changes_as_the_document_writes_them(desk: Desk) -> None:
    desk.run("CREATE TABLE sales (id INTEGER)")
    for number in range(3):
        desk.run(f"INSERT INTO sales VALUES ({number})")
    assert desk.rows("SELECT count(*) FROM sales FOR SYSTEM_TIME AS OF SNAPSHOT 2") == [(1,)]
    assert desk.rows("SELECT s.id FROM sales FOR SYSTEM_TIME AS OF SNAPSHOT 2 AS s WHERE s.id = 0") == [(0,)]
    ((before,),) = desk.rows(
        "SELECT snapshot_time FROM ducklake_snapshots('analytics') WHERE snapshot_id = 3"
    )
    assert desk.rows(f"SELECT count(*) FROM sales FOR SYSTEM_TIME AS OF '{before}'") == [(2,)]
    changes = "SELECT change_type FROM ducklake_table_changes('analytics', 'main', 'sales', 0, 10)"
    assert desk.rows(changes) == [("insert",)] * 3
    error = desk.error("SELECT * FROM sales FOR SYSTEM_TIME AS OF '2025-01-06 10:00:00+00'")
    assert (error.kind, error.command_index) == ("sql", 0)


@pytest.mark.parametrize(
    "call",
    [
        "CALL ducklake_expire_snapshots('analytics', older_than => NOW() - INTERVAL 7 DAY)",
        "CALL ducklake_cleanup_old_files('analytics', dry_run => false)",
        "CALL ducklake_merge_adjacent_files('analytics')",
        "CALL ducklake_flush_inlined_data('analytics')",
        "CALL ducklake_rewrite_data_files('analytics')",
    ],
)
def test_maintenance_gives_rows(desk: Desk, call: str) -> None:
    desk.run("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1)")
    (entry,) = desk.run(call)
    assert entry["row_count"] == len(entry["rows"])
    assert entry["columns"]


@pytest.mark.parametrize("password", ["p@ss'w\"ord", "a b=c\\d", "{\"x\": '@'}"])
def test_passwords_of_any_kind_work_and_are_never_shown(
    tmp_path: Path, new_database: str, password: str, pg_server: object
) -> None:
    name = f"user_{abs(hash(password))}"
    with psycopg.connect(new_database, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(password)
            )
        )
    dsn = conninfo.make_conninfo(new_database, user=name, password=password)
    desk = Desk(dsn, tmp_path)
    assert desk.rows("SELECT 42") == [(42,)]
    shown = desk.run(
        "SELECT * FROM duckdb_databases()", "FROM duckdb_secrets()", "SELECT * FROM duckdb_settings()"
    )
    assert password not in str(shown)
    bad = conninfo.make_conninfo(dsn, dbname="nowhere")
    error = desk.error("SELECT 1", catalog_connection=bad)
    assert password not in str(error)
    assert not error.retryable
    desk.close()


def test_a_broken_session_is_replaced_and_its_task_done_once(tmp_path: Path) -> None:
    """PostgreSQL restarts under a worker that has everything open."""
    server = open_server(tmp_path / "postgres")
    desk = Desk(create_database(server.dsn), tmp_path)
    desk.run("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (0)")
    desk.run("UPDATE t SET n = n + 1")

    def cut() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname LIKE 'lake%'"
            )

    for command in ("UPDATE t SET n = n + 1", "SELECT n FROM t", "INSERT INTO t VALUES (10)"):
        cut()
        desk.run(command)
    timer = threading.Timer(0.05, cut)
    timer.start()
    for _ in range(10):
        desk.run("UPDATE t SET n = n + 1")
    timer.join()
    assert desk.rows("SELECT n FROM t ORDER BY n") == [(12,), (20,)]
    desk.close()
    server.stop_if_unused()


def test_a_lake_that_does_not_answer_is_a_retryable_error(desk: Desk) -> None:
    error = desk.error("SELECT 1", catalog_connection="host=/nowhere dbname=x user=y password=geheim")
    assert (error.kind, error.retryable) == ("connection", True)
    assert "geheim" not in error.message


def test_a_step_needs_an_address(tmp_path: Path) -> None:
    worker = TaskWorker()
    desk = Desk("", tmp_path)
    outcome = worker.work(desk.task("SELECT 1"))
    assert outcome.error is not None
    assert outcome.error.kind == "field"


def test_a_name_is_never_taken_for_something_of_this_program(desk: Desk) -> None:
    for name in ("cursor", "statement", "rows", "columns", "table"):
        assert desk.error(f'SELECT * FROM "{name}"').code == "CatalogException"


def test_sessions_are_kept_and_the_oldest_are_closed(desk: Desk) -> None:
    pool = SessionPool(most=2)
    places = [LakePlace(desk.dsn, name, str(desk.folder / "files")) for name in ("a", "b", "c")]
    first = pool.session(places[0], "w1")
    assert pool.session(places[0], "w2") is first
    assert first.cursor().execute("SELECT getvariable('worker_id')").fetchall() == [("w2",)]
    for place in places[1:]:
        pool.session(place, "w2")
    assert pool.session(places[0], "w2") is not first
    pool.close()
