"""Tables that DuckDB made messy on purpose, read by Spark at every snapshot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.errors import InvalidInputError, NotFoundError, SnapshotError
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from headwater.spark.reading import deletes as delete_sets
from headwater.spark.reading.branches import Reason
from headwater.typedefs import TableName
from tests.spark.judging import assert_same, duck_rows, spark_rows, versions
from tests.support import create_database


def run(con: Any, script: str) -> None:
    for statement in filter(str.strip, script.split(";")):
        con.execute(statement)


def files_read(frame: DataFrame) -> int:
    """How many files a query reads, by Spark's own count."""
    frame.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        fresh = frame.select("*")
        fresh.collect()
        leaves = fresh._jdf.queryExecution().executedPlan().collectLeaves()
        found = 0
        for place in range(leaves.size()):
            metrics = leaves.apply(place).metrics()
            if metrics.contains("numFiles"):
                found += metrics.apply("numFiles").value()
        return found
    finally:
        frame.sparkSession.conf.unset("spark.sql.adaptive.enabled")


STORIES = {
    "renames in a circle, deletes in files and in the catalog": """
        CREATE TABLE t (a INTEGER, b INTEGER, c VARCHAR);
        INSERT INTO t SELECT i, i + 1000, 'c' || i FROM range(300) r(i);
        INSERT INTO t VALUES (1, 2, 'inlined'), (NULL, NULL, NULL);
        DELETE FROM t WHERE a % 7 = 0;
        DELETE FROM t WHERE a = 5 OR c = 'inlined';
        ALTER TABLE t RENAME a TO x;
        ALTER TABLE t RENAME b TO a;
        ALTER TABLE t RENAME x TO b;
        INSERT INTO t SELECT i, i + 5000, 'd' || i FROM range(50) r(i);
        UPDATE t SET c = 'new' WHERE b < 20;
        DELETE FROM t WHERE a < 10
    """,
    "columns dropped, added again, with defaults, widened": """
        CREATE TABLE t (a TINYINT, b FLOAT, c VARCHAR, d INTEGER);
        INSERT INTO t SELECT i % 100, i / 3, 'c' || i, i FROM range(100) r(i);
        ALTER TABLE t DROP COLUMN c;
        ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 42;
        INSERT INTO t SELECT 1, 2.5, i, i FROM range(20) r(i);
        ALTER TABLE t ALTER a SET DATA TYPE BIGINT;
        ALTER TABLE t ALTER d SET DATA TYPE BIGINT;
        ALTER TABLE t ADD COLUMN e VARCHAR DEFAULT 'it''s \\ here';
        ALTER TABLE t ADD COLUMN f DATE DEFAULT '0987-06-05';
        INSERT INTO t VALUES (70000, 1, 3000000000, 2, NULL, NULL);
        UPDATE t SET e = NULL WHERE d = 7
    """,
    "merged, flushed and rewritten": """
        CREATE TABLE t (id INTEGER, v VARCHAR);
        INSERT INTO t SELECT i, 'a' FROM range(40) r(i);
        INSERT INTO t SELECT i, 'b' FROM range(40, 80) r(i);
        INSERT INTO t VALUES (100, 'inlined'), (101, 'inlined too');
        UPDATE t SET v = 'u' WHERE id IN (3, 100);
        CALL ducklake_flush_inlined_data('lake');
        INSERT INTO t SELECT i, 'c' FROM range(200, 240) r(i);
        CALL ducklake_merge_adjacent_files('lake');
        DELETE FROM t WHERE id % 2 = 0;
        CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1);
        INSERT INTO t VALUES (300, 'end')
    """,
    "nested columns that change inside": """
        CREATE TABLE t (id INTEGER, s STRUCT(a INTEGER, b VARCHAR), l STRUCT(x INTEGER, y DATE)[],
            m MAP(VARCHAR, INTEGER));
        INSERT INTO t SELECT i, {'a': i, 'b': 'v' || i}, [{'x': i, 'y': DATE '2020-01-01'}, NULL],
            MAP {'k': i, 'n': NULL} FROM range(30) r(i);
        INSERT INTO t SELECT 100, NULL, [], MAP {} FROM range(20);
        ALTER TABLE t RENAME s.a TO z;
        ALTER TABLE t ADD COLUMN s.c INTEGER;
        ALTER TABLE t DROP COLUMN s.b;
        INSERT INTO t SELECT i, {'z': i, 'c': -i}, NULL, NULL FROM range(20) r(i);
        DELETE FROM t WHERE id = 3
    """,
    "partitions, and a table of another schema with odd names": """
        CREATE SCHEMA "odd schema";
        CREATE TABLE "odd schema"."t ""q x" ("a b" INTEGER, "select" VARCHAR, day DATE);
        ALTER TABLE "odd schema"."t ""q x" SET PARTITIONED BY (day, "select");
        INSERT INTO "odd schema"."t ""q x"
            SELECT i, 'v/' || (i % 3), DATE '2024-01-01' + (i % 2)::INTEGER FROM range(60) r(i);
        INSERT INTO "odd schema"."t ""q x" VALUES (1, NULL, NULL);
        INSERT INTO "odd schema"."t ""q x" SELECT 7, NULL, NULL FROM range(20);
        DELETE FROM "odd schema"."t ""q x" WHERE "a b" = 7
    """,
}


