"""Tasks in worker processes and in Spark's executors: the same worker, the same envelopes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headwater.lake.writing.commit import turn_key
from headwater.playbook.runners.local import LocalRunner
from headwater.playbook.runners.spark import SparkRunner
from headwater.playbook.task import Outcome, Task
from headwater.settings.model import SparkSettings
from headwater.spark.session import open_session
from tests.spark.conftest import spark as spark


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    """Two worker processes for all tests of this file."""
    with LocalRunner(workers=2) as opened:
        yield opened


KILLS = 2


def kill(process: Any) -> None:
    """End a worker process as the kernel does when memory is short."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


def ducklake(dsn: str, folder: Path, command: str, item: int | None = None, **more: Any) -> Task:
    """A task on the lake `analytics`."""
    given = {key: more.pop(key) for key in ("timeout", "attempt", "step", "run_id") if key in more}
    fields = {"catalog_connection": dsn, "catalog_name": "analytics", "data_path": str(folder / "files")}
    return Task(
        run_id=given.pop("run_id", "run"),
        step=given.pop("step", command.split()[0]),
        tool="ducklake",
        fields={**fields, "command": command, **more},
        item=item,
        **given,
    )


def done(outcomes: Iterator[Outcome]) -> list[Outcome]:
    """All outcomes; none may have failed."""
    found = list(outcomes)
    assert [outcome.error for outcome in found if outcome.error] == []
    return found


def values(outcome: Outcome) -> list[Any]:
    """The first values of the rows of a task's last command."""
    assert outcome.envelope is not None, outcome.error
    entry = outcome.envelope["result"]["commands"][-1]
    return [next(iter(row.values())) for row in entry["rows"]]


def test_a_loop_runs_in_several_processes_and_draws_no_more_than_may_be_under_way(
    runner: LocalRunner, new_database: str, tmp_path: Path
) -> None:
    done(runner.run([ducklake(new_database, tmp_path, "CREATE TABLE t (i INTEGER, w VARCHAR)")], 1))
    drawn = finished = 0

    def tasks() -> Iterator[Task]:
        nonlocal drawn
        for item in range(12):
            drawn += 1
            assert drawn - finished <= 2
            text = f"INSERT INTO t SELECT {item}, current_setting('worker_id') FROM range(1)"
            yield ducklake(new_database, tmp_path, text, item)

    for outcome in runner.run(tasks(), in_flight=5):
        assert outcome.error is None
        finished += 1
    outcome = done(runner.run([ducklake(new_database, tmp_path, "SELECT i FROM t ORDER BY i")], 1))[0]
    assert values(outcome) == list(range(12))
    outcome = done(runner.run([ducklake(new_database, tmp_path, "SELECT DISTINCT w FROM t ORDER BY w")], 1))[
        0
    ]
    assert len(values(outcome)) == 2


def test_references_to_secrets_are_opened_where_the_flow_runs(new_database: str, tmp_path: Path) -> None:
    asked = []

    def open_reference(reference: str) -> str:
        asked.append(reference)
        return new_database

    with LocalRunner(workers=1, secrets=open_reference) as own:
        task = ducklake("secret:lake", tmp_path, "SELECT 42")
        assert values(done(own.run([task], 1))[0]) == [42]
    assert asked == ["secret:lake"]


def test_what_nobody_knows_behind_a_reference_is_an_error_of_its_own(
    runner: LocalRunner, tmp_path: Path
) -> None:
    (outcome,) = runner.run([ducklake("secret:gone", tmp_path, "SELECT 1")], 1)
    assert outcome.error is not None
    assert outcome.error.kind == "credential"
    assert "secret:gone" in outcome.error.message


