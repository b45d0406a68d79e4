"""Datasets in Spark's hands: the same rows as DuckDB's, before and after compactions by either engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.deltas import writing
from headwater.deltas.dataset import DeltaDataset
from headwater.deltas.model import bind
from headwater.errors import CompactionError, InvalidInputError
from headwater.lake.catalog import table_name
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from headwater.spark.sql import run_sql
from tests.deltas.conftest import Opened
from tests.deltas.test_faults import KEYS, many, people, read, seen


def collected(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def test_spark_and_duckdb_show_the_same_whoever_compacts(
    on_spark: Opened, session: LakeSpark, lake: Lake, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even few tombstones are fetched piece by piece, and told in batches.
    monkeypatch.setattr("headwater.deltas.spark_folding._FETCHED_AT_ONCE", 0)
    monkeypatch.setattr("headwater.deltas.unmatched._BATCH", 2)
    one = on_spark(key=["id"])
    chance = random.Random(7)
    one.write_delta(session.spark.range(400).selectExpr("id", "'old' AS name"))
    model: dict[Any, Any] = dict.fromkeys(range(400), "old")
    shown = {lake.snapshot().id: dict(model)}
    for number, engine in enumerate(("driver", "spark")):
        new = {chance.randrange(600): f"w{number}" for _ in range(40)} | {None: f"n{number}"}
        rows = session.spark.createDataFrame(list(new.items()), "id BIGINT, name STRING")
        one.write_delta(rows)
        model.update(new)
        gone = chance.sample(range(600), 12)
        one.tombstone(gone, actor="a", reason="r")
        dropped = [key for key in gone if model.pop(key, None) is not None]
        shown[lake.snapshot().id] = dict(model)
        done = one.compact(engine=engine)  # type: ignore[arg-type]
        assert (done.engine, done.final_rows) == (engine, len(model))
        assert (done.tombstones_applied, done.tombstones_unmatched) == (len(dropped), 12 - len(dropped))
        assert sum(record.matched is False for record in one.audit()) == 12 * (number + 1) - sum(
            record.matched is True for record in one.audit()
        )
        shown[lake.snapshot().id] = dict(model)
    for at, expected in shown.items():
        rows_then = sorted(expected.items(), key=repr)
        assert seen(con, at=at) == rows_then, at
    # Of Spark's own reads the one before the last compaction says enough.
    at, expected = list(shown.items())[-2]
    assert sorted(expected.items(), key=repr) == collected(one.read(at))
    assert collected(run_sql(session, "SELECT * FROM crm.people")) == seen(con)
    assert one.compact(engine="spark").outcome == "nothing"


@pytest.mark.slow
def test_both_engines_count_alike_on_keys_of_all_types(
    on_spark: Opened, session: LakeSpark, con: Any
) -> None:
    kinds = [kind for kind in KEYS if kind not in ("int128", "timestamp_ns")]
    names = [f"k{place}" for place in range(len(kinds))]
    schema = dict(zip(names, kinds, strict=True)) | {"v": "int64"}
    rows = []
    for number in range(12):
        values = [KEYS[kind][0] for kind in kinds]
        row = {n: v[number % len(v)] if number % 5 else None for n, v in zip(names, values, strict=True)}
        rows.append(row | {"k2": number, "v": number})
    results = []
    for engine in ("spark", "driver"):
        one = on_spark(f"typed.{engine}", key=names, schema=schema)
        one.write_delta(rows)
        one.compact(engine=engine)
        one.write_delta([rows[2] | {"v": 100}, rows[11] | {"k2": 50}])
        table = con.execute(f"SELECT * EXCLUDE v FROM typed.{engine} WHERE v IN (3, 5)").to_arrow_table()
        one.tombstone(table, actor="a", reason="r")
        before = sorted(con.execute(f"SELECT v FROM typed.{engine}").fetchall())
        done = one.compact(engine=engine)
        assert sorted(con.execute(f"SELECT v FROM typed.{engine}").fetchall()) == before
        assert sorted(one.read_arrow().column("v").to_numpy().tolist()) == [row[0] for row in before]
        results.append((done.final_rows, done.rows_updated, done.rows_inserted, done.tombstones_applied))
    assert results == [(11, 1, 1, 2)] * 2


def test_rows_of_a_frame_widen_and_extend_a_dataset(on_spark: Opened, session: LakeSpark, con: Any) -> None:
    one = on_spark(key=["id"])
    one.write_delta(session.spark.range(30).selectExpr("CAST(id AS INT) AS id", "'old' AS name"))
    one.write_delta(session.spark.range(2**40, 2**40 + 30).selectExpr("id", "1.5D AS score"))
    one.compact(engine="spark")
    one.tombstone(session.spark.range(2).toDF("id"), actor="a", reason="r")
    assert one.load_deltas().count() == 2
    assert collected(one.read()) == seen(con)
    assert len(seen(con)) == 58
    bound = bind(one.definition, session.lake.state())
    assert [pair.base.type for pair in bound.columns] == ["int64", "varchar", "float64"]


def test_an_encrypted_lake_is_compacted_by_workers_and_what_they_store_is_verified(
    new_database: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    session = LakeSpark(lake, spark)
    one = DeltaDataset(lake, lambda: session, table_name("crm.people"), ("id",))
    one.write_delta(many(40))
    one.compact()
    one.write_delta(people((1, "new"), (99, "new")))
    one.tombstone([2, 777], actor="a", reason="r")
    expected = read(one)
    monkeypatch.setattr("headwater.deltas.spark_folding.SparkFold.twins", lambda *_: True)
    at = lake.snapshot().id
    with pytest.raises(CompactionError, match="something else"):
        one.compact(engine="spark")
    assert lake.snapshot().id == at
    monkeypatch.undo()
    done = one.compact(engine="spark")
    assert (done.rows_updated, done.rows_inserted, done.tombstones_unmatched) == (1, 1, 1)
    assert read(one) == collected(one.read()) == expected
    session_ = lake.duckdb()
    assert sorted(session_.execute("FROM crm.people").fetchall(), key=repr) == expected
    session_.close()
    lake.close()


@pytest.mark.parametrize("driver", [True, False])
def test_arrow_and_frames_may_be_mixed_within_one_key(
    on_spark: Opened, session: LakeSpark, con: Any, monkeypatch: pytest.MonkeyPatch, driver: bool
) -> None:
    if not driver:
        monkeypatch.setattr("headwater.deltas.frames._FEW_ROWS", 0)
    one = on_spark(key=["id"])
    one.write_delta(pa.table({"id": [1], "name": ["arrow"]}))
    one.write_delta(session.spark.sql("SELECT 1L AS id, 'frame' AS name"))
    assert seen(con) == collected(one.read()) == [(1, "frame")]
    one.write_delta(people((1, "again")))
    one.write_delta(people((None, "null"), (2, "gone")))
    one.tombstone(2, actor="a", reason="r")
    assert seen(con) == collected(one.read()) == [(1, "again"), (None, "null")]


def test_more_keys_than_this_process_takes_are_refused(
    on_spark: Opened, session: LakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_KEYS", 3)
    one = on_spark(key=["id"])
    one.write_delta([{"id": number} for number in range(5)])
    with pytest.raises(InvalidInputError, match="at once"):
        one.tombstone(session.spark.range(4), actor="me", reason="asked for")
    one.tombstone(session.spark.range(3), actor="me", reason="asked for")
    assert one.read_arrow().column("id").to_pylist() == [3, 4]
