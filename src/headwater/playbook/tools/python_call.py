"""`tool: python`: a function, or a few lines of code. It is the author's own program, and may do anything."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any, Literal

from headwater.playbook.results.failures import timeout_error
from headwater.playbook.results.json_values import json_value
from headwater.playbook.task import Task, TaskError, TaskFailed, Worker
from headwater.playbook.tools.callables import failed_call, find_callable


class PythonTool:
    """Calls a function, or runs code that assigns `result`."""

    kind = "python"
    where: Literal["worker", "driver"] = "worker"

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """The envelope's result is what the function returned, or what the code assigned to `result`."""
        arguments = {str(name): value for name, value in (task.fields.get("args") or {}).items()}
        # What it prints must not come between the lines of the command's own output.
        with redirect_stdout(sys.stderr), _limited(task.timeout):
            if task.fields.get("callable"):
                function = find_callable(str(task.fields["callable"]))
                with failed_call():
                    value = function(**arguments)
            else:
                value = _run_code(task, arguments)
        try:
            return {"status": "ok", "result": json_value(value)}
        except TypeError as error:
            raise TaskFailed(
                TaskError("python", "result", f"The result cannot be kept: {error}"),
                hint="Return texts, numbers, dates, lists and mappings.",
            ) from None


def _run_code(task: Task, arguments: dict[str, Any]) -> Any:
    names: dict[str, Any] = {"args": arguments, "result": None, "__name__": f"step {task.step}"}
    with failed_call(f"<step {task.step}>"):
        exec(compile(str(task.fields["code"]), f"<step {task.step}>", "exec"), names)  # noqa: S102  (the author's)
    return names.get("result")


class _TimeIsUp(BaseException):
    """Not an Exception: code that catches those goes on for ever otherwise."""


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Stops what is inside after a time; where signals do not reach, whoever runs the worker stops it."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    except _TimeIsUp:
        raise timeout_error(seconds) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


TOOL = PythonTool()
