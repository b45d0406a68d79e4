"""ALTER TABLE at the source: what is followed, what is copied again, what stops."""

from __future__ import annotations

import psycopg
import pytest

from headwater.sources.model import TableStatus
from tests.sources.conftest import World


@pytest.fixture
def shop(world: World) -> World:
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int, s varchar(5))",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO t SELECT i, i, 'r' || i FROM generate_series(1, 30) i",
    )
    world.add("t", "u")
    return world


@pytest.mark.parametrize(
    ("added", "copied"),
    [
        ("b text", False),
        ("b int DEFAULT 5", False),
        ("b timestamptz NOT NULL DEFAULT '2020-01-01 00:00+00'", True),
        ("b numeric(6,2) DEFAULT 1.5", False),
        ("b float8 DEFAULT random()", True),
        ("b int GENERATED ALWAYS AS IDENTITY", True),
        ("b int[] DEFAULT '{1,2}'", True),
        ("b int GENERATED ALWAYS AS (a + 1) STORED", True),
    ],
)
def test_added_columns_follow_with_the_values_that_rows_have(shop: World, added: str, copied: bool) -> None:
    shop.run(
        "INSERT INTO t VALUES (100, 1, 'x')",
        "UPDATE t SET a = 0 WHERE id = 4",
        f"ALTER TABLE t ADD COLUMN {added}",
        "UPDATE t SET a = -1 WHERE id IN (4, 5, 100)",
        "INSERT INTO t VALUES (101, 1, 'y')",
        "DELETE FROM t WHERE id IN (6, 100)",
    )
    result = shop.capture()
    assert result.stopped == ()
    assert (result.copied == ("public.t",)) is copied
    shop.check()
    shop.run("INSERT INTO t VALUES (102, 1, 'y')", "UPDATE t SET a = 77")
    shop.capture()
    shop.check()


def test_wider_types_follow(shop: World) -> None:
    shop.run(
        "ALTER TABLE t ALTER a TYPE bigint, ALTER s TYPE text",
        "INSERT INTO t VALUES (1000, 5000000000, 'a longer text')",
    )
    assert shop.capture().stopped == ()
    shop.check()
    assert [column.type for column in shop.lake.table("t").columns] == ["int32", "int64", "varchar"]


def test_values_that_a_rewrite_changed_are_found(shop: World) -> None:
    shop.run("ALTER TABLE t ALTER a TYPE int USING a * 10", "UPDATE t SET s = 'x' WHERE id = 1")
    result = shop.capture()
    assert (result.copied, result.rows_copied) == (("public.t",), 30)
    shop.check()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE t DROP COLUMN s", "'s' of public.t was dropped"),
        ("ALTER TABLE t RENAME COLUMN s TO r", "renamed to 'r'"),
        ("ALTER TABLE t ALTER a TYPE text", "changed from integer to text"),
        ("ALTER TABLE t RENAME TO elsewhere", "not there any more"),
    ],
)
def test_what_cannot_be_followed_stops_the_table_until_a_resync(
    shop: World, statement: str, message: str
) -> None:
    shop.run(statement, "INSERT INTO u VALUES (1)")
    result = shop.capture()
    assert result.stopped == ("public.t",)
    shop.check("u")
    assert len(shop.here("FROM t")) == 30
    table = shop.sources.get("shop").tables[0]
    assert table.status is TableStatus.STOPPED
    assert message in str(table.error)
    if "elsewhere" in statement:
        shop.run("ALTER TABLE elsewhere RENAME TO t")
    shop.run("DELETE FROM t WHERE id > 20")
    shop.sources.resync("shop")
    names = [name for (name,) in shop.there("SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass "
                                            "AND attnum > 0 AND NOT attisdropped")]  # fmt: skip
    listed = ", ".join(sorted(names))
    shop.check(f"(SELECT {listed} FROM t)", f"SELECT {listed} FROM t")
    shop.run("DELETE FROM t WHERE id = 20")
    shop.capture()
    shop.check(f"(SELECT {listed} FROM t)", f"SELECT {listed} FROM t")


def test_names_that_are_swapped_are_swapped_by_a_resync(shop: World) -> None:
    shop.run(
        "ALTER TABLE t RENAME COLUMN a TO x",
        "ALTER TABLE t RENAME COLUMN s TO a",
        "ALTER TABLE t RENAME COLUMN x TO s",
    )
    assert shop.capture().stopped == ("public.t",)
    result = shop.sources.resync("shop", ["t"])
    assert result.rows_copied == 0  # the columns were renamed, not their values
    shop.check()


def test_a_chosen_column_that_goes_never_makes_a_writer_fail(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 1, 1)")
    world.add("t", columns=["id", "a"], where="b > 0")
    world.run("ALTER TABLE t DROP COLUMN b", "INSERT INTO t VALUES (2, 2)", "UPDATE t SET a = 3")
    assert world.capture().stopped == ("public.t",)
    assert "could not be captured" in str(world.sources.get("shop").tables[0].error)


def test_disabled_triggers_are_noticed(shop: World) -> None:
    shop.run("ALTER TABLE t DISABLE TRIGGER ALL", "UPDATE t SET a = 9 WHERE id = 3")
    result = shop.capture()
    assert (result.copied, result.rows_copied) == (("public.t",), 1)
    shop.check()
    shop.run("UPDATE t SET a = 10 WHERE id = 3")
    assert shop.capture().copied == ()
    shop.check()


def test_what_was_installed_is_installed_again(shop: World) -> None:
    shop.run("DROP SCHEMA headwater_capture CASCADE", "UPDATE t SET a = 9 WHERE id = 3")
    assert shop.capture().copied == ("public.t", "public.u")
    shop.check()
    shop.run("UPDATE t SET a = 10 WHERE id = 3")
    assert shop.capture().copied == ()
    shop.check()


def test_a_rewrite_after_a_truncate_is_noticed(shop: World) -> None:
    shop.run(
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, 5, 'x')",
        "ALTER TABLE t ALTER a TYPE int USING a * 10",
        "INSERT INTO t VALUES (2, 6, 'x')",
    )
    assert shop.capture().copied == ("public.t",)
    shop.check()


def test_a_table_that_is_being_altered_does_not_hold_up_the_others(shop: World) -> None:
    with psycopg.connect(shop.dsn) as altering:
        altering.execute("ALTER TABLE t ADD COLUMN z int")
        shop.run("INSERT INTO u VALUES (1)")
        shop.capture()
        shop.check("u")
        altering.commit()
    shop.capture()
    shop.check()


def test_a_new_key_is_used(shop: World) -> None:
    shop.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "INSERT INTO t VALUES (1, 1, 'r1')")
    shop.capture()
    shop.check()
    assert shop.sources.get("shop").tables[0].layout.key == ()  # type: ignore[union-attr]
    shop.run("DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE id = 1)")
    shop.run("ALTER TABLE t ADD PRIMARY KEY (id)", "UPDATE t SET id = 500 WHERE id = 1")
    shop.capture()
    shop.check()
