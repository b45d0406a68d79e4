"""What the tests of the embedded PostgreSQL share: folders for servers, and processes that open them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from headwater.lake.embedded import EmbeddedServer, open_server

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="becomes other users, which only root may")
on_linux = pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs Linux")

PRELUDE = """
import os, sys, time, signal, psycopg
from pathlib import Path
from headwater.lake.embedded import open_server
def say(*words): print(*words, flush=True)
"""

Open = Callable[..., EmbeddedServer]


MEMORY = Path("/dev/shm")
QUICK = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**30 else None


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """A folder with a cluster in it, not running; copying it is faster than making one for each test."""
    with tempfile.TemporaryDirectory(prefix="hw", dir=QUICK) as short:
        folder = Path(short) / "postgres"
        assert open_server(folder).stop_if_unused()
        yield folder


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of short path for servers; nothing may be left running in it."""
    with tempfile.TemporaryDirectory(prefix="hw", dir=QUICK) as short:
        yield Path(short)
        left = servers_below(Path(short))
        for process in left:
            process.kill()
        assert not left


@pytest.fixture
def folder(place: Path, template: Path) -> Path:
    """A stopped server's folder."""
    return copy(template, place / "postgres")


def copy(template: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", template, target], check=True)  # a third of the time of copytree
    return target


@pytest.fixture
def opened(place: Path) -> Iterator[Open]:
    """`open_server` whose servers are given back after the test (before `place` looks for what is left)."""
    handles: list[EmbeddedServer] = []

    def opened(*args: Any, **options: Any) -> EmbeddedServer:
        handles.append(open_server(*args, **options))
        return handles[-1]

    yield opened
    for handle in handles:
        handle.stop_if_unused()


def servers_below(folder: Path) -> list[psutil.Process]:
    """PostgreSQL processes (of any state but zombie) that were started for a folder below `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            if command and command[0].endswith("/postgres") and any(str(folder) in word for word in command):
                found.append(process)
        except psutil.Error:
            continue
    return found


def python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen[str], *, send: str = "") -> list[str]:
    """The words of a process that must end well."""
    out, _ = process.communicate(send, timeout=60)
    assert process.returncode == 0
    return out.split()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def value(server: EmbeddedServer | str, query: str) -> Any:
    dsn = server if isinstance(server, str) else server.dsn
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def socket_folder(server: EmbeddedServer) -> Path:
    return Path(str(psycopg.conninfo.conninfo_to_dict(server.dsn)["host"]))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