@pytest.mark.parametrize("story", STORIES, ids=lambda name: name.replace(" ", "-"))
def test_spark_sees_what_duckdb_sees_at_every_snapshot(session: LakeSpark, con: Any, story: str) -> None:
    run(con, STORIES[story])
    name = TableName("odd schema", 't "q x') if "odd schema" in STORIES[story] else TableName("main", "t")
    found = versions(session, name)
    assert len(found) > 4
    for version in found:
        assert_same(session, con, name, version, hidden=("rowid", "snapshot_id"))


def test_filters_after_columns_changed_names_lose_no_row(session: LakeSpark, con: Any) -> None:
    run(
        con,
        """CREATE TABLE t (a INTEGER, b INTEGER);
        INSERT INTO t SELECT i, i + 1000 FROM range(500) r(i);
        ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b""",
    )
    for condition in ("a > 1490", "b < 3", "a = 1003", "b IN (1, 499)", "a IS NULL", "b > 498 OR a < 1001"):
        expected = duck_rows(con, f"SELECT a, b FROM t WHERE {condition}")
        frame = session.table("t").df(columns=["a", "b"])
        assert spark_rows(frame.where(condition)) == expected
        assert spark_rows(session.table("t").df(where=condition, columns=["a", "b"])) == expected


ALL_TYPES = {
    "boolean": "true", "tinyint": "-128", "smallint": "-32768", "integer": "-2147483648",
    "bigint": "-9223372036854775808", "utinyint": "255", "usmallint": "65535", "uinteger": "4294967295",
    "ubigint": "18446744073709551615", "float": "1.5", "double": "'-inf'", "decimal(4,1)": "-999.9",
    "decimal(18,4)": "12345678901234.5678", "decimal(38,10)": "1234567890123456789012345678.0123456789",
    "date": "DATE '0001-02-03'", "time": "TIME '23:59:59.999999'",
    "timestamp": "TIMESTAMP '1066-10-14 09:00:00.123456'",
    "timestamp_s": "TIMESTAMP_S '2024-02-29 12:00:00'",
    "timestamp_ms": "TIMESTAMP_MS '2024-02-29 12:00:00.123'",
    "timestamptz": "TIMESTAMPTZ '2024-02-29 12:00:00.5+02'", "varchar": "'ü''\\n'",
    "blob": "'\\x00\\xFF'::BLOB",
    "uuid": "UUID '0123cafe-0000-4000-8000-00000000beef'", "json": "'{\"a\": [1, null]}'",
    "integer[]": "[1, NULL, 3]", "struct(a integer, b varchar[])": "{'a': 1, 'b': ['x', NULL]}",
    "map(varchar, date)": "MAP {'k': DATE '2024-01-01'}",
    "uuid[]": "[UUID '0123cafe-0000-4000-8000-00000000beef']",
}  # fmt: skip


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_every_type_comes_out_as_it_went_in(
    new_database: str, tmp_path: Path, spark: SparkSession, encrypted: bool
) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=encrypted)
    session = LakeSpark(lake, spark)
    con = lake.duckdb()
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(ALL_TYPES))
    con.execute(f"CREATE TABLE t (id INTEGER, {columns})")
    values = ", ".join(f"CAST({value} AS {kind})" for kind, value in ALL_TYPES.items())
    nulls = ", ".join("NULL" for _ in ALL_TYPES)
    con.execute(f"INSERT INTO t SELECT 1, {values} FROM range(12) UNION ALL SELECT 2, {nulls} FROM range(3)")
    forms = {"time": "epoch_us({})", "json": "{}::VARCHAR"}
    shown = ", ".join(forms.get(kind, "{}").format(f"c{i}") for i, kind in enumerate(ALL_TYPES))
    assert spark_rows(session.table("t").df()) == duck_rows(con, f"SELECT id, {shown} FROM t")
    con.close()
    lake.close()


