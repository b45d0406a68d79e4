"""How long something that failed is left alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Backoff:
    """Doubling waits with a little chance in them, so that what failed together does not return together."""

    first: float = 1.0
    most: float = 300.0

    def wait(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        full = min(self.most, self.first * 2.0 ** min(failures - 1, 30))
        return full * random.uniform(0.75, 1.0)  # noqa: S311  (not a secret)


@dataclass
class Failures:
    """What failed, how often in a row, and when it may be tried again."""

    backoff: Backoff = field(default_factory=Backoff)
    _failed: dict[str, tuple[int, datetime, str]] = field(default_factory=dict)

    def failed(self, name: str, now: datetime, message: str) -> float:
        """Note a failure; returns the seconds until the next try."""
        count = self.count(name) + 1
        wait = self.backoff.wait(count)
        self._failed[name] = (count, now + timedelta(seconds=wait), message)
        return wait

    def succeeded(self, name: str) -> None:
        """Forget earlier failures."""
        self._failed.pop(name, None)

    def count(self, name: str) -> int:
        """Failures in a row."""
        return self._failed[name][0] if name in self._failed else 0

    def waits(self, name: str, now: datetime) -> bool:
        """Whether it is not to be tried yet."""
        return name in self._failed and self._failed[name][1] > now

    def names(self) -> list[str]:
        """What failed last time."""
        return list(self._failed)

    def message(self, name: str) -> str:
        """Why it failed."""
        return self._failed[name][2]

    def retry_at(self, name: str) -> datetime:
        """When it may be tried again."""
        return self._failed[name][1]
