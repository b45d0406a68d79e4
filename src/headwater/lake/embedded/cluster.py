"""One PostgreSQL database cluster on disk: made, configured, started, recognised, ended.

    folder/                 owned by whoever calls; nobody else may look in
      lock                  held by the one process that is starting or stopping the server
      users                 shared lock of every process that uses the server
      alive                 locked by the server itself: every process of PostgreSQL inherits the descriptor
      server.json           where the data and the socket are
      postgres.log
      data/                 the cluster (made as data.new and renamed when complete)
      run-…/                the socket

`alive` is what tells whether a server runs. Unlike the process id in `postmaster.pid` it cannot be stale,
cannot mean another process, covers backends that outlived a killed postmaster and an `initdb` that outlived
its starter, and works between containers that share the folder but not their process ids.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import EmbeddedServerError
from headwater.lake.embedded import accounts
from headwater.lake.embedded.locks import release, try_lock
from headwater.lake.embedded.socket_folder import PORT, choose_socket_folder

SUPERUSER = "postgres"

LOG_LIMIT = 10 * 1024 * 1024

_HAS_PROC = Path("/proc/self/cwd").exists()

_SETTINGS = """\
# Written by Headwater at every start. Settings of your own belong in postgresql.conf; they win.
max_connections = 200
shared_buffers = 128MB
huge_pages = off                     # containers announce huge pages that they do not give
dynamic_shared_memory_type = posix
io_method = sync                     # a catalog is small; processes that read ahead bring nothing
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
datestyle = 'iso, mdy'
default_text_search_config = 'pg_catalog.english'

fsync = on
full_page_writes = on
synchronous_commit = on
wal_level = logical                  # change capture reads the log
max_wal_senders = 10
max_replication_slots = 10
autovacuum = on

