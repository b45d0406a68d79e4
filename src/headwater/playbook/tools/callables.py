"""Functions that steps name as `module:function`, and what becomes of their errors."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.errors import HeadwaterError
from headwater.playbook.task import TaskError, TaskFailed


def find_callable(name: str) -> Callable[..., Any]:
    """The function of that name; modules are found as Python finds them, the playbook's folder included."""
    module_name, separator, path = name.partition(":")
    if not separator or not module_name or not path:
        raise TaskFailed(
            TaskError("field", "callable", f"{name!r} does not name a function."),
            hint="Write module:function.",
        )
    with failed_call():
        found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise TaskFailed(
                TaskError("python", "AttributeError", f"Module {module_name!r} has no function {path!r}.")
            )
        found = getattr(found, part)
    if not callable(found):
        raise TaskFailed(TaskError("python", "TypeError", f"{name!r} is not a function."))
    return found  # type: ignore[no-any-return]


@contextmanager
def failed_call(file: str | None = None) -> Iterator[None]:
    """Whatever the code of a playbook's author raises inside is an error of the task.

    `file` is the name under which its lines are known; the error says which of them it was.
    """
    try:
        yield
    except TaskFailed:
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except SystemExit as error:
        raise TaskFailed(TaskError("python", "SystemExit", f"The code ended with {error.code}.")) from None
    except HeadwaterError as error:
        message = f"{error.message} {error.detail}" if error.detail else error.message
        raise TaskFailed(TaskError("python", error.code, message, error.retryable), hint=error.hint) from None
    except Exception as error:  # noqa: BLE001  (code of the playbook's author may raise anything)
        retryable = isinstance(error, ConnectionError | TimeoutError)
        raise TaskFailed(
            TaskError(
                "python",
                type(error).__name__,
                f"{type(error).__name__}: {error}{_line(error, file)}",
                retryable,
            )
        ) from None


def _line(error: BaseException, file: str | None) -> str:
    if isinstance(error, SyntaxError) and error.filename == file:
        return ""  # its own text has the line
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" (line {lines[-1]})" if lines else ""
