"""Many workers on one lake: what they leave is what one after the other would have left.

Commits carry the mark of their task, so the order in which they happened is known. The same statements, run
in that order by a plain DuckDB, are the model: same rows in the end, same counts on the way.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from headwater.lake.health.check import examine
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.playbook.runners.local import LocalRunner
from headwater.playbook.runners.worker import TaskWorker
from headwater.playbook.task import Outcome, Task
from tests.support import duck

WORKERS = 8
KEYS = 12
MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('analytics')",
    "CALL ducklake_merge_adjacent_files('analytics')",
    "CALL ducklake_rewrite_data_files('analytics', delete_threshold => 0.1)",
    "CHECKPOINT analytics",
)


def some_change(chance: random.Random) -> str:
    """A statement whose effect depends on when it runs."""
    key, other = chance.randrange(KEYS), chance.randrange(KEYS)
    return chance.choice(
        (
            f"INSERT INTO t VALUES ({chance.randrange(100, 10**9)}, {key})",
            f"INSERT INTO t SELECT coalesce(max(k), 0) + 1, {key} FROM t",
            f"UPDATE t SET v = v * 3 + {key} WHERE k = {key}",
            f"UPDATE t SET v = v + {key} WHERE k % 4 = {other % 4}",
            f"DELETE FROM t WHERE k = {key}",
            f"DELETE FROM t WHERE k > 11 AND v % 5 = {other % 5}",
            f"MERGE INTO t USING (VALUES ({key}, 7), ({key + 40}, 1)) AS s(k, v) ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v)",
        )
    )


class Place:
    """A lake with one table, and what was done to it."""

    def __init__(self, dsn: str, folder: Path, *, inlining: bool):
        self.dsn = dsn
        self.folder = folder
        self.texts: dict[str, str] = {}
        limit = 10 if inlining else 0
        self.run_all(
            [
                self.task("CREATE TABLE t (k BIGINT, v BIGINT)"),
                self.task(f"CALL analytics.set_option('data_inlining_row_limit', {limit})"),
                self.task(f"INSERT INTO t SELECT i, i FROM range({KEYS}) r(i)"),
            ],
            workers=1,
        )

    def task(self, command: str) -> Task:
        """A task of its own for a statement."""
        step = f"step {len(self.texts)}"
        task = Task(
            "run",
            step,
            "ducklake",
            {
                "catalog_connection": self.dsn,
                "catalog_name": "analytics",
                "data_path": str(self.folder / "files"),
                "command": command,
            },
        )
        self.texts[json.dumps([step, 1, None, None])] = command
        return task

    def run_all(self, tasks: Sequence[Task], workers: int = WORKERS) -> list[Outcome]:
        """Run tasks by several workers at once; none may fail."""
        waiting = iter(tasks)
        taking = threading.Lock()
        outcomes: list[Outcome] = []

        def work(number: int) -> None:
            worker = TaskWorker(f"w{number}")
            while True:
                with taking:
                    task = next(waiting, None)
                if task is None:
                    break
                outcomes.append(worker.work(task))
            worker.close()

        with ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(work, number) for number in range(workers)]:
                done.result()
        assert [outcome.error for outcome in outcomes if outcome.error] == []
        return outcomes

    def check(self, outcomes: Sequence[Outcome]) -> None:
        """Compare with the model, and let the doctor look."""
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute(
                "SELECT commit_extra_info FROM analytics.ducklake_snapshot_changes ORDER BY snapshot_id"
            ).fetchall()
        model = duckdb.connect()
        counts: dict[str, list[Any]] = {}
        for text in (row[0] for row in rows if row[0]):
            if text.startswith("sql:"):
                model.execute(text.removeprefix("sql:"))
                continue
            facts = json.loads(text)
            assert facts["task"] not in counts, "applied twice"
            counts[facts["task"]] = facts["affected"]
            command = self.texts[facts["task"]]
            if not command.startswith(("CALL", "CHECKPOINT")):
                changed = model.execute(command).fetchone()
                assert command.startswith("CREATE") or changed == (facts["affected"][0],), command
        for outcome in outcomes:
            name = json.dumps([outcome.task.step, 1, None, None])
            (entry,) = outcome.envelope["result"]["commands"]  # type: ignore[index]
            if "affected_rows" in entry and not self.texts[name].startswith("CHECKPOINT"):
                assert counts.get(name, [0]) == [entry["affected_rows"]], self.texts[name]
        expected = model.execute("SELECT k, v FROM t ORDER BY ALL").fetchall()
        reader = duck(self.dsn, alias="analytics", metadata_schema="analytics")
        assert reader.execute("SELECT k, v FROM t ORDER BY ALL").fetchall() == expected
        reader.close()
        with opened(self.dsn) as lake:
            assert healthy(lake)


def healthy(lake: Lake) -> bool:
    """Whether the doctor finds nothing broken. (Compaction by DuckDB narrows statistics: a warning.)"""
    report = examine(lake, deep=True)
    assert report.ok, report.findings
    return report.ok


@contextmanager
def opened(dsn: str) -> Iterator[Lake]:
    """The lake, opened by Headwater."""
    lake = Lake.open(dsn, metadata_schema="analytics")
    yield lake
    lake.close()


@pytest.mark.parametrize("inlining", [True, False], ids=["inlined", "files"])
def test_what_workers_leave_is_what_one_after_the_other_would_have_left(
    inlining: bool, new_database: str, tmp_path: Path
) -> None:
    chance = random.Random(1)
    place = Place(new_database, tmp_path, inlining=inlining)
    tasks = [place.task(some_change(chance)) for _ in range(32)]
    place.check(place.run_all(tasks))


@pytest.mark.parametrize("inlining", [True, False], ids=["inlined", "files"])
def test_maintenance_and_other_writers_beside_them_change_nothing_about_that(
    inlining: bool, new_database: str, tmp_path: Path
) -> None:
    chance = random.Random(2)
    place = Place(new_database, tmp_path, inlining=inlining)
    tasks = [place.task(some_change(chance)) for _ in range(24)]
    for number, call in enumerate(MAINTENANCE):
        tasks.insert(4 + number * 5, place.task(call))
    with beside(headwater_writer(new_database), foreign_writer(new_database)):
        outcomes = place.run_all(tasks)
    place.check(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 9))
@pytest.mark.parametrize("inlining", [True, False], ids=["inlined", "files"])
def test_the_same_for_long(inlining: bool, seed: int, new_database: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    place = Place(new_database, tmp_path, inlining=inlining)
    tasks = [
        place.task(chance.choice(MAINTENANCE) if chance.random() < 0.1 else some_change(chance))
        for _ in range(160)
    ]
    with beside(headwater_writer(new_database), foreign_writer(new_database)):
        outcomes = place.run_all(tasks)
    place.check(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("inlining", [True, False], ids=["inlined", "files"])
def test_the_same_in_processes_of_their_own(inlining: bool, new_database: str, tmp_path: Path) -> None:
    chance = random.Random(11)
    place = Place(new_database, tmp_path, inlining=inlining)
    tasks = [
        place.task(chance.choice(MAINTENANCE) if chance.random() < 0.05 else some_change(chance))
        for _ in range(200)
    ]
    with LocalRunner(workers=WORKERS) as runner:
        outcomes = list(runner.run(tasks, WORKERS))
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    place.check(outcomes)


@pytest.mark.parametrize("inlining", [True, False], ids=["inlined", "files"])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("UPDATE t SET v = v + 1 WHERE k = 0", [(0, 24), (1, 1), (2, 2)]),
        ("MERGE INTO t USING (VALUES (99, 1)) AS s(k, v) ON t.k = s.k WHEN MATCHED THEN UPDATE SET "
         "v = t.v + 1 WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v)", [(0, 0), (1, 1), (2, 2), (99, 24)]),
        ("CREATE TABLE IF NOT EXISTS u (i INTEGER); INSERT INTO u VALUES (1)", [(0, 0), (1, 1), (2, 2)]),
    ],
    ids=["update", "merge", "create"],
)  # fmt: skip
def test_all_of_them_at_the_same_row(
    inlining: bool, command: str, expected: list[tuple[int, int]], new_database: str, tmp_path: Path
) -> None:
    place = Place(new_database, tmp_path, inlining=inlining)
    place.run_all([place.task("DELETE FROM t WHERE k > 2")], workers=1)
    place.run_all([place.task(command) for _ in range(24)])
    with opened(new_database) as lake:
        rows = lake.read("t").sort_by("k").to_pylist()
        assert [(row["k"], row["v"]) for row in rows] == expected
        if "CREATE" in command:
            assert lake.read("u").num_rows == 24
        assert healthy(lake)


@contextmanager
def beside(*writers: Callable[[threading.Event], None]) -> Iterator[None]:
    """Others at work at the same time, until the end."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(writer, stop) for writer in writers]
        try:
            yield
        finally:
            stop.set()
        for one in running:
            one.result()


