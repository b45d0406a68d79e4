"""Sinks in object stores and in encrypted lakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.errors import SettingsError
from headwater.lake.lake import Lake
from headwater.refresh.model import Action
from headwater.spark.connector import LakeSpark
from tests.refresh.conftest import World
from tests.servers import S3Server
from tests.sinks.conftest import Elsewhere, counted
from tests.sinks.test_home_sinks import LARGE, TOTALS, _catalog, change, start
from tests.storage.places import s3_options


def many(world: World) -> None:
    start(world)
    world.run("INSERT INTO orders SELECT i, 'r' || i % 50, i FROM range(100, 400) t(i)")


@pytest.fixture
def s3_world(s3: S3Server, new_database: str, tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    """A lake on the local disk that also reaches the object store."""
    lake = Lake.open(
        new_database, data_path=tmp_path / "data", storage=s3_options(s3, connect_timeout=1, max_attempts=1)
    )
    con: Any = lake.duckdb()
    yield World(lake, LakeSpark(lake, spark), con)
    con.close()
    lake.close()


def on_s3(server: S3Server, folder: str) -> list[str]:
    from pyarrow.fs import FileSelector

    found = server.filesystem().get_file_info(FileSelector(f"{server.bucket}/{folder}", recursive=True))
    return [info.path for info in found if info.is_file]


def test_a_result_in_an_object_store_and_an_upload_that_fails(s3_world: World, s3: S3Server) -> None:
    world = s3_world
    many(world)
    world.make("r", TOTALS, ducklake_sink_path=f"s3://{s3.bucket}/results/{world.lake.db.shown[-4:]}/")
    assert on_s3(s3, "results")
    with world.lake.duckdb("other") as other:
        assert counted(other.execute("FROM main.r").fetchall()) == world.rows(TOTALS)
    world.run("INSERT INTO orders SELECT i, 's' || i % 50, i FROM range(400, 700) t(i)")
    before = _catalog(world)
    s3.stop()
    assert world.refresh()["r"].action is Action.FAILED
    after = _catalog(world)
    (now,) = after.pop("stream_table")
    (then,) = before.pop("stream_table")
    assert (now["definition"], now["failures"]) == (then["definition"], 1)
    assert after == before
    s3.start()
    assert world.refresh()["r"].action is Action.INCREMENTAL
    with world.lake.duckdb("other") as other:
        assert counted(other.execute("FROM main.r").fetchall()) == world.rows(TOTALS)


def test_another_lake_in_an_object_store(world: World, elsewhere: Elsewhere, s3: S3Server) -> None:
    many(world)
    world.make(
        "r",
        LARGE,
        ducklake_sink_catalog=elsewhere.dsn,
        ducklake_sink_path=f"s3://{s3.bucket}/other/{elsewhere.dsn.split()[1][-2:]}/",
        ducklake_sink_s3_endpoint=s3.endpoint,
        ducklake_sink_s3_access_key_id=s3.access_key,
        ducklake_sink_s3_secret_access_key=s3.secret_key,
    )
    lake = Lake.open(elsewhere.dsn, storage=s3_options(s3), create=False)
    for _ in range(2):
        with lake.duckdb("other") as other:
            assert counted(other.execute("FROM main.r").fetchall()) == world.rows(LARGE)
        change(world)
        world.refresh()
    assert on_s3(s3, "other")
    assert s3.secret_key not in str(world.streams.get("r"))
    lake.close()


def test_settings_of_the_object_store_that_the_lake_does_not_have_are_refused(world: World) -> None:
    start(world)
    with pytest.raises(SettingsError) as caught:
        world.make(
            "r", TOTALS, ducklake_sink_path="s3://lake/x/", ducklake_sink_s3_endpoint="http://127.0.0.1:1"
        )
    assert "ducklake_sink_catalog" in (caught.value.hint or "")
    assert world.streams.all() == []


@pytest.mark.parametrize("mode", ["accumulate", pytest.param("replace", marks=pytest.mark.slow)])
def test_sinks_of_an_encrypted_lake_are_encrypted(
    new_database: str, tmp_path: Path, spark: SparkSession, mode: str
) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    con: Any = lake.duckdb()
    world = World(lake, LakeSpark(lake, spark), con)
    many(world)
    world.make("r", TOTALS, ducklake_sink_mode=mode)
    change(world)
    world.refresh()
    world.check()
    files = list((tmp_path / "data").rglob("*sink_ducklake*/*.parquet"))
    assert files
    assert all(file.read_bytes()[:4] == b"PARE" for file in files)
    con.close()
    lake.close()
