"""The words of a statement, read one after the other, with errors that point at them.

Statements are read as sqlglot's tokens, so that comments, quotes and escapes are those of Spark's SQL. What
errors show is the statement without the passwords that are in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.building.places import error_at

#: What no error may show: values of options that hold addresses or keys, and passwords in any address.
_SECRETS = (
    re.compile(
        r"(?:dsn|catalog|secret\w*|password)\b[`\"]?\s*=\s*(?P<quote>['\"])(?P<secret>.*?)(?:(?P=quote)|\Z)",
        re.IGNORECASE | re.DOTALL,
    ),
    re.compile(r"://[^\s'\":/@]*:(?P<secret>[^\s'\"]*)@"),
    re.compile(r"\bpassword\s*=\s*(?P<secret>[^\s'\"]+)", re.IGNORECASE),
)
#: Where a text that is never closed may begin.
_OPENING = re.compile(r"['\"`]|/\*")
_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "(")
CLAUSES = ("SCHEDULE", "REFRESH MODE", "WITH", "AS")
#: Words that would be taken for a name where the name is forgotten.
_NO_NAMES = ("AS", "SET", "WITH", "SELECT", "IF")
BACKTICKS = "Names with other than letters, digits and _ need `backticks`."


@dataclass(frozen=True)
class Place:
    """Where something stands: its first and last character in the text."""

    start: int
    end: int


@dataclass(frozen=True)
class Given:
    """An option as it is written; the value is None for NULL."""

    name: str
    value: str | None
    place: Place


def without_secrets(text: str) -> str:
    """A statement as it may be shown: passwords are as many stars, so that all places stay.

    >>> without_secrets("SET (postgres_sink_dsn = 'host=a', x = 'postgresql://me:pw@host/db')")
    "SET (postgres_sink_dsn = '******', x = 'postgresql://me:**@host/db')"
    """
    for pattern in _SECRETS:
        for found in list(pattern.finditer(text)):
            start, end = found.span("secret")
            text = text[:start] + "*" * (end - start) + text[end:]
    return text


class _Tokenizer(Spark.Tokenizer):
    """Spark's, but EXPLAIN and SHOW are words like all others; theirs swallow the rest of the statement."""

    COMMANDS: ClassVar[set[TokenType]] = set()


def tokens_of(text: str) -> tuple[list[Token], int | None]:
    """The tokens of a text, and where a quote or comment begins that is never closed."""
    try:
        return _Tokenizer().tokenize(text), None
    except TokenError:
        # The text before the place is in order, the text before any later one is not.
        for place in reversed([match.start() for match in _OPENING.finditer(text)]):
            try:
                return _Tokenizer().tokenize(text[:place]), place
            except TokenError:
                continue
    return [], 0


