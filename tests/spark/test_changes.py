"""The change feed in Spark, beside the lake's own, which is tested against DuckDB and full reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from headwater.errors import SnapshotError
from headwater.lake.reading.change_reader import net_rows
from headwater.spark.changes import came_and_went, changes
from headwater.spark.connector import LakeSpark
from headwater.spark.types import to_spark
from tests.spark.judging import rows, spark_rows

STORY = """
    CREATE TABLE t (id INTEGER, v VARCHAR, m MAP(VARCHAR, INTEGER));
    INSERT INTO t SELECT i, 'a' || i, MAP {'k': i} FROM range(60) r(i);
    INSERT INTO t VALUES (100, 'inlined', NULL), (101, 'inlined', NULL);
    UPDATE t SET v = 'u' WHERE id IN (3, 100);
    DELETE FROM t WHERE id % 7 = 0;
    INSERT INTO t SELECT i, 'b', NULL FROM range(200, 240) r(i);
    UPDATE t SET v = 'a3' WHERE id = 3;
    DELETE FROM t WHERE id = 201;
    CALL ducklake_flush_inlined_data('lake');
    CALL ducklake_merge_adjacent_files('lake');
    ALTER TABLE t RENAME v TO w;
    ALTER TABLE t ADD COLUMN x INTEGER DEFAULT 5;
    DELETE FROM t WHERE id BETWEEN 200 AND 230;
    INSERT INTO t VALUES (300, 'end', NULL, 1)
"""


@pytest.mark.parametrize("net", [False, True], ids=["all", "net"])
@pytest.mark.parametrize("large", [False, True], ids=["driver", "jobs"])
def test_the_feed_is_that_of_the_lake(session: LakeSpark, con: Any, large: bool, net: bool) -> None:
    for statement in STORY.split(";"):
        con.execute(statement)
    newest = session.lake.snapshot().id
    for start, end in ((1, newest), (3, 6), (5, 5), (newest - 3, newest), (2, 8)):
        plan = session.lake.plan_changes("t", start, end)
        expected = to_spark(session.lake.changes("t", start, end, net=net), plan.table.columns)
        found = changes(session, "t", start, end, net=net, large=large)
        assert found.columns == expected.schema.names
        assert spark_rows(found) == rows(expected)


def test_what_came_and_went_is_the_difference_in_some_columns(session: LakeSpark, con: Any) -> None:
    """Over ranges in which no row can begin and end, and over others."""
    for statement in STORY.split(";"):
        con.execute(statement)
    lake, newest = session.lake, session.lake.snapshot().id
    ranges = [(start, end) for start in range(1, newest + 1) for end in range(start, newest + 1)]
    plans = [lake.plan_changes("t", *each) for each in ranges]
    once = [plan for plan in plans if plan.no_row_twice and len(plan.times) > 1 and plan.rows_at_most]
    assert len(once) >= 3
    for plan in (*once, *plans[::11]):
        columns = [column for column in plan.table.columns if column.name in ("v", "w", "m")]
        names = [column.name for column in columns]
        expected = net_rows(plan, lake.store, lake.db, names)
        signs = pa.array(np.where(expected.came, 1, -1).astype(np.int32))
        wanted = to_spark(expected.rows, columns)
        wanted = wanted.append_column("row", pa.array(expected.row_ids)).append_column("sign", signs)
        assert spark_rows(came_and_went(session, plan, columns)) == rows(wanted)


def test_what_an_update_was_and_what_it_became(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t AS SELECT i AS id, 'old' AS v FROM range(20) r(i)")
    table = session.table("t")
    done = table.update("id = 3", set={"v": "'new'"})
    table.delete("id = 4")
    feed: DataFrame = table.changes(done.snapshot_id)
    found = [(row.id, row.v, row._change_type, row._commit_version) for row in feed.collect()]
    assert sorted(found) == [
        (3, "new", "update_postimage", done.snapshot_id),
        (3, "old", "update_preimage", done.snapshot_id),
        (4, "old", "delete", (done.snapshot_id or 0) + 1),
    ]


def test_a_start_that_has_expired_is_a_clear_error(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t AS SELECT * FROM range(20) r(id)")
    con.execute("DELETE FROM t WHERE id = 1")
    con.execute("DELETE FROM t WHERE id = 2")
    con.execute("CALL ducklake_expire_snapshots('lake', versions => [2])")
    with pytest.raises(SnapshotError, match="2"):
        session.table("t").changes(2)
    with pytest.raises(SnapshotError):
        session.table("t").changes(1000)
