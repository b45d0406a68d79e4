"""Capture by triggers: what commits at the source is in the lake, once, and as a whole."""

from __future__ import annotations

import psycopg
import pytest

from headwater.errors import HeadwaterError
from headwater.sources.model import TableStatus
from tests.sources.conftest import World


def test_rows_are_copied_and_then_followed(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(10,2))")
    world.run("INSERT INTO t SELECT i, 'r' || i, i / 4.0 FROM generate_series(1, 100) i")
    source = world.add("t")
    assert source.tables[0].layout is not None
    assert source.tables[0].layout.key == ("id",)
    world.check()
    assert not world.sources.pending("shop")
    world.run(
        "INSERT INTO t VALUES (1000, NULL, 7.25)",
        "UPDATE t SET a = 'changed' WHERE id <= 3",
        "UPDATE t SET id = id + 5000 WHERE id = 50",
        "DELETE FROM t WHERE id BETWEEN 90 AND 95",
    )
    assert world.sources.pending("shop")
    result = world.capture()
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (2, 3, 7)
    assert result.transactions == 4
    world.check()
    assert not world.sources.pending("shop")
    assert world.capture().snapshot_id is None


def test_updates_keep_the_row_ids_of_the_mirror(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    world.add("t")
    before = world.here("SELECT rowid, id FROM t")
    world.run(
        "UPDATE t SET a = 'z' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (2, 'w')"
    )
    snapshot = world.capture().snapshot_id
    assert world.here("SELECT rowid, id FROM t") == before
    kinds = world.lake.changes("t", snapshot or 0).column("_change_type").to_pylist()
    assert sorted(kinds) == ["update_postimage"] * 2 + ["update_preimage"] * 2


def test_rows_without_a_key_are_counted(world: World) -> None:
    world.run("CREATE TABLE t (a int, b text, f float8)")
    world.run("INSERT INTO t VALUES (1, 'x', 'NaN'), (1, 'x', 'NaN'), (1, 'x', 'NaN'), (2, NULL, 0)")
    world.add("t")
    world.run(
        "DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE a = 1)",
        "INSERT INTO t VALUES (2, NULL, 0), (2, NULL, 0)",
        "UPDATE t SET b = 'new' WHERE ctid = (SELECT min(ctid) FROM t WHERE a = 2)",
    )
    world.capture()
    world.check("(SELECT a, b, isnan(f) FROM t)", "SELECT a, b, f = 'NaN' FROM t")


def test_a_long_transaction_comes_later_but_whole(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.add("t", "u")
    with psycopg.connect(world.dsn) as long:
        long.execute("INSERT INTO t VALUES (1)")
        world.run("INSERT INTO t VALUES (2)")
        world.capture()
        world.check("t")
        long.execute("INSERT INTO u VALUES (1)")
        world.run("INSERT INTO t VALUES (3)")
        world.capture()
        assert world.here("FROM t") == {(2,): 1, (3,): 1}
        assert not world.sources.pending("shop")
        long.commit()
    assert world.capture().snapshot_id is not None
    world.check("t")
    world.check("u")


def test_what_is_rolled_back_is_never_seen(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1)")
    world.add("t")
    with psycopg.connect(world.dsn) as other:
        other.execute("UPDATE t SET a = 2")
        other.rollback()
        other.execute("SAVEPOINT s")
        other.execute("INSERT INTO t VALUES (2, 2)")
        other.execute("ROLLBACK TO s")
        other.execute("INSERT INTO t VALUES (3, 3)")
        other.commit()
    world.capture()
    world.check()


def test_truncate_empties_the_mirror(world: World) -> None:
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 50) i",
    )
    world.add("t")
    world.run("UPDATE t SET a = 0", "TRUNCATE t", "INSERT INTO t VALUES (1, 7)", "UPDATE t SET a = 8")
    result = world.capture()
    assert (result.rows_inserted, result.rows_deleted, result.copied) == (1, 50, ())
    world.check()


def test_triggers_of_users_may_change_the_same_rows(world: World) -> None:
    # They run before ours and after it; the order in which changes are written is not that of the rows.
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int)",
        """CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN UPDATE t SET a = a + 1 WHERE id <> NEW.id AND a < 20; RETURN NULL; END $$""",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 5) i",
        "CREATE TRIGGER a_first AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION more()",
    )
    world.add("t")
    world.run("UPDATE t SET a = a + 1", "INSERT INTO t VALUES (10, 1), (11, 2)")
    world.capture()
    world.check()


def test_a_deferred_key_that_changes_hands_is_followed(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, a text)")
    world.run("INSERT INTO t VALUES (1, 'old'), (2, 'b')")
    world.add("t")
    with psycopg.connect(world.dsn) as taker, psycopg.connect(world.dsn) as giver:
        taker.execute("INSERT INTO t VALUES (1, 'new')")
        giver.execute("DELETE FROM t WHERE id = 1")
        giver.commit()
        taker.commit()
    world.run("UPDATE t SET id = 3 - id")
    world.capture()
    world.check()


