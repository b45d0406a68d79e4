"""Whether a failed task is tried again, and when."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from headwater.playbook.language.model import Retry
from headwater.playbook.task import TaskError

#: Decides for an error whether `retry.when` holds.
Condition = Callable[[Mapping[str, Any]], bool]


def wait_before(retry: Retry, attempt: int) -> float:
    """Seconds to wait before an attempt, counted from 2; a little less at random, up to a quarter.

    >>> 0.75 <= wait_before(Retry(delay=1.0, backoff="exponential"), 2) <= 1.0
    True
    >>> 3.0 <= wait_before(Retry(delay=1.0, backoff="exponential"), 4) <= 4.0
    True
    """
    failures = attempt - 1
    factor = {"none": 1.0, "linear": float(failures), "exponential": 2.0 ** min(failures - 1, 30)}
    # What failed together should not return together.
    return min(retry.max_delay, retry.delay * factor[retry.backoff]) * random.uniform(0.75, 1.0)  # noqa: S311


def tried_again(retry: Retry | None, error: TaskError, attempt: int, holds: Condition) -> bool:
    """Whether there is another attempt after this one failed.

    `retry.when` decides where there is one; else only what can succeed the next time is tried again.
    """
    if retry is None or attempt >= retry.attempts:
        return False
    return holds(error.as_dict()) if retry.when is not None else error.retryable
