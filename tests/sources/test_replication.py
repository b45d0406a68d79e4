"""Capture by logical replication: the same promises, kept by a slot."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError
from headwater.sources.log_reading import LogSnapshot
from headwater.sources.model import CaptureKind
from headwater.sources.pgoutput import array_json
from tests.sources.conftest import World


@pytest.fixture
def shop(world: World) -> Iterator[World]:
    world.method = "replication"
    yield world
    for source in world.sources.all():  # a slot would keep the database
        world.sources.remove(source.name)


def test_changes_come_by_transactions_in_the_order_of_commits(shop: World) -> None:
    shop.run(
        "CREATE TABLE t (id int PRIMARY KEY, a text, l int[], j jsonb)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO t SELECT i, 'r' || i, ARRAY[i, NULL], '{\"a\": 1.10}' FROM generate_series(1, 50) i",
    )
    shop.add("t", "u")
    columns = "(SELECT id, a, l, j::varchar FROM t)", "SELECT id, a, l, j::text FROM t"
    shop.check(*columns)
    assert not shop.sources.pending("shop")
    with psycopg.connect(shop.dsn) as long:
        long.execute("INSERT INTO u VALUES (1)")
        shop.run(
            "INSERT INTO t VALUES (100, NULL, '{}', NULL)",
            "UPDATE t SET a = 'x' WHERE id <= 3",
            "UPDATE t SET id = id + 1000 WHERE id BETWEEN 10 AND 12",
            "DELETE FROM t WHERE id = 20",
            "INSERT INTO t VALUES (20, 'again', NULL, '[]')",
            "DELETE FROM t WHERE id IN (30, 1011)",
        )
        assert shop.sources.pending("shop")
        result = shop.capture()
        assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (3, 4, 4)
        shop.check(*columns)
        assert not shop.here("FROM u")
        long.execute("INSERT INTO t VALUES (101, '', '{1}', NULL)")
        long.commit()
    shop.capture()
    shop.check(*columns)
    shop.check("u")
    assert not shop.sources.pending("shop")
    shop.run("TRUNCATE t, u", "INSERT INTO t VALUES (5, 'five', NULL, NULL)")
    shop.capture()
    shop.check(*columns)
    shop.check("u")


def test_large_values_that_were_left_alone_are_kept(shop: World) -> None:
    shop.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT i, i, repeat(md5(i::text), 200) FROM generate_series(1, 5) i",
    )
    shop.add("t")
    shop.run(
        "UPDATE t SET a = 10 WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        "UPDATE t SET a = 30 WHERE id = 20",
        "INSERT INTO t VALUES (6, 6, repeat('z', 5000))",
        "UPDATE t SET a = 60 WHERE id = 6",
        "UPDATE t SET id = 7 WHERE id = 6",
    )
    shop.capture()
    shop.check()


def test_rows_without_a_key_need_their_whole_identity(shop: World) -> None:
    shop.run("CREATE TABLE t (a int, b text)", "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL)")
    with pytest.raises(HeadwaterError, match="REPLICA IDENTITY FULL"):
        shop.add("t")
    shop.run("ALTER TABLE t REPLICA IDENTITY FULL")
    shop.add("t")
    shop.run(
        "DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)",
        "UPDATE t SET b = 'y' WHERE a = 2",
        "INSERT INTO t VALUES (2, 'y')",
    )
    shop.capture()
    shop.check()
    shop.run("TRUNCATE t", "INSERT INTO t VALUES (3, 'z')")
    shop.capture()
    shop.check()


def test_added_columns_follow_and_others_stop(shop: World) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    shop.add("t")
    shop.run(
        "INSERT INTO t VALUES (3, 3)",
        "ALTER TABLE t ADD COLUMN b int DEFAULT 7",
        "UPDATE t SET a = 0 WHERE id = 1",
        "INSERT INTO t VALUES (4, 4, 4)",
    )
    assert shop.capture().stopped == ()
    shop.check()
    shop.run("UPDATE t SET a = 5", "ALTER TABLE t DROP COLUMN a", "DELETE FROM t WHERE id = 1")
    assert shop.capture().stopped == ("public.t",)
    shop.sources.resync("shop")
    shop.check()
    shop.run("INSERT INTO t VALUES (9, 9)")
    shop.capture()
    shop.check()


@pytest.mark.parametrize(
    "damage",
    [
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE database = current_database()",
        "DO $$ BEGIN EXECUTE format('DROP PUBLICATION %I', (SELECT pubname FROM pg_publication)); END $$",
    ],
)
def test_what_a_lost_slot_did_not_say_is_found_by_a_copy(shop: World, damage: str) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    shop.add("t")
    shop.run("INSERT INTO t VALUES (3, 3)", damage, "DELETE FROM t WHERE id = 1")
    assert shop.capture().copied == ("public.t",)
    shop.check()
    shop.run("UPDATE t SET a = 0")
    assert shop.capture().copied == ()
    shop.check()


def test_the_log_of_others_is_not_kept_for_ever(shop: World) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (a text)")
    shop.add("t")
    shop.capture()
    assert not shop.sources.pending("shop")
    shop.run("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 3000)")
    kept = (
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) < 1000000 "
        "FROM pg_replication_slots WHERE database = current_database()"
    )
    assert shop.there(kept) == {(False,): 1}
    before = shop.lake.snapshot().id
    assert shop.sources.pending("shop")
    assert shop.capture().snapshot_id is None
    assert shop.lake.snapshot().id == before
    assert shop.there(kept) == {(True,): 1}
    assert not shop.sources.pending("shop")


def test_slot_and_publication_go_with_the_source(shop: World) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY)")
    shop.add("t")
    shop.run("INSERT INTO t VALUES (1)")
    shop.capture()
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert shop.there(slots) == {(1,): 1}
    shop.sources.remove("shop")
    assert shop.there(slots) == {(0,): 1}
    assert shop.there("SELECT count(*) FROM pg_publication") == {(0,): 1}


@pytest.mark.parametrize(
    ("table", "options", "kind", "reason"),
    [
        ("CREATE TABLE t (id int PRIMARY KEY)", {}, "replication", "costs writers nothing"),
        ("CREATE TABLE t (id int)", {}, "triggers", "no primary key"),
        ("CREATE TABLE t (id int PRIMARY KEY)", {"where": "id > 1"}, "triggers", "has a condition"),
        ("CREATE TABLE t (id int PRIMARY KEY, r int[][])", {}, "triggers", "not sent as JSON"),
        ("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY HASH (id)", {}, "triggers", "partitioned"),
        (
            "CREATE TABLE t (id int PRIMARY KEY, a int GENERATED ALWAYS AS (id) STORED)",
            {},
            "triggers",
            "generated",
        ),
    ],
)
def test_auto_chooses_and_says_why(
    shop: World, table: str, options: dict[str, str], kind: str, reason: str
) -> None:
    shop.run(table)
    source = shop.add("t", capture="auto", **options)
    assert source.capture is CaptureKind(kind)
    assert reason in source.reason
    if kind == "triggers":
        shop.sources.remove("shop", drop_tables=True)
        with pytest.raises(HeadwaterError, match="cannot be captured by logical"):
            shop.add("t", **options)


@settings(deadline=None)
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_arrays_are_read_as_they_are_printed(values: list[str | None]) -> None:
    import json

    def quoted(value: str | None) -> str:
        if value is None:
            return "NULL"
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    assert json.loads(array_json("{" + ",".join(map(quoted, values)) + "}")) == values


def test_half_an_id_means_the_nearest_transaction() -> None:
    snapshot = LogSnapshot.of(f"{(5 << 32) + 10}:{(5 << 32) + 20}:{(5 << 32) + 15}")
    assert [short for short in (9, 10, 15, 19, 20, 2**32 - 1) if snapshot.has(short)] == [
        9,
        10,
        19,
        2**32 - 1,
    ]
