"""A worker process: `python -m headwater.playbook.runners.process FD`, started by `LocalRunner`.

Not `multiprocessing`'s own: that imports the caller's main module again, which a script or a notebook need
not survive.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection

from headwater.playbook.runners.dispatch import CHANNEL_ENDED
from headwater.playbook.runners.worker import TaskWorker


def serve(descriptor: int) -> None:
    """Do tasks until the other end of the socket is closed."""
    # Ctrl-C reaches every process of the terminal; the flow decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    channel = Connection(descriptor)
    threading.Thread(target=_watch, args=(descriptor,), daemon=True).start()
    with contextlib.suppress(*CHANNEL_ENDED):
        name, path = channel.recv()
        sys.path[:] = path
        worker = TaskWorker(name)
        while True:
            task, opened = channel.recv()
            channel.send(worker.work(task, opened))


def _watch(descriptor: int) -> None:
    """End with the flow, also in the middle of a task: a run that is resumed would do it again beside us."""
    ended = select.poll()
    ended.register(descriptor, select.POLLHUP | getattr(select, "POLLRDHUP", 0))
    ended.poll()
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