def test_a_killed_worker_is_noticed_replaced_and_its_task_applied_once(
    new_database: str, tmp_path: Path
) -> None:
    with LocalRunner(workers=1) as own:
        done(own.run([ducklake(new_database, tmp_path, "CREATE TABLE t (i INTEGER)")], 1))
        slow = "INSERT INTO t SELECT count(*) FROM t, range(100000) a, range(10000000) b"
        task = ducklake(new_database, tmp_path, slow, step="slow")
        done(own.run([ducklake(new_database, tmp_path, "INSERT INTO t VALUES (1)", step="row")], 1))
        threading.Timer(0.7, kill, own._crew._all.values()).start()
        (outcome,) = own.run([task], 1)
        assert outcome.error is not None
        assert outcome.error.kind == "worker_lost"
        assert outcome.error.retryable
        assert "SIGKILL" in outcome.error.message
        # Its lock went with it, and the row that was committed before is not inserted again.
        again = ducklake(new_database, tmp_path, "INSERT INTO t VALUES (1)", step="row", attempt=2)
        assert done(own.run([again], 1))[0].worker != outcome.worker
        assert values(done(own.run([ducklake(new_database, tmp_path, "SELECT i FROM t")], 1))[0]) == [1]


@pytest.mark.slow
def test_a_worker_killed_at_any_moment_has_applied_its_task_once_after_another_attempt(
    new_database: str, tmp_path: Path
) -> None:
    with LocalRunner(workers=1) as own:
        done(own.run([ducklake(new_database, tmp_path, "CREATE TABLE t (n INTEGER)")], 1))
        done(own.run([ducklake(new_database, tmp_path, "INSERT INTO t VALUES (0)")], 1))
        for number in range(KILLS):
            change = ducklake(new_database, tmp_path, "UPDATE t SET n = n + 1", step=f"change {number}")
            done(own.run([ducklake(new_database, tmp_path, "SELECT n FROM t")], 1))
            timer = threading.Timer(0.01 * number, kill, own._crew._all.values())
            timer.start()
            outcomes = list(own.run([change], 1))
            timer.join()
            if outcomes[0].error is not None:
                assert outcomes[0].error.kind == "worker_lost"
                done(own.run([change], 1))
        outcome = done(own.run([ducklake(new_database, tmp_path, "SELECT n FROM t")], 1))[0]
        assert values(outcome) == [KILLS]


def test_a_timeout_stops_the_statement_and_leaves_nothing(
    runner: LocalRunner, new_database: str, tmp_path: Path
) -> None:
    done(runner.run([ducklake(new_database, tmp_path, "CREATE TABLE t (i BIGINT)")], 1))
    text = "INSERT INTO t VALUES (1); INSERT INTO t SELECT count(*) FROM range(100000) a, range(10000000) b"
    began = time.monotonic()
    (outcome,) = runner.run([ducklake(new_database, tmp_path, text, timeout=1.0)], 1)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.command_index) == ("timeout", 1)
    assert time.monotonic() - began < 6
    assert values(done(runner.run([ducklake(new_database, tmp_path, "SELECT count(*) FROM t")], 1))[0]) == [0]


def test_a_task_that_waits_for_others_longer_than_it_may_times_out(
    runner: LocalRunner, new_database: str, tmp_path: Path
) -> None:
    done(runner.run([ducklake(new_database, tmp_path, "CREATE TABLE t (i BIGINT)")], 1))
    with psycopg.connect(new_database) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", turn_key("analytics"))
        (outcome,) = runner.run([ducklake(new_database, tmp_path, "DELETE FROM t", timeout=0.5)], 1)
    assert outcome.error is not None
    assert outcome.error.kind == "timeout"


def test_abandoning_a_loop_stops_its_workers(new_database: str, tmp_path: Path) -> None:
    endless = "SELECT count(*) FROM range(100000) a, range(10000000) b"
    with LocalRunner(workers=2) as own:
        tasks = [ducklake(new_database, tmp_path, "SELECT 1"), ducklake(new_database, tmp_path, endless)]
        outcomes = own.run(tasks, 2)
        assert next(outcomes).error is None
        began = time.monotonic()
        outcomes.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 3
        assert values(done(own.run([ducklake(new_database, tmp_path, "SELECT 2")], 1))[0]) == [2]