@dataclass
class StatementReader:
    """Takes one token after the other."""

    #: As errors show it.
    text: str
    tokens: list[Token]
    position: int = 0
    #: As it is.
    source: str = ""
    _given: dict[str, Given] = field(default_factory=dict)

    @property
    def next(self) -> Token | None:
        """The token to be taken."""
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def sees(self, *words: str) -> bool:
        """Whether these words come next, unquoted."""
        ahead = self.tokens[self.position : self.position + len(words)]
        return len(ahead) == len(words) and all(
            token.text.upper() == word and not _quoted(self.text, token)
            for token, word in zip(ahead, words, strict=True)
        )

    def sees_any(self, words: Iterable[str]) -> bool:
        """Whether one of these words comes next, unquoted."""
        return any(self.sees(word) for word in words)

    def takes(self, *words: str) -> bool:
        """Take these words if they come next."""
        found = self.sees(*words)
        self.position += len(words) if found else 0
        return found

    def needs(self, *words: str) -> None:
        """Take these words, or fail."""
        for word in words:
            if not self.takes(word):
                self.fail(word)

    def fail(self, *expected: str, hint: str | None = None) -> NoReturn:
        """Raise an error that says what could have stood here."""
        wanted = " or ".join([", ".join(expected[:-1])] * (len(expected) > 1) + [expected[-1]])
        token = self.next
        if token is None or token.token_type is TokenType.SEMICOLON:
            place = len(self.text.rstrip()) if token is None else token.start
            self.fail_at(place, place, f"Expected {wanted}, but the statement ends here.", hint)
        self.fail_at(
            token.start,
            token.end,
            f"Expected {wanted}, found {self.text[token.start : token.end + 1]}.",
            hint,
        )

    def fail_at(self, start: int, end: int, message: str, hint: str | None = None) -> NoReturn:
        """Raise an error about a place."""
        raise error_at(self.text, start, end, message, hint=hint)

    def name(self) -> tuple[str, ...]:
        """A name of parts with dots between them, quoted or not."""
        parts = [self._part()]
        while self.takes("."):
            parts.append(self._part())
        if len(parts) > 3:
            last = self.tokens[self.position - 1]
            self.fail_at(last.start, last.end, "A name has a schema and a name, here are more parts.")
        follower = self.next
        if follower is not None and follower.token_type is TokenType.DASH:
            self.fail("the end of the name", hint=BACKTICKS)
        return tuple(parts)

    def word(self) -> str:
        """A name of one part."""
        return self._part()

    def _part(self) -> str:
        token = self.next
        if token is None or not _names(self.text, token) or self.sees_any(_NO_NAMES):
            self.fail("a name", hint=BACKTICKS)
        self.position += 1
        return token.text

    def option(self, name: str, token: Token, value: str | None) -> None:
        """Note an option."""
        place = Place(token.start, token.end)
        if name.lower() in self._given:
            self.fail_at(token.start, token.end, f"{name} is given twice.")
        self._given[name.lower()] = Given(name.lower(), value, place)

    def options(self) -> None:
        """(name = value, …)"""
        self.needs("(")
        while not self.takes(")"):
            token = self.next
            if token is None or not _names(self.text, token):
                self.fail("the name of an option", hint="Write (name = 'value', …).")
            self.position += 1
            self.needs("=")
            self.option(token.text, token, self.value())
            if not self.takes(",") and not self.sees(")"):
                self.fail(",", ")")

    def value(self) -> str | None:
        """A text, a number or a word; None for NULL."""
        token = self.next
        sign = "-" if self.takes("-") else ""
        token = self.next
        if token is None:
            self.fail("a value")
        if token.token_type is TokenType.STRING and not sign:
            self.position += 1
            return token.text
        plain = token.token_type is TokenType.NUMBER or (not sign and _names(self.text, token))
        if not plain or _quoted(self.text, token):
            self.fail("a value", hint="Write a text in quotes, a number or a word.")
        self.position += 1
        if token.token_type is TokenType.NULL:
            return None
        return sign + token.text

    def given(self) -> tuple[Given, ...]:
        """All options."""
        return tuple(self._given.values())

    def query(self) -> tuple[str, Place]:
        """What follows AS."""
        first = self.next
        if first is None or first.text.upper() not in _QUERY or _quoted(self.text, first):
            self.fail("a query", hint="A stream table is made of one SELECT (or WITH … SELECT).")
        while self.next is not None and self.next.token_type is not TokenType.SEMICOLON:
            self.position += 1
        last = self.tokens[self.position - 1]
        place = Place(first.start, last.end)
        return self.source[place.start : place.end + 1], place

    def end(self) -> None:
        """Nothing may follow but a semicolon."""
        while self.next is not None and self.next.token_type is TokenType.SEMICOLON:
            self.position += 1
        if self.next is not None:
            ended = self.tokens[self.position - 1].token_type is TokenType.SEMICOLON
            self.fail("the end", hint="Run statements one at a time." if ended else None)


def _quoted(text: str, token: Token) -> bool:
    return text[token.start] in "'\"`"


def _names(text: str, token: Token) -> bool:
    """Whether a token can be a name: any word, or one in backticks or double quotes."""
    if text[token.start] in '"`':
        return bool(token.text)
    return bool(re.fullmatch(r"[^\W\d]\w*", text[token.start : token.end + 1]))
