"""1,000 small files with 5,000,000 rows into a few large ones.

Against Spark that reads and writes the same files without a lake, and against DuckDB's own merge of the same
lake. Every round begins with a copy of the same catalog: compaction leaves the old files where they are.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from benchmarks.data import COLUMNS, orders
from benchmarks.environment import Environment, Place
from benchmarks.measure import Result
from benchmarks.spark_session import in_turns_prepared, spark_session
from headwater.lake.lake import Lake
from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.compacting import compact
from headwater.lake.maintenance.moving import LocalMover, Mover
from headwater.spark.maintenance import SparkMover
from headwater.storage.options import StorageOptions

ROWS = 5_000_000
FILES = 1_000
TARGET_SIZE = 64 << 20
TARGET = 1.3
#: Ten times the rows may need so much more memory in the driver: as good as none.
MEMORY_TARGET = 1.25


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    place = _filled(environment, int(ROWS * scale), FILES)
    lake = place.lake()
    paths = [scan.file.path for scan in lake.scan("orders").files]
    size = sum(scan.file.file_size_bytes for scan in lake.scan("orders").files)
    lake.close()
    outputs = max(1, round(size / TARGET_SIZE))
    numbers = itertools.count(1)
    copies: list[Place] = []
    with spark_session(environment) as spark:
        mover = SparkMover(lambda: spark, few_bytes=0)

        def ours(how: Mover) -> None:
            # Spark's own writer does not wait for the disk either.
            opened = Lake.open(copies[-1].dsn, storage=StorageOptions(local_fsync=False))
            done = compact(opened, ["orders"], Wishes(target_size=TARGET_SIZE), mover=how)
            assert done.total("merged_files") == FILES, done
            opened.close()

        def spark_alone() -> None:
            folder = environment.scratch(f"spark {next(numbers)}")
            spark.read.parquet(*paths).coalesce(outputs).write.parquet(str(folder))

        def duckdb_merge() -> None:
            session = copies[-1].duckdb()
            session.execute(f"CALL lake.set_option('target_file_size', '{TARGET_SIZE >> 20}MiB')")
            session.execute("CALL ducklake_merge_adjacent_files('lake')")
            session.close()

        def prepare(number: int) -> None:
            copies.append(_copy(environment, place, len(copies)))
            for old in environment.scratch("").glob("spark *"):
                shutil.rmtree(old)
            os.sync()

        # First, while this process has had no other reason to be large.
        few = _filled(environment, int(ROWS * scale / 10), FILES)
        little, much = (
            _peak(_copy(environment, one, f"peak {n}"), mover) for n, one in enumerate((few, place))
        )
        mine, here, theirs, duck = in_turns_prepared(
            [lambda: ours(mover), lambda: ours(LocalMover()), spark_alone, duckdb_merge],
            environment.rounds(3),
            prepare,
        )
        what = f"compact {FILES:,} files, {int(ROWS * scale):,} rows"
        yield Result(what, "Spark alone", mine, theirs, TARGET)
        yield Result(what, "merge_adjacent_files", mine, duck)
        yield Result(f"{what}, in one process", "merge_adjacent_files", here, duck, TARGET)
        yield Result(
            f"peak memory of the driver, {int(ROWS * scale):,} rows",
            "a tenth of the rows",
            (much,),
            (little,),
            MEMORY_TARGET,
            unit="B",
        )


def _filled(environment: Environment, rows: int, files: int) -> Place:
    place = environment.place()
    lake = Lake.open(place.dsn, data_path=place.data_path, storage=StorageOptions(local_fsync=False))
    data = orders(rows)
    each = max(1, rows // files)
    with lake.transaction() as tx:
        tx.create_table("orders", COLUMNS)
        tx.set_option("data_inlining_row_limit", 0)
    for number in range(files):
        with lake.transaction() as tx:
            tx.append("orders", data.slice(number * each, each))
    lake.close()
    return place


def _copy(environment: Environment, place: Place, number: int | str) -> Place:
    """The same lake under another name; its files are shared."""
    source = conninfo.conninfo_to_dict(place.dsn)["dbname"]
    name = f"{source}_copy_{number}"
    with psycopg.connect(environment.server_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(str(source))
            )
        )
    return Place(conninfo.make_conninfo(environment.server_dsn, dbname=name), place.data_path)


def _peak(place: Place, mover: SparkMover) -> float:
    """Bytes that this process had at most while it compacted."""
    lake = place.lake()
    stop = threading.Event()
    highest = [0.0]

    def watch() -> None:
        while not stop.wait(0.02):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            highest[0] = max(highest[0], pages * os.sysconf("SC_PAGE_SIZE"))

    thread = threading.Thread(target=watch)
    thread.start()
    compact(lake, ["orders"], Wishes(target_size=TARGET_SIZE), mover=mover)
    stop.set()
    thread.join()
    lake.close()
    return highest[0]
