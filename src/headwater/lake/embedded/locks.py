"""Locks between processes that vanish with the process that holds them.

They are `flock` locks: they belong to an *open file description*, which a forked child and an inherited
descriptor share. Three things follow, and the embedded server is built on them:

- a process that is killed releases its locks by itself, so nothing ever has to be declared stale;
- a program that inherits the descriptor keeps the lock for as long as it, or any child of it, lives;
- closing one copy of the descriptor releases nothing while another copy is open, so a forked child that
  exits takes nothing away from its parent.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Descriptors that only the running call needs. A child forked by another thread in that moment would keep
#: the lock for as long as it lives, so it closes its copies at once.
_only_here: set[int] = set()


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Lock `path` (made when missing) and return the descriptor; None when another one holds it.

    The descriptor is not inherited by programs that this process starts. Give it back with `release`.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _only_here.add(descriptor)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            release(descriptor)
            return None
        except OSError:
            release(descriptor)
            raise
        if is_same_file(descriptor, path):
            return descriptor
        # The folder was deleted between opening and locking: this lock is on a file that nobody else sees.
        release(descriptor)


def release(descriptor: int) -> None:
    """Close this process's copy of a lock; the lock ends with the last copy."""
    _only_here.discard(descriptor)
    with suppress(OSError):
        os.close(descriptor)


def keep_across_fork(descriptor: int) -> None:
    """Let forked children share this lock instead of dropping their copy."""
    _only_here.discard(descriptor)


@contextmanager
def locked(path: Path, deadline: float) -> Iterator[None]:
    """Hold `path` exclusively, waiting for it until `deadline` (of `time.monotonic`).

    Raises TimeoutError.
    """
    while (descriptor := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is held by another process")
        time.sleep(0.005)
    try:
        yield
    finally:
        # Unlock, not only close: a child forked right now may not have closed its copy yet.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        release(descriptor)


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the file that is open as `descriptor`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _close_in_child() -> None:
    for descriptor in list(_only_here):
        release(descriptor)


os.register_at_fork(after_in_child=_close_in_child)
