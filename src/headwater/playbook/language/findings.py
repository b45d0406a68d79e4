"""Mistakes of a playbook, each with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headwater.errors import PlaybookError
from headwater.playbook.language.document import Place


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: where, which sort (`code`), what, and what to do."""

    file: str
    line: int
    column: int
    code: str
    message: str
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"

    @property
    def place(self) -> str:
        """`file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Findings:
    """Collects mistakes; the same one is kept once."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def error(self, place: Place, code: str, message: str, hint: str | None = None) -> None:
        """Something that keeps the playbook from running."""
        self._found[Finding(place.file, place.line, place.column, code, message, hint)] = None

    def warning(self, place: Place, code: str, message: str, hint: str | None = None) -> None:
        """Something that is probably not meant."""
        self._found[Finding(place.file, place.line, place.column, code, message, hint, "warning")] = None

    def add(self, finding: Finding) -> None:
        """One that was found elsewhere."""
        self._found[finding] = None

    def sorted(self) -> tuple[Finding, ...]:
        """In the order in which they stand in the file."""
        return tuple(sorted(self._found, key=lambda one: (one.file, one.line, one.column, one.code)))


def refuse(findings: Sequence[Finding]) -> None:
    """Raise what was found, if there is an error among it."""
    errors = [one for one in findings if one.severity == "error"]
    if not errors:
        return
    first, *rest = errors
    raise PlaybookError(
        f"{first.place}: {first.message}",
        detail="\n".join(f"{one.place}: {one.message}" for one in rest) or None,
        hint=first.hint,
        file=first.file,
        line=first.line,
        column=first.column,
        findings=[one.as_dict() for one in errors],
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The hint for a name that does not exist: the nearest that does, or the few there are.

    >>> nearest("comand", ["command", "commands", "auth"])
    'Did you mean `command`?'
    >>> nearest("x", ["alpha", "beta"])
    'There are: alpha, beta.'
    """
    known = sorted(set(names))
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:  # `BATCH_IDS` for `batch_ids`
        near = [one for one in known if one.lower() == name.lower()]
    if near:
        return f"Did you mean `{near[0]}`?"
    return f"There are: {', '.join(known)}." if 0 < len(known) <= 24 else None