def in_both(spark_runner: SparkRunner, dsn: str, folder: Path) -> None:
    """The same tasks through both runners: the same results but for names of workers and times."""
    found = {}
    with LocalRunner(workers=1) as local:
        for name, runner in (("local", local), ("spark", spark_runner)):
            more: dict[str, Any] = {"run_id": name, "catalog_name": name}
            done(runner.run([ducklake(dsn, folder, "CREATE TABLE t (i INTEGER, n INTEGER)", **more)], 1))
            commands = [f"INSERT INTO t VALUES ({item}, 0)" for item in range(8)]
            commands += ["UPDATE t SET n = n + 1"] * 4
            tasks = [ducklake(dsn, folder, text, item, **more) for item, text in enumerate(commands)]
            first = done(runner.run(tasks[:8], 4))
            second = done(runner.run(tasks[8:], 4))
            results = [outcome.envelope["result"] for outcome in (*first, *second) if outcome.envelope]
            (failed,) = runner.run([ducklake(dsn, folder, "SELECT nope", **more)], 1)
            (last,) = done(runner.run([ducklake(dsn, folder, "SELECT i, n FROM t ORDER BY i", **more)], 1))
            assert last.envelope is not None
            found[name] = results, failed.error, last.envelope["result"], set(last.envelope["catalog_info"])
    assert found["spark"] == found["local"]
    assert [tuple(row.values()) for row in found["spark"][2]["commands"][0]["rows"]] == [
        (i, 4) for i in range(8)
    ]


def test_spark_runs_the_same_tasks_with_the_same_results(
    spark: SparkSession, new_database: str, tmp_path: Path
) -> None:
    with SparkRunner(spark) as runner:
        in_both(runner, new_database, tmp_path)


def test_a_worker_lost_in_spark_is_replaced(spark: SparkSession, new_database: str, tmp_path: Path) -> None:
    with SparkRunner(spark) as runner:
        done(runner.run([ducklake(new_database, tmp_path, "CREATE TABLE t (i INTEGER)")], 1))
        code = "import os; result = os.getpid()"
        (outcome,) = done(runner.run([Task("run", "pid", "python", {"code": code})], 1))
        assert outcome.envelope is not None
        fatal = Task("run", "die", "python", {"code": "import os; os._exit(1)"})
        (lost,) = runner.run([fatal], 1)
        assert lost.error is not None
        assert (lost.error.kind, lost.error.retryable) == ("worker_lost", False)
        tasks = [
            ducklake(new_database, tmp_path, f"INSERT INTO t VALUES ({item})", item) for item in range(3)
        ]
        outcomes = list(runner.run([fatal, *tasks], 1))
        assert [outcome.error and outcome.error.kind for outcome in outcomes] == [
            "worker_lost",
            None,
            None,
            None,
        ]
        (outcome,) = done(runner.run([ducklake(new_database, tmp_path, "SELECT i FROM t ORDER BY i")], 1))
        assert values(outcome) == [0, 1, 2]


@pytest.mark.slow
def test_the_same_on_executors_of_their_own(new_database: str, tmp_path: Path) -> None:
    """Two executors of a cluster on this machine, started by a process that has no other Spark."""
    script = (
        "import sys; from pathlib import Path; from tests.playbook.test_runners import on_a_cluster; "
        "on_a_cluster(sys.argv[1], Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", script, new_database, str(tmp_path)], check=True, timeout=240)


def on_a_cluster(dsn: str, folder: Path) -> None:
    """What that process does."""
    settings = SparkSettings("local-cluster[2,1,1024]", {"spark.driver.memory": "1g"})
    session = open_session(settings)
    try:
        with SparkRunner(session) as runner:
            in_both(runner, dsn, folder)
    finally:
        session.stop()
