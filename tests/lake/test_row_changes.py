"""Rows removed and replaced by somebody who read a plan: by position, by row id, by file."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import ConflictError, InvalidInputError
from headwater.lake.format.align import align_input
from headwater.lake.lake import Lake
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.transaction import Transaction
from tests.lake.places import Place
from tests.servers import S3Server
from tests.storage.places import s3_options
from tests.support import catalog_rows

Rows = list[tuple[Any, ...]]


def numbers(first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})


def make(place: Place) -> str:
    """Rows 0-49 and 50-99 in two files, 100-104 in the catalog."""
    name = f"{place.schema}.t"
    place.run(lambda tx, s: tx.create_table(name, {"id": "int64", "name": "varchar"}))
    for first, count in ((0, 50), (50, 50), (100, 5)):
        rows = numbers(first, count)
        place.run(lambda tx, s, rows=rows: tx.append(name, rows))
    return name


def state(place: Place, at: int | None = None) -> Rows:
    """Row ids and rows, which both readers must agree on."""
    when = "" if at is None else f"AT (VERSION => {at})"
    theirs = place.sql(f"SELECT rowid, id, name FROM {{s}}.t {when} ORDER BY ALL")
    ours = place.lake.read(f"{place.schema}.t", at, hidden=["rowid"])
    assert sorted(zip(*(ours.column(c).to_pylist() for c in ("rowid", "id", "name")), strict=True)) == theirs
    assert place.sql(f"SELECT count(*) FROM {{s}}.t {when}") == [(len(theirs),)]
    return theirs


def original(*but: int) -> Rows:
    return [(i, i, f"n{i}") for i in range(105) if i not in but]


def file_ids(plan: ScanPlan) -> list[int]:
    return [scan.file.id for scan in plan.files]


def positions(*found: int) -> Any:
    return np.array(found, np.int64)


def test_rows_are_removed_by_position_and_by_row_id(place: Place) -> None:
    name = make(place)
    before = place.lake.snapshots(1)[0].id

    def work(tx: Transaction, s: str) -> None:
        plan = tx.scan(name)
        first, second = file_ids(plan)
        found = {first: positions(7, 3, 0), second: np.arange(30)[::-1]}
        assert tx.remove_rows(name, plan, found, {plan.inlined[0].table_name: [104, 101]}) == 35
        assert tx.read(name).num_rows == 70

    at = place.run(work)
    gone = {0, 3, 7, *range(50, 80), 101, 104}
    assert state(place) == original(*gone)
    assert state(place, before) == original()
    deleted = place.sql(
        f"SELECT rowid FROM ducklake_table_deletions('lake', '{place.schema}', 't', {at}, {at}) ORDER BY 1"
    )
    assert {row[0] for row in deleted} == gone


def test_deletes_of_one_file_add_up_over_transactions(place: Place) -> None:
    name = make(place)
    snapshots = []
    for found in (range(5), range(5, 20), range(20, 24), range(24, 49)):

        def work(tx: Transaction, s: str, found: range = found) -> None:
            plan = tx.scan(name)
            assert tx.remove_rows(name, plan, {file_ids(plan)[0]: np.array(found)}) == len(found)

        snapshots.append((place.run(work), original(*range(found.stop))))
    for at, expected in snapshots:
        assert state(place, at) == expected


@pytest.mark.parametrize("at_once", [True, False])
def test_a_file_that_loses_its_last_row_ends(place: Place, at_once: bool) -> None:
    name = make(place)
    for part in [range(50)] if at_once else [range(20), range(20, 50)]:

        def work(tx: Transaction, s: str, part: range = part) -> None:
            plan = tx.scan(name)
            tx.remove_rows(name, plan, {file_ids(plan)[0]: np.array(part)})

        place.run(work)
    assert len(place.lake.scan(name).files) == 1
    assert state(place) == original(*range(50))


def test_one_row_is_removed_once(place: Place) -> None:
    name = make(place)

    def work(tx: Transaction, s: str) -> None:
        plan = tx.scan(name)
        first, second = file_ids(plan)
        inlined = plan.inlined[0].table_name
        tx.remove_rows(name, plan, {first: positions(1)}, {inlined: [100]})
        for twice in ({first: positions(5, 4, 5)}, {first: positions(2, 1)}):
            with pytest.raises(InvalidInputError, match="matched twice"):
                tx.remove_rows(name, plan, twice)
        for ids in ([101, 101], [100]):
            with pytest.raises(InvalidInputError, match="matched twice"):
                tx.remove_rows(name, plan, {second: positions(9)}, {inlined: ids})
        with pytest.raises(InvalidInputError, match="matched twice"):
            tx.replace_rows(name, numbers(0, 2), [3, 3])
        tx.end_files(name, plan, [second])
        with pytest.raises(InvalidInputError, match="matched twice"):
            tx.remove_rows(name, plan, {second: positions(9)})

    place.run(work)
    assert state(place) == original(1, 100, *range(50, 100))


def test_a_row_that_was_deleted_before_is_not_in_the_plan(place: Place) -> None:
    name = make(place)
    place.sql("DELETE FROM {s}.t WHERE id IN (3, 60) OR id BETWEEN 10 AND 30")  # catalog, and a delete file
    with place.lake.transaction() as tx:
        plan = tx.scan(name)
        first, second = file_ids(plan)
        for found in ({first: positions(2, 15)}, {second: positions(10)}):
            with pytest.raises(ConflictError, match="was deleted before"):
                tx.remove_rows(name, plan, found)
        assert tx.remove_rows(name, plan, {first: positions(2, 31), second: positions(11)}) == 3
    assert state(place) == original(2, 3, *range(10, 32), 60, 61)


def test_an_inlined_row_that_is_not_live_stops_the_commit(place: Place) -> None:
    name = make(place)
    tx = place.lake.transaction()
    plan = tx.scan(name)
    tx.remove_rows(name, plan, {}, {plan.inlined[0].table_name: [102, 7777]})
    with pytest.raises(ConflictError):
        tx.commit()
    assert state(place) == original()


def test_what_does_not_fit_the_plan_is_refused(place: Place) -> None:
    name = make(place)
    old = place.lake.scan(name, place.lake.snapshots(1)[0].id - 1)
    with place.lake.transaction() as tx:
        plan = tx.scan(name)
        first = file_ids(plan)[0]
        wrong: list[tuple[str, Callable[[], object]]] = [
            ("at snapshot", lambda: tx.remove_rows(name, old, {first: positions(1)})),
            ("none at position 50", lambda: tx.remove_rows(name, plan, {first: positions(50)})),
            ("counted from 0", lambda: tx.remove_rows(name, plan, {first: positions(-1)})),
            ("whole numbers", lambda: tx.remove_rows(name, plan, {first: np.array([0.5])})),
            ("not in the plan", lambda: tx.remove_rows(name, plan, {99999: positions(1)})),
            ("not in the plan", lambda: tx.end_files(name, plan, [99999])),
            ("reads no rows", lambda: tx.remove_rows(name, plan, {}, {"pg_class": [1]})),
            ("2 rows were given with 1", lambda: tx.replace_rows(name, numbers(0, 2), [1])),
        ]
        for message, call in wrong:
            with pytest.raises(InvalidInputError, match=message):
                call()
        assert tx.remove_rows(name, plan, {first: positions()}, {}) == 0
        assert tx.end_files(name, plan, []) == 0
        assert tx.replace_rows(name, numbers(0, 0), []) == 0
    assert state(place) == original()


def test_a_plan_is_pruned_and_only_taken_of_a_table_as_it_was_found(place: Place) -> None:
    name = make(place)
    with place.lake.transaction() as tx:
        assert len(tx.scan(name, "id > 70").files) == 1
        tx.create_table(f"{place.schema}.fresh", {"id": "int64"})
        assert tx.scan(f"{place.schema}.fresh").files == ()
        tx.append(name, numbers(200, 1))
        with pytest.raises(InvalidInputError, match="already changed the rows"):
            tx.scan(name)
        tx.rollback()
    with place.lake.transaction() as tx:
        tx.rename_column(name, "name", "title")
        with pytest.raises(InvalidInputError, match="already changed the columns"):
            tx.scan(name)
        tx.rollback()


@pytest.mark.parametrize("count", [3, 40])
def test_replaced_rows_keep_their_ids(place: Place, count: int) -> None:
    name = make(place)
    before = place.lake.snapshots(1)[0].id
    changed = pa.table({"ID": np.arange(count), "name": pa.array([None] * count, pa.string())})

    def work(tx: Transaction, s: str) -> None:
        plan = tx.scan(name, f"id < {count}")
        tx.remove_rows(name, plan, {file_ids(plan)[0]: np.arange(count)})
        assert tx.replace_rows(name, changed, np.arange(count)) == count

    at = place.run(work)
    assert state(place) == sorted([(i, i, None) for i in range(count)] + original(*range(count)))
    assert state(place, before) == original()
    feed = place.sql(
        "SELECT change_type, count(*), count(name) "
        f"FROM ducklake_table_changes('lake', '{place.schema}', 't', {at}, {at}) GROUP BY 1 ORDER BY 1"
    )
    assert feed == [("update_postimage", count, 0), ("update_preimage", count, count)]


def test_files_end_without_being_read(place: Place) -> None:
    name = make(place)
    place.sql("DELETE FROM {s}.t WHERE id BETWEEN 3 AND 20")
    before = place.lake.snapshots(1)[0].id

    def work(tx: Transaction, s: str) -> None:
        plan = tx.scan(name, "id < 50")
        first = file_ids(plan)[0]
        tx.remove_rows(name, plan, {first: positions(0)})
        assert tx.end_files(name, plan, [first, first]) == 31
        assert tx.read(name).num_rows == 55

    at = place.run(work)
    assert state(place) == original(*range(50))
    assert state(place, before) == original(*range(3, 21))
    deleted = place.sql(
        f"SELECT rowid FROM ducklake_table_deletions('lake', '{place.schema}', 't', {at}, {at}) ORDER BY 1"
    )
    assert [row[0] for row in deleted] == [i for i in range(50) if not 3 <= i <= 20]


def test_a_change_by_duckdb_in_between_is_a_conflict(place: Place) -> None:
    name = make(place)
    for change in (
        "DELETE FROM {s}.t WHERE id = 20",
        "UPDATE {s}.t SET name = 'x' WHERE id = 30",
        "CALL ducklake_flush_inlined_data('lake')",
    ):
        tx = place.lake.transaction()
        plan = tx.scan(name)
        tx.remove_rows(name, plan, {file_ids(plan)[0]: positions(0)})
        place.sql(change)
        with pytest.raises(ConflictError):
            tx.commit()
        assert state(place)[0] == (0, 0, "n0")


STAGE = """
import pickle, sys
from headwater.lake.format.align import align_input
stager, table, rows, row_ids = pickle.load(sys.stdin.buffer)
staged = stager.stage(table, align_input(rows, table.columns), row_ids)
sys.stdout.buffer.write(pickle.dumps(staged))
"""


def stage_elsewhere(tx: Transaction, name: str, rows: pa.Table, row_ids: Any = None) -> Any:
    """Files stored by another process, which gets everything it needs as bytes."""
    given = pickle.dumps((tx.stager, tx.state.table(name), rows, row_ids))
    worker = [sys.executable, "-c", STAGE]
    done = subprocess.run(worker, input=given, capture_output=True, check=True)
    return pickle.loads(done.stdout)


def check_stager(lake: Lake) -> None:
    name = "main.t"
    with lake.transaction() as tx:
        tx.create_table(name, {"id": "int64", "name": "varchar"}, partition_by=["id"])
        tx.add_files(name, stage_elsewhere(tx, name, numbers(0, 3)))
    with lake.transaction() as tx:
        plan = tx.scan(name)
        tx.end_files(name, plan, file_ids(plan)[1:2])
        row_id = lake.read(name, where="id = 1", hidden=["rowid"]).column("rowid").combine_chunks()
        changed = pa.table({"id": [1], "name": ["changed"]})
        tx.add_files(name, stage_elsewhere(tx, name, changed, row_id))
    session = lake.duckdb()
    expected = [(0, "n0"), (1, "changed"), (2, "n2")]
    assert session.execute("SELECT id, name FROM t ORDER BY 1").fetchall() == expected
    ids = session.execute("SELECT count(DISTINCT rowid), max(rowid) FROM t").fetchone()
    assert ids == (3, 2)
    starts = [row["row_id_start"] for row in catalog_rows(lake.dsn, "ducklake_data_file")]
    assert starts.count(None) == 1
    session.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_workers_store_files_for_a_transaction(new_database: str, tmp_path: Path, encrypted: bool) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=encrypted)
    check_stager(lake)
    lake.close()


@pytest.mark.s3
def test_workers_store_files_in_an_object_store(new_database: str, s3: S3Server) -> None:
    data_path = f"s3://{s3.bucket}/workers-{time.monotonic_ns()}"
    lake = Lake.open(new_database, data_path=data_path, storage=s3_options(s3))
    check_stager(lake)
    lake.close()


def feed(place: Place, at: int) -> dict[str, set[tuple[Any, ...]]]:
    """DuckDB's change feed of one snapshot: row ids and rows by kind of change."""
    rows = place.sql(
        "SELECT change_type, rowid, id, name "
        f"FROM ducklake_table_changes('lake', '{place.schema}', 't', {at}, {at})"
    )
    found: dict[str, set[tuple[Any, ...]]] = {}
    for kind, *row in rows:
        assert tuple(row) not in found.get(kind, ())
        found.setdefault(kind, set()).add(tuple(row))
    return found


