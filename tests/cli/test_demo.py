"""`headwater demo` runs, again and again, and what it prints is true."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.cli.running import run, start
from tests.support import extension


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for several runs: to run it again is what is tested."""
    return tmp_path_factory.mktemp("demo") / "demo"


@pytest.fixture
def waiting(folder: Path) -> Iterator[subprocess.Popen[str]]:
    options = ["--folder", str(folder), "--seconds", "7", "--rate", "5", "--wait", "-o", "json"]
    process = start("demo", *options)
    yield process
    process.kill()
    process.communicate()


def test_orders_reach_duckdb_while_they_arrive(folder: Path, waiting: subprocess.Popen[str]) -> None:
    assert waiting.stdout is not None
    printed = ""
    while not printed.endswith("\n}\n"):
        line = waiting.stdout.readline()
        assert line, printed
        printed += line
    told = json.loads(printed)
    assert told["agrees"] is True
    assert told["verified"] is True
    assert told["problems"] == []
    assert told["orders_written"] > 10
    assert told["latencies"]["events"] > 0
    assert 0 < told["latencies"]["p50"] <= told["latencies"]["p99"]
    assert [point["snapshot_id"] for point in told["trend"]] == sorted(
        {point["snapshot_id"] for point in told["trend"]}
    )
    install, attach, query = told["attach_sql"]
    assert install.startswith("INSTALL")  # here they are loaded from their packages
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as session:
        for name in ("ducklake", "postgres_scanner"):
            session.execute(f"LOAD '{extension(name)}'")
        session.execute(attach)
        rows = session.execute(query).fetchall()
    assert {row[0]: row[1] for row in rows} == {region: orders for region, orders, _ in told["regions"]}
    second = run("demo", "--folder", str(folder), "-o", "json")
    assert (second.code, second.error["code"]) == (1, "settings")
    assert "Another demo" in second.error["message"]
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert "Traceback" not in err


def test_the_game_and_the_analysts_see_one_leaderboard(folder: Path) -> None:
    ran = run("demo", "leaderboard", "--folder", str(folder), "--seconds", "7", "--rate", "5")
    assert ran.code == 0, ran.err
    assert "yes  all 40 players" in ran.out
    assert "in PostgreSQL, for the game:   p50" in ran.out
    assert len(ran.out.splitlines()) <= 45


def test_a_folder_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    ran = run("demo", "--folder", str(tmp_path))
    assert ran.code == 1
    assert "in use by something else" in ran.err
    assert (tmp_path / "precious").read_text() == "data"
