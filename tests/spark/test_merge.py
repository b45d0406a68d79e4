"""Small sources of a MERGE: what they meet is found in the driver or by a job, and DuckDB finds the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame

from headwater.errors import InvalidInputError
from headwater.spark.connector import LakeSpark
from headwater.spark.sql import run_sql
from headwater.spark.writing import merging
from tests.spark.judging import assert_same

COLUMNS = "old INTEGER, b VARCHAR, seen TIMESTAMPTZ, v DECIMAL(12,2), w VARCHAR, tags VARCHAR[]"
#: Two columns make a key, each NULL now and then; rows in two files, some deleted, some in the catalog.
FILL = """
    INSERT INTO {name}
    SELECT CASE WHEN i % 17 <> 0 THEN i % 50 END, CASE WHEN i % 13 <> 0 THEN 'k' || i // 50 END,
        TIMESTAMPTZ '2024-03-30 22:00:00+00' + INTERVAL (i) MINUTE, i / 4, 'w' || i, ['x', NULL, 'y' || i]
    FROM range({first}, {end}) r(i)
"""
SOURCE = """
    SELECT CASE WHEN i % 7 <> 0 THEN (i % 50)::INTEGER END AS a,
        CASE WHEN i % 11 <> 0 THEN 'k' || i // 50 END AS b,
        TIMESTAMPTZ '2024-03-30 22:00:00+00' + INTERVAL (i) MINUTE AS seen, (i / 8)::DECIMAL(13, 2) AS v,
        'new ' || i AS w, ['n' || i] AS tags
    FROM range(3900, 4200) r(i)
"""
CHANGES = {
    "all columns": "WHEN MATCHED THEN UPDATE SET {all} WHEN NOT MATCHED THEN INSERT {insert}",
    "columns of both": """
        WHEN MATCHED AND t.v < 1000 AND s.a < 48 THEN UPDATE SET v = t.v + s.v, w = concat(t.w, s.w, t.b)
        WHEN NOT MATCHED AND s.a IS NOT NULL THEN INSERT (b, v, a) VALUES (s.b, s.v, s.a)
    """,
    "some deleted": "WHEN MATCHED AND t.v < 1000 AND s.a < 48 THEN DELETE",
    "columns of the source": "WHEN MATCHED THEN UPDATE SET w = upper(s.w)",
    "deletes": "WHEN MATCHED THEN DELETE",
    "new rows": "WHEN NOT MATCHED THEN INSERT {insert}",
}


@pytest.fixture(params=["driver", "job"])
def found_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who finds the partners of the source."""
    if request.param == "job":
        monkeypatch.setattr(merging, "few_bytes", lambda plan, columns: False)
    return str(request.param)


@pytest.fixture
def both(session: LakeSpark, con: Any) -> Iterator[tuple[LakeSpark, Any]]:
    """The same rows in tables of two names; the source in both engines."""
    for name in ("t", "theirs"):
        con.execute(f"CREATE TABLE {name} ({COLUMNS})")
        con.execute(FILL.format(name=name, first=0, end=3000))
        con.execute(f"ALTER TABLE {name} RENAME old TO a")
        con.execute(FILL.format(name=name, first=3000, end=4000))
        con.execute(f"DELETE FROM {name} WHERE w IN ('w3905', 'w3931', 'w17') OR v < 5")
        con.execute(FILL.format(name=name, first=4000, end=4006))
    rows = con.execute(SOURCE).to_arrow_table()
    con.register("src", rows)
    session.spark.createDataFrame(rows).createOrReplaceTempView("src")
    zone = session.spark.conf.get("spark.sql.session.timeZone")
    yield session, con
    session.spark.conf.set("spark.sql.session.timeZone", zone)
    session.spark.catalog.dropTempView("src")


def merge(both: tuple[LakeSpark, Any], on: str, changes: str) -> None:
    """The same MERGE by Spark and by DuckDB."""
    session, con = both
    ids = con.execute("SELECT a, b, seen, rowid FROM t").fetchall()
    text = "MERGE INTO {name} t USING src s ON {on} {changes}"
    columns = ["a", "b", "seen", "v", "w", "tags"]
    every = ", ".join(f"{c} = s.{c}" for c in columns)
    values = f"({', '.join(columns)}) VALUES ({', '.join(f's.{c}' for c in columns)})"
    run_sql(session, text.format(name="t", on=on, changes=changes.format(all="*", insert="*")))
    con.execute(
        text.format(name="theirs", on=on, changes=changes.format(all=every, insert=values))
    ).fetchall()
    assert con.execute("FROM t EXCEPT ALL FROM theirs").fetchall() == []
    assert con.execute("FROM theirs EXCEPT ALL FROM t").fetchall() == []
    kept = con.execute("SELECT a, b, seen, rowid FROM t").fetchall()
    assert len({row[3] for row in kept}) == len(kept)
    known = {row[3]: row for row in ids}
    pairs = [(known[row[3]], row) for row in kept if row[3] in known]
    assert all(old[:2] == new[:2] or old[2] == new[2] for old, new in pairs)
    assert_same(session, con, "t")