def test_columns_and_condition_choose_a_part(world: World) -> None:
    world.run(
        'CREATE TABLE t (id int PRIMARY KEY, "Region" text, a int, secret text)',
        "INSERT INTO t SELECT i, (ARRAY['eu', 'us'])[i % 2 + 1], i, 's' FROM generate_series(1, 20) i",
    )
    world.add("t", columns=["id", "a", "Region"], where="\"Region\" = 'eu' AND t.a > 3")
    part = 'SELECT id, a, "Region" FROM t WHERE "Region" = \'eu\' AND a > 3'
    world.check("t", part)
    world.run(
        "UPDATE t SET \"Region\" = 'us' WHERE id = 6",
        "UPDATE t SET \"Region\" = 'eu' WHERE id = 7",
        "UPDATE t SET a = a + 1 WHERE id < 5",
        "UPDATE t SET secret = 'x'",
        "INSERT INTO t VALUES (100, 'eu', 1, ''), (101, 'eu', 9, '')",
        "DELETE FROM t WHERE id IN (8, 9)",
    )
    world.capture()
    world.check("t", part)
    assert "secret" not in [column.name for column in world.lake.table("t").columns]


def test_columns_without_the_key_are_counted(world: World) -> None:
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x'), (2, 'x'), (3, 'y')"
    )
    world.add("t", columns=["a"])
    world.run(
        "DELETE FROM t WHERE id = 1", "UPDATE t SET a = 'z' WHERE id = 3", "INSERT INTO t VALUES (4, 'x')"
    )
    world.capture()
    world.check("t", "SELECT a FROM t")


@pytest.mark.parametrize(
    "condition", ["a > now()", "a IN (SELECT 1)", "nothing = 1", "count(*) > 1", "true; DROP TABLE t"]
)
def test_a_condition_that_cannot_be_kept_is_refused(world: World, condition: str) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a timestamptz)")
    with pytest.raises(HeadwaterError, match="condition"):
        world.add("t", where=condition)
    assert world.sources.all() == []
    assert world.there("SELECT count(*) FROM t") == {(0,): 1}


def test_partitions_are_followed_wherever_rows_are_written(world: World) -> None:
    world.run(
        "CREATE TABLE t (id int, region text, a int, PRIMARY KEY (id, region)) PARTITION BY LIST (region)",
        "CREATE TABLE t_eu PARTITION OF t FOR VALUES IN ('eu')",
        "CREATE TABLE other (a int, region text NOT NULL, id int NOT NULL)",
        "ALTER TABLE t ATTACH PARTITION other FOR VALUES IN ('us')",
        "INSERT INTO t SELECT i, (ARRAY['eu', 'us'])[i % 2 + 1], i FROM generate_series(1, 20) i",
    )
    world.add("t")
    world.check()
    world.run(
        "UPDATE t SET region = 'us' WHERE id = 2",
        "INSERT INTO t_eu VALUES (100, 'eu', 5)",
        "DELETE FROM other WHERE id = 3",
    )
    result = world.capture()
    assert result.copied == ()
    world.check()
    world.run("CREATE TABLE t_x PARTITION OF t FOR VALUES IN ('x')", "INSERT INTO t VALUES (7, 'x', 1)")
    world.capture()
    world.check()
    world.run("TRUNCATE t_eu")
    world.run("INSERT INTO t VALUES (8, 'x', 1)")
    assert world.capture().copied == ("public.t",)
    world.check()


def test_writers_need_no_rights_and_their_settings_do_not_matter(world: World) -> None:
    world.run(
        'CREATE SCHEMA "Odd.Schema"',
        'CREATE TABLE "Odd.Schema"."T 1" (id int PRIMARY KEY, f float8, t timestamptz, i interval, b bytea)',
        "DROP ROLE IF EXISTS poor_writer",
        "CREATE ROLE poor_writer",
        'GRANT USAGE ON SCHEMA "Odd.Schema" TO poor_writer',
        'GRANT INSERT, UPDATE, DELETE, SELECT ON "Odd.Schema"."T 1" TO poor_writer',
    )
    world.add('"Odd.Schema"."T 1"')
    with psycopg.connect(world.dsn) as writer:
        writer.execute("SET ROLE poor_writer")
        for setting in (
            "DateStyle = 'German'",
            "TimeZone = 'Asia/Kolkata'",
            "extra_float_digits = -10",
            "IntervalStyle = 'sql_standard'",
            "bytea_output = 'escape'",
            "search_path = pg_temp",
        ):
            writer.execute(f"SET {setting}".encode())
        writer.execute(
            'INSERT INTO "Odd.Schema"."T 1" VALUES '
            "(1, 0.1::float8 + 0.2, '2020-02-03 04:05:06.789', '1 mon -2 days 03:04:05.6', '\\x00ff41')"
        )
        writer.commit()
        writer.execute("SET TimeZone = 'America/New_York'")
        writer.execute('UPDATE "Odd.Schema"."T 1" SET f = f WHERE id = 1')
        writer.execute('UPDATE "Odd.Schema"."T 1" SET id = 2 WHERE id = 1')
        writer.commit()
    world.capture()
    assert world.here('SELECT id, f, t::text, i, b FROM "Odd.Schema"."T 1"') == {
        (2, 0.1 + 0.2, "2020-02-02 22:35:06.789+00", "P1M-2DT3H4M5.6S", b"\x00\xffA"): 1
    }
    world.run("DROP OWNED BY poor_writer", "DROP ROLE poor_writer")


