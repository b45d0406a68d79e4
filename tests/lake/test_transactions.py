"""Transactions: one snapshot for any number of operations, or nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import AlreadyExistsError, ConflictError, InvalidInputError
from headwater.lake.format.changes import Change, read_changes, write_changes
from headwater.lake.lake import Lake
from tests.support import catalog_rows


def numbers(first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})


def make(lake: Lake, name: str = "t", rows: int = 100) -> None:
    with lake.transaction() as tx:
        tx.create_table(name, {"id": "int64", "name": "varchar"})
        if rows:
            tx.append(name, numbers(0, rows))


def ids(lake: Lake, name: str = "t", snapshot: Any = None) -> list[int]:
    return sorted(lake.read(name, snapshot, columns=["id"]).column(0).to_pylist())


def stored_files(lake: Lake) -> list[str]:
    return sorted(str(path) for path in Path(lake.data_path).rglob("*.parquet"))


def test_many_operations_on_many_tables_become_one_snapshot(lake: Lake) -> None:
    with lake.transaction(author="me", message="all at once", extra_info='{"k": 1}') as tx:
        tx.create_schema("s")
        tx.create_table("s.a", {"id": "int64", "name": "varchar"})
        tx.create_table("b", {"id": "int64", "name": "varchar"})
        tx.append("s.a", numbers(0, 50))
        tx.append("s.a", numbers(100, 3))
        tx.append("b", numbers(0, 5))
        tx.rename_table("b", "c")
        tx.delete("s.a", "id < 10")
        tx.add_column("s.a", "extra", "int32", default=7)
        tx.append("s.a", [{"id": 500, "extra": 8}])
        tx.update("c", {"name": "upper(name)"}, "id = 1")
        tx.create_view("s.v", "SELECT count(*) AS n FROM s.a")
    assert tx.snapshot_id == 1
    newest = lake.snapshots()[0]
    assert (newest.id, newest.author, newest.message, newest.extra_info) == (
        1,
        "me",
        "all at once",
        '{"k": 1}',
    )
    duck = lake.duckdb()
    assert duck.execute("SELECT n FROM s.v").fetchone() == (44,)
    assert duck.execute("SELECT sum(extra) FROM s.a").fetchone() == (43 * 7 + 8,)
    assert duck.execute("SELECT name FROM c WHERE id = 1").fetchone() == ("N1",)
    assert lake.read("s.a").num_rows == 44


def test_an_exception_leaves_no_trace(lake: Lake) -> None:
    make(lake)
    before = stored_files(lake)
    with pytest.raises(RuntimeError), lake.transaction() as tx:
        tx.append("t", numbers(1000, 50))
        tx.create_table("other", {"id": "int64"})
        raise RuntimeError("changed my mind")
    assert stored_files(lake) == before
    assert lake.snapshots()[0].id == 1
    assert tx.snapshot_id is None


def test_a_transaction_that_changes_nothing_makes_no_snapshot(lake: Lake) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.append("t", numbers(0, 0))
        assert tx.delete("t", "id < 0") == 0
        tx.create_table("t", {"id": "int64"}, if_not_exists=True)
    assert tx.snapshot_id == 1
    assert len(lake.snapshots()) == 2


def test_a_transaction_sees_its_own_changes(lake: Lake) -> None:
    make(lake, rows=30)
    with lake.transaction() as tx:
        tx.append("t", numbers(100, 40))
        tx.append("t", numbers(200, 2))
        assert tx.delete("t", "id % 2 = 0") == 15 + 20 + 1
        assert tx.update("t", {"id": "id + 1000"}, "id > 120") == 11
        assert tx.delete("t", "id = 1201") == 1
        seen = sorted(tx.read("t", columns=["id"]).column(0).to_pylist())
    assert seen == ids(lake)
    duck = lake.duckdb()
    assert sorted(r[0] for r in duck.execute("SELECT id FROM t").fetchall()) == seen
    assert duck.execute("SELECT count(DISTINCT rowid) FROM t").fetchone() == (len(seen),)


def test_updates_keep_row_ids(lake: Lake) -> None:
    make(lake, rows=50)
    row_ids = dict(lake.duckdb().execute("SELECT id, rowid FROM t").fetchall())
    with lake.transaction() as tx:
        tx.update("t", {"name": "'few'"}, "id < 3")
    with lake.transaction() as tx:
        tx.update("t", {"name": "'many'"}, "id < 30")
    duck = lake.duckdb()
    assert dict(duck.execute("SELECT id, rowid FROM t").fetchall()) == row_ids
    changes = duck.execute(
        "SELECT change_type, count(*) FROM ducklake_table_changes('lake', 'main', 't', 3, 3) GROUP BY 1"
    ).fetchall()
    assert sorted(changes) == [("update_postimage", 30), ("update_preimage", 30)]


# --- two writers --------------------------------------------------------------------------------------

APPEND = "append"
DELETE = "delete"

#: What we do, what DuckDB commits meanwhile, and whether the two can be put in an order.
MATRIX = [
    ("append", "INSERT INTO t VALUES (900, 'x')", True),
    ("append", "INSERT INTO t SELECT 900 + i, 'x' FROM range(50) r(i)", True),
    ("append", "DELETE FROM t WHERE id < 5", True),
    ("append", "DELETE FROM t WHERE id < 50", True),
    ("append", "UPDATE t SET name = 'u' WHERE id = 3", True),
    ("append", "ALTER TABLE t ADD COLUMN c INTEGER", False),
    ("append", "ALTER TABLE t RENAME COLUMN name TO label", False),
    ("append", "COMMENT ON TABLE t IS 'fine'", True),
    ("append", "ALTER TABLE t RENAME TO t2", True),
    ("append", "DROP TABLE t", False),
    ("append", "CREATE TABLE elsewhere (a INTEGER)", True),
    ("small append", "ALTER TABLE t ADD COLUMN c INTEGER", False),
    ("small append", "CALL ducklake_flush_inlined_data('lake')", True),
    ("delete", "INSERT INTO t VALUES (900, 'x')", False),
    ("delete", "INSERT INTO t SELECT 900 + i, 'x' FROM range(50) r(i)", False),
    ("delete", "DELETE FROM t WHERE id > 90", False),
    ("delete", "DELETE FROM t WHERE id > 40", False),
    ("delete", "DELETE FROM t", False),
    ("delete", "ALTER TABLE t ADD COLUMN c INTEGER", False),
    ("delete", "DROP TABLE t", False),
    ("delete", "DELETE FROM other", True),
    ("small delete", "DELETE FROM t WHERE id > 90", False),
    ("small delete", "DELETE FROM t WHERE id > 40", False),
    ("small delete", "INSERT INTO t VALUES (900, 'x')", False),
    ("update", "UPDATE t SET name = 'u' WHERE id = 3", False),
    ("update", "INSERT INTO t VALUES (900, 'x')", False),
    ("truncate", "INSERT INTO t VALUES (900, 'x')", False),
    ("alter", "ALTER TABLE t ADD COLUMN d INTEGER", False),
    ("alter", "INSERT INTO t VALUES (900, 'x')", True),
    ("alter", "DELETE FROM t WHERE id > 40", True),
    ("alter", "DROP TABLE t", False),
    ("not null", "INSERT INTO t VALUES (NULL, 'x')", False),
    ("drop", "DROP TABLE t", False),
    ("drop", "INSERT INTO t VALUES (900, 'x')", True),
    ("create", "CREATE TABLE fresh (a INTEGER)", False),
    ("create", "CREATE VIEW FRESH AS SELECT 1 AS a", False),
    ("create", "CREATE TABLE other2 (a INTEGER)", True),
    ("create in schema", "DROP SCHEMA s", False),
    ("drop schema", "CREATE TABLE s.x (a INTEGER)", False),
    ("drop schema", "DROP SCHEMA s", False),
    ("create schema", "CREATE SCHEMA fresh", False),
    ("replace view", "CREATE OR REPLACE VIEW v AS SELECT 3 AS a", False),
    ("drop view", "DROP VIEW v", False),
    ("rename", "ALTER TABLE t RENAME TO t2", False),
    ("rename", "CREATE TABLE renamed (a INTEGER)", False),
    ("flush", "DELETE FROM t WHERE id = 1000", False),
    ("flush", "INSERT INTO t VALUES (900, 'x')", True),
]


def do(tx: Any, what: str) -> None:
    match what:
        case "append":
            tx.append("t", numbers(2000, 30))
        case "small append":
            tx.append("t", numbers(2000, 2))
        case "delete":
            tx.delete("t", "id BETWEEN 10 AND 39")
        case "small delete":
            tx.delete("t", "id BETWEEN 10 AND 12")
        case "update":
            tx.update("t", {"name": "'mine'"}, "id < 40")
        case "truncate":
            tx.truncate("t")
        case "alter":
            tx.add_column("t", "e", "varchar")
        case "not null":
            tx.set_not_null("t", "id")
        case "drop":
            tx.drop_table("t")
        case "create":
            tx.create_table("fresh", {"a": "int32"})
        case "create in schema":
            tx.create_table("s.y", {"a": "int32"})
        case "drop schema":
            tx.drop_schema("s")
        case "create schema":
            tx.create_schema("fresh")
        case "replace view":
            tx.create_view("v", "SELECT 2 AS a", or_replace=True)
        case "drop view":
            tx.drop_view("v")
        case "rename":
            tx.rename_table("t", "renamed")
        case "flush":
            tx.flush_inlined("t")
        case _:
            raise AssertionError(what)


@pytest.mark.parametrize(("mine", "theirs", "possible"), MATRIX, ids=[f"{m}/{t}" for m, t, _ in MATRIX])
def test_conflict_matrix(lake: Lake, mine: str, theirs: str, possible: bool) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "name": "varchar"})
        tx.create_table("other", {"id": "int64"})
        tx.create_schema("s")
        tx.create_view("v", "SELECT 1 AS a")
        tx.append("t", numbers(0, 100))
        tx.append("other", pa.table({"id": range(20)}))
    with lake.transaction() as tx:
        tx.append("t", numbers(1000, 3))
    duck = lake.duckdb()
    before = len(lake.snapshots())
    tx = lake.transaction()
    do(tx, mine)
    files = stored_files(lake)
    duck.execute(theirs)
    others = duck.execute("SELECT count(*) FROM snapshots()").fetchone()
    if possible:
        tx.commit()
        assert len(lake.snapshots()) == before + 2
        if mine == "append":
            name = "t2" if "t2" in theirs else "t"
            found = duck.execute(f"SELECT count(*) FROM {name} WHERE id >= 2000").fetchone()
            assert found == (30,)
            assert sum(1 for i in ids(lake, name) if i >= 2000) == 30
        return
    with pytest.raises(ConflictError) as caught:
        tx.commit()
    assert caught.value.retryable
    assert caught.value.snapshot_id == before
    assert caught.value.other_change
    assert others == (before + 1,)
    assert len(lake.snapshots()) == before + 1
    left = [f for f in stored_files(lake) if f in set(files)]
    named = {row["path"] for row in catalog_rows(lake.dsn, "ducklake_data_file")}
    named |= {row["path"] for row in catalog_rows(lake.dsn, "ducklake_delete_file")}
    assert {Path(f).name for f in left} <= {Path(p).name for p in named}, "files stored in vain are removed"


def test_run_tries_again_from_the_start_after_a_conflict(lake: Lake) -> None:
    make(lake)
    duck = lake.duckdb()
    attempts = []

    def work(tx: Any) -> int:
        attempts.append(tx.base_snapshot_id)
        count = tx.delete("t", "id >= 50")
        if len(attempts) == 1:
            duck.execute("INSERT INTO t VALUES (77777, 'late')")
        return int(count)

    assert lake.run(work) == 51
    assert attempts == [1, 2]
    assert ids(lake) == list(range(50))


def test_two_of_our_deletes_on_one_file_conflict_and_nothing_comes_back(lake: Lake) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.delete("t", "id < 20")
    first, second = lake.transaction(), lake.transaction()
    first.delete("t", "id BETWEEN 20 AND 39")
    second.delete("t", "id BETWEEN 40 AND 59")
    first.commit()
    with pytest.raises(ConflictError):
        second.commit()
    assert ids(lake) == list(range(40, 100))
    assert lake.duckdb().execute("SELECT count(*) FROM t").fetchone() == (60,)


def test_a_duckdb_delete_beside_ours_on_a_file_with_a_delete_file_is_refused(lake: Lake) -> None:
    """DuckDB alone misses this one and duplicates rows; our commit makes it see the conflict."""
    make(lake)
    duck = lake.duckdb()
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    duck.execute("DELETE FROM t WHERE id < 20")
    duck.execute("BEGIN")
    duck.execute("DELETE FROM t WHERE id BETWEEN 40 AND 59")
    with lake.transaction() as tx:
        tx.delete("t", "id BETWEEN 20 AND 39")
    with pytest.raises(Exception, match="conflict"):
        duck.execute("COMMIT")
    fresh = lake.duckdb()
    assert sorted(r[0] for r in fresh.execute("SELECT id FROM t").fetchall()) == list(range(40, 100))
    assert ids(lake) == list(range(40, 100))


def test_a_cumulative_delete_is_right_at_every_snapshot_although_others_commit_meanwhile(lake: Lake) -> None:
    make(lake)
    make(lake, "busy", 0)
    with lake.transaction() as tx:
        tx.delete("t", "id < 20")
    tx = lake.transaction()
    tx.delete("t", "id < 40")
    for i in range(3):
        with lake.transaction() as other:
            other.append("busy", numbers(i, 1))
    tx.commit()
    duck = lake.duckdb()
    expected = {1: 100, 2: 100, 3: 80, 4: 80, 5: 80, 6: 80, 7: 60}
    for snapshot, count in expected.items():
        assert len(ids(lake, "t", snapshot)) == count
        assert duck.execute(f"SELECT count(*) FROM t AT (VERSION => {snapshot})").fetchone() == (count,)
        listed = duck.execute(f"SELECT id FROM t AT (VERSION => {snapshot})").fetchall()
        assert len(listed) == count


def test_concurrent_appends_all_arrive(lake: Lake) -> None:
    make(lake, rows=0)

    def work(worker: int) -> None:
        for i in range(20):
            with lake.transaction() as tx:
                tx.append("t", numbers(worker * 1000 + i, 1 if i % 2 else 15))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lake.read("t").num_rows == 4 * (10 + 10 * 15)
    times = [s.time for s in reversed(lake.snapshots())]
    assert times == sorted(set(times)), "later snapshots have later times"


# --- once and only once, and rows of our own ------------------------------------------------------------


def test_the_same_operation_id_never_applies_twice(lake: Lake) -> None:
    make(lake, rows=0)
    for _ in range(3):
        with lake.transaction(operation_id="load-7") as tx:
            tx.create_table("made", {"id": "int64"})
            tx.append("t", numbers(0, 20))
            tx.append("t", numbers(100, 2))
    assert tx.already_applied
    assert tx.snapshot_id == 2
    assert lake.read("t").num_rows == 22
    assert len(lake.snapshots()) == 3


def test_the_same_operation_id_in_two_transactions_at_once_applies_once(lake: Lake) -> None:
    make(lake, rows=0)
    one, two = (lake.transaction(operation_id="x") for _ in range(2))
    for tx in (one, two):
        tx.append("t", numbers(0, 20))
    assert not one.commit().already_applied
    assert two.commit().already_applied
    assert one.snapshot_id == two.snapshot_id == 2
    assert lake.read("t").num_rows == 20
    assert len(stored_files(lake)) == 1


def test_operation_ids_of_two_lakes_in_one_database_do_not_meet(new_database: str, tmp_path: Path) -> None:
    lakes = [
        Lake.open(new_database, data_path=tmp_path / name, metadata_schema=name) for name in ("one", "two")
    ]
    for lake in lakes:
        with lake.transaction(operation_id="same") as tx:
            tx.create_table("t", {"id": "int64"})
        assert not tx.already_applied
        assert lake.snapshots()[0].id == 1


def test_own_rows_commit_with_the_snapshot_or_not_at_all(lake: Lake) -> None:
    make(lake, rows=0)
    with lake.db.connection() as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS headwater")
        connection.execute("CREATE TABLE headwater.note (snapshot_id bigint, word text)")

    def note(word: str) -> Any:
        def write(cursor: Any, snapshot_id: int) -> None:
            cursor.execute("INSERT INTO headwater.note VALUES (%s, %s)", (snapshot_id, word))

        return write

    def fail(cursor: Any, snapshot_id: int) -> None:
        raise RuntimeError("no")

    with lake.transaction() as tx:
        tx.append("t", numbers(0, 1))
        tx.join(note("kept"))
    with pytest.raises(RuntimeError), lake.transaction() as tx:
        tx.append("t", numbers(1, 20))
        tx.join(note("lost"))
        tx.join(fail)
    with lake.transaction() as tx:
        tx.join(note("alone"))
    assert catalog_rows(lake.dsn, "note", "headwater") == [
        {"snapshot_id": 2, "word": "kept"},
        {"snapshot_id": 2, "word": "alone"},
    ]
    assert lake.read("t").num_rows == 1
    assert len(lake.snapshots()) == 3


def test_a_finished_transaction_takes_nothing_more(lake: Lake) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.append("t", numbers(0, 1))
    with pytest.raises(InvalidInputError, match="ended"):
        tx.append("t", numbers(0, 1))


def test_commit_messages_can_be_required(lake: Lake) -> None:
    with lake.transaction(message="set up") as tx:
        tx.create_table("t", {"id": "int64"})
        tx.set_option("require_commit_message", True)
    with pytest.raises(InvalidInputError, match="message"), lake.transaction() as tx:
        tx.append("t", [{"id": 1}])
    with lake.transaction(message="why", author="me") as tx:
        tx.append("t", [{"id": 1}])
    with pytest.raises(AlreadyExistsError), lake.transaction(message="again") as tx:
        tx.create_table("T", {"id": "int64"})


def test_change_texts_are_read_and_written_back() -> None:
    text = 'dropped_table:3,created_table:"s"."we""ird, n.ame",inserted_into_table:5,inlined_delete:5'
    changes = read_changes(text)
    assert changes[1] == Change("created_table", ("s", 'we"ird, n.ame'))
    assert write_changes(reversed(changes)) == text
    assert write_changes([]) is None
    assert read_changes(None) == []
