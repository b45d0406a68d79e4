"""Which changes are asked for: snapshots, columns, conditions, net changes; and what a plan tells."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import ConflictError, FileMissingError, InvalidInputError, NotFoundError, SnapshotError
from headwater.lake.reading import change_reader, file_reader
from headwater.lake.reading.change_reader import count_changes, read_changes
from headwater.lake.reading.change_rows import BEGINS, CHANGE_TYPES, ENDS, Events, net_changes
from tests.lake.feed_model import (
    CREATE,
    FILES,
    FLUSH,
    MERGE,
    REWRITE,
    as_changes,
    delete,
    rows,
    short,
    update,
)
from tests.lake.lakes import Pair


@pytest.fixture
def make(new_database, tmp_path):
    made = []

    def build(*statements, **options):
        pair = Pair(new_database, tmp_path / "data", **options)
        made.append(pair)
        pair.run(*statements)
        return pair

    yield build
    for pair in made:
        pair.close()


# -- which snapshots ----------------------------------------------------------------------------------------


def test_a_table_that_was_renamed_dropped_and_made_again(make):
    pair = make(
        CREATE,
        rows(0, 3),
        "ALTER TABLE t RENAME TO old",
        "ALTER TABLE old RENAME TO t",
        delete("k = 1"),
        "DROP TABLE t",
        CREATE,
        rows(5, 7),
    )
    assert [change[0] for change in short(pair, 0, 5)] == [2, 2, 2, 5]
    assert [change[0] for change in short(pair, 0)] == [8, 8]
    assert pair.lake.plan_changes("t", 0).start.id == 7
    with pytest.raises(SnapshotError, match="does not exist at snapshot 6"):
        pair.lake.changes("t", 1, 6)
    with pytest.raises(NotFoundError, match="no table"):
        pair.lake.changes("other", 1)


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (9, None, "Snapshot 9 is in the future: the newest is 3"),
        (3, 2, "Snapshot 3 is after the end of the range, 2"),
        ("2999-01-01", None, "no snapshot since 2999-01-01: the newest is 3"),
        (1, 9, "in the future"),
    ],
)
def test_ranges_that_are_none(make, start, end, message):
    pair = make(CREATE, rows(0, 3), delete("k = 1"))
    with pytest.raises(SnapshotError, match=message):
        pair.lake.changes("t", start, end)


@pytest.mark.parametrize("start", [None, True, 1.5])
def test_a_start_that_is_no_snapshot(make, start):
    with pytest.raises(InvalidInputError, match="number of a snapshot"):
        make(CREATE).lake.changes("t", start)


def test_times_as_ends_of_the_range(make):
    pair = make(CREATE, rows(0, 3), rows(3, 6), rows(6, 9))
    times = {s.id: s.time for s in pair.lake.snapshots()}
    tick = timedelta(microseconds=1)

    def versions(start: Any, end: Any = None) -> set[int]:
        return {change[0] for change in short(pair, start, end)}

    assert versions(times[3]) == {3, 4}
    assert versions(times[3] + tick) == {4}
    assert versions(times[3] - tick, times[4] - tick) == {3}
    assert versions(times[2].isoformat(), times[3].isoformat()) == {2, 3}
    assert versions(datetime(2000, 1, 1, tzinfo=UTC)) == {2, 3, 4}
    with pytest.raises(SnapshotError, match="no snapshot between"):
        versions(times[2] + tick, times[3] - tick)


def test_changes_that_expired_are_refused(make):
    pair = make(CREATE, rows(0, 20), rows(20, 40), delete("k < 20"), rows(40, 60), **FILES)
    before = pair.lake.snapshots()
    pair.run("CALL ducklake_expire_snapshots('lake', versions => [2, 3])")
    for start in (0, 2, 3, before[-1].time):
        with (
            pytest.raises(SnapshotError, match="Snapshot 2 has expired")
            if start in (0, 2)
            else pytest.raises(SnapshotError)
        ):
            pair.lake.changes("t", start)
    # The rows of snapshot 4 were in a file that only snapshots which are gone could see.
    with pytest.raises(SnapshotError, match=r"Snapshot 4 deleted rows, and 3, .* has expired") as refused:
        pair.lake.changes("t", 4)
    assert (refused.value.snapshot_id, refused.value.start, refused.value.end) == (3, 4, 5)
    assert len(short(pair, 5)) == 20


def test_after_expiry_a_start_that_changed_nothing_or_only_added_is_fine(make):
    pair = make(CREATE, rows(0, 20), delete("k < 8"), REWRITE, delete("k = 9"), **FILES)
    pair.run("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2, 3])")
    pair.run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert [change[:3] for change in short(pair, 4)] == [(5, 9, "delete")]


# -- what is asked for --------------------------------------------------------------------------------------


def test_columns_and_conditions(make):
    pair = make(CREATE, rows(0, 4), "UPDATE t SET k = 10, v = 'u' WHERE k = 2", delete("k = 3"))
    feed = pair.lake.changes("t", 3, columns=["V"])
    assert feed.column_names == ["v", "_change_type", "_rowid", "_commit_version", "_commit_timestamp"]
    assert feed.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    assert feed.column("v").to_pylist() == ["v2", "u", "v3"]
    # Each row for itself, as if one filtered the result: the other half of the update does not match.
    assert [change[2:] for change in short(pair, 3, where="k < 5", columns=["v"])] == [
        ("update_preimage", ("v2",)),
        ("delete", ("v3",)),
    ]
    assert [
        change[:3]
        for change in short(pair, 1, where="_change_type LIKE 'update%' AND _rowid = 2", columns=[])
    ] == [
        (3, 2, "update_preimage"),
        (3, 2, "update_postimage"),
    ]
    assert pair.lake.changes("t", 1, where="_commit_version > 99").num_rows == 0
    with pytest.raises(NotFoundError, match="no column 'w'"):
        pair.lake.changes("t", 1, columns=["w"])


def test_columns_called_as_the_feeds_own(make):
    pair = make(
        'CREATE TABLE t (k INTEGER, "_RowId" INTEGER, rowid INTEGER)', "INSERT INTO t VALUES (1, 2, 3)"
    )
    with pytest.raises(InvalidInputError, match="'_RowId', as its changes have"):
        pair.lake.changes("t", 1)
    assert short(pair, 1, columns=["k", "rowid"]) == [(2, 0, "insert", ("1", "3"))]


def test_a_range_without_changes(make):
    pair = make(CREATE, rows(0, 20), MERGE, "CREATE TABLE other (k INTEGER)")
    for start, end in ((1, 1), (3, 3)):
        feed = pair.lake.changes("t", start, end)
        assert feed.num_rows == 0
        assert feed.schema.names == [
            "k",
            "v",
            "_change_type",
            "_rowid",
            "_commit_version",
            "_commit_timestamp",
        ]
    assert pair.lake.changes("t", 1, 1, net=True).num_rows == 0


def test_net_changes(make):
    pair = make(
        CREATE,
        rows(0, 20),
        update("'a'", "k < 4"),
        "INSERT INTO t VALUES (100, 'new'), (101, 'brief')",
        "UPDATE t SET v = 'v' || k WHERE k = 1",
        update("'b'", "k IN (2, 100)"),
        delete("k IN (3, 4, 101)"),
    )
    assert short(pair, 3, net=True) == [
        (3, 0, "update_preimage", ("0", "v0")),
        (3, 0, "update_postimage", ("0", "a")),
        (6, 2, "update_preimage", ("2", "v2")),
        (6, 2, "update_postimage", ("2", "b")),
        (6, 20, "insert", ("100", "b")),
        (7, 3, "delete", ("3", "v3")),
        (7, 4, "delete", ("4", "v4")),
    ]


def test_net_changes_of_rows_that_share_an_id():
    """DuckDB gives several rows the same id at times; none of them may be lost."""
    text = [
        # row id, snapshot, kind, value
        (7, 2, BEGINS, "a"), (7, 2, BEGINS, "b"), (7, 3, ENDS, "a"), (7, 3, BEGINS, "c"), (7, 4, BEGINS, "d"),
        (7, 4, ENDS, "d"), (8, 2, ENDS, "x"), (8, 2, ENDS, "y"), (8, 3, BEGINS, "y"), (9, 3, BEGINS, "z"),
        (10, 2, BEGINS, "p"), (10, 3, ENDS, "q"),
    ]  # fmt: skip
    row_ids, versions, kinds = (np.array([row[i] for row in text], np.int64) for i in range(3))
    events = Events(pa.table({"v": [row[3] for row in text]}), row_ids, versions, kinds)
    found, types = net_changes(events)
    listed = zip(found.row_ids.tolist(), found.versions.tolist(), types.tolist(), strict=True)
    named = [(row_id, version, CHANGE_TYPES[type_]) for row_id, version, type_ in listed]
    assert [(*one, v) for one, v in zip(named, found.rows.column("v").to_pylist(), strict=True)] == [
        (8, 3, "delete", "x"),
        (9, 3, "insert", "z"),
        (10, 3, "update_preimage", "q"),
        (10, 3, "update_postimage", "p"),
        (7, 4, "insert", "b"),
        (7, 4, "insert", "c"),
    ]


def test_an_update_that_changes_nothing_is_an_update_but_no_net_change(make):
    pair = make(CREATE, rows(0, 20), "UPDATE t SET v = v WHERE k = 1")
    assert [change[2:] for change in short(pair, 3)] == [
        ("update_preimage", ("1", "v1")),
        ("update_postimage", ("1", "v1")),
    ]
    assert short(pair, 3, net=True) == []


# -- plans --------------------------------------------------------------------------------------------------


@pytest.fixture
def groups_read(monkeypatch):
    """The row groups that are read."""
    read: list[int] = []
    real = pq.ParquetFile.read_row_groups

    def spy(self, groups, **more):
        read.extend(groups)
        return real(self, groups, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", spy)
    return read


def test_only_the_row_groups_with_deleted_rows_are_read(lake, groups_read, monkeypatch):
    monkeypatch.setattr(file_reader, "worth_picking", lambda footer, positions: False)
    with lake.transaction() as tx:
        tx.create_table("t", {"k": "int64"})
        tx.append("t", pa.table({"k": range(400_000)}))
    with lake.transaction() as tx:
        tx.delete("t", "k IN (5, 399999)")
    groups_read.clear()
    assert lake.changes("t", 2).column("k").to_pylist() == [5, 399_999]
    assert groups_read == [0, 3]
    assert lake.plan_changes("t", 2).rows_at_most == 2


def test_only_the_row_groups_with_inserted_rows_are_read_of_merged_files(make, groups_read):
    pair = make(CREATE, rows(0, 200_000), rows(200_000, 250_000), rows(250_000, 250_005), MERGE, **FILES)
    assert len(pair.lake.scan("t").files) == 1
    for start, end, count, groups in ((4, 5, 5, [2]), (3, 3, 50_000, [1, 2]), (2, 2, 200_000, [0, 1])):
        groups_read.clear()
        assert pair.lake.changes("t", start, end).num_rows == count
        assert groups_read == groups


@pytest.mark.parametrize("part", [1 << 16, 1], ids=["some parts", "as many as cores"])
@pytest.mark.parametrize("gone", ["k % 3 = 0", "k % 1000 = 7", "k < 130000 OR v IS NULL"])
def test_large_files_are_read_in_parts(make, monkeypatch, part, gone):
    """With words that DuckDB has numbered, words that it has not, and NULLs, in several row groups."""
    monkeypatch.setattr(change_reader, "_PART", part)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    words = "CASE WHEN k % 5 = 4 THEN NULL ELSE 'word ' || k % 7 END AS v, md5(k::VARCHAR) AS w"
    pair = make(
        "CREATE TABLE t (k BIGINT, v VARCHAR, w VARCHAR)",
        f"INSERT INTO t SELECT k, {words} FROM (SELECT range AS k FROM range(300000))",
        f"DELETE FROM t WHERE {gone}",
        f"INSERT INTO t SELECT k, {words} FROM (SELECT range + 300000 AS k FROM range(250000))",
        **FILES,
    )
    model = pair.duck.execute(
        f"SELECT k, {words} FROM (SELECT range AS k FROM range(550000))"
    ).to_arrow_table()
    went = pair.duck.execute(f"SELECT k FROM model WHERE k < 300000 AND ({gone})").to_arrow_table()
    came = pa.array(range(300_000, 550_000), pa.int64())
    for start, end, expected in (
        (3, 3, went.column("k").sort()),
        (4, 4, came),
        (3, 4, pa.concat_arrays([went.column("k").sort().combine_chunks(), came])),
    ):
        found = pair.lake.changes("t", start, end).sort_by("k")
        assert found.column("k").to_pylist() == expected.to_pylist()
        assert found.select(["k", "v", "w"]).equals(
            model.take(expected).cast(found.select(["k", "v", "w"]).schema)
        )
        assert found.column("_rowid").to_pylist() == expected.to_pylist()


def test_what_nothing_happened_to_is_told_for_all_tables_at_once(make):
    pair = make(
        CREATE,
        "CREATE TABLE other (a INT)",
        rows(0, 3),
        "INSERT INTO other VALUES (1)",
        "ALTER TABLE other ADD COLUMN b INT",
    )
    table, other = pair.lake.table("t"), pair.lake.table("other")
    for since in range(3, 5):
        quiet = pair.lake.quiet_tables(since, 5)
        plan = quiet.plan(table, since, 5)
        assert plan is not None
        exact = pair.lake.plan_changes("t", since + 1, 5)
        assert (plan.table, plan.start.id, plan.end.id) == (exact.table, exact.start.id, exact.end.id)
        assert (plan.rows_at_most, plan.files, plan.touched) == (0, (), frozenset())
        assert (list(exact.files), exact.touched) == ([], frozenset())
        assert quiet.plan(other, since, 5) is None
        assert quiet.plan(table, 2, 5) is None  # more than was asked of the catalog
        assert quiet.plan(table, since, 6) is None
    assert pair.lake.quiet_tables(2, 5).plan(table, 2, 5) is None
    assert pair.lake.quiet_tables(2, 5).plan(other, 2, 3) is None  # something happened later
    pair.duck.execute("CALL ducklake_expire_snapshots('lake', versions => [4])")
    assert pair.lake.quiet_tables(3, 5).plan(table, 3, 5) is None


def test_views_that_mean_something_else_are_told(make):
    pair = make(
        CREATE, "CREATE VIEW v AS SELECT 1 AS a", rows(0, 3), "CREATE OR REPLACE VIEW v AS SELECT 2 AS a"
    )
    last = pair.snapshots()[-1]
    assert pair.lake.quiet_tables(1, last - 1).same_views(1)
    assert not pair.lake.quiet_tables(1, last).same_views(last - 1)
    assert pair.lake.quiet_tables(1, last).same_views(last)


def test_a_plan_is_plain_data_that_tells_its_size(make):
    pair = make(CREATE, rows(0, 30), rows(30, 33), delete("k < 2"), delete("k = 31"))
    plan = pickle.loads(pickle.dumps(pair.lake.plan_changes("t", 1)))
    assert plan.rows_at_most == 36
    assert pair.lake.plan_changes("t", 4).rows_at_most == 3
    assert (len(plan.insertions), len(plan.deletions), len(plan.inlined)) == (1, 1, 1)
    assert sorted(plan.times) == [1, 2, 3, 4, 5]


def test_old_deletes_cost_nothing(make):
    pair = make(
        CREATE,
        rows(0, 20),
        delete("k < 3"),
        rows(20, 25),
        delete("k = 21"),
        FLUSH,
        rows(30, 50),
    )
    plan = pair.lake.plan_changes("t", 7)
    assert len(plan.files) == 1
    assert not plan.deletions


def test_rows_that_move_between_plan_and_reading(make):
    pair = make(CREATE, rows(0, 5), rows(10, 40), delete("k IN (1, 12)"))
    plan = pair.lake.plan_changes("t", 1)
    expected = short(pair, 1)
    pair.run(FLUSH)
    with pytest.raises(ConflictError, match="moved from the catalog"):
        read_changes(plan, pair.lake.store, pair.lake.db)
    found = read_changes(plan, pair.lake.store, pair.lake.db, replan=True)
    assert [tuple(change) for change in as_changes(found)] == expected


def test_files_that_are_merged_and_gone_between_plan_and_reading(make):
    pair = make(CREATE, rows(0, 5), rows(5, 9), **FILES)
    plan = pair.lake.plan_changes("t", 1)
    expected = short(pair, 1)
    pair.run(MERGE, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    found = read_changes(plan, pair.lake.store, pair.lake.db, replan=True)
    assert [tuple(change) for change in as_changes(found)] == expected


def test_a_file_that_somebody_removed(make, tmp_path):
    pair = make(CREATE, rows(0, 5), **FILES)
    next((tmp_path / "data").rglob("*.parquet")).unlink()
    with pytest.raises(FileMissingError, match=r"A file of main.t at snapshot 2 cannot be read") as missing:
        pair.lake.changes("t", 1)
    assert missing.value.table == "main.t"


def test_rows_that_were_deleted_before_the_range_are_not_counted(make):
    pair = make(
        "CREATE TABLE t AS SELECT range AS id FROM range(1000)",
        "DELETE FROM t WHERE id < 300",
        "DELETE FROM t WHERE id BETWEEN 500 AND 519",
        "INSERT INTO t SELECT range FROM range(2000, 2050)",
    )
    newest = pair.lake.snapshot().id
    for first, changes in ((newest, 50), (newest - 1, 70), (newest - 2, 370)):
        plan = pair.lake.plan_changes("t", first, newest)
        assert count_changes(plan, pair.lake.store) == changes <= plan.rows_at_most
        assert read_changes(plan, pair.lake.store, pair.lake.db).num_rows == changes