@pytest.mark.parametrize("changes", CHANGES)
def test_keys_of_two_columns_with_null_meet_what_they_meet_in_duckdb(
    both: tuple[LakeSpark, Any], found_by: str, changes: str
) -> None:
    merge(both, "t.a = s.a AND s.b = t.b", CHANGES[changes])


@pytest.mark.parametrize(
    "on", ["t.seen = s.seen", "t.seen = s.seen AND t.v >= s.v", "t.a = s.a AND t.seen = s.seen"]
)
def test_times_meet_in_any_time_zone(both: tuple[LakeSpark, Any], found_by: str, on: str) -> None:
    both[0].spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    merge(both, on, CHANGES["all columns"])


def test_rows_of_a_source_that_meet_one_row_twice_are_refused(
    both: tuple[LakeSpark, Any], found_by: str
) -> None:
    session, _ = both
    source = session.spark.sql("SELECT * FROM src WHERE a = 30")
    twice = source.unionAll(source)
    before = session.lake.snapshot().id
    made = session.table("t").merge(twice, "t.a = s.a AND t.b = s.b")
    for attempt in (made.when_matched_update_all(), made.when_matched_update({"w": "t.w"})):
        with pytest.raises(InvalidInputError, match="several rows of the source"):
            attempt.execute()
    assert session.lake.snapshot().id == before
    expected = source.join(session.table("t").df(), ["a", "b"], "left_semi").count()
    assert made.when_matched_delete().execute().deleted == expected > 0


def test_values_that_do_not_fit_are_sparks_error(both: tuple[LakeSpark, Any], found_by: str) -> None:
    session, con = both
    large = "12345678901.00BD"
    source = session.spark.sql(f"SELECT a, b, seen, CAST({large} AS decimal(13,2)) AS v, w, tags FROM src")
    made = session.table("t").merge(source, "t.seen = s.seen")
    for attempt in (made.when_matched_update_all(), made.when_not_matched_insert_all()):
        with pytest.raises(ArithmeticException):
            attempt.execute()
    assert con.execute("FROM t EXCEPT ALL FROM theirs").fetchall() == []


def test_new_rows_are_not_lost_behind_a_piece_of_the_source_that_has_none(
    session: LakeSpark, con: Any
) -> None:
    con.execute("CREATE TABLE t AS SELECT i AS id, 'old' AS v FROM range(100, 200) r(i)")
    parts = [session.spark.range(start, start + 100).coalesce(1) for start in (0, 100, 200)]
    source = parts[0].unionAll(parts[1]).unionAll(parts[2]).selectExpr("id", "'new' AS v")
    made = session.table("t").merge(source, "t.id = s.id")
    done = made.when_not_matched_insert({"id": "s.id", "v": "upper(s.v)"}).execute()
    assert done.inserted == 200
    assert_same(session, con, "t")


def test_a_change_of_another_writer_in_between_is_seen(
    both: tuple[LakeSpark, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, con = both
    plain, calls = merging.find_partners, []

    def slow(*given: Any) -> Any:
        found = plain(*given)
        calls.append(found.num_rows)
        if len(calls) == 1:
            con.execute("DELETE FROM t WHERE w = 'w3950'")
        return found

    monkeypatch.setattr(merging, "find_partners", slow)
    source: DataFrame = session.spark.sql("SELECT * FROM src WHERE w LIKE 'new 39%'")
    made = session.table("t").merge(source, "t.seen = s.seen")
    done = made.when_matched_update_all().when_not_matched_insert_all().execute()
    assert calls == [98, 97]
    assert (done.updated, done.inserted) == (97, 3)
    assert_same(session, con, "t")


def test_nothing_of_a_large_table_is_read_in_the_driver(
    both: tuple[LakeSpark, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(merging, "find_partners", never)
    monkeypatch.setattr("headwater.spark.writing.partners._FOR_THE_DRIVER", 30_000)
    merge(both, "t.a = s.a AND t.b = s.b", CHANGES["all columns"])
