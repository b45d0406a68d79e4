"""Tables that Spark changes, read by DuckDB."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.errors import ConflictError, InvalidInputError
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.spark.connector import LakeSpark
from headwater.spark.table import LakeTable
from headwater.spark.writing import merging, row_level
from headwater.spark.writing import rows as row_writing
from tests.spark.judging import assert_same, by_jobs, duck_rows, versions
from tests.storage.places import s3_options


@pytest.fixture(params=["driver", "jobs"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything through the driver, as small tables go, or through Spark jobs, as large ones go."""
    if request.param == "jobs":
        by_jobs(monkeypatch)
    return str(request.param)


def orders(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).select(
        "id",
        F.concat(F.lit("it's "), F.col("id")).alias("name"),
        (F.col("id") / 4).cast("decimal(10,2)").alias("price"),
        F.when(F.col("id") % 5 != 0, F.col("id").cast("double") / 3).alias("weight"),
        F.expr("timestamp_ntz'2024-01-01 00:00:00' + make_dt_interval(0, cast(id as int))").alias("placed"),
        F.expr("date'2024-01-01' + cast(id % 3 as int)").alias("day"),
        F.array(F.lit("a"), F.lit(None).cast("string")).alias("tags"),
        F.struct(F.lit("x").alias("b"), F.col("id").cast("int").alias("a")).alias("s"),
    )


CREATE = (
    "CREATE TABLE t (id BIGINT NOT NULL, name VARCHAR, price DECIMAL(10,2), weight DOUBLE, placed TIMESTAMP, "
    "day DATE, tags VARCHAR[], s STRUCT(a INTEGER, b VARCHAR))"
)


@pytest.fixture
def table(session: LakeSpark, con: Any, path: str) -> LakeTable:
    con.execute(CREATE)
    con.execute("INSERT INTO t (id, name) VALUES (100000, 'inlined'), (100001, NULL)")
    found = session.table("t")
    found.append(orders(session.spark, 0, 200))
    return found


def check(table: LakeTable, con: Any) -> None:
    """DuckDB reads the same rows with the same row ids, now and at every snapshot before."""
    for version in versions(table.session, "t")[-2:]:
        assert_same(table.session, con, "t", version)


def test_appended_rows_are_there_for_duckdb(table: LakeTable, con: Any) -> None:
    check(table, con)
    assert con.execute("SELECT count(*), sum(id), max(price), count(weight), sum(s.a) FROM t").fetchone()[
        :2
    ] == (
        202,
        219901,
    )
    assert con.execute("SELECT name, s FROM t WHERE id = 7").fetchone() == ("it's 7", {"a": 7, "b": "x"})


def test_delete_update_and_overwrite_are_one_snapshot_each(table: LakeTable, con: Any) -> None:
    before = table.session.lake.snapshot().id
    assert table.delete("id % 3 = 0").deleted == 67
    check(table, con)
    done = table.update("id < 50 OR name = 'inlined'", set={"price": "price + 1", "weight": None})
    assert done.updated == 33 + 1
    check(table, con)
    assert table.overwrite(orders(table.session.spark, 0, 5), where="id < 30").inserted == 5
    check(table, con)
    assert table.overwrite(orders(table.session.spark, 0, 20)).inserted == 20
    check(table, con)
    assert table.delete().deleted == 20
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
    assert table.session.lake.snapshot().id == before + 5


