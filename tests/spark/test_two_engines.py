"""Random writes from Spark and DuckDB in turn, read by both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.lake.embedded import EmbeddedServer
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from tests.spark.judging import assert_same, by_jobs, versions
from tests.support import create_database, duck


class World:
    """One table, and what the two engines do to it."""

    def __init__(self, spark: SparkSession, lake: Lake):
        self.session = LakeSpark(lake, spark)
        self.spark = spark
        self.con = duck(lake.dsn)
        self.con.execute("CREATE TABLE t (id INTEGER, k INTEGER, v VARCHAR, x DOUBLE)")
        self.next_id = 0

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.session.lake.table("t").columns]

    def rows(self, count: int, first: int | None = None) -> DataFrame:
        """New rows, some of them with NULLs and equal values."""
        start = self.next_id if first is None else first
        if first is None:
            self.next_id += count
        values = [
            F.col("id").cast("int"),
            F.when(F.col("id") % 4 != 3, (F.col("id") % 5).cast("int")),
            F.when(F.col("id") % 6 != 5, F.concat(F.lit("v"), F.col("id") % 7)),
            F.when(F.col("id") % 9 == 8, F.lit(float("nan"))).otherwise(F.col("id") / 8),
        ]
        frame = self.spark.range(start, start + count)
        names = self.names
        extra = [F.lit(None).cast("int").alias(name) for name in names[4:]]
        return frame.select(*(v.alias(n) for v, n in zip(values, names[:4], strict=True)), *extra)

    def close(self) -> None:
        self.con.close()
        self.session.lake.close()


def spark_append(world: World, n: int) -> None:
    world.session.table("t").append(world.rows(n))


def spark_delete(world: World, n: int) -> None:
    world.session.table("t").delete(f"{world.names[1]} = {n % 5} AND {world.names[0]} % 3 = {n % 3}")


def spark_update(world: World, n: int) -> None:
    one, key = world.names[0], world.names[1]
    world.session.table("t").update(
        f"{one} % 7 = {n % 7} OR {key} IS NULL", set={world.names[2]: F.lit(f"s{n}")}
    )


def spark_merge(world: World, n: int) -> None:
    source = world.rows(n, first=max(0, world.next_id - n // 2))
    world.next_id = max(world.next_id, world.next_id + n - n // 2)
    one = world.names[0]
    (
        world.session.table("t")
        .merge(source.dropDuplicates([one]), f"t.{one} = s.{one}")
        .when_matched_delete(f"s.{one} % 5 = 0")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


def spark_overwrite(world: World, n: int) -> None:
    key = world.names[1]
    world.session.table("t").overwrite(world.rows(n).where(f"{key} = 1"), where=f"{key} = 1")


def duck_insert(world: World, n: int) -> None:
    first = world.next_id
    world.next_id += n
    world.con.execute(
        f"INSERT INTO t ({', '.join(world.names[:4])}) SELECT i, i % 5, 'd' || (i % 7), i / 8 "
        f"FROM range({first}, {first + n}) r(i)"
    )


def duck_delete(world: World, n: int) -> None:
    world.con.execute(f"DELETE FROM t WHERE {world.names[0]} % 4 = {n % 4} AND {world.names[1]} > {n % 3}")


def duck_update(world: World, n: int) -> None:
    world.con.execute(f"UPDATE t SET {world.names[3]} = {n} WHERE {world.names[0]} % 6 = {n % 6}")


def duck_rename(world: World, n: int) -> None:
    """Names go round: what was `k` becomes `v` and the other way round."""
    a, b = world.names[1], world.names[2]
    for old, new in ((a, "spare"), (b, a), ("spare", b)):
        world.con.execute(f"ALTER TABLE t RENAME {old} TO {new}")


def duck_add_column(world: World, n: int) -> None:
    world.con.execute(f"ALTER TABLE t ADD COLUMN c{len(world.names)} INTEGER DEFAULT {n}")


def duck_compact(world: World, n: int) -> None:
    world.con.execute("CALL ducklake_flush_inlined_data('lake')")
    if n % 2:
        world.con.execute("CALL ducklake_merge_adjacent_files('lake')")


STEPS: list[Callable[[World, int], None]] = [
    spark_append, spark_append, spark_delete, spark_update, spark_merge, spark_overwrite,
    duck_insert, duck_insert, duck_delete, duck_update, duck_rename, duck_add_column, duck_compact,
]  # fmt: skip
stories = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 40)), min_size=5, max_size=8)


def play(world: World, story: list[tuple[Callable[[World, int], None], int]]) -> None:
    for step, n in story:
        step(world, n)
        assert_same(world.session, world.con, "t")
    # (DuckDB forgets row ids when it merges files whose ranges touch; so rows alone are compared.)
    for version in versions(world.session, "t")[::3]:
        assert_same(world.session, world.con, "t", version, hidden=())


def run_stories(pg: EmbeddedServer, folder: Path, spark: SparkSession, examples: int) -> None:
    count = 0

    @settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(story=stories)
    def run(story: Any) -> None:
        nonlocal count
        count += 1
        lake = Lake.open(create_database(pg.dsn), data_path=folder / f"data{count}")
        world = World(spark, lake)
        try:
            play(world, story)
        finally:
            world.close()

    run()


@pytest.mark.parametrize("path", ["driver", "jobs"])
def test_both_engines_see_what_either_wrote(
    pg_server: EmbeddedServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    if path == "jobs":
        by_jobs(monkeypatch)
    run_stories(pg_server, tmp_path, spark, 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", ["driver", "jobs"])
def test_both_engines_see_what_either_wrote_however_long_we_look(
    pg_server: EmbeddedServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    if path == "jobs":
        by_jobs(monkeypatch)
    run_stories(pg_server, tmp_path, spark, 40)
