"""5,000,000 rows of Spark's into the lake, commit included, against `df.write.parquet`.

A file that a snapshot names has to survive a power failure, so ours are on disk when the commit is done;
`write.parquet` leaves that to chance. What each of the two costs is measured beside it.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.environment import Environment
from benchmarks.measure import Result
from benchmarks.spark_session import COLUMNS, ROWS, in_turns_prepared, orders, spark_session
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from headwater.storage.options import StorageOptions

TARGET = 1.15


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    rows = int(ROWS * scale)
    place = environment.place()
    lake = place.lake()
    with lake.transaction() as tx:
        tx.create_table("orders", COLUMNS)
    loose = Lake.open(place.dsn, storage=StorageOptions(local_fsync=False))
    numbers = itertools.count(1)
    with spark_session(environment) as spark:
        frame = orders(spark, rows)
        durable_table = LakeSpark(lake, spark).table("orders")
        loose_table = LakeSpark(loose, spark).table("orders")

        def alone(*, durable: bool) -> None:
            folder = environment.scratch(f"spark {next(numbers)}")
            frame.write.parquet(str(folder))
            if durable:
                _sync(folder)

        def prepare(place: int) -> None:
            """Nobody waits for the disk because of what another wrote; and the disk stays empty."""
            for old in environment.scratch("").glob("spark *"):
                shutil.rmtree(old)
            os.sync()

        ours, ours_loose, theirs, theirs_durable = in_turns_prepared(
            [
                lambda: durable_table.append(frame),
                lambda: loose_table.append(frame),
                lambda: alone(durable=False),
                lambda: alone(durable=True),
            ],
            environment.rounds(5),
            prepare,
        )
        wanted = (environment.rounds(5) + 1) * 2 * rows
        found = durable_table.df().count()
        assert found == wanted, f"{found} rows, not {wanted}"
    loose.close()
    lake.close()
    what = f"append {rows:,} rows from Spark, commit included"
    yield Result(what, "df.write.parquet", ours, theirs, TARGET)
    yield Result(what, "df.write.parquet and fsync", ours, theirs_durable, TARGET)
    yield Result(f"{what}, without fsync", "df.write.parquet", ours_loose, theirs, TARGET)


def _sync(folder: Path) -> None:
    for file in [*folder.glob("*.parquet"), folder]:
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
