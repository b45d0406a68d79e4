"""The embedded PostgreSQL as root, as an ordinary user, as one without a name; and on a full disk."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import EmbeddedServerError
from headwater.lake.embedded import accounts as embedded_accounts
from headwater.lake.embedded import open_server
from tests.lake.embedded_help import (
    PRELUDE,
    Open,
    folder,
    is_running,
    mode,
    needs_root,
    on_linux,
    opened,
    place,
    template,
    value,
)

__all__ = ["folder", "opened", "place", "template"]  # fixtures


def run_as(uid: int, code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that gave up root for `uid`.

    Where the interpreter lies in a private folder of root's (`/root`), the process gets a view of the file
    system in which that folder holds nothing but the interpreter and may be entered.
    """
    needed = [Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[2]]
    closed = next(
        (p for path in needed for p in reversed([path, *path.parents]) if not p.stat().st_mode & 0o001), None
    )
    script = 'set -e; umask 022; exec "$@"'
    if closed is not None:
        inside = [path for path in needed if path.is_relative_to(closed)]
        keep = " ".join(f"mkdir -p $t/{n}; mount --rbind '{path}' $t/{n};" for n, path in enumerate(inside))
        bring = " ".join(
            f"mkdir -p '{path}'; mount --rbind $t/{n} '{path}';" for n, path in enumerate(inside)
        )
        script = (
            f"set -e; umask 022; t=$(mktemp -d); mount -t tmpfs -o mode=755 tmpfs $t; {keep} "
            f"mount -t tmpfs -o mode=755 tmpfs '{closed}'; {bring} exec \"$@\""
        )
    become = f"import os; os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n"
    return subprocess.Popen(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            sys.executable,
            "-c",
            become + PRELUDE + code,
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )


