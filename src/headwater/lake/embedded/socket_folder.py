"""Where the embedded server's socket is: a folder that only the server's owner may enter."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from headwater.errors import EmbeddedServerError
from headwater.lake.embedded.accounts import Account

PORT = 5432  # only part of the socket's name: nothing listens on the network

# struct sockaddr_un has 108 bytes (104 on BSD and macOS) including the final NUL.
_PATH_LIMIT = 107 if sys.platform == "linux" else 103
# Characters that no connection string, list of directories or SQL literal treats specially.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")


def choose_socket_folder(home: Path, account: Account) -> Path:
    """A private folder that takes a socket: inside `home`, or else a short one among the temporary files.

    It is the same at every start. A server whose folder was deleted removes its socket when it ends, so that
    of a new folder of the same name must be another: its name has the inode of the data directory in it,
    which stays taken while a server works there.
    """
    inode = (home / "data").stat().st_ino
    inside = home / f"run-{inode:x}"
    for old in home.glob("run-*"):  # of the folder that this one was copied from
        if old != inside:
            shutil.rmtree(old)
    inside.mkdir(mode=0o700, exist_ok=True)
    inside.chmod(0o700)
    account.own_all(inside)
    if _takes_socket(inside):
        return inside
    name = f"headwater-{hashlib.sha256(os.fsencode(home) + b':%d' % inode).hexdigest()[:16]}"
    for base in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - used only if it is ours
        if _fits(base / name):
            place = _private_folder(base, name, account)
            if _takes_socket(place):
                return place
    raise EmbeddedServerError(
        "No folder is short enough for PostgreSQL's socket.",
        detail=f"{inside} and the folders for temporary files are too long or take no sockets "
        f"(a socket's path has at most {_PATH_LIMIT} bytes).",
        hint="Set TMPDIR to a short path, for example /tmp.",
        folder=str(home),
    )


def _private_folder(base: Path, name: str, account: Account) -> Path:
    place = base / name
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if _is_private(place, account.uid):
        return place
    if not _is_private(place, os.geteuid()):  # somebody else took the name
        place = Path(tempfile.mkdtemp(prefix="headwater-", dir=base))
    account.own(place)
    return place


def _is_private(folder: Path, uid: int) -> bool:
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == uid and stat.S_IMODE(facts.st_mode) == 0o700


def _fits(folder: Path) -> bool:
    path = str(folder / f".s.PGSQL.{PORT}")
    return len(os.fsencode(path)) <= _PATH_LIMIT and _PLAIN_PATH.fullmatch(path) is not None


def _takes_socket(folder: Path) -> bool:
    """Whether a socket can be made there: short enough, and a file system that has sockets."""
    if not _fits(folder):
        return False
    path = folder / ".probe"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(str(path))
        except OSError:
            return False
    path.unlink(missing_ok=True)
    return True
