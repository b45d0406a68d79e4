"""100 single-row appends by 3 processes at once: how long for all, and how long the slowest commits take.

Both sides commit to a fresh lake in the same PostgreSQL, with their default settings (single rows go into the
catalog). Sessions are open and warm before the clock starts. Afterwards every row must be there.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.environment import Environment, Place
from benchmarks.measure import Result

APPENDS = 100
PROCESSES = 3
WARM_UP = 3
TARGET = 0.5
COLUMNS = {"process": "int32", "number": "int64", "name": "varchar", "amount": "float64"}

Append = Callable[[int, int], None]
Report = tuple[list[float], float, float, int]
"""Seconds of each commit, when the first began, when the last ended, how often it was tried again."""


@contextmanager
def _headwater(place: Place) -> Iterator[Append]:
    lake = place.lake()
    kinds: dict[str, pa.DataType] = {
        "process": pa.int32(),
        "number": pa.int64(),
        "name": pa.string(),
        "amount": pa.float64(),
    }
    schema = pa.schema(kinds)

    def append(process: int, number: int) -> None:
        row = {"process": process, "number": number, "name": f"row {number}", "amount": number / 4}
        with lake.transaction() as tx:
            tx.append("t", pa.Table.from_pylist([row], schema=schema))

    yield append
    lake.close()


@contextmanager
def _duckdb(place: Place) -> Iterator[Append]:
    session = place.duckdb()

    def append(process: int, number: int) -> None:
        session.execute("INSERT INTO t VALUES (?, ?, ?, ?)", [process, number, f"row {number}", number / 4])

    yield append
    session.close()


SIDES = {"headwater": _headwater, "duckdb": _duckdb}


def _work(side: str, place: Place, process: int, numbers: range, start: Barrier, reports: Queue[Any]) -> None:
    """One process: its share of the appends."""
    taken: list[float] = []
    again = 0
    with SIDES[side](place) as append:
        for number in range(-WARM_UP, 0):
            _until_done(append, process, number)
        start.wait()
        began = time.time()
        for number in numbers:
            one = time.perf_counter()
            again += _until_done(append, process, number)
            taken.append(time.perf_counter() - one)
        ended = time.time()
    reports.put((taken, began, ended, again))


def _until_done(append: Append, process: int, number: int) -> int:
    """Append as a patient caller does. (DuckDB gives up after ten collisions; the caller has to repeat.)"""
    repeats = 0
    while True:
        try:
            append(process, number)
        except duckdb.TransactionException:
            repeats += 1
        else:
            return repeats


def _round(side: str, place: Place) -> tuple[float, float]:
    """All appends of one side: seconds in total, and the 99th percentile of a commit."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(PROCESSES)
    reports: Queue[Any] = context.Queue()
    shares = [range(process, APPENDS, PROCESSES) for process in range(PROCESSES)]
    workers = [
        context.Process(target=_work, args=(side, place, process, numbers, start, reports), daemon=True)
        for process, numbers in enumerate(shares)
    ]
    for worker in workers:
        worker.start()
    found: list[Report] = [reports.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    _check(place, shares)
    commits = sorted(taken for report in found for taken in report[0])
    total = max(report[2] for report in found) - min(report[1] for report in found)
    return total, commits[math.ceil(0.99 * len(commits)) - 1]


def _check(place: Place, shares: list[range]) -> None:
    expected = {
        (process, number)
        for process, numbers in enumerate(shares)
        for number in (*range(-WARM_UP, 0), *numbers)
    }
    session = place.duckdb()
    rows = session.execute("SELECT process, number FROM t").fetchall()
    session.close()
    if len(rows) != len(expected) or set(rows) != expected:
        raise AssertionError(f"{len(expected)} rows were appended, {len(rows)} are there")


def _fresh(environment: Environment, side: str, *, inlined: bool) -> Place:
    place = environment.place()
    if side == "headwater":
        lake = place.lake()
        with lake.transaction() as tx:
            tx.create_table("t", COLUMNS)
            if not inlined:
                tx.set_option("data_inlining_row_limit", "0")
        lake.close()
    else:
        session = place.duckdb()
        if not inlined:
            session.execute("CALL lake.set_option('data_inlining_row_limit', '0')")
        session.execute("CREATE TABLE t (process INTEGER, number BIGINT, name VARCHAR, amount DOUBLE)")
        session.close()
    return place


def run(environment: Environment) -> Iterator[Result]:
    """Rows kept in the catalog, as both do by default; then, for information, a Parquet file for each."""
    for inlined, rounds in ((True, environment.rounds(7)), (False, environment.rounds(3))):
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
        for number in range(rounds):
            for side in sorted(SIDES, reverse=number % 2 == 1):
                found[side].append(_round(side, _fresh(environment, side, inlined=inlined)))
        for place, what in enumerate(("total", "p99 of a commit")):
            ours, theirs = (tuple(one[place] for one in found[side]) for side in ("headwater", "duckdb"))
            yield Result(
                f"{APPENDS} single-row appends, {PROCESSES} processes: {what}"
                + ("" if inlined else ", as files"),
                "DuckDB, INSERT",
                ours,
                theirs,
                TARGET if inlined else None,
            )
