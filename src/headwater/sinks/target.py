"""What every target of a delivery says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from headwater.sinks.result import Result


@dataclass(frozen=True)
class Applied:
    """What one transaction in a target did."""

    outcome: Literal["changes", "everything", "nothing"]
    rows_inserted: int = 0
    rows_deleted: int = 0
    #: The number of the next row of a log.
    sequence: int = 0


class Target(Protocol):
    """A place outside the lake that takes results."""

    def deliver(self, result: Result) -> Applied:
        """Bring the place to a result, in one transaction that remembers it."""

    def withdraw(self, lake_id: str, stream_id: str) -> None:
        """Remove what the sink no longer needs."""
