"""Sinks outside the lake: deltas that are applied once, whatever fails on the way, and that catch up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from headwater._version import __version__
from headwater.errors import NotFoundError
from headwater.lake.embedded import EmbeddedServer
from headwater.refresh.model import Definition, Mode
from headwater.refresh.publishing import Publisher
from headwater.sinks.model import Delivered
from headwater.typedefs import TableName
from tests.refresh.conftest import World
from tests.sinks.conftest import Elsewhere
from tests.sinks.test_home_sinks import LARGE, TOTALS, change, start
from tests.support import catalog_rows

ONE_ROW = "SELECT count(*) AS n, sum(amount) AS total FROM orders"


def only(delivered: list[Delivered]) -> Delivered:
    assert len(delivered) == 1
    return delivered[0]


def publisher(world: World) -> Publisher:
    return Publisher(world.lake, world.streams.store)


@pytest.mark.parametrize(
    ("query", "columns"),
    [(TOTALS, "*"), (LARGE, "region, amount"), (ONE_ROW, "*")],
    ids=["key", "none", "one"],
)
def test_a_table_in_postgresql_is_kept_by_deltas(
    world: World, elsewhere: Elsewhere, query: str, columns: str
) -> None:
    start(world)
    world.make("r", query, sink="ducklake, postgres", postgres_sink_dsn=elsewhere.dsn)
    assert elsewhere.rows("r", columns) == world.rows(query)
    writes = "SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relname = 'r'"
    for number in range(2):
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
    for _ in range(2):
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
    assert newest.author == f"headwater/{__version__}/stream_table/main.r/{_refresh(world)}"
    lake.close()
    world.streams.drop("r")
    lake = elsewhere.lake()
    assert not [name for name in lake.state().tables if name[1].startswith("r")]
    assert not lake.state().views
    lake.close()
    assert elsewhere.fetch("SELECT * FROM headwater.sink_position") == []


def _refresh(world: World) -> str:
    return world.streams.provenance("r")[0].refresh_id


def both(world: World, elsewhere: Elsewhere, query: str = TOTALS) -> None:
    """A stream table with a log in another lake, and a table in the same database."""
    world.make(
        "r",
        query,
        sink="ducklake, postgres",
        postgres_sink_dsn=elsewhere.dsn,
        postgres_sink_table="shop.result",
        ducklake_sink_catalog=elsewhere.dsn,
        ducklake_sink_path=f"{elsewhere.folder}/",
        ducklake_sink_mode="accumulate",
    )


def agree(world: World, elsewhere: Elsewhere, query: str = TOTALS, columns: str = "*") -> None:
    assert elsewhere.rows("shop.result", columns) == world.rows(query)
    assert elsewhere.lake_rows("FROM main.r") == world.rows(query)


def allow(server: EmbeddedServer, elsewhere: Elsewhere, yes: bool) -> None:
    """Let the database of the sinks take connections, or none."""
    database = str(psycopg.conninfo.conninfo_to_dict(elsewhere.dsn)["dbname"])
    name = sql.Identifier(database)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(name, sql.Literal(yes)))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND NOT %s",
            (database, yes),
        )


def test_sinks_that_are_down_during_three_refreshes_catch_up(
    world: World, elsewhere: Elsewhere, pg_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    start(world)
    both(world, elsewhere)
    world.streams.add_sink("r", "here", {"ducklake_sink_table": "copy", "ducklake_sink_mode": "replace"})
    allow(pg_server, elsewhere, False)
    for failures in (1, 2, 3):
        change(world)
        assert world.refresh()["r"].rows_inserted
        world.check()
        assert world.rows("FROM copy") == world.rows(TOTALS)
        for state in world.streams.get("r").sink_states:
            assert state.failures == (0 if state.name == "here" else failures), state
        with psycopg.connect(world.lake.dsn) as connection:
            connection.execute("UPDATE headwater.sink SET next_try_at = now() WHERE failures > 0")
    assert caplog.text.count("failed (3 in a row)") == 2
    failing = [each for each in world.streams.status()[0].sinks if not each.current]
    assert {each.sink for each in failing} == {"ducklake", "postgres"}
    assert all(each.failing_since and each.last_error for each in failing)
    assert publisher(world).pending()
    allow(pg_server, elsewhere, True)
    done = publisher(world).deliver()
    assert {each.outcome for each in done} == {"changes"}
    agree(world, elsewhere)
    assert not publisher(world).pending()
    assert all(each.current and not each.failures for each in world.streams.status()[0].sinks)


def test_a_sink_that_fails_is_left_alone_for_a_while(
    world: World, elsewhere: Elsewhere, pg_server: EmbeddedServer
) -> None:
    start(world)
    world.make("r", TOTALS, sink="postgres", postgres_sink_dsn=elsewhere.dsn)
    allow(pg_server, elsewhere, False)
    change(world)
    world.refresh()
    allow(pg_server, elsewhere, True)
    assert only(publisher(world).deliver()).outcome == "waiting"
    assert not publisher(world).pending()
    assert only(publisher(world).deliver(force=True)).outcome == "changes"


def test_what_was_delivered_is_not_delivered_again_after_a_crash(
    world: World, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(world)
    both(world, elsewhere, LARGE)
    log = "SELECT count(*) FROM _headwater.main__r__log"

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        change(world)
        with monkeypatch.context() as patched:
            patched.setattr(world.streams.store, "record_sink", crash)
            with pytest.raises(KeyboardInterrupt):
                world.refresh()  # the first sink was served, and nobody noted it
        before = elsewhere.lake_rows(log)
        outcomes = {each.sink: each.outcome for each in publisher(world).deliver()}
        assert outcomes == {"ducklake": "nothing", "postgres": "changes"}
        assert elsewhere.lake_rows(log) == before
        agree(world, elsewhere, LARGE, "region, amount")


def test_two_that_deliver_at_once_apply_once(
    world: World, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(world)
    both(world, elsewhere, LARGE)
    for _ in range(3):
        change(world)
        with monkeypatch.context() as patched:
            patched.setattr(world.streams.publisher, "deliver", lambda names: [])
            world.refresh()
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda one: one.deliver(), [publisher(world), publisher(world)]))
        for sink in ("ducklake", "postgres"):
            outcomes = sorted(each.outcome for found in done for each in found if each.sink == sink)
            assert outcomes in (["changes"], ["changes", "nothing"])
        agree(world, elsewhere, LARGE, "region, amount")


def test_everything_is_sent_again_if_deltas_are_large_or_gone_or_the_result_was_rebuilt(
    world: World, elsewhere: Elsewhere, pg_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(world)
    both(world, elsewhere)
    with monkeypatch.context() as patched:
        patched.setattr("headwater.sinks.result.MOST_CHANGES", 1)
        change(world)
        world.refresh()
        agree(world, elsewhere)
    allow(pg_server, elsewhere, False)
    change(world)
    world.refresh()
    world.run("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)")
    allow(pg_server, elsewhere, True)
    assert {each.outcome for each in publisher(world).deliver(force=True)} == {"everything"}
    agree(world, elsewhere)
    other = "SELECT region, max(amount) AS largest, 'x' AS x FROM orders GROUP BY region"
    world.streams.alter("r", query=other)
    agree(world, elsewhere, other)
    change(world)
    world.refresh()
    agree(world, elsewhere, other)


def test_what_a_target_refuses_is_a_warning_and_leaves_it_as_it_was(
    world: World, elsewhere: Elsewhere
) -> None:
    start(world)
    both(world, elsewhere)
    before = elsewhere.rows("shop.result"), elsewhere.lake_rows("FROM main.r")
    elsewhere.fetch(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'refused by a trigger'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON headwater.sink_position EXECUTE FUNCTION refuse()"
    )
    change(world)
    assert world.refresh()["r"].rows_inserted
    assert (elsewhere.rows("shop.result"), elsewhere.lake_rows("FROM main.r")) == before
    for status in world.streams.status()[0].sinks:
        assert "refused by a trigger" in (status.last_error or "")
    elsewhere.fetch("DROP TRIGGER refuse ON headwater.sink_position")
    assert {each.outcome for each in publisher(world).deliver(force=True)} == {"changes"}
    agree(world, elsewhere)


def test_a_row_to_be_changed_that_is_not_there_means_that_everything_is_sent(
    world: World, elsewhere: Elsewhere
) -> None:
    start(world)
    world.make("r", TOTALS, sink="postgres", postgres_sink_dsn=elsewhere.dsn)
    elsewhere.fetch("DELETE FROM r WHERE region IN ('north', 'south')")
    change(world)
    world.refresh()
    assert elsewhere.rows("r") == world.rows(TOTALS)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("CREATE TABLE r AS SELECT 1 AS one", "has rows, and they are not of main.r"),
        ("CREATE TABLE r (region text, total bigint)", "no column 'orders' (bigint)"),
        ("CREATE TABLE r (region text, total int, orders bigint)", "'total' is integer, not bigint"),
        (
            "CREATE TABLE r (region text, total bigint, orders bigint, x int NOT NULL)",
            "'x' must have a value",
        ),
    ],
)
def test_a_table_that_is_there_must_be_empty_and_fit(
    world: World, elsewhere: Elsewhere, table: str, why: str
) -> None:
    start(world)
    elsewhere.fetch(table)
    world.make("r", TOTALS, sink="postgres", postgres_sink_dsn=elsewhere.dsn)
    (status,) = world.streams.status()[0].sinks
    assert why in (status.last_error or "")
    elsewhere.fetch("DROP TABLE r; CREATE TABLE r (x int, orders bigint, total bigint, region text)")
    assert only(publisher(world).deliver(force=True)).outcome == "everything"
    assert elsewhere.rows("r", "region, total, orders") == world.rows(TOTALS)
    world.streams.drop("r")
    assert elsewhere.rows("r", "region, total, orders") == world.rows(TOTALS)  # applications may read it


def test_passwords_are_kept_encrypted_and_shown_to_nobody(
    world: World, elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    start(world)
    secret = "hunter2-very-secret"
    dsn = psycopg.conninfo.make_conninfo(elsewhere.dsn, password=secret)
    caplog.set_level("DEBUG")
    world.make("r", TOTALS, sink="postgres", postgres_sink_dsn=dsn)
    assert elsewhere.rows("r") == world.rows(TOTALS)
    assert len(catalog_rows(world.lake.dsn, "secret", "headwater")) == 1
    again = Definition(
        TableName("main", "r"),
        TOTALS,
        mode=Mode.STRICT,
        options={"sink": "postgres", "postgres_sink_dsn": dsn},
    )
    assert world.streams.plan(again).kind == "nothing"  # the same password is no change
    changed = {**again.options, "postgres_sink_dsn": dsn.replace(secret, secret + "2")}
    planned = world.streams.plan(Definition(again.name, TOTALS, mode=Mode.STRICT, options=changed))
    assert planned.reasons[0].startswith("Option postgres_sink_dsn changes")
    world.streams.alter("r", options=changed)
    broken = dsn.replace("port=", "port=1")
    world.streams.alter("r", options={"postgres_sink_dsn": broken})
    (status,) = world.streams.status()[0].sinks
    assert status.failures
    assert len(catalog_rows(world.lake.dsn, "secret", "headwater")) == 1
    shown = [caplog.text, str(world.streams.status()), str(world.streams.get("r")), str(planned), str(status)]
    for table in ("stream_table", "sink", "refresh", "provenance", "secret"):
        shown.append(str(catalog_rows(world.lake.dsn, table, "headwater")))
    shown += [str(snapshot) for snapshot in world.lake.snapshots()]
    assert not [text for text in shown if secret in text]
    world.streams.drop("r")
    assert catalog_rows(world.lake.dsn, "secret", "headwater") == []


TYPES = """
    SELECT id, CAST(id AS BIGINT) AS big, CAST(id AS DECIMAL(20,3)) / 3 AS exact, id / 3 AS rough,
        id > 1 AS flag, concat('ä\\t', id, '\\n') AS text, CAST(concat('b', id) AS BINARY) AS bytes,
        CAST('2024-02-29' AS DATE) AS day, CAST('2024-02-29 12:34:56.789' AS TIMESTAMP_NTZ) AS local,
        CAST('2024-02-29 12:34:56.789Z' AS TIMESTAMP) AS moment, array(id, NULL) AS several,
        named_struct('a', id, 'b', array('x')) AS nested, map('k', id) AS pairs,
        CAST(NULL AS STRING) AS nothing, double('NaN') AS nan
    FROM orders"""


def test_all_types_arrive_in_postgresql(world: World, elsewhere: Elsewhere) -> None:
    world.run("CREATE TABLE orders (id INTEGER)", "INSERT INTO orders VALUES (1), (2)")
    world.make("r", TYPES, Mode.AUTO, sink="postgres", postgres_sink_dsn=elsewhere.dsn)
    world.run("UPDATE orders SET id = 3 WHERE id = 2", "INSERT INTO orders VALUES (4)")
    world.refresh()
    assert not world.streams.status()[0].sinks[0].failures, world.streams.status()[0].sinks[0].last_error
    plain = "id, big, exact, rough, flag, text, bytes, day, local, moment, several, nothing"
    found = sorted(elsewhere.fetch(f"SELECT {plain} FROM r"), key=lambda row: row[0])
    expected = sorted(world.con.execute(f"SELECT {plain} FROM r").fetchall(), key=lambda row: row[0])
    assert [row[:9] + row[10:] for row in found] == [row[:9] + row[10:] for row in expected]
    assert [row[9].timestamp() for row in found] == [row[9].timestamp() for row in expected]
    nested = elsewhere.fetch("SELECT nested, pairs, nan::text FROM r WHERE id = 3")
    assert nested == [({"a": 3, "b": ["x"]}, {"k": 3}, "NaN")]


def test_another_lake_refuses_names_that_are_taken_and_lakes_that_are_not_there(
    world: World, elsewhere: Elsewhere
) -> None:
    start(world)
    world.make("r", TOTALS, ducklake_sink_catalog=elsewhere.dsn)
    assert "There is no DuckLake catalog" in (world.streams.status()[0].sinks[0].last_error or "")
    world.streams.alter("r", options={"ducklake_sink_path": f"{elsewhere.folder}/"})
    assert elsewhere.lake_rows("FROM main.r") == world.rows(TOTALS)
    world.make("s", LARGE, ducklake_sink_catalog=elsewhere.dsn, ducklake_sink_table="main.r")
    assert "has something named main.r already" in str(world.streams.status()[1].sinks[0].last_error)
    world.make("t", LARGE, ducklake_sink_catalog=world.lake.dsn)
    assert "is the lake that main.t is in" in str(world.streams.status()[2].sinks[0].last_error)
    with pytest.raises(NotFoundError, match="no sink 'x'"):
        world.streams.drop_sink("r", "x")
