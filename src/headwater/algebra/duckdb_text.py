"""DuckDB's SQL as text: words and where they stand, statements, and edits that remember where things were.

Quotes, dollar quotes and nested comments are read as DuckDB's own lexer reads them. Nothing is parsed: what
is not touched reaches DuckDB as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from headwater.algebra.building.places import error_at
from headwater.typedefs import KEYWORDS

WordKind = Literal["word", "quoted", "text", "number", "sign"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n\r]*)
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<number>\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?|\.\d[\d_]*(?:[eE][+-]?\d+)?)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<sign>=>|::|->>|->|:=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())
#: Words that may follow a table and are no alias of it, beside those that are reserved.
_NO_ALIASES = frozenset(("set", "sample", "using", "when", "pivot", "unpivot", "values", "at", "for"))


class Word(NamedTuple):
    """A word, a text in quotes, a number or a sign of an SQL text."""

    text: str
    """As it is written."""
    start: int
    end: int
    """The first character after it."""
    kind: WordKind
    depth: int
    """How many brackets are open around it; a bracket itself stands outside."""

    def reads(self, *texts: str) -> bool:
        """Whether it is one of these, unquoted, in any case."""
        return self.kind != "quoted" and self.kind != "text" and self.text.upper() in texts

    @property
    def name(self) -> str:
        """What it names: a quoted name without its quotes."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text

    @property
    def is_name(self) -> bool:
        """Whether it can name something without being understood as anything else."""
        return self.kind == "quoted" or (self.kind == "word" and self.text.lower() not in KEYWORDS)

    @property
    def content(self) -> str:
        """What a plain text in quotes says."""
        return self.text[1:-1].replace("''", "'")


def words(sql: str) -> list[Word]:
    """The words of an SQL text; comments are left out. Raises `QueryError` for quotes that never end."""
    found: list[Word] = []
    depth = place = 0
    size = len(sql)
    match = _TOKEN.match
    while place < size:
        token = match(sql, place)
        if token is None:
            raise _unfinished(sql, place)
        kind = token.lastgroup
        start, place = place, token.end()
        if kind == "space":
            continue
        if kind == "comment":
            place = _after_comment(sql, start)
            continue
        text = token.group()
        if kind == "sign":
            if text in "'\"":
                raise _unfinished(sql, start)
            if text in _CLOSING:
                depth = max(0, depth - 1)
            found.append(Word(text, start, place, "sign", depth))
            depth += text in _OPENING
        else:
            found.append(Word(text, start, place, "text" if kind == "tag" else kind, depth))  # type: ignore[arg-type]
    return found


def _after_comment(sql: str, start: int) -> int:
    """Where a comment that begins at `start` ends; comments may hold others."""
    depth = 0
    for mark in _COMMENT.finditer(sql, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise _unfinished(sql, start)


def _unfinished(sql: str, place: int) -> Exception:
    return error_at(sql, place, place, "A quote or a comment begins here and never ends.")


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a text."""

    text: str
    start: int
    words: tuple[Word, ...]
    """Their places are those in `text`."""


def statements(sql: str) -> list[Piece]:
    """The statements of a text, without the semicolons between them."""
    found: list[Piece] = []
    current: list[Word] = []
    for word in [*words(sql), None]:
        if word is not None and word.text != ";":
            current.append(word)
            continue
        if current:
            start, end = current[0].start, current[-1].end
            if start:
                current = [Word(w.text, w.start - start, w.end - start, w.kind, w.depth) for w in current]
            found.append(Piece(sql[start:end], start, tuple(current)))
        current = []
    return found


@dataclass(frozen=True, slots=True)
class Edit:
    """Other words in the place of some."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A text after edits, which knows where its characters were before."""

    text: str
    edits: tuple[Edit, ...] = ()

    def origin(self, position: int) -> int:
        """Where a character of the edited text was; inside an edit, where the edit begins."""
        moved = 0
        for edit in self.edits:
            begins = edit.start + moved
            if position < begins:
                break
            if position < begins + len(edit.text):
                return edit.start
            moved += len(edit.text) - (edit.end - edit.start)
        return position - moved


def edited(sql: str, edits: Iterable[Edit]) -> Edited:
    """A text with edits, which must not overlap."""
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    parts, place = [], 0
    for edit in ordered:
        parts += [sql[place : edit.start], edit.text]
        place = edit.end
    return Edited("".join([*parts, sql[place:]]), tuple(ordered))


def sees(found: Sequence[Word], place: int, *texts: str) -> bool:
    """Whether these words stand at a place, unquoted."""
    ahead = found[place : place + len(texts)]
    return len(ahead) == len(texts) and all(word.reads(text) for word, text in zip(ahead, texts, strict=True))


def closing(found: Sequence[Word], place: int) -> int:
    """Where the bracket at a place is closed; the last word if it never is."""
    depth = found[place].depth
    for number in range(place + 1, len(found)):
        if found[number].depth == depth and found[number].text in _CLOSING:
            return number
    return len(found) - 1


def separated(found: Sequence[Word], start: int, end: int) -> list[tuple[int, int]]:
    """The parts between commas of what stands between two places, without the second."""
    parts, first = [], start
    for number in range(start, end):
        if found[number].text == "," and found[number].depth == found[start].depth:
            parts.append((first, number))
            first = number + 1
    return [*parts, (first, end)] if first < end or parts else []


def dotted_name(found: Sequence[Word], place: int) -> tuple[tuple[str, ...], int]:
    """A name of parts with dots between them, and the place after it; no parts where none stands there."""
    parts: list[str] = []
    while place < len(found) and found[place].kind in ("word", "quoted"):
        parts.append(found[place].name)
        place += 1
        if not (place < len(found) and found[place].text == "."):
            break
        place += 1
    return tuple(parts), place


def may_alias(word: Word) -> bool:
    """Whether a word after a table can be its alias."""
    return word.is_name and (word.kind == "quoted" or word.text.lower() not in _NO_ALIASES)


__all__ = [
    "Edit",
    "Edited",
    "Piece",
    "Word",
    "closing",
    "dotted_name",
    "edited",
    "may_alias",
    "sees",
    "separated",
    "statements",
    "words",
]