def test_types_that_spark_lacks_take_the_forms_that_are_documented(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (h HUGEINT, i INTERVAL, n TIMESTAMP_NS, z TIMETZ)")
    con.execute(
        "INSERT INTO t SELECT -170141183460469231731687303715884::HUGEINT, "
        "INTERVAL '14 months 3 days 4.5 seconds', TIMESTAMP_NS '2024-01-01 00:00:00.123456789', "
        "TIMETZ '12:00:00+02' FROM range(12)"
    )
    row = session.table("t").df().first()
    assert row is not None
    assert row.i.asDict() == {"months": 14, "days": 3, "microseconds": 4_500_000}
    assert (row.n, row.z) == (1_704_067_200_123_456_789, 36_000_000_000)


def test_decimals_that_were_widened_are_read_by_spark_itself(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (id INTEGER, a DECIMAL(4, 2), b DECIMAL(12, 2), c DECIMAL(18, 3))")
    nothing = "SELECT NULL, NULL, NULL, NULL"
    values = f"SELECT i, i % 99 - 49.5, i * 7.25, -i / 1000 FROM range({{}}) r(i) UNION ALL {nothing}"
    con.execute(f"INSERT INTO t {values.format(500)}")
    for column, kind in (("a", "decimal(9,2)"), ("b", "decimal(18,2)"), ("c", "decimal(38,3)")):
        session.lake.run(lambda tx, column=column, kind=kind: tx.widen_column("t", column, kind))
    con.execute(f"INSERT INTO t {values.format(20)}")
    assert_same(session, con, "t")
    assert not session.reader.read(session.lake.scan("t")).branches.in_workers
    for condition in ("a > 12.5", "b = 72.5", "c < -0.250", "b IS NULL"):
        expected = duck_rows(con, f"SELECT id FROM t WHERE {condition}")
        assert spark_rows(session.table("t").df().where(condition).select("id")) == expected


def test_files_of_other_writers_are_found_by_name_or_place(
    session: LakeSpark, con: Any, tmp_path: Path
) -> None:
    con.execute("CREATE TABLE t (id BIGINT, v VARCHAR, l INTEGER[], day DATE)")
    folder = tmp_path / "foreign" / "day=2024-05-06"
    folder.mkdir(parents=True)
    right = pa.table({"v": ["x", None], "id": [1, 2], "l": pa.array([[1], None], pa.list_(pa.int32()))})
    pq.write_table(right, folder / "a.parquet")
    # Narrower types than the table's: Spark's reader would not take them.
    narrow = right.slice(0, 1).set_column(1, "id", pa.array([7], pa.int8()))
    pq.write_table(narrow, folder / "b.parquet")
    for file in ("a", "b"):
        con.execute(
            f"CALL ducklake_add_data_files('lake', 't', '{folder}/{file}.parquet', "
            "hive_partitioning => true, allow_missing => true)"
        )
    con.execute("ALTER TABLE t RENAME v TO w")
    con.execute("DELETE FROM t WHERE id = 2")
    assert_same(session, con, "t")
    for condition in (
        "day = DATE'2024-05-06'",
        "day > DATE'2024-05-06'",
        "day IS NULL",
        "id = 1 OR day IS NULL",
    ):
        expected = duck_rows(con, f"SELECT id FROM t WHERE {condition}")
        assert spark_rows(session.table("t").df().where(condition).select("id")) == expected
    plan = session.lake.scan("t")
    found = session.reader.read(plan).branches
    assert len(found.by_name) == 1
    assert list(found.in_workers) == [Reason.MAPPED_TYPE]


def test_a_condition_reads_only_the_files_that_can_match(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (id INTEGER, v VARCHAR)")
    for start in range(0, 300, 20):
        con.execute(f"INSERT INTO t SELECT i, 'v' || i FROM range({start}, {start + 20}) r(i)")
    con.execute("DELETE FROM t WHERE id = 41")
    table = session.table("t")
    assert files_read(table.df()) == 15
    assert files_read(table.df().where("id = 45")) == 1
    assert files_read(table.df().where("id BETWEEN 55 AND 65 OR id > 290")) == 3
    assert files_read(table.df(where="id = 45")) == 1
    joined = table.df().alias("a").join(table.df().alias("b"), "id").where("a.id = 100")
    assert files_read(joined) == 2
    assert table.df().where("id > 1000").count() == 0


def test_thousands_of_files_are_planned_without_a_job(session: LakeSpark, lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("id", pa.int64())]))
        (staged,) = tx.stager.stage(tx.state.table("t"), pa.table({"id": pa.array(range(100))}))
        tx.add_files("t", [staged] * 3000)
    tracker = session.spark.sparkContext.statusTracker()
    group = "planning thousands of files"
    session.spark.sparkContext.setJobGroup(group, group)
    frame = session.table("t").df()
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "Union" not in plan
    assert not tracker.getJobIdsForGroup(group)
    assert frame.count() == 300_000


def test_deletes_too_many_for_the_driver_or_a_broadcast_are_joined(
    session: LakeSpark, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(1000)")
    con.execute("DELETE FROM t WHERE id % 3 = 0")
    con.execute("DELETE FROM t WHERE id IN (1, 2)")
    con.execute("DELETE FROM t WHERE id % 50 = 7")
    monkeypatch.setattr(delete_sets, "_FOR_THE_DRIVER", 10)
    monkeypatch.setattr(delete_sets, "_FOR_BITS", 10)
    monkeypatch.setattr(delete_sets, "_FOR_BROADCAST", 10)
    for version in versions(session, "t"):
        assert_same(session, con, "t", version)


def test_an_external_writer_is_seen_by_the_next_read_only(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(100)")
    before = session.table("t").df()
    con.execute("DELETE FROM t WHERE id < 50")
    con.execute("INSERT INTO t VALUES (1000)")
    con.execute("CALL ducklake_flush_inlined_data('lake')")
    after = session.table("t").df()
    assert (before.count(), after.count()) == (100, 51)


def test_two_lakes_in_one_session(
    session: LakeSpark, con: Any, pg_server: Any, tmp_path: Path, spark: SparkSession
) -> None:
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(20)")
    other = Lake.open(create_database(pg_server.dsn), data_path=tmp_path / "other")
    with other.transaction() as tx:
        tx.create_table("t", pa.schema([("id", pa.int64())]))
        tx.append("t", pa.table({"id": list(range(10, 30))}))
    both = session.table("t").df().join(LakeSpark(other, spark).table("t").df(), "id")
    assert both.agg(F.min("id"), F.count("*")).collect()[0][:] == (10, 10)
    other.close()


def test_hidden_columns_tell_where_a_row_is(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (id INTEGER)")
    con.execute("INSERT INTO t SELECT * FROM range(30)")
    con.execute("UPDATE t SET id = id + 100 WHERE id < 15")
    con.execute("INSERT INTO t VALUES (7)")
    names = ("rowid", "snapshot_id", "filename", "file_row_number")
    mine = spark_rows(session.table("t").df(hidden=names).select("id", *names))
    theirs = duck_rows(con, f"SELECT id, {', '.join(names)} FROM t")
    assert mine == theirs
    for path in {row[3] for row in theirs}:
        kept = session.table("t").df(hidden=names).where(F.col("filename") == path).select("id", *names)
        assert spark_rows(kept) == [row for row in theirs if row[3] == path]
    newer = session.table("t").df(hidden=["snapshot_id"]).where("snapshot_id > 2").select("id")
    assert spark_rows(newer) == duck_rows(con, "SELECT id FROM t WHERE snapshot_id > 2")


MISTAKES: dict[str, tuple[Callable[[LakeSpark], Any], type[Exception]]] = {
    "no such table": (lambda s: s.table("nothing").df(), NotFoundError),
    "no such column": (lambda s: s.table("t").df(columns=["idd"]), NotFoundError),
    "no such hidden column": (lambda s: s.table("t").df(hidden=["row"]), NotFoundError),
    "version in the future": (lambda s: s.table("t").df(version=10_000), SnapshotError),
    "version from before the table": (lambda s: s.table("t").df(version=0), SnapshotError),
    "both version and time": (
        lambda s: s.table("t").df(version=1, timestamp="2024-01-01"),
        InvalidInputError,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda name: name.replace(" ", "-"))
def test_mistakes_are_errors_of_their_own(session: LakeSpark, con: Any, mistake: str) -> None:
    con.execute("CREATE TABLE t (id INTEGER)")
    call, kind = MISTAKES[mistake]
    with pytest.raises(kind):
        call(session)
