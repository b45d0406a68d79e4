"""The numbers of `headwater tables` are what DuckDB counts, at every snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.lake.lake import Lake
from headwater.lake.summary import changes_in_words, summarize
from tests.support import duck

STEPS = (
    "CREATE TABLE t (a INT, b VARCHAR)",
    "INSERT INTO t SELECT i, 'x' FROM range(200) r(i)",
    "INSERT INTO t VALUES (1000, 'small'), (1001, 'small')",
    "DELETE FROM t WHERE a < 50",
    "DELETE FROM t WHERE a = 60",
    "DELETE FROM t WHERE a BETWEEN 70 AND 90",
    "DELETE FROM t WHERE a = 1000",
    "UPDATE t SET b = 'u' WHERE a < 100",
    "INSERT INTO t VALUES (1002, 'small')",
    "CALL ducklake_flush_inlined_data('lake')",
    "INSERT INTO t VALUES (1003, 'again')",
    "DELETE FROM t WHERE a IN (1001, 1002, 1003)",
    "CALL ducklake_flush_inlined_data('lake')",
    "INSERT INTO t SELECT i, 'y' FROM range(100) r(i)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "DELETE FROM t WHERE b = 'y' AND a < 95",
    "DELETE FROM t",
)


@pytest.mark.parametrize("encrypted", [False, True])
def test_rows_are_what_duckdb_counts_at_every_snapshot(
    new_database: str, tmp_path: Path, encrypted: bool
) -> None:
    Lake.open(new_database, data_path=tmp_path, encrypted=encrypted).close()
    lake = Lake.open(new_database)
    session = lake.duckdb()
    for step in STEPS:
        session.execute(step)
    for snapshot in lake.snapshots()[:-1]:
        query = f"SELECT count(*) FROM (SELECT a FROM t AT (VERSION => {snapshot.id}))"
        expected = session.execute(query).fetchall()[0][0]
        _, (table,) = summarize(lake, snapshot.id)
        assert table.rows == expected, snapshot
    _, (table,) = summarize(lake)
    assert table.rows == 0
    session.close()
    lake.close()


def test_a_table_is_described(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table(
            "t",
            {"id": "int64", "ts": "timestamp", "tags": "varchar[]"},
            partition_by=["year(ts)", "id"],
            comment="hello",
        )
    snapshot, (table,) = summarize(lake)
    assert snapshot.id == 1
    assert table.columns == (("id", "BIGINT"), ("ts", "TIMESTAMP"), ("tags", "VARCHAR[]"))
    assert table.partitioned_by == ("year of ts", "id")
    assert (table.comment, table.rows, table.path) == ("hello", 0, f"{lake.data_path}main/t/")


def test_changes_have_names_also_of_what_is_gone(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_schema("Odd S")
        tx.create_table(("Odd S", "t"), {"id": "int64"})
    with lake.transaction() as tx:
        tx.append(("Odd S", "t"), [{"id": 1}])
    with lake.transaction() as tx:
        tx.drop_table(("Odd S", "t"))
    words = changes_in_words(lake, lake.snapshots())
    assert words[3] == ['dropped table "Odd S".t']
    assert words[2] == ['inlined insert "Odd S".t']
    assert words[1] == ['created schema "Odd S"', 'created table "Odd S".t']


def test_a_lake_made_by_duckdb_is_summarised(new_database: str, tmp_path: Path) -> None:
    session = duck(new_database, tmp_path)
    session.execute("CREATE TABLE t AS SELECT i FROM range(30) r(i)")
    session.execute("CREATE VIEW v AS SELECT 1 AS one")
    lake = Lake.open(new_database)
    assert [(t.kind, t.rows) for t in summarize(lake)[1]] == [("table", 30), ("view", None)]
    lake.close()
    session.close()
