"""Two ways to do one thing, timed in turns.

Machines are noisy, and noisier from one minute to the next than from one second to the next. So both sides
run in every round, the order changes from round to round, and what counts is the median of the rounds'
ratios, not the ratio of two sums.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True)
class Result:
    """One line of the report. Seconds of each round, ours and theirs, and the ratio that is promised."""

    name: str
    against: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    target: float | None = None
    """The ratio that must not be exceeded; None where the line is only for information."""
    unit: str = "s"
    """What `ours` and `theirs` are counted in: seconds, or `B` for bytes."""

    @property
    def ratios(self) -> list[float]:
        return [one / other for one, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def ok(self) -> bool | None:
        return None if self.target is None else self.ratio <= self.target

    def as_dict(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "against": self.against,
            **{
                f"{who}_{'seconds' if self.unit == 's' else 'bytes'}": median(values)
                for who, values in (("ours", self.ours), ("theirs", self.theirs))
            },
            "ratio": self.ratio,
            "ratio_min": min(self.ratios),
            "ratio_max": max(self.ratios),
            "rounds": len(self.ours),
            "target": self.target,
            "ok": self.ok,
        }


def seconds(work: Work, best_of: int = 1) -> float:
    """How long one run takes. Garbage of what ran before is collected first, on nobody's account."""
    gc.collect()
    taken = []
    for _ in range(best_of):
        start = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - start)
        del result
    return min(taken)


def in_turns(
    works: list[Work], rounds: int, *, warm_up: int = 1, best_of: int = 1
) -> list[tuple[float, ...]]:
    """Seconds of every work in every round, in the order of `works`; the first to run changes each round.

    Works of a few milliseconds suffer most from whatever else the machine does; `best_of` repeats a work
    within its turn and keeps the fastest.
    """
    found: list[list[float]] = [[] for _ in works]
    for number in range(-warm_up, rounds):
        order = list(range(len(works)))
        shift = number % len(works)
        for place in order[shift:] + order[:shift]:
            elapsed = seconds(works[place], best_of)
            if number >= 0:
                found[place].append(elapsed)
    return [tuple(times) for times in found]
