"""Whether a process that held a run is still there, as far as that can be told from here.

Process ids mean something only where they were given: on the same machine since the same start of it, and in
the same container. Of processes elsewhere nobody here can tell; their leases run out.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_GONE = ""


def this_process() -> str:
    """What tells this process from every other one, now and later."""
    return f"{_where()} {os.getpid()} {_started(os.getpid())}"


def known_to_be_gone(process: str) -> bool:
    """Whether a process was one of those that can be seen from here, and has ended.

    >>> known_to_be_gone(this_process()), known_to_be_gone("elsewhere 1 1")
    (False, False)
    """
    where, _, rest = process.partition(" ")
    pid, _, started = rest.partition(" ")
    return where == _where() and pid.isdecimal() and _started(int(pid)) != started


def _where() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return socket.gethostname().replace(" ", "")


def _started(pid: int) -> str:
    """When a process began, since ids are given again. Empty for one that has ended."""
    try:
        # Its name, in parentheses, may hold anything; what follows the last one has no spaces inside.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return _GONE if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return _GONE
    except (ProcessLookupError, IndexError):
        return _GONE
    import psutil  # late: Linux does not need it

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return _GONE
