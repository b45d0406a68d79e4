"""What `headwater play` shows meanwhile: a live line on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from headwater.playbook.records.events import Event

#: Seconds between two lines about a loop where there is no terminal.
_BETWEEN_LINES = 5.0


class PlayDisplay:
    """Listens to a run."""

    def __init__(self, file: IO[str], console: Console | None, status: Status | None, quiet: bool):
        self._file = file
        self._console = console
        self._status = status
        self._quiet = quiet
        self._items = 0
        self._failed = 0
        self._last = time.monotonic()

    @classmethod
    @contextmanager
    def opened(cls, file: IO[str], *, quiet: bool) -> Iterator[Self]:
        """A display for the time of a block."""
        if quiet or not file.isatty():
            yield cls(file, None, None, quiet)
            return
        from rich.console import Console

        console = Console(file=file, highlight=False, markup=False, emoji=False)
        with console.status("starting") as status:
            yield cls(file, console, status, quiet)

    def __call__(self, event: Event) -> None:
        """Something happened."""
        if self._quiet:
            return
        data = event.data
        if event.name == "step.enter":
            self._items = self._failed = 0
            self._now(f"{event.step} …", f"step {event.step}" + _said(data.get("desc")))
        elif event.name == "loop.item":
            self._items += 1
            self._failed += data.get("status") == "failed"
            self._loop(str(event.step))
        elif event.name == "retry":
            place = event.step if event.item is None else f"{event.step}[{event.item}]"
            self._line(f"  retry {place} in {data.get('seconds', 0):.1f} s: {data.get('error')}")
        elif event.name == "step.exit":
            items = f", {_items(self._items)}" if self._items else ""
            self._line(f"  done {event.step} in {data.get('seconds', 0) or 0:.2f} s{items}")
        elif event.name == "step.failed":
            self._line(f"  failed {event.step}: {data.get('error')}")

    def note(self, text: str) -> None:
        """Something to know, whatever the form of the output."""
        print(text, file=self._file, flush=True)

    def _loop(self, step: str) -> None:
        failed = f", {self._failed:,} failed" if self._failed else ""
        text = f"{step}: {_items(self._items)}{failed}"
        if self._status is not None:
            self._status.update(text)
        elif time.monotonic() - self._last > _BETWEEN_LINES:
            self._last = time.monotonic()
            self._line(f"  {text}")

    def _now(self, live: str, plain: str) -> None:
        if self._status is not None:
            self._status.update(live)
        else:
            self._line(plain)

    def _line(self, text: str) -> None:
        if self._console is not None:
            self._console.print(text, soft_wrap=True)
        else:
            print(text, file=self._file, flush=True)


def _items(count: int) -> str:
    return f"{count:,} item" + ("" if count == 1 else "s")


def _said(text: Any) -> str:
    return f": {text}" if text else ""
