"""How results and errors are printed: one interface, as text or as JSON.

A command returns a `Result`: plain data for JSON, and the same as lines and grids for people.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

#: What a style means, in rich's words. Colour never says anything that the text does not.
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "dim": "dim", "bold": "bold"}
#: Wide enough never to wrap or cut what goes into a file or a pipe.
_NO_LIMIT = 1 << 15


@dataclass(frozen=True)
class Line:
    """A line of text; `parts` are (text, style)."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str = "", style: str = "") -> Line:
        """A line in one style."""
        return cls(((text, style),))


@dataclass(frozen=True)
class Grid:
    """Rows under a header. Columns in `right` are aligned to the right, as numbers are."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


Block = Line | Grid


class Result(Protocol):
    """What a command returns."""

    @property
    def exit_code(self) -> int:
        """0, or 1 where the command ran but what it found is a failure."""

    def as_dict(self) -> Mapping[str, Any]:
        """The result as plain data, for JSON."""

    def blocks(self) -> Iterable[Block]:
        """The result for people."""


class Output(ABC):
    """Prints results to standard output and errors to standard error."""

    @abstractmethod
    def show(self, result: Result) -> None:
        """Print a result."""

    @abstractmethod
    def fail(self, error: Mapping[str, Any]) -> None:
        """Print an error: `code`, `message`, `detail`, `hint` and facts."""


class JsonOutput(Output):
    """One JSON document."""

    def show(self, result: Result) -> None:
        """Print a result."""
        print(_json(result.as_dict()))

    def fail(self, error: Mapping[str, Any]) -> None:
        """Print an error as `{"error": …}`."""
        print(_json({"error": error}), file=sys.stderr)


class TextOutput(Output):
    """Lines and grids; colours only on a terminal."""

    def show(self, result: Result) -> None:
        """Print a result."""
        console = _console(sys.stdout)
        for block in result.blocks():
            if isinstance(block, Line):
                console.print(_styled(block), soft_wrap=True)
            else:
                _print_grid(console, block)

    def fail(self, error: Mapping[str, Any]) -> None:
        """Print what happened, why, and what to do."""
        console = _console(sys.stderr)
        title = Line(((f"error[{error['code']}]", "fail"), (f": {error['message']}", "")))
        console.print(_styled(title), soft_wrap=True)
        for label, field in (("why", "detail"), ("do", "hint")):
            if error.get(field):
                first, *rest = str(error[field]).splitlines()
                console.print(f"  {label + ':':<5}{first}", soft_wrap=True, markup=False)
                for line in rest:
                    console.print(f"       {line}", soft_wrap=True, markup=False)


def open_output(form: str) -> Output:
    """The output for `--output`."""
    return JsonOutput() if form == "json" else TextOutput()


def _console(file: IO[str]) -> Console:
    from rich.console import Console

    console = Console(file=file, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console = Console(file=file, highlight=False, emoji=False, markup=False, width=_NO_LIMIT)
    return console


def _styled(line: Line) -> Any:
    from rich.text import Text

    return Text.assemble(*((text, STYLES.get(style, "")) for text, style in line.parts))


def _print_grid(console: Console, grid: Grid) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, name in enumerate(grid.header):
        table.add_column(name, justify="right" if place in grid.right else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.out(line.rstrip())


@contextmanager
def progress(text: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show on a terminal what takes long, while it does; otherwise nothing."""
    if quiet or not sys.stderr.isatty():
        yield Progress(None)
        return
    with _console(sys.stderr).status(text) as status:
        yield Progress(status)


class Progress:
    """Takes the news of something that takes long."""

    def __init__(self, status: Any):
        self._status = status

    def __call__(self, what: str, done: int = 0, total: int | None = None) -> None:
        """`what` is going on; `done` of `total` if that is known."""
        if self._status is not None:
            count = "" if total is None else f" {done:,} of {total:,}"
            self._status.update(what + count)


def plain(value: Any) -> Any:
    """A value in JSON's terms."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a table's name
        return str(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


def moment(value: datetime) -> str:
    """A time for people, in UTC."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """Bytes for people.

    >>> size(1536), size(3)
    ('1.5 KiB', '3 B')
    """
    if count < 1024:
        return f"{count} B"
    power = min(4, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {'KMGT'[power - 1]}iB"
