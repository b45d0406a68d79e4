"""The first copy: consistent while writers go on, in parallel by Spark, and harmless to kill."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headwater.errors import ConflictError, HeadwaterError, SourceUnavailableError
from headwater.lake.lake import Lake
from headwater.lake.writing.commit import Commit
from headwater.sources import connecting, first_copy
from headwater.sources.model import Source, TableStatus
from headwater.sources.postgres import PostgresSources
from headwater.sources.triggers import Names
from headwater.spark.connector import LakeSpark
from tests.sources.conftest import World


class KilledError(Exception):
    pass


def test_large_tables_are_read_by_spark_while_writers_go_on(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_copy, "FOR_THE_DRIVER", 1000)
    world.sources = PostgresSources(world.lake, lambda: LakeSpark(world.lake, spark))
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(12,3), u uuid DEFAULT gen_random_uuid())",
        "INSERT INTO t SELECT i, repeat('x', i % 50), i / 7.0 FROM generate_series(1, 20000) i",
        "CREATE TABLE p (id int, k int) PARTITION BY HASH (k)",
        *(f"CREATE TABLE p{i} PARTITION OF p FOR VALUES WITH (MODULUS 3, REMAINDER {i})" for i in range(3)),
        "INSERT INTO p SELECT i, i FROM generate_series(1, 9000) i",
    )
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(world.dsn, autocommit=True) as connection:
            number = 20000
            while not stop.is_set():
                number += 1
                connection.execute("INSERT INTO t VALUES (%s, 'late', 1)", (number,))
                connection.execute("UPDATE t SET a = 'changed' WHERE id = %s", (number % 20000,))
                connection.execute("DELETE FROM t WHERE id = %s", (number * 7 % 20000,))
                connection.execute("UPDATE p SET k = k + 1 WHERE id = %s", (number % 9000,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        world.add("t", "p")
    finally:
        stop.set()
        writer.join()
    assert len(world.lake.scan("t", 1).files) > 1
    world.capture()
    world.check("t")
    world.check("p")


def test_what_a_task_of_spark_cannot_store_is_told_as_anywhere_else(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(first_copy, "FOR_THE_DRIVER", 1000)
    world.sources = PostgresSources(world.lake, lambda: LakeSpark(world.lake, spark))
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric(12,3), filler text)",
        "INSERT INTO t SELECT i, CASE WHEN i = 19000 THEN 'NaN'::numeric ELSE i END, repeat('x', 50) "
        "FROM generate_series(1, 20000) i",
    )
    with pytest.raises(HeadwaterError, match=r"'n' holds 'NaN', which decimal\(12,3\) cannot hold"):
        world.add("t")
    assert world.sources.all() == []
    assert not [*tmp_path.rglob("*.parquet")]


def test_a_copy_that_is_killed_begins_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 10)")
    real: Callable[[Commit], Any] = Commit.run

    def killed(commit: Commit) -> Any:
        raise KilledError

    monkeypatch.setattr(Commit, "run", killed)
    with pytest.raises(KilledError):
        world.add("t")
    monkeypatch.setattr(Commit, "run", real)
    (source,) = world.sources.all()
    assert source.tables[0].status is TableStatus.NEW
    assert world.sources.pending("shop")
    world.run("INSERT INTO t VALUES (11)")
    world.capture()
    world.check()
    world.run("DELETE FROM t WHERE id = 1")
    world.capture()
    world.check()


def test_two_captures_at_once_never_apply_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE t (a int)")
    world.add("t")
    world.run("INSERT INTO t VALUES (1), (1)")
    other = PostgresSources(Lake.open(world.lake.dsn), lambda: pytest.fail("no Spark"))
    real = Commit.run
    raced = []

    def race(commit: Commit) -> Any:
        if not raced:
            raced.append(True)
            (result,) = other.capture("shop")
            assert result.rows_inserted == 2
        return real(commit)

    monkeypatch.setattr(Commit, "run", race)
    assert world.capture().rows_inserted == 0
    world.check()
    other.close()


def test_what_fails_in_one_source_is_a_result_and_others_go_on(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.add("t")
    world.sources.add(world.dsn, ["u"], name="other", capture="triggers")
    world.run("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)")
    changes = "headwater_capture." + Names(world.sources.get("shop").id).table
    world.run(f"ALTER TABLE {changes} RENAME COLUMN tbl TO gone")
    results = {result.source: result for result in world.sources.capture()}
    assert results["shop"].error is not None
    assert results["other"].rows_inserted == 1
    assert world.sources.get("shop").failures == 1
    assert world.sources.get("shop").last_error is not None
    world.run(f"ALTER TABLE {changes} RENAME COLUMN gone TO tbl")
    world.capture()
    world.check("t")
    world.check("u")
    assert world.sources.get("shop").failures == 0


def test_a_mirror_that_was_dropped_is_made_anew(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    world.add("t")
    with world.lake.transaction() as tx:
        tx.drop_table("t")
    world.run("INSERT INTO t VALUES (2)")
    assert world.capture().stopped == ("public.t",)
    world.sources.resync("shop")
    world.check()


def test_a_source_whose_database_is_gone_can_be_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_PATIENCE_SECONDS", 0.5)
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    world.add("t")
    world.pg.close()
    world.sources.close()
    name = psycopg.conninfo.conninfo_to_dict(world.dsn)["dbname"]
    with psycopg.connect(world.dsn, dbname="postgres", autocommit=True) as other:
        other.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    with pytest.raises(HeadwaterError, match="does not exist"):
        world.sources.remove("shop")
    world.sources.remove("shop", force=True)
    assert world.sources.all() == []
    assert world.here("FROM t") == {(1,): 1}


def test_rows_that_are_hidden_from_us_are_not_taken_for_all(world: World) -> None:
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "DROP ROLE IF EXISTS half_blind",
        "CREATE ROLE half_blind LOGIN",
        "GRANT SELECT, TRIGGER ON t TO half_blind",
    )
    with pytest.raises(HeadwaterError, match="Row security"):
        world.sources.add(world.dsn + " user=half_blind", ["t"], name="shop", capture="triggers")
    world.run("DROP OWNED BY half_blind", "DROP ROLE half_blind")


def test_a_paused_source_loses_nothing(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.add("t")
    world.sources.pause("shop")
    world.run("INSERT INTO t VALUES (1)")
    assert world.sources.capture() == []
    assert not world.sources.pending("shop")
    with pytest.raises(HeadwaterError, match="paused"):
        world.sources.capture("shop")
    world.sources.resume("shop")
    world.capture()
    world.check()


def test_a_locked_table_does_not_hold_up_its_writers_for_long(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    with psycopg.connect(world.dsn) as holder:
        holder.execute("LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE")
        with pytest.raises(SourceUnavailableError, match="locked"):
            world.add("t")
    assert world.sources.all() == []
    world.add("t")


def test_passwords_are_neither_stored_nor_shown_in_clear(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    source: Source = world.sources.add(world.dsn + " password=topsecret", ["t"], name="shop")
    assert source.dsn.startswith("secret:")
    assert "topsecret" not in f"{source} {source.as_dict()} {world.sources.all()}"
    fresh = PostgresSources(world.lake, lambda: pytest.fail("no Spark"))
    world.run("INSERT INTO t VALUES (1)")
    assert fresh.capture("shop")[0].rows_inserted == 1
    fresh.close()
    with pytest.raises(HeadwaterError) as caught:
        world.sources.add("postgresql://me:topsecret@127.0.0.1:1/none", ["t"], name="x")
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        (["nothing"], {}, "no table public.nothing"),
        (["t"], {"columns": ["b"]}, "no column 'b'"),
        (["t", "u"], {"columns": ["id"]}, "for one table"),
        (["t"], {"where": {"u": "true"}}, "none of the tables"),
        (["v"], {}, "is no table"),
        ([], {}, "list of tables"),
        (["t"], {"capture": "magic"}, "no way to capture"),
        (["t", "other.t"], {"schema": "x"}, "Two tables"),
    ],
)
def test_what_cannot_be_added_leaves_nothing_behind(
    world: World, tables: list[str], options: dict[str, Any], message: str
) -> None:
    world.run("CREATE TABLE t (id int)", "CREATE TABLE u (id int)", "CREATE VIEW v AS SELECT 1 AS a")
    with pytest.raises(HeadwaterError, match=message):
        world.add(*tables, **options)
    assert world.sources.all() == []
    assert world.there("SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater_capture'") == {(0,): 1}


def test_conflicts_are_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.add("t")
    world.run("INSERT INTO t VALUES (1)")
    real, failures = Commit.run, []

    def conflict(commit: Commit) -> Any:
        if len(failures) < 2:
            failures.append(True)
            raise ConflictError("somebody was faster")
        return real(commit)

    monkeypatch.setattr(Commit, "run", conflict)
    assert world.capture().rows_inserted == 1
    world.check()
