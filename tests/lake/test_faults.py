"""Whatever breaks: the old state or the new one, nothing between, and the next run succeeds."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.errors import (
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    StorageError,
    StorageUnavailableError,
)
from headwater.lake.connection import Database
from headwater.lake.embedded import EmbeddedServer, open_server
from headwater.lake.lake import Lake
from headwater.storage.options import StorageOptions
from headwater.storage.store import Store
from tests.lake.proxy import Proxy
from tests.lake.test_transactions import ids, make, numbers
from tests.servers import S3Server
from tests.support import create_database

OLD = [*range(20, 100)]
NEW = [*range(40, 100), *range(1000, 1050), 2000]


def judge(lake: Lake, expected: list[int]) -> None:
    """Both readers agree, at the newest snapshot and at the first."""
    duck = lake.duckdb()
    assert ids(lake) == expected
    assert sorted(row[0] for row in duck.execute("SELECT id FROM t").fetchall()) == expected
    assert duck.execute("SELECT count(*) FROM t").fetchone() == (len(expected),)
    assert duck.execute("SELECT count(*) FROM t AT (VERSION => 1)").fetchone() == (100,)
    duck.close()


STEPS = {
    "while storing": OLD,
    "stored": OLD,
    "prepared": OLD,
    "locked": OLD,
    "written": OLD,
    "committed": NEW,
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step(lake: Lake, step: str) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.delete("t", "id < 20")
    script = Path(__file__).with_name("killed_writer.py")
    killed = subprocess.run([sys.executable, str(script), lake.dsn, step], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    judge(lake, STEPS[step])
    # The very same operation, run again, applies once.
    with lake.transaction(operation_id="killed") as tx:
        tx.append("t", numbers(1000, 50))
        tx.append("t", [{"id": 2000, "name": "inlined"}])
        tx.delete("t", "id BETWEEN 20 AND 39")
    assert tx.already_applied is (step == "committed")
    judge(lake, NEW)


@pytest.fixture
def proxied(new_database: str, tmp_path: Path) -> Iterator[tuple[Lake, Proxy]]:
    Lake.open(new_database, data_path=tmp_path / "data").close()
    folder = tmp_path / "p"
    folder.mkdir()
    proxy = Proxy(new_database, folder)
    lake = Lake(Database(proxy.dsn, patience=8), Store(), f"{tmp_path / 'data'}/")
    make(lake)
    yield lake, proxy
    lake.close()
    proxy.close()


@pytest.mark.parametrize("checked", [False, True], ids=["one round trip", "counts checked first"])
@pytest.mark.parametrize("mode", ["before", "after"])
def test_connection_lost_during_commit(proxied: tuple[Lake, Proxy], mode: str, checked: bool) -> None:
    lake, proxy = proxied
    tx = lake.transaction()
    tx.append("t", numbers(1000, 50))
    if checked:
        tx.delete("t", "id < 50")
    proxy.arm(mode)
    tx.commit()
    assert proxy.broken == 1
    assert ids(lake) == [*range(50 if checked else 0, 100), *range(1000, 1050)]
    assert len(lake.snapshots()) == 3
    assert lake.snapshots()[0].id == tx.snapshot_id == 2


@pytest.mark.parametrize("mode", ["before, then refuse", "after, then refuse"])
def test_an_unknown_outcome_is_said_and_the_same_operation_settles_it(
    proxied: tuple[Lake, Proxy], mode: str
) -> None:
    lake, proxy = proxied
    lake.db.patience = 1.0
    tx = lake.transaction(operation_id="once")
    tx.append("t", numbers(1000, 50))
    proxy.arm(mode)
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        tx.commit()
    assert caught.value.retryable
    assert caught.value.operation_id == "once"
    proxy.refusing = False
    lake.db.patience = 10.0
    with lake.transaction(operation_id="once") as again:
        again.append("t", numbers(1000, 50))
    assert again.already_applied is mode.startswith("after")
    assert ids(lake) == [*range(100), *range(1000, 1050)]


def crash(server: EmbeddedServer) -> None:
    """Immediate shutdown, which is what a crash looks like to clients."""
    os.kill(server.pid, signal.SIGQUIT)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            psycopg.connect(server.dsn).close()
        except psycopg.OperationalError:
            return
        time.sleep(0.02)
    raise AssertionError("the server did not go down")


def test_postgresql_restarted_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    server = open_server(tmp_path / "pg")
    lake = Lake.open(create_database(server.dsn, "lake"), data_path=tmp_path / "data")
    make(lake)
    tx = lake.transaction()
    tx.append("t", numbers(1000, 50))
    tx.delete("t", "id < 50")
    crash(server)
    back = threading.Thread(target=lambda: (time.sleep(1), open_server(tmp_path / "pg")))
    back.start()
    tx.commit()
    back.join()
    assert ids(lake) == [*range(50, 100), *range(1000, 1050)]
    with lake.transaction() as later:
        later.append("t", numbers(5000, 1))
    assert lake.read("t").num_rows == 101
    lake.close()


def test_postgresql_gone_is_a_clear_error_that_may_be_retried(tmp_path: Path) -> None:
    server = open_server(tmp_path / "pg")
    lake = Lake.open(create_database(server.dsn, "lake"), data_path=tmp_path / "data")
    make(lake)
    lake.db.patience = 0.5
    tx = lake.transaction()
    tx.append("t", numbers(1000, 50))
    crash(server)
    with pytest.raises(CatalogUnavailableError) as caught:
        tx.commit()
    assert caught.value.retryable
    open_server(tmp_path / "pg")
    lake.db.patience = 10
    assert ids(lake) == list(range(100))
    with lake.transaction() as again:
        again.append("t", numbers(1000, 50))
    assert lake.read("t").num_rows == 150
    lake.close()


def test_sessions_ended_by_an_administrator_are_replaced(lake: Lake) -> None:
    make(lake)
    with psycopg.connect(lake.dsn, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with lake.transaction() as tx:
        tx.append("t", numbers(1000, 1))
    assert lake.read("t").num_rows == 101


@pytest.mark.s3
def test_s3_server_gone_and_back(new_database: str, s3: S3Server) -> None:
    storage = StorageOptions(
        s3_endpoint=s3.endpoint,
        s3_access_key_id=s3.access_key,
        s3_secret_access_key=s3.secret_key,
        connect_timeout=1,
        request_timeout=2,
        max_attempts=1,
    )
    lake = Lake.open(new_database, data_path=f"s3://{s3.bucket}/faults", storage=storage)
    make(lake)
    assert lake.duckdb().execute("SELECT count(*) FROM t").fetchone() == (100,)
    s3.stop(kill=True)
    tx = lake.transaction()
    with pytest.raises(StorageUnavailableError) as caught:
        tx.append("t", numbers(1000, 50))
    assert caught.value.retryable
    assert s3.secret_key not in str(caught.value)
    tx.rollback()
    with lake.transaction() as small:  # needs no object store
        small.append("t", numbers(500, 2))
    s3.start()
    assert lake.snapshots()[0].id == 2
    with lake.transaction() as again:
        again.append("t", numbers(1000, 50))
        assert again.delete("t", "id < 50") == 50
    expected = [*range(50, 100), 500, 501, *range(1000, 1050)]
    assert ids(lake) == expected
    listed = lake.duckdb().execute("SELECT id FROM t ORDER BY 1").fetchall()
    assert [row[0] for row in listed] == expected
    lake.close()


def _limited(limit: int) -> Any:
    def apply() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return apply


def test_a_file_that_cannot_grow_leaves_the_old_state(lake: Lake) -> None:
    make(lake)
    program = (
        "import sys, pyarrow as pa\n"
        "from headwater.lake.lake import Lake\n"
        "from headwater.errors import StorageError\n"
        "lake = Lake.open(sys.argv[1], create=False)\n"
        "try:\n"
        "    with lake.transaction() as tx:\n"
        "        tx.append('t', pa.table({'id': range(300000), 'name': [str(i) for i in range(300000)]}))\n"
        "except StorageError as error:\n"
        "    print(type(error).__name__, error.code)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, lake.dsn],
        preexec_fn=_limited(200_000),
        capture_output=True,
        text=True,
    )
    assert "storage" in run.stdout, run.stderr
    assert ids(lake) == list(range(100))
    files = [p for p in Path(lake.data_path).rglob("*") if p.is_file()]
    assert len(files) == 1, "no part of a file is left"
    with lake.transaction() as tx:
        tx.append("t", numbers(1000, 50))
    assert lake.read("t").num_rows == 150


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system of a chosen size")
def test_disk_full_on_upload(new_database: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this sandbox does not allow mounting")
    try:
        lake = Lake.open(new_database, data_path=disk / "data")
        make(lake)
        rows = 200_000
        noise = pa.table({"id": range(rows), "name": [os.urandom(8).hex() for _ in range(rows)]})
        with pytest.raises(StorageUnavailableError) as caught, lake.transaction() as tx:
            tx.append("t", noise)
        assert caught.value.retryable
        assert ids(lake) == list(range(100))
        with lake.transaction() as tx:
            tx.append("t", numbers(1000, 50))
        assert lake.duckdb().execute("SELECT count(*) FROM t").fetchone() == (150,)
        lake.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_stored_file_that_is_not_what_was_written_is_never_committed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(lake)
    write = Store.open_output

    def tampering(self: Store, location: str) -> Any:
        context = write(self, location)

        class Tampered:
            def __enter__(self) -> Any:
                return context.__enter__()

            def __exit__(self, *error: Any) -> Any:
                result = context.__exit__(*error)
                path = Path(location)
                path.write_bytes(path.read_bytes()[:-20])
                return result

        return Tampered()

    monkeypatch.setattr(Store, "open_output", tampering)
    with pytest.raises(StorageError), lake.transaction() as tx:
        tx.append("t", numbers(1000, 50))
    assert ids(lake) == list(range(100))
