"""The timeout of a task that runs in the process of the flow, where nothing can be killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.errors import HeadwaterError
from headwater.playbook.results.failures import timeout_error
from headwater.playbook.task import TaskFailed

#: Seconds until what did not stop, or began anew, is told once more.
_AGAIN = 0.2


@contextmanager
def limited(stop: Callable[[], object], seconds: float | None) -> Iterator[None]:
    """Calls `stop` after a time, until what it stops has ended; if that failed, it was for the time."""
    if seconds is None:
        yield
        return
    done, rang = threading.Event(), threading.Event()

    def watch() -> None:
        wait: float = seconds
        while not done.wait(wait):
            rang.set()
            stop()
            wait = _AGAIN

    thread = threading.Thread(target=watch, name="headwater-timeout", daemon=True)
    thread.start()
    try:
        yield
    except (TaskFailed, HeadwaterError):
        if rang.is_set():
            raise timeout_error(seconds) from None
        raise
    finally:
        done.set()
        thread.join()