def answer(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate("\n", timeout=60)
    if process.returncode != 0 and "unshare" in err:
        pytest.skip("no mount namespaces here")
    assert process.returncode == 0, err
    return out.strip()


NOBODY = pwd.getpwnam("nobody").pw_uid
NAMELESS = 54321

LIFE = """
s = open_server(Path(sys.argv[1]))
with psycopg.connect(s.dsn, autocommit=True) as c:
    c.execute("CREATE TABLE IF NOT EXISTS t (i int)")
    c.execute("INSERT INTO t VALUES (1)")
    rows = c.execute("SELECT count(*) FROM t").fetchone()[0]
say(os.geteuid(), s.pid, rows)
"""


@needs_root
@on_linux
@pytest.mark.parametrize("uid", [NOBODY, NAMELESS])
def test_an_ordinary_user_with_or_without_a_name(place: Path, uid: int) -> None:
    os.chown(place, uid, uid)

    for rows in (1, 2):
        who, pid, count = answer(run_as(uid, LIFE, place / "postgres")).split()
        assert (int(who), int(count)) == (uid, rows)
        assert not is_running(int(pid))

    assert {path.stat().st_uid for path in place.rglob("*")} == {uid}


@needs_root
@on_linux
def test_a_folder_of_another_user_is_refused_with_what_to_do(place: Path, folder: Path) -> None:
    refusal = """
from headwater.errors import EmbeddedServerError
try: open_server(Path(sys.argv[1]))
except EmbeddedServerError as error: say(error)
"""
    place.chmod(0o755)
    assert "belongs to root, and this process runs as nobody" in answer(run_as(NOBODY, refusal, folder))
    assert "permissions" in answer(run_as(NOBODY, refusal, place / "new"))

    subprocess.run(["chown", "-R", "nobody", folder], check=True)
    with pytest.raises(
        EmbeddedServerError, match="belongs to nobody, and this process runs as root"
    ) as caught:
        open_server(folder)
    assert f"chown -R root {folder}" in str(caught.value.hint)
    # After the change of owner that the hint asks for, it works.
    subprocess.run(["chown", "-R", "root", folder], check=True)
    assert open_server(folder).stop_if_unused()


@needs_root
@on_linux
@pytest.mark.parametrize("owner", [0, NOBODY])
def test_root_leaves_private_folders_private(
    place: Path, opened: Open, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_accounts, "SHARED_STATE", place / "state")
    home = place / "home"
    home.mkdir(mode=0o700)
    os.chown(home, owner, owner)

    for _ in range(2):
        server = opened(home / "postgres")
        assert value(server, "SELECT 1") == 1
        assert server.stop_if_unused()

    assert mode(home) == 0o700
    # Without the rights of root, the server cannot pass through somebody else's private folder.
    assert (place / "state").exists() == (owner != 0)


# A root that may not make user namespaces and lacks some rights, as in most containers. The limit is that of
# a namespace made for the process, so nothing else on the machine feels it.
WITHOUT_NAMESPACES = """
import ctypes, os, sys
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child:
    os.read(ready[0], 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{child}/{name}", "w") as f: f.write("0 0 65536")
    os.write(go[1], b".")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if ctypes.CDLL(None).unshare(0x10000000): sys.exit("unshare is not possible")
os.write(ready[1], b".")
os.read(go[0], 1)
os.setgid(0); os.setuid(0)
with open("/proc/sys/user/max_user_namespaces", "w") as f: f.write("0")
for fd in (*ready, *go): os.close(fd)
kept = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}  # what containers leave to root: no tracing
for capability in set(range(41)) - kept: ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""


def root_without_namespaces(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NAMESPACES, PRELUDE + code, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if "unshare" in done.stderr or "max_user_namespaces" in done.stderr:
        pytest.skip("no user namespaces to begin with")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


BECOMING = (
    """
from headwater.lake.embedded import accounts as embedded_accounts
embedded_accounts.SHARED_STATE = Path(sys.argv[2])
s = open_server(Path(sys.argv[1]))
import psutil
say(psutil.Process(s.pid).uids().effective)
"""
    + LIFE
)


@needs_root
@on_linux
@pytest.mark.parametrize("reachable", [True, False])
def test_root_without_namespaces_becomes_another_user(place: Path, template: Path, reachable: bool) -> None:
    place.chmod(0o755)
    home = place / "home"
    home.mkdir(mode=0o755 if reachable else 0o700)
    folder, state = home / "postgres", place / "state"

    for rows in ("1", "2"):
        uid, _, pid, count = root_without_namespaces(BECOMING, folder, state).split()
        assert int(uid) != 0
        assert count == rows
        assert not is_running(int(pid))

    elsewhere = json.loads((folder / "server.json").read_text()).get("home")
    data = Path(elsewhere or folder) / "data"
    assert (elsewhere is None) == reachable
    assert mode(home) == (0o755 if reachable else 0o700)
    assert mode(data) == 0o700
    assert data.stat().st_uid == int(uid)
    if reachable:
        # The same folder where namespaces work: the files come back to root, the rows are there.
        server = open_server(folder)
        assert value(server, "SELECT count(*) FROM t") == 2
        assert server.stop_if_unused()
    else:
        # A new folder of the old name does not find the old rows.
        shutil.rmtree(folder)
        assert root_without_namespaces(BECOMING, folder, state).split()[3] == "1"


@needs_root
@on_linux
def test_programs_that_another_user_cannot_reach_are_copied_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.chmod(0o755)
    # A Python environment of its own in a private folder, found because it comes first.
    private = place / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(embedded_accounts, "SHARED_STATE", private / "site")
    environment = embedded_accounts._copy_programs(embedded_accounts.find_bin()).parents[2]
    (environment / embedded_accounts.PACKAGE / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(environment))

    for rows in ("1", "2"):
        *_, count = root_without_namespaces(BECOMING, place / "postgres", place / "state").split()
        assert count == rows

    copies = list((place / "state").glob("postgresql-*"))
    assert len(copies) == 1
    assert mode(private) == 0o700


@needs_root
@on_linux
def test_a_full_disk_is_named_and_room_is_enough_to_go_on(place: Path, opened: Open) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", place], check=False)
    if mounted.returncode != 0:
        pytest.skip("may not mount")
    try:
        with pytest.raises(EmbeddedServerError, match="No space left on device") as caught:
            open_server(place / "postgres")
        assert "Free some space" in str(caught.value.hint)

        subprocess.run(["mount", "-o", "remount,size=200m", place], check=True)
        server = opened(place / "postgres")
        assert value(server, "SELECT 1") == 1
        assert server.stop_if_unused()
    finally:
        subprocess.run(["umount", place], check=True)