def test_merge_with_every_clause_is_one_snapshot(table: LakeTable, con: Any) -> None:
    spark = table.session.spark
    source = (
        orders(spark, 190, 210).withColumn("name", F.lit("merged")).withColumn("gone", F.col("id") == 195)
    )
    before = table.session.lake.snapshot().id
    done = (
        table.merge(source, "t.id = s.id")
        .when_matched_delete("s.gone")
        .when_matched_update({"name": "concat(t.name, ' ', s.name)"}, condition="t.id < 193")
        .when_matched_update_all("t.id <> 198")
        .when_not_matched_insert({"id": "s.id", "name": "s.name"}, condition="s.id > 205")
        .when_not_matched_insert_all("s.id <> 200")
        .when_not_matched_by_source_update({"name": F.lit("lonely")}, condition="t.id = 1")
        .when_not_matched_by_source_delete("t.id BETWEEN 2 AND 4 OR t.name = 'inlined'")
        .execute()
    )
    assert (done.inserted, done.updated, done.deleted) == (9, 3 + 5 + 1, 1 + 3 + 1)
    assert done.snapshot_id == before + 1
    check(table, con)
    assert con.execute(
        "SELECT name FROM t WHERE id IN (1, 191, 196, 198, 203, 207) ORDER BY id"
    ).fetchall() == [
        ("lonely",),
        ("it's 191 merged",),
        ("merged",),
        ("it's 198",),
        ("merged",),
        ("merged",),
    ]


def test_merge_without_a_clause_for_the_rest_leaves_it_alone(table: LakeTable, con: Any) -> None:
    source = orders(table.session.spark, 195, 205).withColumn("price", F.lit(9))
    done = (
        table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    )
    assert (done.inserted, done.updated, done.deleted) == (5, 5, 0)
    check(table, con)
    assert con.execute("SELECT count(*) FROM t WHERE price = 9").fetchone() == (10 + 1,)


