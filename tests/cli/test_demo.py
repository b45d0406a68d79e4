"""`headwater demo` runs, again and again, and what it prints is true."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import headwater
from tests.cli.running import run, start
from tests.support import extension


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for several runs: to run it again is what is tested."""
    return tmp_path_factory.mktemp("demo") / "demo"


def test_both_readers_agree_and_everything_is_told(folder: Path) -> None:
    result = run("demo", "--folder", str(folder), "-o", "json").json
    assert result["equal"] is True
    assert [c["snapshot_id"] for c in result["comparisons"]] == [2, 6]
    assert [c["rows"] for c in result["comparisons"]] == [1000, 994]
    assert [s["author"] for s in result["snapshots"]] == ["demo"] * 6
    assert all(Path(location).is_file() for location in result["files"])
    with headwater.connect(folder=folder) as hw:
        assert hw.lake.read("shop.orders").num_rows == 994


def test_it_runs_again_with_the_same_result_on_one_screen(folder: Path) -> None:
    ran = run("demo", "--folder", str(folder))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count(": equal\n") == 2
    assert len(ran.out.splitlines()) <= 45
    assert "ATTACH 'ducklake:postgres:" in ran.out


@pytest.fixture
def waiting(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = start("demo", "--folder", str(folder), "--wait", "-o", "json")
    yield process
    process.kill()
    process.communicate()


def test_the_printed_sql_attaches_the_lake_while_it_waits(
    folder: Path, waiting: subprocess.Popen[str]
) -> None:
    assert waiting.stdout is not None
    printed = ""
    while not printed.endswith("\n}\n"):
        line = waiting.stdout.readline()
        assert line, printed
        printed += line
    install, attach, query = json.loads(printed)["attach_sql"]
    assert install.startswith("INSTALL")  # here they are loaded from their packages
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as session:
        for name in ("ducklake", "postgres_scanner"):
            session.execute(f"LOAD '{extension(name)}'")
        session.execute(attach)
        assert len(session.execute(query).fetchall()) == 1000
    second = run("demo", "--folder", str(folder), "-o", "json")
    assert (second.code, second.error["code"]) == (1, "settings")
    assert "Another demo" in second.error["message"]
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert "Traceback" not in err


def test_a_folder_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    ran = run("demo", "--folder", str(tmp_path))
    assert ran.code == 1
    assert "precious" in ran.err
    assert (tmp_path / "precious").read_text() == "data"
    with headwater.connect(folder=tmp_path / "lake"):
        pass
    assert run("demo", "--folder", str(tmp_path / "lake")).code == 1
