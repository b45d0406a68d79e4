"""A process that captures until it is killed: `python -m tests.sources.capture_worker DSN`."""

from __future__ import annotations

import sys
import time

from headwater.lake.lake import Lake
from headwater.sources.postgres import PostgresSources
from headwater.spark.connector import LakeSpark


def no_spark() -> LakeSpark:
    raise AssertionError("no Spark here")


def main(dsn: str) -> None:
    lake = Lake.open(dsn, create=False)
    sources = PostgresSources(lake, no_spark)
    while True:
        if sources.pending("shop"):
            for result in sources.capture("shop"):
                print(result.snapshot_id, result.changes, result.error, flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1])