def test_merge_reads_only_files_that_the_source_can_meet(
    session: LakeSpark, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE t (id INTEGER, v VARCHAR)")
    for start in range(0, 200, 20):
        con.execute(f"INSERT INTO t SELECT i, 'v' FROM range({start}, {start + 20}) r(i)")
    source = session.spark.range(75, 95).selectExpr("cast(id AS int) AS id", "'new' AS v")
    none = source.select(F.lit(None).cast("int").alias("id"), "v")
    read: list[int] = []
    plain = Transaction.scan

    def counting(tx: Transaction, *given: Any) -> Any:
        found = plain(tx, *given)
        read.append(len(found.files))
        return found

    monkeypatch.setattr(Transaction, "scan", counting)
    for rows, on in ((source, "t.id = s.id"), (source, "s.id = t.id AND t.v = s.v"), (none, "t.id = s.id")):
        session.table("t").merge(rows, on).when_matched_update_all().when_not_matched_insert_all().execute()
        assert_same(session, con, "t")
    assert read == [2, 1, 0]  # the second meets the updated rows, NULL meets nothing


def test_one_row_of_the_source_with_a_great_many_partners_stays_out_of_the_driver(
    session: LakeSpark, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE t AS SELECT i AS id, i % 2 AS k, 'old' AS v FROM range(1000) r(i)")
    source = session.spark.createDataFrame([(1, "new")], "k bigint, v string")
    monkeypatch.setattr(merging, "most_rows", lambda frame: 10)
    done = session.table("t").merge(source, "t.k = s.k").when_matched_update({"v": "s.v"}).execute()
    assert done.updated == 500
    assert_same(session, con, "t")
    monkeypatch.setattr(row_writing, "most_rows", lambda frame: 10)
    assert session.table("t").append(session.table("t").df()).inserted == 1000
    assert_same(session, con, "t")


def test_two_rows_of_the_source_for_one_row_are_refused(table: LakeTable, con: Any) -> None:
    twice = orders(table.session.spark, 5, 6).unionAll(orders(table.session.spark, 5, 6))
    before = table.session.lake.snapshot().id
    with pytest.raises(InvalidInputError, match="several rows of the source"):
        table.merge(twice, "t.id = s.id").when_matched_update_all().execute()
    assert table.merge(twice, "t.id = s.id").when_matched_delete().execute().deleted == 1
    assert table.session.lake.snapshot().id == before + 1


def test_nothing_to_do_is_no_snapshot(table: LakeTable) -> None:
    before = table.session.lake.snapshot().id
    nothing = orders(table.session.spark, 0, 0)
    assert table.delete("id < 0").snapshot_id == before
    assert table.update("id < 0", set={"name": "'x'"}).snapshot_id == before
    assert table.append(nothing).snapshot_id == before
    assert table.merge(nothing, "t.id = s.id").when_matched_delete().execute().snapshot_id == before


@pytest.mark.parametrize("keys", ["(day)", "(year(placed), day)", "(bucket(4, id))", "(price)"])
def test_partitions_are_those_that_duckdb_would_make(
    session: LakeSpark, con: Any, path: str, keys: str
) -> None:
    con.execute(CREATE)
    con.execute(f"ALTER TABLE t SET PARTITIONED BY {keys}")
    session.table("t").append(orders(session.spark, 0, 40))
    assert_same(session, con, "t")
    con.execute("CREATE TABLE theirs AS FROM t WITH NO DATA")
    con.execute(f"ALTER TABLE theirs SET PARTITIONED BY {keys}")
    con.execute("INSERT INTO theirs FROM t")

    def values(name: str) -> set[tuple[str | None, ...]]:
        return {scan.partition_values for scan in session.lake.scan(name).files}

    assert values("t") == values("theirs")


def test_dynamic_overwrite_replaces_the_partitions_of_the_rows(
    session: LakeSpark, con: Any, path: str
) -> None:
    con.execute(CREATE)
    table = session.table("t")
    table.append(orders(session.spark, 0, 30))  # before there were partitions
    con.execute("ALTER TABLE t SET PARTITIONED BY (day)")
    table.append(orders(session.spark, 100, 160))
    con.execute("INSERT INTO t (id, day) VALUES (1000, DATE '2024-01-01'), (1001, DATE '2024-01-02')")
    new = orders(session.spark, 200, 202).withColumn("day", F.to_date(F.lit("2024-01-01")))
    done = table.overwrite(new, dynamic_partitions=True)
    assert (done.inserted, done.deleted) == (2, 10 + 20 + 1)
    assert_same(session, con, "t")
    assert duck_rows(con, "SELECT id FROM t WHERE day = DATE '2024-01-01'") == [(200,), (201,)]


def test_rows_that_do_not_fit_are_refused_and_merge_schema_makes_room(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (id INTEGER, v VARCHAR DEFAULT 'default')")
    table, spark = session.table("t"), session.spark
    ids = spark.range(3).select(F.col("id").cast("int"))
    with pytest.raises(InvalidInputError, match="lack 'v'"):
        table.append(ids)
    with pytest.raises(InvalidInputError, match="no column 'w'"):
        table.append(ids.select("id", F.lit("x").alias("v"), F.lit(1).alias("w")))
    with pytest.raises(InvalidInputError, match="the rows have string"):
        table.append(ids.select(F.lit("1").alias("id"), F.lit("x").alias("v")))
    with pytest.raises(InvalidInputError, match="two columns"):
        table.append(ids.select("id", F.lit("x").alias("v"), F.lit("x").alias("V")))
    assert session.lake.table("t").columns[0].type == "int32"
    # A bigint fits an integer column for Spark's INSERT, until a value does not.
    wide = spark.range(2**33, 2**33 + 1)
    with pytest.raises(ArithmeticException, match="OVERFLOW"):
        table.append(wide.withColumn("v", F.lit("x")))
    table.append(wide.withColumn("w", F.lit(True)), merge_schema=True)
    assert duck_rows(con, "SELECT * FROM t") == [(2**33, "default", True)]
    assert [column.type for column in session.lake.table("t").columns] == ["int64", "varchar", "boolean"]


def test_null_in_a_column_that_is_not_null_is_refused(session: LakeSpark, con: Any, path: str) -> None:
    con.execute("CREATE TABLE t (id BIGINT NOT NULL, v VARCHAR)")
    rows = session.spark.range(20).select(
        F.when(F.col("id") != 7, F.col("id")).alias("id"), F.lit("x").alias("v")
    )
    with pytest.raises(InvalidInputError, match="NOT NULL"):
        session.table("t").append(rows)
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
    assert not [
        file for file in session.lake.store.list(session.lake.data_path) if "parquet" in file.location
    ]


def test_a_row_that_another_writer_deleted_meanwhile_is_a_conflict_and_tried_again(
    session: LakeSpark, con: Any
) -> None:
    con.execute("CREATE TABLE t AS SELECT i AS id, 'old' AS v FROM range(100) r(i)")
    with pytest.raises(ConflictError), session.lake.transaction() as tx:
        row_level.update_rows(session, tx, "t", "id < 50", {"v": F.lit("new")})
        con.execute("DELETE FROM t WHERE id < 60")
    con.execute("DELETE FROM t WHERE id BETWEEN 60 AND 69")
    interrupted: list[bool] = []

    def work(tx: Transaction) -> int:
        count = row_level.update_rows(session, tx, "t", "id >= 60", {"v": F.lit("newer")})
        if not interrupted:
            interrupted.append(True)
            con.execute("DELETE FROM t WHERE id >= 95")
        return count

    assert session.lake.run(work) == 25
    assert_same(session, con, "t")


def test_an_operation_id_is_applied_once(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (id BIGINT)")
    rows = session.spark.range(30)
    first = session.table("t").append(rows, operation_id="load/1", author="etl", message="once")
    again = session.table("t").append(rows, operation_id="load/1")
    assert again.already_applied
    assert again.snapshot_id == first.snapshot_id
    assert con.execute("SELECT count(*) FROM t").fetchone() == (30,)
    assert session.lake.snapshots(1)[0].author == "etl"


def test_sort_order_and_target_size_are_honoured(
    session: LakeSpark, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writing, "FOR_THE_DRIVER", 0)
    con.execute("CREATE TABLE t (id BIGINT, v VARCHAR)")
    con.execute("ALTER TABLE t SET SORTED BY (id DESC)")
    con.execute("CALL lake.set_option('target_file_size', '20KB')")
    rows = session.spark.range(0, 10_000, 1, 1).select(
        "id", F.sha2(F.col("id").cast("string"), 256).alias("v")
    )
    session.table("t").append(rows)
    files = session.lake.scan("t").files
    assert len(files) > 5
    first = con.execute("SELECT id FROM t WHERE file_row_number < 3 ORDER BY rowid LIMIT 3").fetchall()
    assert first == sorted(first, reverse=True)


def test_encrypted_lakes_are_written_in_workers(
    new_database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_jobs(monkeypatch)
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    session, con = LakeSpark(lake, spark), lake.duckdb()
    _core(session, con)
    con.close()
    lake.close()


@pytest.mark.s3
def test_s3_lakes_are_read_and_written_in_workers(
    new_database: str, s3: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_jobs(monkeypatch)
    data_path = f"s3://{s3.bucket}/spark-{time.monotonic_ns()}"
    lake = Lake.open(new_database, data_path=data_path, storage=s3_options(s3))
    session, con = LakeSpark(lake, spark), lake.duckdb()
    _core(session, con)
    con.close()
    lake.close()


def _core(session: LakeSpark, con: Any) -> None:
    con.execute(CREATE)
    table = session.table("t")
    table.append(orders(session.spark, 0, 100))
    assert_same(session, con, "t")
    con.execute("DELETE FROM t WHERE id % 10 = 3")
    table.update("id < 20", set={"name": "upper(name)"})
    assert_same(session, con, "t")
    table.merge(
        orders(session.spark, 90, 110), "t.id = s.id"
    ).when_matched_delete().when_not_matched_insert_all().execute()
    assert_same(session, con, "t")
    table.overwrite(orders(session.spark, 0, 7))
    for version in versions(session, "t"):
        assert_same(session, con, "t", version)


def test_rows_of_python_and_arrow_are_taken_too(session: LakeSpark, con: Any) -> None:
    con.execute("CREATE TABLE t (id BIGINT, v VARCHAR)")
    session.table("t").append([{"id": 1, "v": "a"}])
    session.table("t").append(pa.table({"id": [2], "v": ["b"]}))
    assert duck_rows(con, "SELECT * FROM t") == [(1, "a"), (2, "b")]
