"""The document's own benchmark: 100 single-row INSERTs over 3 workers; and 10,000 rows in 100 batches.

Ours are tasks of a playbook: rendered steps go to worker processes, envelopes with the state of the catalog
come back. Theirs are 3 processes with a plain DuckDB each, pooled and in default settings, that do nothing
but execute the INSERT and repeat it when it fails. Sessions are open and warm on both sides before the clock
starts. Afterwards every row must be there, once.

The document measured 28 s for DuckLake and 44 s for DuckDB files with the same 100 rows.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import duckdb

from benchmarks.environment import Environment, Place
from benchmarks.measure import Result
from headwater.playbook.runners.local import LocalRunner
from headwater.playbook.runners.spark import SparkRunner
from headwater.playbook.task import Runner, Task
from headwater.settings.model import SparkSettings
from headwater.spark.session import open_session

WORKERS = 3
INSERTS = 100
BATCH = 100
DOCUMENT_SECONDS = {"DuckLake, pooled": 28.0, "DuckDB files, not pooled": 44.0}
TARGETS: dict[str, float | None] = {"total": 1.0, "median": None, "p99": 0.25}

Made = tuple[float, float, float]
"""Seconds in total, the median and the 99th percentile of one INSERT."""


def statement(number: int, rows: int) -> str:
    """One INSERT, as a step of the document writes it."""
    first = number * rows
    values = ", ".join(f"({first + one}, 'row {first + one}', {one / 4})" for one in range(rows))
    return f"INSERT INTO t VALUES {values}"


def _create(place: Place) -> None:
    lake = place.lake()
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "name": "varchar", "amount": "float64"})
    lake.close()


def _tasks(place: Place, step: str, commands: list[str]) -> list[Task]:
    fields = {"catalog_connection": place.dsn, "catalog_name": "public", "data_path": place.data_path}
    return [
        Task("benchmark", step, "ducklake", {**fields, "command": text}, item=item)
        for item, text in enumerate(commands)
    ]


def ours(place: Place, runner: Runner, rows: int, name: str) -> Made:
    """All INSERTs as tasks of one loop."""
    _create(place)
    warm = [f"INSERT INTO t VALUES ({-1 - one}, 'warm', 0)" for one in range(4 * WORKERS)]
    for outcome in runner.run(_tasks(place, f"{name} warm", warm), WORKERS):
        assert outcome.error is None, outcome.error
    tasks = _tasks(place, name, [statement(number, rows) for number in range(INSERTS)])
    taken = []
    began = time.perf_counter()
    for outcome in runner.run(tasks, WORKERS):
        assert outcome.error is None, outcome.error
        taken.append(outcome.seconds)
    total = time.perf_counter() - began
    _check(place, rows)
    return total, _share(taken, 0.5), _share(taken, 0.99)


def theirs(place: Place, rows: int) -> tuple[Made, int]:
    """The same by pooled sessions of plain DuckDB; also how often one had to be repeated by hand."""
    session = place.duckdb()
    session.execute("CREATE TABLE t (id BIGINT, name VARCHAR, amount DOUBLE)")
    session.close()
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(WORKERS)
    reports: Queue[Any] = context.Queue()
    processes = [
        context.Process(target=_pooled, args=(place, number, rows, start, reports), daemon=True)
        for number in range(WORKERS)
    ]
    for process in processes:
        process.start()
    found = [reports.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    _check(place, rows)
    taken = [one for report in found for one in report[0]]
    total = max(report[2] for report in found) - min(report[1] for report in found)
    errors = sum(report[3] for report in found)
    return (total, _share(taken, 0.5), _share(taken, 0.99)), errors


def _pooled(place: Place, worker: int, rows: int, start: Barrier, reports: Queue[Any]) -> None:
    session = place.duckdb()
    for one in range(4):
        _until_done(session, f"INSERT INTO t VALUES ({-1 - worker * 4 - one}, 'warm', 0)")
    start.wait()
    taken: list[float] = []
    errors = 0
    began = time.time()
    for number in range(worker, INSERTS, WORKERS):
        start_of_one = time.perf_counter()
        errors += _until_done(session, statement(number, rows))
        taken.append(time.perf_counter() - start_of_one)
    reports.put((taken, began, time.time(), errors))
    session.close()


def _until_done(session: duckdb.DuckDBPyConnection, text: str) -> int:
    errors = 0
    while True:
        try:
            session.execute(text)
        except duckdb.TransactionException:
            errors += 1
        else:
            return errors


def _share(taken: list[float], share: float) -> float:
    return sorted(taken)[max(0, math.ceil(share * len(taken)) - 1)]


def _check(place: Place, rows: int) -> None:
    session = place.duckdb()
    found = session.execute("SELECT count(*), count(DISTINCT id) FROM t WHERE id >= 0").fetchone()
    session.close()
    if found != (INSERTS * rows, INSERTS * rows):
        raise AssertionError(f"{INSERTS * rows} rows were inserted; there are {found}")


def measured(environment: Environment, runner: Runner, where: str) -> Iterator[Result]:
    """Both sides in turns."""
    for rows, rounds in ((1, environment.rounds(7)), (BATCH, environment.rounds(3))):
        mine, other, errors = _rounds(environment, runner, rows, rounds)
        what = (
            f"{INSERTS} single-row INSERTs" if rows == 1 else f"{INSERTS * rows:,} rows in {INSERTS} INSERTs"
        )
        said = ", ".join(f"{name} {took:.0f} s" for name, took in DOCUMENT_SECONDS.items())
        print(f"  {where}: 0 errors; DuckDB gave up {errors} times. The document: {said}", file=sys.stderr)
        for place, (name, target) in enumerate(TARGETS.items()):
            yield Result(
                f"playbook ({where}): {what}, {WORKERS} workers: {name}",
                "DuckDB, pooled, default settings",
                tuple(one[place] for one in mine),
                tuple(one[place] for one in other),
                target if rows == 1 else None,
            )


def _rounds(
    environment: Environment, runner: Runner, rows: int, rounds: int
) -> tuple[list[Made], list[Made], int]:
    mine: list[Made] = []
    other: list[Made] = []
    errors = 0
    for number in range(rounds):
        for side in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            place = environment.place()
            if side == "ours":
                mine.append(ours(place, runner, rows, f"{place.dsn} {rows}"))
            else:
                made, repeated = theirs(place, rows)
                other.append(made)
                errors += repeated
    return mine, other, errors


def run(environment: Environment) -> Iterator[Result]:
    """In worker processes of this machine."""
    with LocalRunner(workers=WORKERS) as runner:
        yield from measured(environment, runner, "local")


def run_spark(environment: Environment, scale: float) -> Iterator[Result]:
    """In Spark's executors, as many at once. The number of rows is the document's at any scale."""
    del scale
    settings = {"spark.app.name": "headwater benchmarks", "spark.driver.memory": "1g"}
    spark = open_session(SparkSettings(f"local[{WORKERS}]", settings))
    try:
        with SparkRunner(spark) as runner:
            yield from measured(environment, runner, "Spark")
    finally:
        spark.stop()
