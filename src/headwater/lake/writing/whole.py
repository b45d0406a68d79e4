"""Operations of a transaction happen as a whole or not at all.

Somebody may catch the error of one operation and commit the others. What the failed one had done until then
(rows removed whose replacements were never added, a table dropped to be replaced) must not be committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Owner = TypeVar("Owner", bound="WholeOperations")


class WholeOperations(ABC):
    """Something whose operations can be undone while they run."""

    @abstractmethod
    def _whole(self) -> AbstractContextManager[None]:
        """Undo everything done inside if it ends with an exception."""


def whole(
    operation: Callable[Concatenate[Owner, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """An operation that leaves nothing behind when it fails."""

    @wraps(operation)
    def run(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with self._whole():
            return operation(self, *args, **kwargs)

    return run