@pytest.mark.parametrize("count", [3, 40])
def test_a_table_is_overwritten_in_one_snapshot(place: Place, count: int) -> None:
    name = make(place)
    place.sql("DELETE FROM {s}.t WHERE id BETWEEN 20 AND 40")
    before = place.lake.snapshots(1)[0].id

    def work(tx: Transaction, s: str) -> None:
        tx.append(name, numbers(900, 20))  # overwritten too
        tx.truncate(name)
        rows = align_input(numbers(200, count), tx.state.table(name).columns)
        assert tx.add_files(name, tx.stager.stage(tx.state.table(name), rows)) == count
        tx.append(name, numbers(300, 2))
        assert tx.read(name).num_rows == count + 2

    at = place.run(work)
    assert at == before + 1
    assert [row[1] for row in state(place)] == [*range(200, 200 + count), 300, 301]
    old = original(*range(20, 41))
    assert state(place, before) == old
    assert feed(place, at) == {"delete": set(old), "insert": set(state(place))}
    place.sql("INSERT INTO {s}.t VALUES (1, 'after')")
    assert len({row[0] for row in state(place)}) == count + 3


def test_every_kind_of_change_in_one_snapshot(place: Place) -> None:
    name = make(place)
    place.run(lambda tx, s: tx.append(name, numbers(200, 30)))  # a third file, row ids from 105
    place.sql("DELETE FROM {s}.t WHERE id BETWEEN 0 AND 11")
    before, old = place.lake.snapshots(1)[0].id, state(place)

    def work(tx: Transaction, s: str) -> None:
        table = tx.state.table(name)
        plan = tx.scan(name)
        first, second, third = file_ids(plan)
        inlined = plan.inlined[0].table_name
        tx.end_files(name, plan, [second])
        # Deleted: 30 to 44 in the first file, 200 in the third, 100 in the catalog.
        # Changed: 12 and 13 in the first file, 201 in the third, 101 in the catalog.
        found = {first: [12, 13, *range(30, 45)], third: [1, 0]}
        assert tx.remove_rows(name, plan, found, {inlined: [101, 100]}) == 21
        changed = pa.table({"id": [12, 101, 201], "name": ["changed"] * 3})
        tx.replace_rows(name, changed, [12, 101, 106])
        kept = align_input(pa.table({"id": [13], "name": ["by a worker"]}), table.columns)
        tx.add_files(name, tx.stager.stage(table, kept, pa.array([13], pa.int64())))
        tx.add_files(name, tx.stager.stage(table, align_input(numbers(400, 20), table.columns)))
        tx.append(name, numbers(500, 2))
        assert tx.read(name).num_rows == len(old) - 50 - 17 + 22

    at = place.run(work)
    assert at == before + 1
    updated = {(12, 12, "n12"), (101, 101, "n101"), (106, 201, "n201"), (13, 13, "n13")}
    gone = {row for row in old if 30 <= row[1] < 45 or 50 <= row[1] < 101 or row[1] == 200}
    changed = {(12, 12, "changed"), (101, 101, "changed"), (106, 201, "changed"), (13, 13, "by a worker")}
    now = state(place)
    added = {row for row in now if row[1] >= 400}
    assert {row[1] for row in added} == {*range(400, 420), 500, 501}
    assert set(now) == set(old) - updated - gone | changed | added
    assert state(place, before) == old
    assert feed(place, at) == {
        "delete": gone,
        "insert": added,
        "update_preimage": updated,
        "update_postimage": changed,
    }
    place.sql("UPDATE {s}.t SET name = 'by duckdb' WHERE id IN (12, 13, 101, 405, 500)")
    place.sql("DELETE FROM {s}.t WHERE id BETWEEN 13 AND 40 OR id = 410")
    place.sql("CALL ducklake_flush_inlined_data('lake', schema_name => '{s}')")
    after = state(place)
    assert {row[0] for row in after if row[2] == "by duckdb"} >= {12, 101}
    assert len({row[0] for row in after}) == len(after)
    assert state(place, at) == now
