"""`format("ducklake")` in batch: what DuckDB wrote is read, what is written DuckDB reads."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.errors import HeadwaterError, InvalidInputError
from headwater.lake.embedded import open_server
from headwater.lake.format.types import arrow_field
from headwater.lake.lake import Lake
from headwater.spark.datasource.batch_write import TableWriter
from headwater.spark.datasource.options import NAMES, SourceOptions
from headwater.spark.types import to_spark
from headwater.storage.options import StorageOptions
from pyspark_ducklake import DefaultSource
from tests.lake import random_data
from tests.servers import S3Server
from tests.support import duck


def read(spark: SparkSession, lake: Lake, table: str, **options: Any) -> DataFrame:
    reader = spark.read.format("ducklake").option("catalog", lake.dsn)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(table)


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


def of_every_type(count: int) -> pa.Table:
    texts = ["int64", *random_data.SCALAR_TEXTS, "interval", *random_data.NESTED_TEXTS, "time[]"]
    table = random_data.table(random.Random(5), random_data.columns(texts), count, nan=False)
    table = table.set_column(0, "c0", pa.array(range(count), pa.int64()))
    odd = random_data.columns(["geometry", "variant"])
    point = struct.pack("<BIdd", 1, 1, 1.5, -2.0)
    values = ([None, point], ['{"a":[1,2]}', None])
    for column, few in zip(odd, values, strict=True):
        field = arrow_field(column, field_ids=False).with_name(f"odd_{column.type}")
        table = table.append_column(field, pa.array([few[i % 2] for i in range(count)], field.type))
    return table


# -- reading -------------------------------------------------------------------------------------------------


def test_every_type_is_read_from_files_and_from_the_catalog(spark: SparkSession, lake: Lake) -> None:
    given = of_every_type(40)
    with lake.transaction() as tx:
        tx.create_table("t", given.schema)
        tx.append("t", given)

    table = read(spark, lake, "t").toArrow().sort_by("c0")

    expected = to_spark(lake.read("t").sort_by("c0"), lake.table("t").columns)
    assert table.schema.names == expected.schema.names
    for name in expected.schema.names:
        assert table.column(name).equals(expected.column(name)), name


def test_a_table_with_a_past_is_read_as_duckdb_reads_it_at_every_snapshot(
    spark: SparkSession, lake: Lake
) -> None:
    with duck(lake.dsn) as db:
        db.execute("CREATE SCHEMA sales")
        db.execute("CREATE TABLE sales.orders (id INTEGER, name VARCHAR, price DECIMAL(8,2))")
        db.execute("INSERT INTO sales.orders SELECT i, 'n' || i, i / 4 FROM range(30) r(i)")
        db.execute("INSERT INTO sales.orders VALUES (100, NULL, NULL), (101, 'inlined', 1.5)")
        db.execute("DELETE FROM sales.orders WHERE id % 7 = 0")
        db.execute("ALTER TABLE sales.orders RENAME COLUMN name TO label")
        db.execute("ALTER TABLE sales.orders ADD COLUMN note VARCHAR DEFAULT 'none'")
        db.execute("UPDATE sales.orders SET price = 9 WHERE id IN (3, 101)")
        db.execute("ALTER TABLE sales.orders DROP COLUMN label")
        db.execute("INSERT INTO sales.orders SELECT i, i, 'late' FROM range(200, 220) r(i)")
        db.execute("CALL ducklake_flush_inlined_data('lake')")
        db.execute("CALL ducklake_merge_adjacent_files('lake')")
        latest = lake.snapshot().id
        for snapshot in (3, 4, 5, 7, 8, 9, latest):
            query = f"SELECT * FROM sales.orders AT (VERSION => {snapshot})"
            expected = sorted(db.execute(query).fetchall(), key=repr)
            assert rows(read(spark, lake, "sales.orders", versionAsOf=snapshot)) == expected, snapshot
        moment = db.execute("SELECT snapshot_time FROM ducklake_snapshots('lake') WHERE snapshot_id = 4")
        at = moment.fetchone()[0].isoformat()
    assert read(spark, lake, "sales.orders", timestampAsOf=at).count() == 32


def test_a_data_frame_keeps_its_snapshot(spark: SparkSession, lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("a", pa.int32())]))
        tx.append("t", pa.table({"a": [1, 2]}))
    df = read(spark, lake, "t")

    with lake.transaction() as tx:
        tx.truncate("t")
        tx.add_column("t", "b", "int32")

    assert rows(df) == [(1,), (2,)]
    assert read(spark, lake, "t").count() == 0


@pytest.fixture
def many_files(lake: Lake) -> Lake:
    """Ten files of twenty rows, sorted by `k`."""
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("k", pa.int64()), ("day", pa.date32()), ("s", pa.string())]))
    for part in range(10):
        values = list(range(20 * part, 20 * part + 20))
        days = pa.array(values, pa.int32()).cast(pa.date32())
        with lake.transaction() as tx:
            tx.append("t", pa.table({"k": values, "day": days, "s": [f"{v:03}" for v in values]}))
    return lake


@pytest.mark.parametrize(
    ("where", "files", "count"),
    [
        ("k = 25", 1, 1),
        ("k > 170 AND s <= '185'", 2, 15),
        ("day < DATE '1970-01-06'", 1, 5),
        ("k IS NULL", 0, 0),
    ],
)
def test_a_condition_leaves_out_files(
    spark: SparkSession, many_files: Lake, where: str, files: int, count: int
) -> None:
    df = read(spark, many_files, "t", maxPartitionBytes="1b", where=where)

    # Every file is a task; no task at all becomes one without rows.
    assert df.rdd.getNumPartitions() == max(1, files)
    assert df.count() == count


def test_two_scans_of_one_data_frame_do_not_share_filters(spark: SparkSession, many_files: Lake) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        df = read(spark, many_files, "t")
        assert df.filter("k = 30").union(df).union(df.filter("k < 20")).count() == 221
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_condition_of_duckdb_chosen_columns_and_hidden_ones(spark: SparkSession, many_files: Lake) -> None:
    df = read(
        spark, many_files, "t", where="k % 50 = 0", columns="s, k", hidden="rowid,snapshot_id,file_row_number"
    )

    assert df.columns == ["s", "k", "rowid", "snapshot_id", "file_row_number"]
    assert rows(df) == [
        ("000", 0, 0, 2, 0),
        ("050", 50, 50, 4, 10),
        ("100", 100, 100, 7, 0),
        ("150", 150, 150, 9, 10),
    ]
    chosen = spark.read.format("ducklake").option("catalog", many_files.dsn).schema("K bigint").load("t")
    assert chosen.columns == ["K"]
    assert chosen.agg({"K": "sum"}).collect()[0][0] == sum(range(200))


def test_encrypted_lakes_are_read_in_the_workers(
    spark: SparkSession, new_database: str, tmp_path: Path
) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("a", pa.int32())]))
        tx.append("t", pa.table({"a": list(range(50))}))

    assert read(spark, lake, "t").agg({"a": "sum"}).collect()[0][0] == sum(range(50))
    write(spark.range(50).selectExpr("CAST(id AS int) AS a"), lake, "t")
    assert read(spark, lake, "t").count() == 100


@pytest.mark.s3
def test_object_stores_need_no_driver_of_the_jvm(
    spark: SparkSession, new_database: str, s3: S3Server
) -> None:
    options = {
        "catalog": new_database,
        "dataPath": f"s3://{s3.bucket}/datasource",
        "s3.endpoint": s3.endpoint,
        "s3.accessKeyId": s3.access_key,
        "s3.secretAccessKey": s3.secret_key,
    }
    spark.range(100).write.format("ducklake").options(**options).mode("append").save("numbers")

    found = spark.read.format("ducklake").options(**options).load("numbers")

    assert found.agg({"id": "sum"}).collect()[0][0] == sum(range(100))


def test_without_options_it_is_the_lake_of_the_settings(
    new_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headwater.yaml").write_text(f"lake:\n  catalog: {new_database!r}\n  data_path: files\n")
    with Lake.open(new_database, data_path=tmp_path / "files").transaction() as tx:
        tx.create_table("t", pa.schema([("a", pa.int32())]))
        tx.append("t", pa.table({"a": [1]}))
    source = DefaultSource({"path": "t"})

    reader = source.reader(source.schema())

    batches = [batch for task in reader.partitions() for batch in reader.read(task)]  # type: ignore[attr-defined]
    assert pa.Table.from_batches(batches).to_pylist() == [{"a": 1}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01"}, "exclude each other"),
        ({"versionAsOf": "x"}, "must be a whole number"),
        ({"versionAsOf": "99"}, "99"),
        ({"startVersion": "1"}, "startingVersion"),
        ({"hidden": "rowids"}, "There is no hidden column"),
        ({"columns": "nope"}, "no column 'nope'"),
        ({"where": "a >"}, "condition"),
        ({"dbtable": "other"}, "Several tables are named"),
    ],
)
def test_what_is_wrong_is_said(lake: Lake, options: dict[str, str], message: str) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("a", pa.int32())]))

    with pytest.raises(HeadwaterError, match=message):
        source = DefaultSource({"catalog": lake.dsn, "path": "t", **options})
        source.reader(source.schema()).partitions()


def test_errors_hold_no_secrets(spark: SparkSession, lake: Lake) -> None:
    reader = spark.read.format("ducklake").option("catalog", lake.dsn + " password=geheim1")
    reader = reader.option("s3.access_key_id", "a").option("s3.secret_access_key", "geheim2")

    with pytest.raises(PySparkException, match="no table") as caught:
        reader.load("nothing").collect()

    assert "geheim" not in str(caught.value)


def test_storage_options_by_any_spelling() -> None:
    place = SourceOptions(
        {"s3.accessKeyId": "a", "S3.Secret-Access-Key": "b", "s3_use_ssl": "false", "s3.region": "r"}
    ).place

    assert StorageOptions(**place.storage) == StorageOptions(
        s3_access_key_id="a", s3_secret_access_key="b", s3_use_ssl=False, s3_region="r"
    )
    assert "'b'" not in repr(place)


# -- writing -------------------------------------------------------------------------------------------------


def write(df: DataFrame, lake: Lake, table: str, mode: str = "append", **options: Any) -> None:
    writer = df.write.format("ducklake").option("catalog", lake.dsn).mode(mode)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(table)


def stored_files(lake: Lake) -> list[str]:
    return sorted(path.name for path in Path(lake.data_path).rglob("*.parquet"))


def test_every_type_is_written_and_read_by_duckdb(spark: SparkSession, lake: Lake) -> None:
    given = of_every_type(40)
    with lake.transaction() as tx:
        tx.create_table("source", given.schema)
        tx.append("source", given)
        tx.create_table("copy", given.schema)

    write(read(spark, lake, "source").repartition(1), lake, "copy")

    assert lake.read("copy").sort_by("c0").equals(lake.read("source").sort_by("c0"))
    with duck(lake.dsn) as db:
        for one, other in (("source", "copy"), ("copy", "source")):
            assert db.execute(f"SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other}").fetchall() == []


def test_a_table_is_created_with_its_first_rows_in_one_snapshot(spark: SparkSession, lake: Lake) -> None:
    before = lake.snapshot().id
    frame = spark.range(20_000).selectExpr(
        "id", "CAST(id % 3 AS string) AS region", "CAST(NULL AS date) AS d"
    )

    write(frame, lake, 'sales."odd name"', userMetadata="first load", partitionedBy="region")

    snapshot = lake.snapshot()
    assert snapshot.id == before + 1
    assert snapshot.message == "first load"
    with duck(lake.dsn) as db:
        query = 'SELECT count(*), sum(id), count(d), count(DISTINCT region) FROM sales."odd name"'
        assert db.execute(query).fetchone() == (20_000, sum(range(20_000)), 0, 3)
        db.execute("UPDATE sales.\"odd name\" SET region = 'x' WHERE id < 5")
    assert read(spark, lake, 'sales."odd name"', where="region = 'x'").count() == 5
    assert len({scan.partition_values for scan in lake.scan('sales."odd name"').files}) >= 3


def test_few_rows_are_inlined(spark: SparkSession, lake: Lake) -> None:
    write(spark.range(6).repartition(3), lake, "t")

    assert lake.scan("t").files == []
    assert sum(part.row_count for part in lake.scan("t").inlined) == 6
    with duck(lake.dsn) as db:
        assert db.execute("SELECT sum(id) FROM t").fetchone() == (15,)


def test_overwriting_everything_and_parts(spark: SparkSession, lake: Lake) -> None:
    numbers = spark.range(60).selectExpr("id", "id % 3 AS part")
    write(numbers, lake, "t", partitionedBy="part")
    before = lake.snapshot().id

    write(numbers.filter("part = 1 AND id < 10"), lake, "t", "overwrite", replaceWhere="part = 1")
    assert sorted(lake.read("t", where="part = 1").column("id").to_pylist()) == [1, 4, 7]
    assert lake.read("t").num_rows == 43

    write(numbers.filter("id < 2"), lake, "t", "overwrite", partitionOverwriteMode="dynamic")
    assert sorted(lake.read("t", where="part < 2").column("id").to_pylist()) == [0, 1]
    assert lake.read("t").num_rows == 22

    write(numbers.limit(3), lake, "t", "overwrite")
    assert lake.read("t").num_rows == 3
    assert lake.read("t", before).num_rows == 60
    assert lake.snapshot().id == before + 3

    with pytest.raises(PySparkException, match="do not meet the condition"):
        write(numbers, lake, "t", "overwrite", replaceWhere="part = 1")
    assert lake.read("t").num_rows == 3


def test_columns_are_matched_by_name(spark: SparkSession, lake: Lake) -> None:
    with duck(lake.dsn) as db:
        db.execute("CREATE TABLE t (a INTEGER, b VARCHAR DEFAULT 'none', s STRUCT(x INTEGER))")
    rows_ = spark.sql("SELECT named_struct('x', 1) AS S, 7L AS A")

    write(rows_, lake, "t")
    assert lake.read("t").to_pylist() == [{"a": 7, "b": "none", "s": {"x": 1}}]

    wider = spark.sql("SELECT 8 AS a, named_struct('x', 2, 'y', 'new') AS s, DATE'2026-01-01' AS extra")
    with pytest.raises(PySparkException, match="mergeSchema"):
        write(wider, lake, "t")
    write(wider, lake, "t", mergeSchema="true")
    with duck(lake.dsn) as db:
        assert db.execute("SELECT a, s.y, CAST(extra AS VARCHAR) FROM t ORDER BY a").fetchall() == [
            (7, None, None),
            (8, "new", "2026-01-01"),
        ]

    write(spark.sql("SELECT 'only' AS other"), lake, "t", "overwrite", overwriteSchema="true")
    assert lake.read("t").to_pylist() == [{"other": "only"}]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"a": StringType()}, "the rows have text"),
        ({"a": IntegerType(), "nope": IntegerType()}, "'nope'"),
        ({"a": ArrayType(IntegerType())}, "'a'"),
        ({"a": TimestampType()}, "'a'"),
        ({"b": LongType()}, "NOT NULL"),
    ],
)
def test_columns_that_do_not_fit_are_refused_at_once(
    lake: Lake, schema: dict[str, DataType], message: str
) -> None:
    with duck(lake.dsn) as db:
        db.execute("CREATE TABLE t (a INTEGER NOT NULL, b BIGINT)")

    with pytest.raises(InvalidInputError, match=message):
        fields = [StructField(name, kind) for name, kind in schema.items()]
        DefaultSource({"catalog": lake.dsn, "path": "t"}).writer(StructType(fields), overwrite=False)


def test_values_that_do_not_fit_leave_nothing_behind(spark: SparkSession, lake: Lake) -> None:
    with duck(lake.dsn) as db:
        db.execute("CREATE TABLE t (a INTEGER NOT NULL, b BIGINT)")
    before = lake.snapshot().id

    for query, message in (
        ("SELECT id + 2147480000 AS a FROM range(9000)", "does not fit int32"),
        ("SELECT CAST(NULL AS int) AS a", "NOT NULL"),
    ):
        with pytest.raises(PySparkException, match=message):
            write(spark.sql(query), lake, "t")

    assert lake.snapshot().id == before
    assert stored_files(lake) == []


def test_a_write_with_a_transaction_id_is_applied_once(spark: SparkSession, lake: Lake) -> None:
    frame = spark.range(10_000)
    for _ in range(2):
        write(frame, lake, "t", txnAppId="job", txnVersion="7")
    files = stored_files(lake)
    write(frame, lake, "t", txnAppId="job", txnVersion="8")

    assert lake.read("t").num_rows == 20_000
    assert len(files) == len({scan.file.path for scan in lake.scan("t").files}) / 2


def test_a_task_that_fails_leaves_no_file(spark: SparkSession, lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("id", pa.int64())]))
    frame = spark.range(20_000).selectExpr("if(id = 19999, raise_error('broken'), id) AS id").repartition(2)

    with pytest.raises(PySparkException, match="broken"):
        write(frame, lake, "t")

    assert stored_files(lake) == []
    assert lake.read("t").num_rows == 0


def test_modes_that_spark_does_not_hand_on(spark: SparkSession, lake: Lake) -> None:
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            write(spark.range(1), lake, "t", mode)


def test_a_conflict_is_tried_again_with_the_files_that_are_there(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("id", pa.int64())]))
        tx.append("t", pa.table({"id": list(range(100))}))
    schema = StructType([StructField("id", LongType())])
    source = DefaultSource({"path": "t", "catalog": lake.dsn})
    writer = source.writer(schema, overwrite=True)
    message = writer.write(iter(pa.table({"id": list(range(20_000))}).to_batches()))  # type: ignore[arg-type]
    assert isinstance(writer, TableWriter)
    real = writer._replacement.apply
    tries: list[int] = []

    def interfering(tx: Any, table: Any, files: Any) -> None:
        real(tx, table, files)
        tries.append(1)
        if len(tries) == 1:
            with lake.transaction() as other:
                other.delete("t", "id < 50")

    writer._replacement = SimpleNamespace(apply=interfering)  # type: ignore[assignment]

    writer.commit([message])

    assert len(tries) == 2
    assert lake.read("t").num_rows == 20_000


# -- the guide -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_guide_prints_what_it_says_with_nothing_set_up(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/datasource.md").read_text()
    program, expected = (
        re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)[0] for kind in ("python", "text")
    )
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == expected
    # Spark ends its workers by a signal, and they leave the server to whoever opens it next.
    assert open_server(tmp_path / ".headwater" / "postgres").stop_if_unused()


def test_the_guide_names_every_option() -> None:
    text = (Path(__file__).parents[2] / "docs/datasource.md").read_text()

    assert [
        name for name in NAMES if f"`{name}`" not in text and name not in ("path", "checkpointLocation")
    ] == []
