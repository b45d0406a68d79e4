"""Start one PostgreSQL program as a user that PostgreSQL accepts.

Run as a script in an interpreter of its own, because changing the user and leaving the terminal is safe only
in a process without other threads:

    python -I -S launch.py [OPTION…] -- PROGRAM ARGUMENT…

`--map UID`        be UID in a new user namespace; outside of it the process and its files keep their owner.
`--become UID GID` give up root and be that user.
`--reach FOLDER`   stop with exit code 72 unless that user can enter FOLDER.
`--detach LOG`     run in the background: no terminal, no pipes, no parent; output is appended to LOG.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

CANNOT_CHANGE_USER = 71
CANNOT_REACH = 72
CANNOT_EXECUTE = 73

_CLONE_NEWUSER = 0x10000000


def _map_user(uid: int) -> None:
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError("this system has no user namespaces")
    if libc.unshare(_CLONE_NEWUSER) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot make a user namespace: {os.strerror(error)}")
    # The kernel lets a process map its own group only after it gave up setgroups().
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outside_uid} 1"),
        ("gid_map", f"{uid} {outside_gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def _become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _detach(log: int) -> None:
    if os.fork():
        os._exit(0)  # the program is now a child of init, which buries it when it ends
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)


def main(arguments: list[str]) -> int:
    """Do what the command line says; returns only when the program could not be started."""
    log: int | None = None
    change: tuple[int, ...] = ()
    folder: str | None = None
    while (option := arguments.pop(0)) != "--":
        if option == "--map":
            change = (int(arguments.pop(0)),)
        elif option == "--become":
            change = (int(arguments.pop(0)), int(arguments.pop(0)))
        elif option == "--reach":
            folder = arguments.pop(0)
        elif option == "--detach":
            # Opened before the user changes, who may not be able to enter the log's folder.
            log = os.open(arguments.pop(0), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if len(change) == 1:
            _map_user(*change)
        elif change:
            _become(*change)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_CHANGE_USER
    if folder is not None and not os.access(folder, os.X_OK):
        sys.stderr.write(f"uid {os.getuid()} cannot enter {folder}\n")
        return CANNOT_REACH
    os.umask(0o077)
    os.chdir("/")
    # Python ignores these two; the server's own children must not inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if log is not None:
        _detach(log)
    try:
        os.execv(arguments[0], arguments)  # noqa: S606 - a fixed argument list, no shell wanted
    except OSError as error:
        sys.stderr.write(f"cannot run {arguments[0]}: {error.strerror}\n")
    return CANNOT_EXECUTE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
