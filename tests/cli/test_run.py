"""`headwater run` and `headwater outbox` as people start them: processes of their own, signals, kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headwater import connect
from headwater.lake.lake import Lake
from tests.cli.running import Ran, run, start
from tests.sinks.test_outbox_relay import Hook
from tests.spark.conftest import spark  # noqa: F401  (one session for all tests of the process)

SETTINGS = """
spark:
  master: local[2]
  conf:
    spark.driver.memory: 1g
    spark.sql.shuffle.partitions: 2
service:
  lease_seconds: 2
  log_format: json
"""


@pytest.fixture
def streams(project: Lake, spark: SparkSession) -> Lake:  # noqa: F811
    """Two stream tables that share no wave, one of them on change."""
    with Path("headwater.yaml").open("a") as file:
        file.write(SETTINGS)
    with connect(spark=spark) as hw:
        hw.create_stream_table(
            "sales.evens", "SELECT id FROM sales.orders WHERE id % 2 = 0", schedule="on change"
        )
        hw.sql("CREATE STREAM TABLE sales.total SCHEDULE '1s' AS SELECT count(id) AS n FROM sales.orders")
        hw.attach_outbox("sales.evens", "audit", "table:audit.evens")
    return project


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    begun: list[subprocess.Popen[str]] = []
    yield begun
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def holders(lake: Lake) -> dict[str, int]:
    """Leases that hold, with their tokens."""
    with psycopg.connect(lake.dsn) as connection:
        try:
            rows = connection.execute(
                "SELECT name, holder::text FROM headwater.lease WHERE expires_at > clock_timestamp()"
            ).fetchall()
        except psycopg.errors.UndefinedTable:  # nobody asked for one yet
            return {}
    return dict(rows)


def started(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The first line of a service's log."""
    assert process.stderr is not None
    line: dict[str, Any] = json.loads(process.stderr.readline())
    return line


def finished(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=40)
    return Ran(process.returncode, out, err)


def insert(lake: Lake, number: int) -> int:
    with lake.transaction() as tx:
        tx.append("sales.orders", [{"id": number}])
    assert tx.snapshot_id is not None
    return tx.snapshot_id


def test_another_process_takes_over_from_one_that_was_killed(
    streams: Lake, processes: list[subprocess.Popen[str]]
) -> None:
    processes += [start("run"), start("run", "--port", "0")]
    greetings = [started(process) for process in processes]
    assert [(g["message"], g["stream_tables"], g["outboxes"]) for g in greetings] == [("running", 2, 1)] * 2
    ids = [greeting["process"] for greeting in greetings]
    held = until(lambda: found if len(found := holders(streams)) == 3 else None)
    with urllib.request.urlopen(greetings[0]["health"], timeout=10) as answer:
        assert json.load(answer)["process"] == ids[0]

    victim, heir = (0, 1) if ids[0] in held.values() else (1, 0)
    os.kill(processes[victim].pid, signal.SIGKILL)
    began = time.monotonic()
    until(lambda: set(holders(streams).values()) == {ids[heir]} and len(holders(streams)) == 3)
    # The lease is 2 seconds, and is asked for once a second at most.
    assert time.monotonic() - began < 5

    insert(streams, 4000)
    con = streams.duckdb()
    # On a busy machine Spark alone can take a minute to start.
    until(lambda: con.execute("FROM sales.evens WHERE id = 4000").fetchall(), 150)
    until(lambda: con.execute("SELECT after->>'id' FROM audit.evens").fetchall() == [("4000",)])
    con.close()

    processes[heir].send_signal(signal.SIGTERM)
    ran = finished(processes[heir])
    assert ran.code == 0, ran.err
    assert "streams" in ran.out
    assert holders(streams) == {}
    lines = [json.loads(line) for line in ran.err.splitlines() if line.startswith("{")]
    assert ("refresh", "sales.evens", "INCREMENTAL") in {
        (line.get("kind"), line.get("name"), line.get("action")) for line in lines
    }
    assert ("relay", "audit") in {(line.get("kind"), line.get("name")) for line in lines}


def test_one_round_does_what_is_due_and_says_what_failed(streams: Lake, spark: SparkSession) -> None:  # noqa: F811
    with connect(spark=spark) as hw:
        hw.sql(
            "CREATE STREAM TABLE sales.odd SCHEDULE 'on change' AS SELECT `Odd Name` AS o FROM sales.orders"
        )
    with streams.transaction() as tx:
        tx.drop_column("sales.orders", "Odd Name")
    insert(streams, 6000)
    ran = run("run", "--once", "-o", "json")
    assert ran.code == 1
    assert [error["name"] for error in ran.json["failed"]] == ["streams sales.odd"]
    con = streams.duckdb()
    assert con.execute("SELECT after->>'id' FROM audit.evens").fetchall() == [("6000",)]
    con.close()
    only = run("run", "--once", "--only", "audit", "--log-format", "text")
    assert (only.code, only.out.splitlines()[0]) == (0, "nothing was due")
    assert run("run", "--once", "--only", "sales.nothing").code == 1
    assert run("run", "--for", "soon").code == 2


