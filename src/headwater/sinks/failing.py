"""A sink that fails is noted, warned of, and left alone for a while: longer each time."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from headwater.errors import HeadwaterError
from headwater.sinks.model import SinkState

log = logging.getLogger("headwater.sinks")

#: The first pause after a failure, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=5)


def pause(failures: int) -> timedelta:
    """How long a sink that failed so often in a row is left alone.

    >>> [pause(failures).total_seconds() for failures in (1, 2, 5, 50)]
    [1.0, 2.0, 16.0, 300.0]
    """
    doubled = 1 << max(0, min(failures - 1, 20))
    return min(FIRST_PAUSE * doubled, LONGEST_PAUSE)


def is_due(state: SinkState) -> bool:
    """Whether a sink may be tried."""
    return state.next_try_at is None or state.next_try_at <= datetime.now(UTC)


def failed(stream: str, state: SinkState, error: Exception) -> SinkState:
    """The state of a sink after another failure."""
    now = datetime.now(UTC)
    failures = state.failures + 1
    message = error.message if isinstance(error, HeadwaterError) else str(error).strip().split("\n")[0]
    detail = error.detail if isinstance(error, HeadwaterError) else None
    text = " ".join((f"{message} ({detail})" if detail else message).split())
    again = pause(failures)
    log.warning(
        "sink %s of %s failed (%d in a row), next try in %d s: %s",
        state.name,
        stream,
        failures,
        again.total_seconds(),
        text,
    )
    return replace(
        state,
        failures=failures,
        last_error=text[:2000],
        failing_since=state.failing_since or now,
        next_try_at=now + again,
    )
