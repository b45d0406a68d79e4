"""Many writers, captures that are killed, servers that restart: nothing is lost, doubled or torn apart."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from headwater.lake.embedded import EmbeddedServer, open_server
from headwater.lake.lake import Lake
from tests.sources.conftest import World
from tests.support import create_database, duck

ACCOUNTS = 40
TABLES = ("account", "entry", "note", "wide")


class Load:
    """Writers that transfer, append, delete and truncate, in transactions of every kind."""

    def __init__(self, dsn: str, seed: int):
        self.dsn = dsn
        self.random = random.Random(seed)
        self.stop = threading.Event()
        self.committed = 0
        self.lock = threading.Lock()

    def run(self, writers: int, seconds: float, disturb: Callable[[], None]) -> None:
        threads = [
            threading.Thread(target=self._write, args=(self.random.randrange(1 << 30),))
            for _ in range(writers)
        ]
        threads.append(threading.Thread(target=self._kill_writers))
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                disturb()
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def _write(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self.stop.is_set():
            try:
                with psycopg.connect(self.dsn, connect_timeout=5, application_name="writer") as connection:
                    while not self.stop.is_set():
                        self._transaction(connection, rng)
            except psycopg.Error:
                time.sleep(0.05)  # killed, deadlocked, or the server restarts

    def _transaction(self, connection: psycopg.Connection, rng: random.Random) -> None:
        for _ in range(rng.choice((1, 1, 1, 3, 10))):
            self._step(connection, rng)
            if rng.random() < 0.02:
                time.sleep(rng.random())  # a long one, which others overtake
        if rng.random() < 0.15:
            connection.rollback()
            return
        connection.commit()
        with self.lock:
            self.committed += 1

    def _step(self, connection: psycopg.Connection, rng: random.Random) -> None:
        kind = rng.random()
        if kind < 0.6:
            amount = rng.randrange(100)
            # In order, so that few of them wait for each other in a circle.
            pairs = sorted(((rng.randrange(ACCOUNTS), amount), (rng.randrange(ACCOUNTS), -amount)))
            for account, change in pairs:
                connection.execute(
                    "UPDATE account SET balance = balance + %s, changed = clock_timestamp() WHERE id = %s",
                    (change, account),
                )
                connection.execute("INSERT INTO entry VALUES (%s, %s)", (account, change))
        elif kind < 0.8:
            connection.execute(
                "INSERT INTO note (body) SELECT repeat('n', %s) FROM generate_series(1, %s)",
                (rng.randrange(30), rng.randrange(1, 20)),
            )
        elif kind < 0.9:
            connection.execute(
                "DELETE FROM note WHERE id IN (SELECT id FROM note ORDER BY random() LIMIT %s FOR UPDATE "
                "SKIP LOCKED)",
                (rng.randrange(1, 10),),
            )
        elif kind < 0.99:
            connection.execute(
                "INSERT INTO wide VALUES (%s, %s, %s) ON CONFLICT (a, b) DO UPDATE SET v = excluded.v",
                (rng.randrange(5), f"k{rng.randrange(20)}", [rng.random()]),
            )
        else:
            connection.execute("TRUNCATE note")

    def _kill_writers(self) -> None:
        while not self.stop.wait(0.5):
            try:
                with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE "
                        "datname = current_database() AND application_name = 'writer' "
                        "ORDER BY random() LIMIT 1) AS one"
                    )
            except psycopg.Error:
                pass


class Capturing:
    """The capture as a process of its own, killed and started again."""

    def __init__(self, dsn: str, folder: Path):
        self._dsn = dsn
        self._log = (folder / "capture.log").open("w+")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sources.capture_worker", self._dsn],
            stdout=self._log,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def close(self) -> None:
        self.kill()
        self._log.close()


def prepare(world: World) -> None:
    world.run(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, changed timestamptz)",
        f"INSERT INTO account SELECT i, 1000, now() FROM generate_series(0, {ACCOUNTS - 1}) i",
        "CREATE TABLE entry (account int, amount bigint)",
        "CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)",
        "CREATE TABLE wide (a int, b text, v float8[], PRIMARY KEY (a, b))",
    )
    if world.method == "replication":
        world.run("ALTER TABLE entry REPLICA IDENTITY FULL")
    world.sources.add(
        world.dsn + " application_name=capture", list(TABLES), name="shop", capture=world.method
    )


def check(world: World) -> None:
    """The lake is the source; and every snapshot on the way showed whole transactions."""
    for _ in range(20):
        if not world.sources.pending("shop"):
            break
        world.capture()
    else:
        pytest.fail("captures find something for ever")
    assert [table.status.value for table in world.sources.get("shop").tables] == ["active"] * len(TABLES)
    for table in TABLES:
        world.check(table)
    last = world.lake.snapshot().id
    for snapshot in range(1, last + 1):
        at = f"AT (VERSION => {snapshot})"
        ((balance,),) = world.here(f"SELECT sum(balance) FROM account {at}")
        assert balance == 1000 * ACCOUNTS, f"snapshot {snapshot} shows half of a transfer"
        wrong = world.here(
            f"SELECT a.id FROM (FROM account {at}) a LEFT JOIN "
            f"(SELECT account, sum(amount) AS amount FROM entry {at} GROUP BY account) e ON e.account = a.id "
            "WHERE a.balance <> 1000 + coalesce(e.amount, 0)"
        )
        assert not wrong, f"snapshot {snapshot}: accounts and entries disagree"


@pytest.mark.parametrize("method", ["triggers", "replication"])
def test_source_and_lake_agree_under_load(world: World, tmp_path: Path, method: str) -> None:
    world.method = method
    prepare(world)
    load, capturing = Load(world.dsn, 1), Capturing(world.lake.dsn, tmp_path)
    rng = random.Random(2)

    def disturb() -> None:
        capturing.start()
        time.sleep(1.5 + rng.random())
        capturing.kill()

    try:
        load.run(6, 5, disturb)
        check(world)
    finally:
        said = capturing.said()
        capturing.close()
        world.sources.remove("shop")  # a slot would keep the database
    assert load.committed > 10
    assert "Traceback" not in said, said


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "method"), [(11, "triggers"), (12, "replication")])
def test_twenty_writers_killed_captures_and_restarted_servers(
    pg_server: EmbeddedServer, lake: Lake, tmp_path: Path, seed: int, method: str
) -> None:
    own = open_server(tmp_path / "source")
    dsn = create_database(own.dsn, "shop")
    con = duck(lake.dsn)
    world = World(lake, dsn, con)
    world.method = method
    prepare(world)
    world.pg.close()
    world.sources.close()
    load, capturing = Load(dsn, seed), Capturing(lake.dsn, tmp_path)
    rng = random.Random(seed)
    servers = [own]

    def disturb() -> None:
        capturing.start()
        time.sleep(1 + 3 * rng.random())
        if rng.random() < 0.3:
            # Stopped with a word, or killed in the middle of everything.
            os.kill(servers[-1].pid, rng.choice((signal.SIGINT, signal.SIGQUIT)))
            time.sleep(1)
            servers.append(open_server(tmp_path / "source"))
        if rng.random() < 0.8:
            capturing.kill()
        else:
            other = Capturing(lake.dsn, tmp_path)  # two at once
            other.start()
            time.sleep(2)
            other.close()
            capturing.kill()

    try:
        load.run(20, 60, disturb)
        world.pg = psycopg.connect(dsn, autocommit=True)
        check(world)
    finally:
        capturing.close()
        world.sources.close()
        world.pg.close()
        con.close()
        for server in servers:
            server.stop_if_unused()
    assert load.committed > 200