def headwater_writer(dsn: str) -> Callable[[threading.Event], None]:
    """Headwater's own transactions, which take the lake's table lock and no other."""

    def work(stop: threading.Event) -> None:
        chance = random.Random(5)
        with opened(dsn) as lake:
            while True:
                key = chance.randrange(KEYS)
                updates = chance.random() < 0.5
                text = (
                    f"UPDATE t SET v = v + 1000 WHERE k = {key}"
                    if updates
                    else f"DELETE FROM t WHERE k = {key}"
                )

                def change(tx: Transaction, key: int = key, updates: bool = updates) -> int:
                    condition = f"k = {key}"
                    return (
                        tx.update("t", {"v": "v + 1000"}, condition) if updates else tx.delete("t", condition)
                    )

                lake.run(change, extra_info=f"sql:{text}", attempts=50)
                if stop.wait(0.05):
                    return

    return work


def foreign_writer(dsn: str) -> Callable[[threading.Event], None]:
    """A DuckDB that knows nothing of the lock and does not retry by itself."""

    def work(stop: threading.Event) -> None:
        session = duck(dsn, alias="analytics", metadata_schema="analytics")
        session.execute("SET ducklake_max_retry_count = 0")
        number = 0
        while number == 0 or not stop.wait(0.5):
            text = f"INSERT INTO t VALUES ({10**10 + number}, {number})"
            try:
                session.execute("BEGIN")
                session.execute(text)
                session.execute(f"CALL analytics.set_commit_message('x', 'x', extra_info => 'sql:{text}')")
                session.execute("COMMIT")
                number += 1
            except duckdb.TransactionException:
                rolled_back(session)
        session.close()

    return work


def rolled_back(session: duckdb.DuckDBPyConnection) -> None:
    """End a transaction, if there is one."""
    try:
        session.execute("ROLLBACK")
    except duckdb.TransactionException:
        return