unix_socket_permissions = 0700
log_destination = stderr             # goes to postgres.log
logging_collector = off
log_min_messages = log               # the server's own events; errors of statements go to whoever sent them
log_min_error_statement = panic      # statements hold data, which does not belong in a log
log_checkpoints = off
log_line_prefix = '%m [%p] '
"""

_POSTGRESQL_CONF = """\
include 'headwater.conf'
# Your own settings, below, win over those of headwater.conf.
"""


@dataclass
class Cluster:
    """The cluster of one folder. Methods that change something are called with the folder's `lock` held."""

    folder: Path
    log_file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log_file = self.folder / "postgres.log"
        self._log_start = 0

    # What is known about it

    @property
    def home(self) -> Path:
        """Where the data is: the folder, or the place that `server.json` points to."""
        return Path(self._facts().get("home") or self.folder)

    @property
    def data(self) -> Path:
        """The data directory, as PostgreSQL calls it."""
        return self.home / "data"

    @property
    def socket_folder(self) -> Path:
        """The folder of the socket, as the last start chose it."""
        return self.home / str(self._facts().get("socket_folder", "run"))

    @property
    def socket(self) -> Path:
        """The server's socket."""
        return self.socket_folder / f".s.PGSQL.{PORT}"

    def _facts(self) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads((self.folder / "server.json").read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise EmbeddedServerError(
                f"{self.folder / 'server.json'} is damaged.",
                detail=f"{error}; it says where the database is, so starting without it could lose data.",
                hint="Restore the file, or move the whole folder away to begin with an empty lake.",
                folder=str(self.folder),
            ) from None
        return facts

    def _note(self, **facts: Any) -> None:
        _write(self.folder / "server.json", json.dumps({**self._facts(), **facts}, indent=2) + "\n")

    def log_tail(self, lines: int = 12) -> str:
        """The last lines that the server wrote since it was last started from here."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(self._log_start, self.log_file.stat().st_size - 64 * 1024))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    # Whether it runs

    def try_claim(self) -> int | None:
        """The `alive` lock, if no process of a server (or of a running `initdb`) has it."""
        claim = try_lock(self.folder / "alive")
        if claim is not None and self.postmaster() is not None:
            # Started by hand, or on a file system whose locks are not inherited.
            release(claim)
            return None
        return claim

    def postmaster(self) -> int | None:
        """The server's process id, if the process of that number really is the server of this folder."""
        pid, data = self.noted_pid(), self.data
        if pid is None or not data.is_dir():
            return None
        works_here = _works_in(pid, data.stat())
        if works_here is None:
            # In a container where root may not trace others; the command line is public.
            import psutil  # late: a rare path, and its import costs more than joining a server

            try:
                works_here = str(data) in psutil.Process(pid).cmdline()
            except psutil.Error:
                works_here = False
        return pid if works_here else None

    def noted_pid(self) -> int | None:
        """The process id in `postmaster.pid`; it may be that of a dead or of an unrelated process."""
        try:
            return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def status(self) -> str:
        """What the server says about itself in `postmaster.pid`: starting, ready, stopping."""
        try:
            return (self.data / "postmaster.pid").read_text().split("\n")[7].strip()
        except (FileNotFoundError, NotADirectoryError, IndexError):
            return ""

    # Starting

    def start(self, claim: int, deadline: float) -> None:
        """Make the cluster if there is none, and launch its server, which takes over the lock `claim`."""
        programs = accounts.find_programs()
        home = self._settle(programs)
        data = home / "data"
        if not data.exists():
            self._make(programs, home, claim, deadline)
        self._check_version(data)
        account = programs.account
        account.own_all(data)
        _write(data / "headwater.conf", _SETTINGS, account)
        # Nothing of this cluster is alive: these are left over, and PostgreSQL would believe the process id.
        (data / "postmaster.pid").unlink(missing_ok=True)
        socket_folder = choose_socket_folder(home, account)
        for suffix in ("", ".lock"):
            (socket_folder / f".s.PGSQL.{PORT}{suffix}").unlink(missing_ok=True)
        # Relative when it lies inside: the folder may be renamed, also while the server runs.
        inside = socket_folder.parent == home
        self._note(socket_folder=socket_folder.name if inside else str(socket_folder))
        self._open_log()
        options = {"listen_addresses": "", "unix_socket_directories": str(socket_folder), "port": PORT}
        launched = programs.start(
            "postgres",
            *("-D", str(data)),
            *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
            log_file=self.log_file,
            lock=claim,
            timeout=_seconds_left(deadline),
        )
        if launched.returncode != 0:
            raise self.failure("could not be launched", launched.stderr)

    def _settle(self, programs: accounts.Programs) -> Path:
        """The home of the cluster, open to the server's account and to nobody else."""
        home = self.home
        if not accounts.can_reach(programs, home.parent):
            if (home / "data").exists():
                raise EmbeddedServerError(
                    f"The user that PostgreSQL would run as cannot enter {home}.",
                    detail=f"The database was made by a process that could ({programs.account.kind} now).",
                    hint="Run as an ordinary user who owns the folder, or move the folder to a place that "
                    "other users may pass through.",
                    folder=str(self.folder),
                )
            home = accounts.reachable_home(self.folder)
            self._note(home=str(home))
        # Passing through is all that another account gets: the locks and the log stay ours.
        home.chmod(0o711 if programs.account.is_other_user else 0o700)
        return home

    def _make(self, programs: accounts.Programs, home: Path, claim: int, deadline: float) -> None:
        new = home / "data.new"
        if new.exists():
            shutil.rmtree(new)  # an earlier attempt was killed
        new.mkdir(mode=0o700)
        programs.account.own(new)
        made = programs.run(
            "initdb",
            *("-D", str(new), "-U", SUPERUSER, "--encoding=UTF8"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
            *("--auth-local=trust", "--auth-host=reject", "--no-instructions", "--set=huge_pages=off"),
            "--no-sync",  # made durable below, after our own files are in it
            lock=claim,
            timeout=_seconds_left(deadline),
        )
        if made.returncode != 0:
            raise self.failure("could not be created", f"{made.stdout}\n{made.stderr}")
        _write(new / "postgresql.conf", _POSTGRESQL_CONF, programs.account)
        _sync_all(new)
        new.rename(home / "data")
        _sync(home)

    def _check_version(self, data: Path) -> None:
        version = (data / "PG_VERSION").read_text().strip()
        if version != accounts.MAJOR_VERSION:
            raise EmbeddedServerError(
                f"The database in {data} is of PostgreSQL {version}; "
                f"this Headwater runs PostgreSQL {accounts.MAJOR_VERSION}.",
                hint="Dump it with the Headwater that made it (pg_dumpall) and load it into a new folder.",
                folder=str(self.folder),
            )

    def _open_log(self) -> None:
        with suppress(FileNotFoundError):
            if self.log_file.stat().st_size > LOG_LIMIT:
                self.log_file.replace(self.log_file.with_suffix(".log.1"))
        self.log_file.touch(mode=0o600)
        self._log_start = self.log_file.stat().st_size

    # Ending

    def stop(self, deadline: float) -> bool:
        """Stop the server as `pg_ctl stop -m fast` does: clients are sent away, nothing is lost."""
        pid, socket_folder = self.postmaster(), self.socket_folder
        if pid is None:
            return False
        _signal(pid, signal.SIGINT)
        while (claim := self.try_claim()) is None:
            if time.monotonic() > deadline:
                return False
            _bury(pid)
            time.sleep(0.005)
        try:
            _bury(pid)
            if socket_folder.parent != self.home:
                with suppress(OSError):
                    socket_folder.rmdir()
        finally:
            release(claim)
        return True

    def stop_when_alone(self) -> None:
        """Let nobody in any more and stop when those who are connected have gone; does not wait for that."""
        pid = self.postmaster()
        if pid is not None:
            _signal(pid, signal.SIGTERM)

    def end_orphans(self) -> None:
        """End backends that outlived their postmaster, as it would have done had it crashed less suddenly."""
        data = self.data
        if not data.is_dir():
            return
        import psutil

        place = data.stat()
        for pid in psutil.pids():
            if _works_in(pid, place):
                _signal(pid, signal.SIGQUIT)

    def failure(self, what: str, output: str = "") -> EmbeddedServerError:
        """The error for a server that `what`, with the last lines it wrote and what usually helps."""
        words = "\n".join(line for line in output.strip().splitlines()[-12:]) or self.log_tail()
        hint = f"The log is {self.log_file}."
        if "No space left on device" in words or "Disk quota exceeded" in words:
            hint = f"Free some space on the disk of {self.home}, then try again. {hint}"
        elif "Permission denied" in words:
            hint = f"Check who owns {self.home} and what lies in it. {hint}"
        return EmbeddedServerError(
            f"The embedded PostgreSQL of {self.folder} {what}.",
            detail=words or None,
            hint=hint,
            folder=str(self.folder),
            log_file=str(self.log_file),
        )


def end_deleted(pid: int, data: os.stat_result, socket_folder: Path) -> None:
    """End a server whose data directory was deleted: it can save nothing, and ends itself within a minute.

    One whose folder was only renamed goes on.
    """
    if _works_in(pid, data) and not Path(f"/proc/{pid}/cwd/postmaster.pid").exists():
        _signal(pid, signal.SIGQUIT)
        shutil.rmtree(socket_folder, ignore_errors=True)  # it may lie elsewhere


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _works_in(pid: int, place: os.stat_result) -> bool | None:
    """Whether `place`, even if deleted, is the working directory of process `pid`; None: we may not know."""
    try:
        return os.path.samestat(Path(_working_directory(pid)).stat(), place)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:
        return None


def _working_directory(pid: int) -> str:
    if _HAS_PROC:
        return f"/proc/{pid}/cwd"  # leads there even if the directory was renamed or deleted
    import psutil

    try:
        return str(psutil.Process(pid).cwd())
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from None
    except psutil.Error as error:
        raise ProcessLookupError(str(error)) from None


def _bury(pid: int) -> None:
    # In a container our process may be the init that a detached server was handed to.
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _write(path: Path, text: str, account: accounts.Account | None = None) -> None:
    """Replace a file in one step, so that a reader or a crash sees the old one or the new one."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(0o600)
    if account is not None:
        account.own(new)
    new.replace(path)


def _sync_all(folder: Path) -> None:
    paths = [Path(parent, name) for parent, _, files in os.walk(folder) for name in (".", *files)]
    with ThreadPoolExecutor(
        8
    ) as several:  # file systems write what waits together in one go: half of initdb's time
        list(several.map(_sync, paths))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _seconds_left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())
