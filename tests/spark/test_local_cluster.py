"""The same suites with executors that are processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITES = (
    "spark/test_read.py",
    "spark/test_write.py",
    "spark/test_merge.py",
    "spark/test_changes.py",
    "refresh/test_programs.py",
)


def run_suites(*arguments: str) -> str:
    environment = {**os.environ, "HEADWATER_TEST_MASTER": "local-cluster[2,1,1024]"}
    files = [str(ROOT / "tests" / name) for name in SUITES]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.timeout(900)
def test_executors_of_their_own_read_write_and_merge() -> None:
    # Many rows of a plan are fetched from the driver.
    chosen = "(every_clause and jobs) or (rows_of_each_time and compiled and groups)"
    assert " passed" in run_suites("-k", chosen)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_executors_of_their_own_run_the_whole_suites() -> None:
    assert " passed" in run_suites("-m", "not slow")
