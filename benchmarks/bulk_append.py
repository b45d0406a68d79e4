"""1,000,000 rows of Arrow data into the lake, commit included, against pyarrow writing the same file alone.

Both use snappy and both make sure that the bytes are on disk. (A file that a snapshot names has to survive a
power failure; the line without is for information.)
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import COLUMNS, ROWS, orders
from benchmarks.environment import Environment
from benchmarks.measure import Result, in_turns

TARGET = 1.15


def _write(rows: pa.Table, path: Path, *, durable: bool) -> None:
    with pa.OSFile(str(path), "wb") as file:
        pq.write_table(rows, file, compression="snappy")
        if durable:
            os.fsync(file.fileno())


def run(environment: Environment) -> Iterator[Result]:
    rows = orders()
    place = environment.place()
    lake = place.lake()
    with lake.transaction() as tx:
        tx.create_table("orders", COLUMNS)
    other = environment.place()
    session = other.duckdb()
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    session.execute(f"CREATE TABLE orders ({columns})")
    session.register("given", rows)
    numbers = itertools.count(1)

    def append() -> None:
        with lake.transaction() as tx:
            tx.append("orders", rows)

    def alone(*, durable: bool) -> None:
        _write(rows, environment.scratch(f"{next(numbers)}.parquet"), durable=durable)

    ours, durable, loose, theirs = in_turns(
        [
            append,
            lambda: alone(durable=True),
            lambda: alone(durable=False),
            lambda: session.execute("INSERT INTO orders SELECT * FROM given"),
        ],
        environment.rounds(9),
    )
    what = f"append {ROWS:,} rows, commit included"
    yield Result(what, "pyarrow, write_table and fsync", ours, durable, TARGET)
    yield Result(what, "pyarrow, write_table", ours, loose)
    yield Result(what, "DuckDB, INSERT … SELECT", ours, theirs)
    session.close()
    lake.close()