def test_a_user_who_owns_nothing_can_mirror(world: World) -> None:
    ((name,),) = world.there("SELECT current_database()")
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int)",
        "INSERT INTO t VALUES (1, 1)",
        "DROP ROLE IF EXISTS mirrorer",
        "CREATE ROLE mirrorer LOGIN",
    )
    asked = {"name": "shop", "where": "a > 0"}
    with pytest.raises(HeadwaterError, match="may not make triggers"):
        world.sources.add(world.dsn + " user=mirrorer", ["t"], **asked)
    world.run("GRANT SELECT, TRIGGER ON t TO mirrorer")
    with pytest.raises(HeadwaterError, match="may not create a schema"):
        world.sources.add(world.dsn + " user=mirrorer", ["t"], **asked)
    world.run(f"GRANT CREATE ON DATABASE {name} TO mirrorer")
    source = world.sources.add(world.dsn + " user=mirrorer", ["t"], **asked)
    assert str(source.capture) == "triggers"
    world.run("INSERT INTO t VALUES (2, 2)", "TRUNCATE t", "INSERT INTO t VALUES (3, 3)")
    world.capture()
    world.check()
    world.run("ALTER TABLE t DISABLE TRIGGER ALL", "DELETE FROM t")
    world.capture()
    world.check()
    world.sources.remove("shop")
    assert world.there("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == {(0,): 1}
    assert world.there("SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater_capture'") == {(0,): 1}
    world.run("DROP OWNED BY mirrorer", "DROP ROLE mirrorer")


def test_what_captures_is_pruned_and_removed(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.add("t", "u")
    world.run("INSERT INTO t SELECT generate_series(1, 10)")
    (table,) = world.there(
        "SELECT relname FROM pg_class WHERE relnamespace = 'headwater_capture'::regnamespace "
        "AND relkind = 'r'"
    )
    assert world.there(f"SELECT count(*) FROM headwater_capture.{table[0]}") == {(10,): 1}
    world.capture()
    assert world.there(f"SELECT count(*) FROM headwater_capture.{table[0]}") == {(0,): 1}
    world.sources.remove("shop")
    assert world.there("SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater_capture'") == {(0,): 1}
    assert world.there("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == {(0,): 1}
    world.check("t")
    with pytest.raises(HeadwaterError, match="already has"):
        world.add("t")


def test_a_capture_says_where_it_came_from(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY)")
    world.add("t")
    with world.pg.transaction():
        world.run("INSERT INTO t VALUES (1)")
        ((xid,),) = world.there("SELECT pg_current_xact_id()::text::bigint")
    result = world.capture()
    (record, copied) = world.sources.captures("shop")
    assert (record.snapshot_id, record.xids, record.rows_inserted) == (result.snapshot_id, (xid,), 1)
    assert (copied.kind, record.position_before) == ("copy", copied.position_after)
    snapshot = world.lake.snapshot(result.snapshot_id)
    assert (snapshot.author or "").startswith("headwater/")
    assert (snapshot.author or "").endswith(f"/source/shop/{record.batch_id}")
    assert f'"xids": [{xid}]' in (snapshot.extra_info or "")


def test_a_mirror_that_others_changed_stops_and_a_resync_repairs_it(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "CREATE TABLE u (id int PRIMARY KEY)")
    world.run("INSERT INTO t SELECT i, i FROM generate_series(1, 20) i")
    world.add("t", "u")
    with world.lake.transaction() as tx:
        tx.delete("t", "id = 7")
    world.run("UPDATE t SET a = 0 WHERE id = 7", "INSERT INTO u VALUES (1)")
    assert world.capture().stopped == ("public.t",)
    world.check("u")
    stopped = world.sources.get("shop").tables[0]
    assert stopped.status is TableStatus.STOPPED
    assert "resync" in str(stopped.error)
    world.run("INSERT INTO u VALUES (2)", "INSERT INTO t VALUES (30, 1)")
    world.capture()
    world.check("u")
    result = world.sources.resync("shop", ["t"])
    assert (result.copied, result.rows_copied) == (("public.t",), 2)
    world.check("t")
    world.run("DELETE FROM t WHERE id = 7")
    world.capture()
    world.check("t")
