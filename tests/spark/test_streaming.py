"""Streams of DuckLake tables: every row once, whatever happens to files, checkpoints and processes."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from headwater.errors import HeadwaterError, InvalidInputError, NotFoundError, SettingsError, SnapshotError
from headwater.lake.lake import Lake
from pyspark_ducklake import DefaultSource
from tests.support import duck


class Stream:
    """What Spark does with a reader, without Spark; a restart is a new reader that knows only the offset."""

    def __init__(self, lake: Lake, table: str = "t", **options: str):
        self.options = {"catalog": lake.dsn, "path": table, **options}
        self.offset: dict[str, Any] | None = None
        self.batches: list[tuple[dict[str, Any] | None, dict[str, Any], Counter[str]]] = []
        self.restart()

    def restart(self) -> None:
        source = DefaultSource(self.options)
        self.schema = source.schema()
        self.reader = source.streamReader(self.schema)

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for task in self.reader.partitions(start, end):
            for batch in self.reader.read(task):
                assert isinstance(batch, pa.RecordBatch)
                found += batch.to_pylist()
        return found

    def step(self) -> list[dict[str, Any]] | None:
        """One batch; None if there is nothing to read."""
        start = _json(self.reader.initialOffset()) if self.offset is None else self.offset
        end = _json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if end == start:
            return None
        found = self.rows(start, end)
        self.batches.append((self.offset, end, _counted(found)))
        self.offset = end
        return found

    def drain(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while (batch := self.step()) is not None:
            found += batch
        return found

    def replay(self) -> None:
        """Every batch gives the rows it gave before."""
        for start, end, expected in self.batches:
            begin = _json(self.reader.initialOffset()) if start is None else start
            assert _counted(self.rows(begin, end)) == expected, (start, end)


def _json(offset: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(offset))
    return result


def _counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in rows)  # columns may have been renamed since


def ids(rows: list[dict[str, Any]] | None) -> list[int]:
    return sorted(row["id"] for row in rows or [])


def insert(lake: Lake, first: int, count: int) -> None:
    with lake.transaction() as tx:
        tx.append("t", pa.table({"id": list(range(first, first + count))}))


@pytest.fixture
def numbers(lake: Lake) -> Lake:
    """Three files and one inlined row: 0 … 60."""
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("id", pa.int64())]))
    for first in (0, 20, 40):
        insert(lake, first, 20)
    insert(lake, 60, 1)
    return lake


# -- reading, batch by batch ---------------------------------------------------------------------------------


def test_first_the_table_then_what_is_inserted(numbers: Lake) -> None:
    stream = Stream(numbers)

    assert ids(stream.drain()) == list(range(61))
    assert stream.step() is None
    insert(numbers, 100, 30)
    insert(numbers, 130, 2)
    assert ids(stream.drain()) == list(range(100, 132))
    stream.restart()
    assert stream.step() is None
    stream.replay()


def test_limits_cut_between_files(numbers: Lake) -> None:
    stream = Stream(numbers, maxFilesPerTrigger="1")

    assert [len(stream.step() or []) for _ in range(3)] == [20, 20, 21]
    assert stream.step() is None
    with numbers.transaction() as tx:  # one snapshot of three files
        tx.set_option("target_file_size", 100, table="t")
    insert(numbers, 100, 30)
    files = [
        scan.file for scan in numbers.scan("t").files if scan.file.begin_snapshot == numbers.snapshot().id
    ]
    assert len(files) > 1
    for file in files:
        assert len(stream.step() or []) == file.record_count
    assert stream.step() is None
    stream.restart()
    stream.replay()


def test_a_limit_in_bytes(numbers: Lake) -> None:
    size = numbers.scan("t").files[0].file.file_size_bytes
    stream = Stream(numbers, maxBytesPerTrigger=str(2 * size + 10))

    assert len(stream.step() or []) == 40
    assert len(stream.step() or []) == 21


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"startingVersion": "0"}, range(61)),
        ({"startingVersion": "3"}, range(20, 61)),
        ({"startingVersion": "latest"}, ()),
        ({"startingTimestamp": "2020-01-01"}, range(61)),
    ],
)
def test_where_a_stream_begins(numbers: Lake, option: dict[str, str], expected: Any) -> None:
    stream = Stream(numbers, **option)

    assert ids(stream.drain()) == list(expected)
    insert(numbers, 500, 1)
    assert ids(stream.drain()) in ([500], [])


def test_the_first_batch_is_repeated_from_where_the_stream_began(numbers: Lake) -> None:
    for options in ({}, {"startingVersion": "latest"}):
        stream = Stream(numbers, **options)
        begin = _json(stream.reader.initialOffset())
        insert(numbers, numbers.snapshot().id * 1000, 15)
        end = _json(stream.reader.latestOffset(begin, ReadAllAvailable()))
        before = _counted(stream.rows(begin, end))

        insert(numbers, numbers.snapshot().id * 1000, 15)
        stream.restart()

        later = _json(stream.reader.initialOffset())
        assert later != begin
        assert _counted(stream.rows(later, end)) == before


def test_commits_of_other_tables_are_no_news(numbers: Lake) -> None:
    stream = Stream(numbers)
    stream.drain()

    with numbers.transaction() as tx:
        tx.create_table("other", pa.schema([("id", pa.int64())]))

    assert stream.step() is None


@pytest.mark.parametrize("kind", ["delete", "update", "truncate", "overwrite", "inlined delete"])
def test_a_commit_that_does_not_only_insert_is_an_error_that_says_what_to_do(
    numbers: Lake, kind: str
) -> None:
    stream = Stream(numbers)
    stream.drain()
    insert(numbers, 100, 15)
    with numbers.transaction() as tx:
        if kind == "delete":
            tx.delete("t", "id < 15")
        elif kind == "inlined delete":
            tx.delete("t", "id = 60")
        elif kind == "update":
            tx.update("t", {"id": "id + 1000"}, "id < 15")
        else:
            tx.truncate("t")
        if kind == "overwrite":
            tx.append("t", pa.table({"id": [7]}))
    changed = numbers.snapshot().id
    insert(numbers, 200, 15)

    assert ids(stream.step()) == list(range(100, 115))  # what came before is read first
    with pytest.raises(InvalidInputError, match=f"(?s)Snapshot {changed} .*skipChangeCommits") as caught:
        stream.step()
    assert ("ignoreDeletes" in str(caught.value)) == (kind not in ("update", "overwrite"))

    again = {"update": range(1000, 1015), "overwrite": [7]}.get(kind, [])
    for option, extra in (("skipChangeCommits", []), ("ignoreChanges", again)):
        other = Stream(numbers, **{option: "true", "startingVersion": "6"})
        assert ids(other.drain()) == sorted([*range(100, 115), *extra, *range(200, 215)])
        other.restart()
        other.replay()
    if "ignoreDeletes" in str(caught.value):
        other = Stream(numbers, ignoreDeletes="true", startingVersion="6")
        assert ids(other.drain()) == [*range(100, 115), *range(200, 215)]


@pytest.mark.parametrize("seed", range(5))
def test_compaction_flushes_and_renames_change_no_batch(lake: Lake, seed: int) -> None:
    """DuckDB does what it does to a table while a stream reads it, and is restarted now and then."""
    rng = random.Random(seed)
    from_start = rng.random() < 0.3
    options = {"ignoreDeletes": "true", **({"maxFilesPerTrigger": "1"} if rng.random() < 0.7 else {})}
    if from_start:
        options["startingVersion"] = "1"
    column, next_id, expected = "label", 0, set[int]()
    stream: Stream | None = None
    with duck(lake.dsn) as db:

        def do(statement: str) -> bool:
            # DuckDB cannot flush, and at times not rewrite, inlined rows of columns that were renamed twice.
            with suppress(duckdb.TransactionException):
                db.execute(statement)
                return True
            return False

        do("CREATE TABLE t (id BIGINT, label VARCHAR)")
        for _ in range(30):
            some = rng.sample(range(next_id), min(next_id, 3))
            listed = f"({', '.join(map(str, [-1, *some]))})"
            match rng.choice(
                ["insert"] * 4 + ["few"] * 3 + ["merge", "flush", "change", "rename", "rewrite", "read"] * 2
            ):
                case "insert" | "few" as kind:
                    count = rng.randint(11, 40) if kind == "insert" else rng.randint(1, 5)
                    new = range(next_id, next_id + count)
                    if do(f"INSERT INTO t SELECT i, 'n' || i FROM range({new.start}, {new.stop}) r(i)"):
                        expected |= set(new)
                        next_id += count
                case "merge":
                    do("CALL ducklake_merge_adjacent_files('lake')")
                    do("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
                case "flush":
                    do("CALL ducklake_flush_inlined_data('lake')")
                case "rewrite":
                    do("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)")
                case "rename":
                    if do(f"ALTER TABLE t RENAME COLUMN {column} TO {column}x"):
                        column += "x"
                case "change":
                    begun = stream is not None or from_start
                    if not begun and rng.random() < 0.5:
                        do(f"UPDATE t SET {column} = 'changed' WHERE id IN {listed}")
                    elif do(f"DELETE FROM t WHERE id IN {listed}") and not begun:
                        expected -= set(some)
                case "read" if stream is None:
                    stream = Stream(lake, **options)
                    stream.step()
                case "read":
                    stream.step()
                    if rng.random() < 0.4:
                        stream.restart()
                        stream.replay()
        stream = stream or Stream(lake, **options)
        stream.drain()
        stream.restart()
        stream.replay()
    found: Counter[int] = Counter()
    for _, _, rows in stream.batches:
        for text, count in rows.items():
            found[eval(text)[0]] += count
    assert set(found.values()) <= {1}
    assert set(found) == expected


def test_a_stream_of_changes(numbers: Lake) -> None:
    stream = Stream(numbers, readChangeFeed="true")
    first = stream.drain()
    assert {(row["_change_type"], row["_commit_version"]) for row in first} == {("insert", 5)}
    with numbers.transaction() as tx:
        tx.update("t", {"id": "1000"}, "id = 5")
        tx.delete("t", "id = 6")

    changes = stream.drain()

    assert sorted((row["_change_type"], row["id"]) for row in changes) == [
        ("delete", 6),
        ("update_postimage", 1000),
        ("update_preimage", 5),
    ]
    assert {row["_rowid"] for row in changes} == {5, 6}
    stream.restart()
    stream.replay()


def test_what_expired_is_missed(numbers: Lake) -> None:
    stream = Stream(numbers)
    stream.drain()
    insert(numbers, 100, 15)
    insert(numbers, 200, 15)
    with duck(numbers.dsn) as db:
        db.execute("CALL ducklake_expire_snapshots('lake', versions => [5, 6])")

    with pytest.raises(SnapshotError, match="failOnDataLoss"):
        stream.step()
    stream.options["failOnDataLoss"] = "false"
    stream.restart()
    stream.drain()
    insert(numbers, 300, 15)
    assert ids(stream.drain()) == list(range(300, 315))


def test_another_table_of_the_same_name_is_not_taken_for_it(numbers: Lake) -> None:
    stream = Stream(numbers)
    stream.drain()
    with numbers.transaction() as tx:
        tx.drop_table("t")
    with pytest.raises(NotFoundError, match="dropped"):
        stream.step()
    with numbers.transaction() as tx:
        tx.create_table("t", pa.schema([("id", pa.int64())]))
    stream.restart()
    with pytest.raises(NotFoundError, match="another one"):
        stream.step()


def test_a_column_that_hides_the_row_id_hides_no_row(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", pa.schema([("id", pa.int64()), ("rowid", pa.int64())]))
    stream = None
    for first in (0, 50, 100):
        with lake.transaction() as tx:
            tx.append("t", pa.table({"id": list(range(first, first + 20)), "rowid": [7] * 20}))
        stream = stream or Stream(lake, maxFilesPerTrigger="1")

    assert stream is not None
    assert ids(stream.drain()) == [*range(20), *range(50, 70), *range(100, 120)]


@pytest.mark.parametrize(
    "options",
    [{"versionAsOf": "3"}, {"maxFilesPerTrigger": "0"}, {"startingVersion": "99"}, {"startingVersion": "x"}],
)
def test_options_that_no_stream_has(numbers: Lake, options: dict[str, str]) -> None:
    with pytest.raises(HeadwaterError):
        Stream(numbers, **options).step()


# -- in Spark ------------------------------------------------------------------------------------------------


def source(spark: SparkSession, lake: Lake, table: str = "t", **options: Any) -> DataFrame:
    return spark.readStream.format("ducklake").options(catalog=lake.dsn, **options).load(table)


def start(df: DataFrame, lake: Lake, table: str, checkpoint: Path, mode: str = "append") -> StreamingQuery:
    writer = df.writeStream.format("ducklake").options(catalog=lake.dsn, checkpointLocation=str(checkpoint))
    return writer.outputMode(mode).trigger(availableNow=True).start(table)


def finish(query: StreamingQuery) -> StreamingQuery:
    query.awaitTermination(120)
    return query


def files_on_disk(lake: Lake, table: str) -> set[str]:
    return {path.name for path in (Path(lake.data_path) / "main" / table).rglob("*.parquet")}


def files_in_catalog(lake: Lake, table: str) -> set[str]:
    return {Path(scan.file.path).name for scan in lake.scan(table).files}


@pytest.mark.slow
def test_from_table_to_table_file_by_file(spark: SparkSession, numbers: Lake, tmp_path: Path) -> None:
    def run() -> StreamingQuery:
        df = source(spark, numbers, maxFilesPerTrigger=1).selectExpr("id", "id * 2 AS double")
        return finish(start(df, numbers, "copy", tmp_path / "checkpoint"))

    first = run()
    insert(numbers, 100, 20)
    with duck(numbers.dsn) as db:
        db.execute("INSERT INTO t SELECT * FROM range(200, 203)")
        db.execute("CALL ducklake_merge_adjacent_files('lake')")
        db.execute("CALL ducklake_flush_inlined_data('lake')")
        db.execute("ALTER TABLE t RENAME COLUMN id TO number")
        db.execute("ALTER TABLE t RENAME COLUMN number TO id")
    run()

    assert [progress["numInputRows"] for progress in first.recentProgress][:3] == [20, 20, 21]
    with duck(numbers.dsn) as db:
        found = db.execute("SELECT id, double FROM copy ORDER BY id").fetchall()
    expected = [*range(61), *range(100, 120), *range(200, 203)]
    assert found == [(i, 2 * i) for i in expected]


@pytest.mark.slow
def test_a_batch_whose_checkpoint_was_lost_is_not_applied_again(
    spark: SparkSession, numbers: Lake, tmp_path: Path
) -> None:
    insert(numbers, 1000, 20_000)  # enough for files of the tasks' own
    checkpoint = tmp_path / "checkpoint"
    finish(start(source(spark, numbers), numbers, "copy", checkpoint))
    before = numbers.snapshot().id
    for entry in (checkpoint / "commits").iterdir():  # killed between commit and checkpoint
        if entry.name.strip(".").startswith("0"):
            entry.unlink()
    insert(numbers, 50_000, 15)

    finish(start(source(spark, numbers), numbers, "copy", checkpoint))

    assert sorted(numbers.read("copy").column("id").to_pylist()) == sorted(
        [*range(61), *range(1000, 21_000), *range(50_000, 50_015)]
    )
    assert numbers.snapshot().id == before + 2  # the insert above, and the batch with it
    assert files_on_disk(numbers, "copy") == files_in_catalog(numbers, "copy")


def test_a_second_query_with_a_checkpoint_of_its_own_is_another_one(
    spark: SparkSession, numbers: Lake, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        finish(start(source(spark, numbers), numbers, "copy", tmp_path / name))

    assert numbers.read("copy").num_rows == 2 * 61


@pytest.mark.slow
def test_complete_mode_replaces_the_result(spark: SparkSession, numbers: Lake, tmp_path: Path) -> None:
    def run() -> None:
        counts = source(spark, numbers).groupBy((F.col("id") % 3).alias("k")).count()
        finish(start(counts, numbers, "counts", tmp_path / "checkpoint", "complete"))

    run()
    insert(numbers, 61, 30)
    run()

    found = numbers.read("counts").to_pylist()
    assert sorted((row["k"], row["count"]) for row in found) == [(0, 31), (1, 30), (2, 30)]


def test_a_delete_ends_a_running_query_with_a_message(
    spark: SparkSession, numbers: Lake, tmp_path: Path
) -> None:
    finish(start(source(spark, numbers), numbers, "copy", tmp_path / "checkpoint"))
    with numbers.transaction() as tx:
        tx.delete("t", "id = 3")

    with pytest.raises(StreamingQueryException, match="ignoreDeletes"):
        finish(start(source(spark, numbers), numbers, "copy", tmp_path / "checkpoint"))


def test_a_stream_of_changes_in_spark(spark: SparkSession, numbers: Lake, tmp_path: Path) -> None:
    with numbers.transaction() as tx:
        tx.update("t", {"id": "id + 1000"}, "id IN (1, 60)")
    feed = source(spark, numbers, readChangeFeed="true", startingVersion=6)

    finish(start(feed, numbers, "feed", tmp_path / "checkpoint"))

    found = numbers.read("feed")
    assert sorted(
        zip(found.column("_change_type").to_pylist(), found.column("id").to_pylist(), strict=True)
    ) == [
        ("update_postimage", 1001),
        ("update_postimage", 1060),
        ("update_preimage", 1),
        ("update_preimage", 60),
    ]
    assert set(found.column("_commit_version").to_pylist()) == {6}


def test_the_change_feed_in_batch(spark: SparkSession, numbers: Lake) -> None:
    with numbers.transaction() as tx:
        tx.delete("t", "id < 20")
    reader = spark.read.format("ducklake").options(catalog=numbers.dsn, readChangeFeed="true")

    everything = reader.option("startingVersion", 0).load("t")
    some = reader.option("startingVersion", 3).option("endingVersion", 5).load("t")

    assert everything.columns == ["id", "_change_type", "_commit_version", "_commit_timestamp", "_rowid"]
    counts = everything.groupBy("_change_type").count().collect()
    assert {row[0]: row[1] for row in counts} == {"insert": 61, "delete": 20}
    assert sorted(row.id for row in some.select("id").collect()) == list(range(20, 61))


def test_a_batch_without_tasks_is_known_by_the_checkpoint(numbers: Lake, tmp_path: Path) -> None:
    schema = StructType([StructField("id", LongType())])
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    options = {"catalog": numbers.dsn, "path": "t", "checkpointLocation": f"file:{checkpoint}"}
    with pytest.raises(SettingsError, match="txnAppId"):
        DefaultSource(options).streamWriter(schema, overwrite=True).commit([], batchId=3)

    (checkpoint / "metadata").write_text('{"id":"4f7c"}')
    for _ in range(2):
        DefaultSource(options).streamWriter(schema, overwrite=True).commit([], batchId=3)
        assert numbers.read("t").num_rows == 0
        assert numbers.snapshot().id == 6


def test_rows_flushed_while_they_are_read_are_read_once(numbers: Lake) -> None:
    source = DefaultSource({"catalog": numbers.dsn, "path": "t"})
    reader = source.reader(source.schema())
    stream = Stream(numbers)
    begin = _json(stream.reader.initialOffset())
    end = _json(stream.reader.latestOffset(begin, ReadAllAvailable()))

    for one, tasks in ((reader, reader.partitions()), (stream.reader, stream.reader.partitions(begin, end))):
        with numbers.transaction() as tx:
            tx.flush_inlined("t")
        found = [row for task in tasks for batch in one.read(task) for row in batch.to_pylist()]  # type: ignore
        assert ids(found) == list(range(61))
