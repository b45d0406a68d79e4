"""Random decisions that can be repeated, and cut down to the few that make a test fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A stream of small numbers: from a seed, or given, and then zeros.

    Every generator takes its simplest way at 0, so fewer and smaller numbers mean a simpler case.
    """

    def __init__(self, seed: int | str | None = None, given: Sequence[int] | None = None):
        self._chance = random.Random(seed) if given is None else None
        self._given = list(given or ())
        self.made: list[int] = []

    def below(self, bound: int) -> int:
        """A number from 0 up to, but without, the bound."""
        if self._chance is not None:
            value = self._chance.randrange(bound)
        else:
            place = len(self.made)
            value = self._given[place] % bound if place < len(self._given) else 0
        self.made.append(value)
        return value

    def one(self, options: Sequence[T]) -> T:
        """One of several, the first at 0."""
        return options[self.below(len(options))]

    def some(self, options: Sequence[T], least: int = 0) -> list[T]:
        """Some of several, in order, none of them twice."""
        found = [each for each in options if self.chance(2)]
        return found if len(found) >= least else list(options[:least])

    def chance(self, of: int) -> bool:
        """True once in so many times; false at 0."""
        return self.below(of) == of - 1


def shrunk(made: Sequence[int], fails: Callable[[list[int]], bool], tries: int = 400) -> list[int]:
    """Fewer and smaller numbers for which the test still fails."""
    best = list(made)
    left = tries
    improved = True
    while improved and left > 0:
        improved = False
        size = max(1, len(best) // 2)
        while size and left > 0:
            place = 0
            while place < len(best) and left > 0:
                for other in _simpler(best, place, size):
                    left -= 1
                    if other != best and fails(other):
                        best, improved = other, True
                        break
                else:
                    place += size
            size //= 2
    return best


def _simpler(made: list[int], place: int, size: int) -> list[list[int]]:
    before, chunk, after = made[:place], made[place : place + size], made[place + size :]
    found = [before + after, before + [0] * len(chunk) + after]
    if size == 1 and chunk[0] > 1:
        found.append([*before, chunk[0] // 2, *after])
    return [one for one in found if (len(one), sum(one)) < (len(made), sum(made))]