def test_outboxes_on_the_command_line(streams: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "http://127.0.0.1:9/hooks/s3cret")
    monkeypatch.setenv("TOKEN", "Bearer t0ken")
    monkeypatch.setenv("HEADWATER_SECRET_KEY", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    added = run(
        "outbox", "add", "sales.evens", "lines", "--to", "stdout", "--start", "beginning", "-o", "json"
    )
    assert added.code == 0, added.err
    hook = run(
        "outbox", "add", "sales.evens", "hook", "--to", "env:HOOK", "--header", "Authorization=env:TOKEN"
    )
    assert hook.code == 0, hook.err
    assert "http://127.0.0.1:9/…" in hook.out
    assert run("outbox", "add", "sales.evens", "lines", "--to", "stdout").code == 1
    assert run("outbox", "add", "sales.nothing", "x", "--to", "stdout").code == 1

    relayed = run("outbox", "relay", "lines")
    events = [json.loads(line) for line in relayed.out.splitlines()]
    assert relayed.code == 0, relayed.err
    assert sorted(event["after"]["id"] for event in events) == [*range(30, 100, 2), 1000]
    assert run("outbox", "relay", "lines").out == ""

    listed = run("outbox", "list", "-o", "json")
    assert [one["name"] for one in listed.json["outboxes"]] == ["audit", "hook", "lines"]
    assert "s3cret" not in listed.out + hook.out
    assert "t0ken" not in listed.out + hook.out
    assert run("outbox", "remove", "lines").code == 0
    assert run("outbox", "remove", "lines").code == 1


def test_a_follower_ends_cleanly_and_needs_no_spark(
    streams: Lake, processes: list[subprocess.Popen[str]]
) -> None:
    with connect() as hw:
        hw.attach_outbox("sales.evens", "lines", "stdout", start="beginning")
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('pyspark' in sys.modules, file=sys.stderr))\n"
        "from headwater.cli import main; main(sys.argv[1:])"
    )
    follower = subprocess.Popen(
        [sys.executable, "-c", code, "outbox", "relay", "lines", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    processes.append(follower)
    assert follower.stdout is not None
    first = json.loads(follower.stdout.readline())
    assert first["type"] == "insert"
    busy = run("outbox", "relay", "lines")
    assert "another process" in busy.err
    follower.send_signal(signal.SIGINT)
    ran = finished(follower)
    assert (ran.code, ran.err.splitlines()[-1]) == (0, "False")


@pytest.fixture
def log() -> Iterator[IO[str]]:
    """What services write to until they end."""
    with Path("services.log").open("w") as file:
        yield file


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pauses_and_kills_under_load_lose_and_double_nothing(
    streams: Lake,
    spark: SparkSession,  # noqa: F811
    log: IO[str],
    processes: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADWATER_SECRET_KEY", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    hook = Hook(lambda: random.choices(["ok", "lost", "unsure"], (8, 1, 1))[0])
    with connect(spark=spark) as hw:
        hw.create_stream_table(
            "sales.groups", "SELECT id % 7 AS g, count(id) AS n FROM sales.orders GROUP BY id % 7"
        )
        hw.alter_stream_table("sales.groups", schedule="on change")
        hw.attach_outbox("sales.groups", "hook", hook.url, start="beginning", batch=3)

    def another() -> None:
        processes.append(start("run", stdout=subprocess.DEVNULL, stderr=log))

    another()
    another()
    con = streams.duckdb()
    insert(streams, 10_000)
    until(lambda: hook.events and con.execute("FROM sales.evens WHERE id = 10000").fetchall(), 120)
    chance = random.Random(5)
    for number in range(10_001, 10_101):
        insert(streams, number)
        if chance.random() < 0.2:
            with streams.transaction() as tx:
                tx.delete("sales.orders", f"id = {number - chance.randint(0, 5)}")
        time.sleep(0.4)
        running = [process for process in processes if process.poll() is None]
        if number % 25 == 10:
            paused = chance.choice(running)
            os.kill(paused.pid, signal.SIGSTOP)
        elif number % 25 == 20:
            os.kill(paused.pid, signal.SIGCONT)  # after twice its lease
        elif number == 10_050:
            paused.kill()
            another()
    expected = con.execute("SELECT id % 7, count(id) FROM sales.orders GROUP BY 1 ORDER BY 1").fetchall()

    def told() -> list[tuple[int, int]]:
        rows: dict[int, int] = {}
        for event in {event["id"]: event for event in hook.events}.values():
            rows.pop((event["before"] or event["after"])["g"], None)
            if event["after"] is not None:
                rows[event["after"]["g"]] = event["after"]["n"]
        return sorted(rows.items())

    until(lambda: con.execute("SELECT g, n FROM sales.groups ORDER BY g").fetchall() == expected, 90)
    until(lambda: told() == expected, 60)
    con.close()
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    assert {finished(p).code for p in processes} <= {0, -signal.SIGKILL}
    hook.close()
    # In the order of their first arrival the events are in the order of their ids.
    order = [(event["snapshot_id"], event["number"]) for event in hook.events]
    assert list(dict.fromkeys(order)) == sorted(set(order))
    with connect(spark=spark) as hw:
        assert hw.verify("sales.groups").ok
