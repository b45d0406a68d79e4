"""The change feed in cases that are known to be hard, beside DuckDB's own feed where that can be trusted."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lake.feed_model import (
    CREATE,
    FILES,
    FLUSH,
    MERGE,
    REWRITE,
    FeedModel,
    check_feed,
    delete,
    rows,
    short,
    texts,
    update,
)
from tests.lake.lakes import Pair
from tests.support import extension, literal


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


def check_all(pair: Pair, table: str = "t") -> None:
    """Each snapshot by itself, everything until then and everything since, against full reads."""
    last = pair.snapshots()[-1]
    for end in range(1, last + 1):
        model = FeedModel(pair.lake, pair.lake.table(table, end), end)
        for start in range(1, end + 1) if end == last else {1, end}:
            check_feed(pair.lake, model, start, end)


def by_duckdb(pair: Pair, start: int, end: int) -> list[tuple[Any, ...]]:
    query = f"SELECT * FROM lake.table_changes('t', {start}, {end}) ORDER BY 1, 2, 3 DESC"
    found = pair.duck.execute(query).to_arrow_table()
    return sorted((int(row[0]), int(row[1]), row[2], row[3:]) for row in texts(found))


PLAIN = {
    "rows in files": (FILES, [rows(0, 20), delete("k < 3"), update("'u'", "k = 5")]),
    "deletes one after the other": (
        FILES,
        [rows(0, 20), *(delete(f"k % 7 = {i}") for i in range(5)), "DELETE FROM t"],
    ),
    "rows in the catalog": (
        {},
        [rows(0, 5), "UPDATE t SET v = v || '!' WHERE k < 3", rows(5, 8), delete("k IN (1, 6)")],
    ),
    "deletes in the catalog": (
        {},
        [rows(0, 30), delete("k = 3"), delete("k = 4"), "UPDATE t SET v = NULL WHERE k = 9"],
    ),
    "merge into": (
        {},
        [
            rows(0, 30),
            "MERGE INTO t USING (SELECT 3 AS k, 'm' AS v UNION ALL SELECT 77, 'n') s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v)",
        ],
    ),
    "columns": (
        FILES,
        [
            rows(0, 12),
            "ALTER TABLE t RENAME v TO w",
            delete("k = 1"),
            "ALTER TABLE t ADD COLUMN v BIGINT DEFAULT 7",
            "UPDATE t SET v = 8 WHERE k = 2",
            "ALTER TABLE t ALTER k TYPE BIGINT",
            "ALTER TABLE t DROP COLUMN w",
            "INSERT INTO t VALUES (99, 99)",
        ],
    ),
}


@pytest.mark.parametrize("story", PLAIN)
def test_duckdb_and_full_reads_agree_where_nothing_was_compacted(make, story):
    options, statements = PLAIN[story]
    pair = make(CREATE, *statements, **options)
    check_all(pair)
    last = pair.snapshots()[-1]
    for start in {1, 3, last}:
        assert sorted(short(pair, start)) == by_duckdb(pair, start, last)


#: What DuckDB's own feed says wrongly, by name.
DUCKDB_FLAWS = {
    "rewritten rows are shown as updates": [
        FILES,
        [rows(0, 20), delete("k < 8"), REWRITE, update("'u'", "k = 15")],
    ],
    "deletes of merged rows are shown at a wrong snapshot": [
        FILES,
        [rows(0, 20), rows(20, 40), MERGE, rows(40, 45), delete("k < 25")],
    ],
    "rows that an insert's own transaction deleted are shown": [
        FILES,
        ["BEGIN", rows(0, 20), delete("k = 3"), "COMMIT", delete("k = 4")],
    ],
}


@pytest.mark.parametrize("flaw", DUCKDB_FLAWS)
def test_full_reads_are_right_where_duckdbs_feed_is_wrong(make, flaw):
    options, statements = DUCKDB_FLAWS[flaw]
    pair = make(CREATE, *statements, **options)
    check_all(pair)
    last = pair.snapshots()[-1]
    assert sorted(short(pair, 1)) != by_duckdb(pair, 1, last)


HARD = {
    "flushed rows, dead ones too": (
        {},
        [rows(0, 5), delete("k = 1"), delete("k = 2"), FLUSH, rows(5, 7), delete("k = 3")],
    ),
    "flushed deletes": (
        {},
        [rows(0, 30), delete("k = 1"), delete("k = 2"), FLUSH, delete("k = 3")],
    ),
    "flushed, deleted one by one, then as a whole": (
        {},
        [rows(0, 5), update("'u'", "k = 1"), FLUSH, delete("k = 2"), "TRUNCATE t"],
    ),
    "rewritten, then merged": (
        FILES,
        [rows(0, 20), delete("k < 8"), REWRITE, rows(20, 30), MERGE, update("'u'", "k > 15")],
    ),
    "merged, deleted, rewritten, deleted": (
        FILES,
        [rows(0, 9), rows(9, 20), MERGE, delete("k % 3 = 0"), REWRITE, delete("k % 2 = 0")],
    ),
    "updates that are merged": (
        FILES,
        [rows(0, 9), update("'u'", "k = 1"), update("'w'", "k < 3"), rows(9, 20), MERGE],
    ),
    "several changes of one transaction": (
        FILES,
        [
            rows(0, 20),
            "BEGIN",
            rows(20, 40),
            delete("k IN (3, 25)"),
            update("'u'", "k IN (4, 26)"),
            update("'w'", "k IN (4, 26)"),
            delete("k = 26"),
            "COMMIT",
        ],
    ),
    "a flush and a delete in one transaction": (
        {},
        [rows(0, 5), rows(10, 40), delete("k = 11"), "BEGIN", FLUSH, delete("k IN (12, 1)"), "COMMIT"],
    ),
    "deletion vectors": (
        FILES,
        [
            "CALL lake.set_option('write_deletion_vectors', true)",
            rows(0, 20),
            delete("k < 3"),
            delete("k = 7"),
        ],
    ),
}


@pytest.mark.parametrize("story", HARD)
def test_every_range_is_what_full_reads_say(make, story):
    options, statements = HARD[story]
    pair = make(CREATE, *statements, **options)
    check_all(pair)


def test_types_that_only_duckdb_decodes(make):
    pair = make(
        "CREATE TABLE t (k INTEGER, x VARIANT, l STRUCT(a INTEGER, b VARCHAR)[], u UUID, j JSON, i INTERVAL, "
        "f DOUBLE)",
        "INSERT INTO t SELECT i, i::VARIANT, [{'a': i, 'b': 'x'}, NULL], uuid(), '[1]', INTERVAL 1 MONTH, "
        "'nan' FROM range(15) r(i)",
        delete("k < 3"),
        "UPDATE t SET f = -0.0 WHERE k = 5",
        "UPDATE t SET f = 'nan', i = INTERVAL 30 DAY WHERE k IN (5, 6)",
        **FILES,
    )
    check_all(pair)
    net = pair.lake.changes("t", 4, net=True, columns=["k"])
    assert set(net.column("k").to_pylist()) == {5, 6}  # a month is not the same as 30 days


def test_an_encrypted_lake(make):
    pair = make(f"LOAD {literal(extension('httpfs'))}", CREATE, encrypted=True, **FILES)
    pair.run(rows(0, 20), delete("k < 3"), rows(20, 40), MERGE, update("'u'", "k = 9"), delete("k > 30"))
    check_all(pair)


def test_a_column_that_became_not_null_after_its_nulls_were_deleted(lake):
    with lake.transaction() as tx:
        tx.create_table("t", {"k": "int64"})
        tx.append("t", pa.table({"k": [None, *range(20)]}))
    with lake.transaction() as tx:
        tx.delete("t", "k IS NULL")
    with lake.transaction() as tx:
        tx.set_not_null("t", "k")
    feed = lake.changes("t", 2)
    assert feed.column("k").to_pylist() == [None]
    assert feed.schema.field("k").nullable


def test_files_that_were_adopted_by_name(make, tmp_path):
    pq.write_table(
        pa.table({"v": ["a", "b", "c"], "k": pa.array([1, 2, 3], pa.int32())}), tmp_path / "f.parquet"
    )
    pair = make(
        CREATE,
        rows(7, 9),
        f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/f.parquet')",
        "ALTER TABLE t RENAME v TO w",
        delete("k = 2"),
        **FILES,
    )
    check_all(pair)
    assert [change[3] for change in short(pair, 5)] == [("2", "b")]


def test_our_own_writes(lake):
    with lake.transaction() as tx:
        tx.create_table("t", {"k": "int64", "v": "varchar"})
    for low, high in ((0, 5), (5, 40), (40, 44)):
        with lake.transaction() as tx:
            tx.append("t", pa.table({"k": range(low, high), "v": ["x"] * (high - low)}))
    for work in (
        lambda tx: tx.update("t", {"v": "v || '!'"}, "k % 5 = 0"),
        lambda tx: tx.delete("t", "k IN (1, 7)"),
        lambda tx: tx.flush_inlined("t"),
        lambda tx: tx.update("t", {"v": "'all'"}),
        lambda tx: tx.truncate("t"),
    ):
        with lake.transaction() as tx:
            work(tx)
    with lake.transaction() as tx:
        tx.append("t", pa.table({"k": range(20)}))
        tx.delete("t", "k < 5")
    last = lake.snapshot().id
    model = FeedModel(lake, lake.table("t"), last)
    for start in range(1, last + 1):
        check_feed(lake, model, start, last)


# -- catalogs in odd states ---------------------------------------------------------------------------------


def test_two_live_delete_files_name_a_row_once(make):
    pair = make(CREATE, rows(0, 20), delete("k = 1"), **FILES)
    with psycopg.connect(pair.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS TABLE ducklake_delete_file")
        pair.run(delete("k = 2"))
        connection.execute("INSERT INTO ducklake_delete_file TABLE kept")
    assert len(pair.lake.scan("t").files[0].deletes) == 2
    check_all(pair)
    assert [change[:3] for change in short(pair, 3)] == [(3, 1, "delete"), (4, 2, "delete")]


def test_delete_files_that_were_ended_instead_of_replaced(make):
    pair = make(CREATE, rows(0, 20), delete("k = 1"), **FILES)
    with psycopg.connect(pair.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS TABLE ducklake_delete_file")
        pair.run(delete("k = 2"), "TRUNCATE t")
        connection.execute("UPDATE kept SET end_snapshot = 4")
        connection.execute("INSERT INTO ducklake_delete_file TABLE kept")
    check_all(pair)


def test_a_snapshot_that_compacted_and_changed_rows(make):
    pair = make(CREATE, rows(0, 20), delete("k < 8"), REWRITE, "UPDATE t SET v = v WHERE k = 9", **FILES)
    with psycopg.connect(pair.dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE ducklake_snapshot_changes SET changes_made = 'inserted_into_table:1,rewrite_delete:1' "
            "WHERE snapshot_id = 4"
        )
    plan = pair.lake.plan_changes("t", 1)
    assert (plan.moves, plan.mixed) == (frozenset(), frozenset({4}))
    check_all(pair)
    assert [change[:3] for change in short(pair, 4)] == [
        (5, 9, "update_preimage"),
        (5, 9, "update_postimage"),
    ]


def test_a_delete_that_duckdb_dates_too_early_is_where_reads_show_it(make):
    """DuckDB dates a further delete from a file before it commits, and not again when it must retry."""
    pair = make(CREATE, "CREATE TABLE other (k INTEGER)", rows(0, 20), delete("k = 1"), **FILES)
    pair.run("BEGIN", delete("k = 2"))
    with pair.lake.transaction() as tx:
        tx.append("other", pa.table({"k": range(20)}))
    pair.run("COMMIT")
    assert pair.lake.snapshot().id == 6
    assert [change[:3] for change in short(pair, 5)] == [(5, 2, "delete")]
    check_all(pair)
