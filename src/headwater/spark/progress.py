"""A line that says how far long work is, for people who wait in front of a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from pyspark import SparkContext

#: Work that is done sooner needs no line.
_PATIENCE = 2.0
_EVERY = 0.5
_CLEAR = "\r\x1b[K"


@contextmanager
def progress(context: SparkContext, what: str, stream: TextIO | None = None) -> Iterator[None]:
    """Show the tasks of Spark that are done meanwhile; nothing where nobody looks."""
    out = sys.stderr if stream is None else stream
    if not out.isatty():
        yield
        return
    done = threading.Event()
    shown = threading.Thread(
        target=_show, args=(context, what, out, done), name="headwater-progress", daemon=True
    )
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _show(context: SparkContext, what: str, out: TextIO, done: threading.Event) -> None:
    if done.wait(_PATIENCE):
        return
    while True:
        out.write(f"{_CLEAR}{what}: {_state(context)}")
        out.flush()
        if done.wait(_EVERY):
            break
    out.write(_CLEAR)
    out.flush()


def _state(context: SparkContext) -> str:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return "planning and committing"
    total = sum(stage.numTasks for stage in known)
    finished = sum(stage.numCompletedTasks for stage in known)
    return f"{finished} of {total} tasks ({known[0].name.split(' at ')[0]})"
