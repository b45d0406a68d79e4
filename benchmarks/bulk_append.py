"""1,000,000 rows of Arrow data into the lake, commit included, against pyarrow writing the same file alone.

Both use snappy, and both make sure that the bytes are on disk: a file that a snapshot names has to survive a
power failure. pyarrow writes with its own settings, which are faster for it, and once with row groups and
decimals as in our file. What it takes without the disk is for information.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import COLUMNS, ROWS, orders
from benchmarks.environment import Environment
from benchmarks.measure import Result, in_turns
from headwater.storage.parquet import ROW_GROUP_ROWS

TARGET = 1.15


def _write(rows: pa.Table, path: Path, *, alike: bool = False, durable: bool = True) -> None:
    settings: dict[str, Any] = {"row_group_size": ROW_GROUP_ROWS, "store_decimal_as_integer": True}
    with pa.OSFile(str(path), "wb") as file:
        pq.write_table(rows, file, compression="snappy", **(settings if alike else {}))
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

    def path() -> Path:
        return environment.scratch(f"{next(numbers)}.parquet")

    ours, alone, alike, loose, theirs = in_turns(
        [
            append,
            lambda: _write(rows, path()),
            lambda: _write(rows, path(), alike=True),
            lambda: _write(rows, path(), durable=False),
            lambda: session.execute("INSERT INTO orders SELECT * FROM given"),
        ],
        environment.rounds(9),
    )
    what = f"append {ROWS:,} rows, commit included"
    yield Result(what, "pyarrow, write_table and fsync", ours, alone, TARGET)
    yield Result(what, "pyarrow, the same with our row groups", ours, alike, TARGET)
    yield Result(what, "pyarrow, write_table alone", ours, loose)
    yield Result(what, "DuckDB, INSERT … SELECT", ours, theirs)
    session.close()
    lake.close()
