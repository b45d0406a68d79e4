"""Compaction on Spark, restoring a table, and CALL."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.engine.headwater import Headwater
from headwater.errors import FileMissingError, HeadwaterError, InvalidInputError, NotFoundError, SnapshotError
from headwater.lake.health.check import check_health
from headwater.lake.lake import Lake
from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.compacting import compact
from headwater.settings import Settings
from headwater.spark.connector import LakeSpark
from headwater.spark.maintenance import SparkMover
from headwater.storage.options import StorageOptions
from tests.lake.test_clustering import TARGET, Filling, unchanged
from tests.servers import S3Server
from tests.support import create_database, duck


def fill(lake: Lake, files: int = 6) -> None:
    with lake.transaction() as tx:
        tx.create_schema("sales", if_not_exists=True)
        tx.create_table("sales.t", {"a": "int64", "p": "varchar", "f": "float64"}, partition_by=["p"])
        tx.set_option("data_inlining_row_limit", 0)
    for number in range(files):
        with lake.transaction() as tx:
            tx.append("sales.t", [{"a": i + 100 * number, "p": "xy"[i % 2], "f": i / 3} for i in range(100)])
    with lake.transaction() as tx:
        tx.delete("sales.t", "a < 60")


def rows(lake: Lake, at: int | None = None) -> list[tuple[Any, ...]]:
    found = lake.read("sales.t", at, hidden=["rowid"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def on_spark(lake: Lake, session: LakeSpark, **wishes: Any) -> Any:
    mover = SparkMover(lambda: session.spark, few_bytes=0)
    return compact(lake, ["sales.t"], Wishes(**wishes), mover=mover).tables[0]


def test_executors_do_the_work_and_every_snapshot_stays(lake: Lake, session: LakeSpark) -> None:
    fill(lake)
    before = {s.id: rows(lake, s.id) for s in lake.snapshots()[:-2]}
    result = on_spark(lake, session, delete_ratio=0.5)
    assert (result.merged_files, result.rewritten_files, result.files_after) == (12, 2, 2)
    after = {s.id: rows(lake, s.id) for s in lake.snapshots() if s.id in before}
    assert after == before
    con = duck(lake.dsn)
    for at, wanted in before.items():
        theirs = con.execute(f"SELECT *, rowid FROM sales.t AT (VERSION => {at})").fetchall()
        assert sorted(theirs) == wanted
    con.close()
    assert session.table("sales.t").df().count() == len(before[max(before)])
    assert check_health(lake) == []


def test_a_file_that_is_missing_is_an_error_and_stays_in_the_catalog(lake: Lake, session: LakeSpark) -> None:
    fill(lake, 2)
    victim = lake.scan("sales.t").files[2].file.path
    Path(victim).unlink()
    with pytest.raises(FileMissingError):
        on_spark(lake, session)
    files = {scan.file.path for scan in lake.scan("sales.t").files}
    assert victim in files


@pytest.mark.parametrize("kind", ["encrypted", pytest.param("s3", marks=pytest.mark.s3)])
def test_encrypted_lakes_and_object_stores(
    kind: str, pg_server: Any, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    dsn = create_database(pg_server.dsn)
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3")
        options = StorageOptions(
            s3_endpoint=server.endpoint,
            s3_region=server.region,
            s3_access_key_id=server.access_key,
            s3_secret_access_key=server.secret_key,
        )
        folder = f"s3://{server.bucket}/maintenance-{time.monotonic_ns()}"
        lake = Lake.open(dsn, data_path=folder, storage=options)
    else:
        lake = Lake.open(dsn, data_path=tmp_path / "data", encrypted=True)
    fill(lake, 3)
    before = rows(lake)
    result = on_spark(lake, LakeSpark(lake, spark))
    assert result.changed
    assert rows(lake) == before
    result = on_spark(lake, LakeSpark(lake, spark), sort_by=("a desc",), target_size=500)
    assert result.files_written > 2
    assert rows(lake) == before
    lake.expire(keep_last=1)
    assert lake.cleanup(older_than=None).files > 0
    assert rows(lake) == before
    con = lake.duckdb()
    assert con.execute("SELECT count(*), sum(a) FROM sales.t").fetchall() == [
        (len(before), sum(row[0] for row in before))
    ]
    con.close()
    assert check_health(lake) == []
    lake.close()


def sorted_on_spark(lake: Lake, session: LakeSpark, *sort_by: str) -> Any:
    mover = SparkMover(lambda: session.spark, few_bytes=0)
    return compact(lake, ["t"], Wishes(sort_by=sort_by, target_size=TARGET), mover=mover).tables[0]


@pytest.mark.parametrize("encrypted", [False, True])
def test_executors_sort_across_files(
    pg_server: Any, spark: SparkSession, tmp_path: Path, encrypted: bool
) -> None:
    lake = Lake.open(create_database(pg_server.dsn), data_path=tmp_path / "data", encrypted=encrypted)
    session = LakeSpark(lake, spark)
    filling = Filling(lake, 20, ("uuid", "float64"), partition_by=["p"])
    for _ in range(3):
        filling.append(500)
    with lake.transaction() as tx:
        tx.add_column("t", "more", "struct(l date[], b blob, d decimal(30,4), u uuid)")
    for _ in range(2):
        filling.append(500)
    con = lake.duckdb()
    con.execute(
        "INSERT INTO t SELECT k + 10000, p, a, b, room, {'l': [DATE '2020-02-29', NULL], "
        "'b': p::BLOB, 'd': k / 8, 'u': a} FROM t WHERE k < 500"
    )
    con.close()
    filling.delete(1500, 1600)
    result = unchanged(lake, lambda: sorted_on_spark(lake, session, "b desc", "a"))
    # Two partitions, each of two sets of columns, and of one file with deletes that are too young.
    assert (result.merged_files, result.rewritten_files) == (10, 0)
    assert result.files_written > 6
    assert not sorted_on_spark(lake, session, "b desc", "a").changed
    lake.close()


def test_a_file_that_is_missing_is_sorted_nowhere(lake: Lake, session: LakeSpark) -> None:
    filling = Filling(lake, 21)
    for _ in range(3):
        filling.append(900)
    stored = {file.location for file in lake.store.list(lake.data_path)}
    victim = lake.scan("t").files[1].file.path
    last = lake.snapshot().id
    Path(victim).unlink()
    with pytest.raises(FileMissingError):
        sorted_on_spark(lake, session, "a")
    assert lake.snapshot().id == last
    assert {file.location for file in lake.store.list(lake.data_path)} == stored - {victim}


def test_a_handle_compacts_and_restores(lake: Lake, session: LakeSpark) -> None:
    fill(lake)
    table = session.table("sales.t")
    before = lake.snapshot().id
    assert table.compact(dry_run=True).merged_files == 10
    assert table.compact().changed
    with lake.transaction() as tx:
        tx.add_column("sales.t", "extra", "int32", default=5)
        tx.rename_column("sales.t", "a", "b")
        tx.delete("sales.t", "b > 100")
    done = table.restore(version=before)
    assert (done.inserted, done.deleted) == (540, 41)
    assert sorted(lake.read("sales.t").column("b").to_pylist()) == [row[0] for row in rows(lake, before)]  # type: ignore[type-var]
    assert set(lake.read("sales.t").column("extra").to_pylist()) == {5}
    with pytest.raises(InvalidInputError):
        table.restore()
    with pytest.raises(SnapshotError):
        table.restore(version=0)


def test_procedures(lake: Lake, spark: SparkSession) -> None:
    fill(lake)
    hw = Headwater(lake, Settings(), spark=spark)

    def call(text: str) -> dict[str, Any]:
        return hw.sql(f"CALL lake.system.{text}").collect()[0].asDict()

    assert call("compact('sales.t', dry_run => true)")["merged_files"] == 10
    assert call("rewrite(table => 'sales.t', delete_ratio => 0.5)")["rewritten_files"] == 2
    assert call("flush('sales.t')")["flushed"] == 0
    done = call("compact(table => 'sales.t', target_size => '64MB')")
    assert (done["table"], done["files_after"]) == ("sales.t", 2)
    assert call("optimize(table => 'sales.t', sort_by => 'f desc')")["files_after"] >= 2
    assert call("expire_snapshots(older_than => timestamp'2020-01-01', retain_last => 3)")["expired"] == 0
    assert call("expire_snapshots(retain_last => 1)")["remaining"] == 1
    assert call("cleanup(older_than => '0s', dry_run => true)")["files"] > 10
    assert call("cleanup(older_than => '0s')")["failed"] == 0
    assert call("remove_orphans()")["dry_run"] is True
    assert len(rows(lake)) == 540
    for wrong, error in (
        ("compact(tabel => 'x')", InvalidInputError),
        ("compact('sales.t', table => 'sales.t')", InvalidInputError),
        ("compact(dry_run => 'yes')", InvalidInputError),
        ("cleanup(1, 2, 3)", HeadwaterError),
        ("expire_snapshots()", InvalidInputError),
        ("compcat()", NotFoundError),
    ):
        with pytest.raises(error):
            hw.sql(f"CALL lake.system.{wrong}")
