"""Where in a text of SQL one is: between words, inside quotes, or inside a comment.

Follows the tokenisers of DuckDB, PostgreSQL and Spark as far as quotes and comments go. Where their reading
depends on more than that, the scanner says that it is `lost` instead of guessing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Dialect = Literal["duckdb", "postgres", "spark"]
State = Literal["sql", "text", "escaped text", "name", "line comment", "comment", "dollar"]

#: For people, of what has to be closed.
UNCLOSED: Mapping[State, str] = {
    "text": "a text in '…'",
    "escaped text": "a text in quotes",
    "name": "a name in quotes",
    "comment": "a comment /* … */",
    "dollar": "a text in $$…$$",
}

_WORD = r"A-Za-z0-9_$\u0080-\U0010ffff"
_TRAILING_WORD = re.compile(rf"[{_WORD}]*\Z")
_TAG = re.compile(r"\$(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)?\$")
_OPENING = re.compile(r"['\"`$]|--|/\*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_LINE_END = re.compile(r"[\r\n]")
_SPARK_LINE_END = re.compile(r"(?<!\\)\n|\r")  # a backslash takes the next line into the comment
_ESCAPE_OR_QUOTE = {quote: re.compile(rf"\\|{quote}") for quote in "'\""}


def in_word(char: str) -> bool:
    """Whether a character can be part of a word: a name, a keyword or a number.

    >>> in_word("a"), in_word("$"), in_word("-"), in_word("")
    (True, True, False, False)
    """
    return bool(char) and _TRAILING_WORD.match(char) is not None


class Scanner:
    """Follows a text of SQL piece by piece."""

    def __init__(self, dialect: Dialect):
        self.state: State = "sql"
        self.quote = ""
        """The quote that closes the text or the name that we are in."""
        self.last = ""
        """The last character."""
        self.sealed = False
        """We are in quotes in which a quote cannot be written: U&'…', Spark's r'…'."""
        self.dangling = False
        """The last character is a backslash that escapes the next one."""
        self.lost = False
        """What came before is read differently by different tokenisers."""
        self.opened = 0
        """Where, among all characters so far, the quote or comment that we are in begins."""
        self._length = 0
        self._text: tuple[State, bool] | None = None
        """The text in quotes that nothing but blanks and comments followed so far."""
        self._gap = ""
        """Those blanks, with `*` for a comment that does not end a line."""
        self._dialect = dialect
        self._word = ""
        """The word that the last piece ended in the middle of."""
        self._began = 0
        """Where in this piece the words after a text in $$…$$ begin: its own dollars belong to none."""
        self._depth = 0
        self._tag = ""

    @property
    def after_text(self) -> bool:
        """Whether a text in '…' would be taken as the continuation of another one."""
        return self.state == "sql" and self._text is not None

    def feed(self, text: str) -> None:
        """Go on over a piece of text. A token must not be cut between two pieces."""
        position = self._began = 0
        self.dangling = False
        while position < len(text):
            position = self._further(text, position)
        self._length += len(text)
        if text:
            self.last = text[-1]
            self._word = self._word_before(text, len(text))

    def _further(self, text: str, at: int) -> int:
        """The position of the next character whose meaning is open."""
        if self.state == "sql":
            return self._outside(text, at)
        if self.state == "line comment":
            self._gap += "\n"
            return self._until(text, at, _SPARK_LINE_END if self._dialect == "spark" else _LINE_END)
        if self.state == "comment":
            edge = _COMMENT_EDGE.search(text, at)
            if edge is None:
                return len(text)
            self._depth += 1 if edge[0] == "/*" else -1
            if self._depth == 0:
                self.state = "sql"
                self._gap += "*"
            return edge.end()
        if self.state == "dollar":
            return self._until(text, at, re.compile(re.escape(self._tag)))
        return self._quoted(text, at)

    def _until(self, text: str, at: int, end: re.Pattern[str]) -> int:
        found = end.search(text, at)
        if found is None:
            return len(text)
        if self.state == "dollar":
            self._began, self._word = found.end(), ""
        self.state = "sql"
        return found.end()

    def _quoted(self, text: str, at: int) -> int:
        if self.state == "escaped text" and not self.sealed:
            found = _ESCAPE_OR_QUOTE[self.quote].search(text, at)
            at = len(text) if found is None else found.start()
            if found is not None and found[0] == "\\":
                self.dangling = at + 1 == len(text)
                return at + 2
        else:
            at = text.find(self.quote, at)
        if at < 0 or at >= len(text):
            return len(text)
        if text.startswith(self.quote * 2, at) and not (self._dialect == "spark" and self.quote != "`"):
            return at + 2
        self._text = None if self.state == "name" else (self.state, self.sealed)
        self._gap = ""
        self.state = "sql"
        return at + 1

    def _outside(self, text: str, at: int) -> int:
        found = _OPENING.search(text, at)
        between = text[at : len(text) if found is None else found.start()]
        if between.strip():
            self._text = None
        self._gap += between
        if found is None:
            return len(text)
        at, mark = found.start(), found[0]
        self.opened = self._length + at
        if mark == "--":
            self.state = "line comment"
        elif mark == "/*":
            self.state, self._depth = "comment", 1
        elif mark == "$":
            return self._dollar(text, at)
        elif mark != "`" or self._dialect == "spark":
            self._open(self._word_before(text, at), text[max(at - 2, 0) : at], mark)
        return found.end()

    def _word_before(self, text: str, at: int) -> str:
        trailing = _TRAILING_WORD.search(text, self._began, at)
        word = trailing[0] if trailing else ""
        return self._word + word if len(word) == at else word

    def _dollar(self, text: str, at: int) -> int:
        self._text = None
        tag = _TAG.match(text, at)
        if self._dialect == "spark" or tag is None:
            return at + 1
        word = self._word_before(text, at)
        if not word:
            self.state, self._tag = "dollar", tag[0]
            return tag.end()
        # In a name a dollar is a letter; behind a number or a parameter it may begin a text.
        self.lost = self.lost or word[0].isdigit() or word[0] == "$"
        return at + 1

    def _open(self, word: str, before: str, quote: str) -> None:
        self.quote = quote
        continued, self._text = self._text, None
        self.lost = self.lost or word[:1].isdigit()  # `1e'…'`: 1 and e'…', or 1e and '…'
        prefix = word.lower()
        if self._dialect == "spark":
            self.state = "name" if quote == "`" else "escaped text"
            self.sealed = prefix == "r"
            return
        self.sealed = before.lower() == "u&"
        if quote == '"':
            self.state = "name"
        elif continued is not None and not prefix:
            # On a new line, '…' goes on with the text before it, and with what a backslash means there.
            self.lost = self.lost or "*" in self._gap or not re.search(r"[\r\n]", self._gap)
            self.state, self.sealed = continued
        else:
            self.state = "escaped text" if prefix == "e" else "text"


def unclosed(sql: str, dialect: Dialect = "duckdb") -> str | None:
    """What a text of SQL opens and never closes, if there is such a thing.

    >>> unclosed("SELECT 'a"), unclosed("SELECT 'a' -- isn't")
    ("a text in '…'", None)
    """
    scanner = Scanner(dialect)
    scanner.feed(sql)
    return UNCLOSED.get(scanner.state)
