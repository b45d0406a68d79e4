"""Sinks in the stream table's own lake: in the same snapshot as the result, read by DuckDB under any name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from headwater.errors import HeadwaterError, NotFoundError, StreamTableError
from headwater.refresh.home_sinks import publish_at_home
from headwater.refresh.model import Action, Mode
from headwater.refresh.streams import Streams
from headwater.sinks.model import SinkState
from tests.refresh.conftest import World
from tests.sinks.conftest import counted
from tests.support import catalog_rows, catalog_tables, duck

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
        options: dict[str, Any] = {} if snapshot is None else {"snapshot_version": snapshot}
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
    for _ in range(2):
        change(world)
        assert world.refresh()["r"].action is Action.INCREMENTAL
        expected[world.snapshots()] = world.rows(query)
        assert seen(world, "FROM r") == world.rows(query)
    for snapshot, rows in expected.items():
        assert seen(world, "FROM r", snapshot) == rows
    world.run("DELETE FROM orders")
    world.refresh()
    world.check()
    assert world.streams.verify("r").ok


def test_many_rows_reach_every_sink_through_spark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.spark.writing.rows.FOR_THE_DRIVER", 200)
    start(world)
    world.run("INSERT INTO orders SELECT i, 'r' || i % 60, i FROM range(100, 400) t(i)")
    world.make("r", TOTALS, ducklake_sink_mode="accumulate")
    world.streams.add_sink("r", "copy", {"ducklake_sink_table": "copy"})
    world.streams.add_sink("r", "anew", {"ducklake_sink_table": "anew", "ducklake_sink_mode": "replace"})
    for statement in ("UPDATE orders SET amount = amount + 1", "DELETE FROM orders WHERE id % 3 = 0"):
        world.run(statement)
        world.refresh()
        world.check()
        for table in ("copy", "anew"):
            assert world.rows(f"FROM {table}") == world.rows(TOTALS)


def test_a_table_that_is_there_is_kept_equal_to_the_result(world: World) -> None:
    start(world)
    world.run("CREATE TABLE mine (note VARCHAR, orders BIGINT, total BIGINT, region VARCHAR)")
    number = world.lake.table("mine").id
    world.make("r", TOTALS, ducklake_sink_table_id=str(number))
    columns = "region, total, orders"
    assert world.rows(f"SELECT {columns} FROM mine") == world.rows(TOTALS)
    before = world.lake.table("mine").id
    change(world)
    world.refresh()
    assert seen(world, f"SELECT {columns} FROM mine") == world.rows(TOTALS)
    world.run("DELETE FROM mine WHERE region = 'north'")  # somebody else's doing is undone
    change(world)
    world.refresh()
    assert seen(world, f"SELECT {columns} FROM mine") == world.rows(TOTALS)
    assert world.lake.table("mine").id == before
    world.streams.drop("r")
    assert sum(world.rows("FROM mine").values()) == len(world.rows(TOTALS))


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("CREATE TABLE mine (region VARCHAR, total BIGINT)", "no column 'orders'"),
        ("CREATE TABLE mine (region VARCHAR, total INTEGER, orders BIGINT)", "is INTEGER, not BIGINT"),
        (
            "CREATE TABLE mine (region VARCHAR, total BIGINT, orders BIGINT, x INT NOT NULL)",
            "must have a value",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_nothing_changes(world: World, table: str, why: str) -> None:
    start(world)
    world.run(table)
    before = world.snapshots()
    with pytest.raises(StreamTableError) as caught:
        world.make("r", TOTALS, ducklake_sink_table_id=str(world.lake.table("mine").id))
    assert why in (caught.value.detail or "")
    with pytest.raises(StreamTableError, match="reads it"):
        world.make("r", LARGE, ducklake_sink_table_id=str(world.lake.table("orders").id))
    with pytest.raises(NotFoundError):
        world.make("r", LARGE, ducklake_sink_table_id="12345")
    assert world.snapshots() == before
    assert world.streams.all() == []


def test_a_sink_that_fails_stops_neither_the_refresh_nor_the_other_sinks(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    start(world)
    world.run("CREATE TABLE mine (region VARCHAR, total BIGINT, orders BIGINT)")
    world.make("r", TOTALS, ducklake_sink_table_id=str(world.lake.table("mine").id))
    world.streams.add_sink("r", "trail", {"ducklake_sink_mode": "accumulate", "ducklake_sink_table": "trail"})
    world.run("ALTER TABLE mine RENAME COLUMN total TO amount")
    for failures in (1, 2):
        change(world)
        assert world.refresh()["r"].action is Action.INCREMENTAL
        world.check("r")
        assert world.streams.get("r").sink_state("ducklake").failures == failures
        _hurry(world)
    assert "no column 'total'" in caplog.text
    (status,) = [each for each in world.streams.status()[0].sinks if each.failures]
    assert (status.sink, status.current) == ("ducklake", False)
    assert not world.streams.get("r").sink_state("trail").failures
    world.run("ALTER TABLE mine RENAME COLUMN amount TO total")
    world.refresh()
    assert world.rows("SELECT region, total, orders FROM mine") == world.rows(TOTALS)
    assert all(each.current for each in world.streams.status()[0].sinks)


def codec(file: Path) -> str:
    return str(pq.ParquetFile(file).metadata.row_group(0).column(0).compression)


def _hurry(world: World) -> None:
    """Let the pauses after failures be over."""
    with psycopg.connect(world.lake.dsn) as connection:
        connection.execute("UPDATE headwater.sink SET next_try_at = now()")


def test_files_lie_where_the_sink_says_and_as_it_says(world: World, tmp_path: Path) -> None:
    start(world)
    world.run("INSERT INTO orders SELECT i, 'r' || i, i FROM range(100, 200) t(i)")
    options: dict[str, Any] = {
        "ducklake_sink_path": f"{tmp_path}/elsewhere/",
        "ducklake_sink_compression": "zstd",
    }
    world.make("r", TOTALS, **options)
    world.run("INSERT INTO orders SELECT i, 's' || i, i FROM range(200, 300) t(i)")
    world.refresh()
    world.check()
    files = list((tmp_path / "elsewhere").glob("*.parquet"))
    assert len(files) >= 2
    assert set(map(codec, files)) == {"ZSTD"}
    world.run("DELETE FROM orders WHERE id < 150")
    world.refresh()
    world.check()
    done = world.streams.alter("r", options={"ducklake_sink_path": f"{tmp_path}/third/"})
    assert done is not None
    assert done.action is Action.REINITIALIZE
    assert world.streams.get("r").definition.options == {
        **options,
        "ducklake_sink_path": f"{tmp_path}/third/",
    }
    assert list((tmp_path / "third").glob("*.parquet"))
    world.streams.alter("r", removed=["ducklake_sink_path"], options={"ducklake_sink_compression": "none"})
    world.run("INSERT INTO orders SELECT i, 't' || i, i FROM range(300, 400) t(i)")
    world.refresh()
    world.check()
    own = list((tmp_path / "data" / "_headwater").rglob("*.parquet"))
    assert {pq.ParquetFile(file).metadata.row_group(0).column(0).compression for file in own} == {
        "UNCOMPRESSED"
    }


def test_modes_change_into_each_other_and_other_options_stay(world: World) -> None:
    start(world)
    world.make("r", LARGE, Mode.AUTO, max_failures="7")
    for mode in ("accumulate", "replace", "merge", "accumulate"):
        change(world)
        before = world.snapshots()
        world.streams.alter("r", options={"ducklake_sink_mode": mode})
        assert world.snapshots() == before + 1
        old = world.rows(f"FROM r AT (VERSION => {before})")
        assert seen(world, "FROM r") == old  # another way to show the same rows
        world.refresh()
        world.check()
        definition = world.streams.get("r").definition
        assert definition.options == {"max_failures": "7", "ducklake_sink_mode": mode}
        made = [table.name.name for table in world.lake.state().tables.values() if "sink_" in table.name.name]
        assert made == ([] if mode == "merge" else ["main__r__sink_ducklake"])
    world.streams.drop("r")
    state = world.lake.state()
    assert [str(table.name) for table in state.tables.values()] == ["main.orders"]
    assert not state.views
    assert catalog_rows(world.lake.dsn, "sink", "headwater") == []


def test_the_log_holds_every_change_once_and_in_order(world: World) -> None:
    start(world)
    world.make("r", LARGE, ducklake_sink_mode="accumulate", ducklake_sink_table="main.trail")
    for _ in range(3):
        change(world)
        world.refresh()
    log = world.con.execute("SELECT _sequence, _op, _refresh_id FROM trail ORDER BY 1").fetchall()
    assert len({row[0] for row in log}) == len(log)
    refreshes = [row.refresh_id for row in reversed(world.streams.provenance("r"))]
    assert list(dict.fromkeys(row[2] for row in log)) == refreshes
    assert {row[1] for row in log} == {"insert", "delete"}
    for refresh_id in refreshes:
        operations = [row[1] for row in log if row[2] == refresh_id]
        assert operations == sorted(operations)  # what goes, goes first
    world.streams.alter("r", query=LARGE.replace("> 5", "> 9"))
    assert world.rows("FROM r") == world.rows(LARGE.replace("> 5", "> 9"))
    last = world.con.execute("SELECT _op FROM trail ORDER BY _sequence").fetchall()
    assert last.count(("truncate",)) == 1


@pytest.mark.parametrize("place", ["ducklake_view", "ducklake_data_file"])
def test_view_storage_and_definition_change_together_or_not_at_all(world: World, place: str) -> None:
    start(world)
    world.run("INSERT INTO orders SELECT i, 'r' || i, i FROM range(100, 200) t(i)")
    with psycopg.connect(world.lake.dsn, autocommit=True) as connection:

        def fail(yes: bool) -> None:
            if not yes:
                connection.execute(f"DROP TRIGGER refuse ON {place}")
                return
            connection.execute(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'refused by a trigger'; END $$"
            )
            connection.execute(
                f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {place} EXECUTE FUNCTION refuse()"
            )

        def unchanged(work: Callable[[], object]) -> None:
            before = _catalog(world)
            fail(True)
            with pytest.raises((HeadwaterError, psycopg.Error), match="refused"):
                work()
            fail(False)
            assert _catalog(world) == before

        unchanged(lambda: world.make("r", TOTALS, ducklake_sink_mode="accumulate"))
        world.make("r", TOTALS, ducklake_sink_mode="accumulate")
        unchanged(lambda: world.streams.alter("r", options={"ducklake_sink_mode": "replace"}))
        unchanged(lambda: world.streams.alter("r", query=LARGE))
        unchanged(lambda: world.streams.drop("r"))
        world.check()
        world.streams.drop("r")
        assert not world.lake.state().views


def test_sinks_that_change_during_a_refresh_miss_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(world)
    world.make("r", TOTALS)
    change(world)
    others = Streams(world.lake, lambda: world.session)
    waiting = ["accumulate"]

    def alter_first(*given: Any) -> list[SinkState]:
        if waiting:
            others.alter("r", options={"ducklake_sink_mode": waiting.pop()})
        return publish_at_home(*given)

    monkeypatch.setattr("headwater.refresh.wave.publish_at_home", alter_first)
    assert world.refresh()["r"].action is Action.INCREMENTAL
    world.check()
    change(world)
    world.refresh()
    world.check()


def test_a_join_that_fails_leaves_everything_as_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    start(world)
    world.make("r", TOTALS, ducklake_sink_mode="replace")
    change(world)
    before = _catalog(world)

    def refuse(*_: Any) -> Any:
        def join(cursor: Any, snapshot: int) -> None:
            raise StreamTableError("refused by a join")

        return join

    with monkeypatch.context() as patched:
        patched.setattr(world.streams.store, "note_sinks", refuse)
        with pytest.raises(StreamTableError, match="refused by a join"):
            world.refresh()
    assert _catalog(world) == before
    world.refresh()
    world.check()


def _catalog(world: World) -> dict[str, list[dict[str, Any]]]:
    """Everything that a failure must leave alone."""
    own = ("stream_table", "stream_frontier", "provenance", "sink")
    found = {name: catalog_rows(world.lake.dsn, name, "headwater") for name in own} if _has_own(world) else {}
    tables = [name for name in catalog_tables(world.lake.dsn) if name.startswith("ducklake_")]
    found |= {name: catalog_rows(world.lake.dsn, name) for name in tables if "metadata" not in name}
    return {name: rows for name, rows in found.items() if rows}


def _has_own(world: World) -> bool:
    return "stream_table" in catalog_tables(world.lake.dsn, "headwater")


def test_tags_tell_query_sources_and_freshness_without_a_new_schema_version(world: World) -> None:
    start(world)
    world.make("r", TOTALS)
    text = "SELECT tags FROM duckdb_views() WHERE view_name = 'r' AND database_name = 'other'"

    def tags() -> dict[str, str]:
        other = duck(world.lake.dsn, alias="other")
        (found,) = other.execute(text).fetchone()
        other.close()
        return dict(found)

    first, version = tags(), world.lake.snapshot().schema_version
    assert first["headwater.query"] == TOTALS
    assert first["headwater.source_table_ids"] == f"[{world.lake.table('orders').id}]"
    for _ in range(2):
        change(world)
        source = world.snapshots()
        world.refresh()
        now = tags()
        assert now["headwater.data_snapshot_id"] == str(source)
        assert now["headwater.refresh_id"] == world.streams.provenance("r")[0].refresh_id
        assert now["headwater.refreshed_at"] > first["headwater.refreshed_at"]
        assert world.streams.status()[0].tags["data_snapshot_id"] == str(source)
    assert world.lake.snapshot().schema_version == version
    live = [row for row in catalog_rows(world.lake.dsn, "ducklake_tag") if row["end_snapshot"] is None]
    assert len({row["key"] for row in live}) == len(live)
