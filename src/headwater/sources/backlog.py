"""A backlog that is too much for one batch, cut between transactions.

A position is the set of transactions that are in it, written as PostgreSQL writes snapshots. Transactions
are taken in the order in which they made their last change: one that built on what another committed made a
change after that, so nothing is ever taken without what it builds on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Transactions:
    """Those that a snapshot of PostgreSQL has: all before the end, but for the ones that were running."""

    end: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Transactions:
        """Read PostgreSQL's `xmin:xmax:xip_list`."""
        _, end, running = text.split(":")
        return cls(int(end), frozenset(int(xid) for xid in running.split(",") if xid))

    def __contains__(self, xid: int) -> bool:
        return xid < self.end and xid not in self.running

    def __str__(self) -> str:
        running = sorted(self.running)
        return f"{running[0] if running else self.end}:{self.end}:{','.join(map(str, running))}"


def end_with(before: str, taken: Collection[int]) -> int:
    """Where a position ends that has some more transactions than the one `before`."""
    return max(Transactions.of(before).end, max(taken) + 1)


def with_taken(before: str, now: str, taken: Collection[int], waiting: Iterable[int]) -> str:
    """The position `before` with some more transactions of what is there `now`.

    `waiting` are the others before its end that are there now and were not before.
    """
    end = end_with(before, taken)
    absent = (xid for xid in (*Transactions.of(now).running, *waiting) if xid < end and xid not in taken)
    return str(Transactions(end, frozenset(absent)))
