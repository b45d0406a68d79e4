"""The SQL statements of stream tables: CREATE, ALTER, DROP, REFRESH, SHOW, EXPLAIN STREAM TABLE, SHOW SINKS.

Statements are read as sqlglot's tokens, so that comments, quotes and escapes are those of Spark's SQL. What
options mean is not known here: they are handed on with their places, so that an error can point at them. What
errors show is the statement without the passwords that are in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NoReturn, TypeAlias

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.building.places import error_at
from headwater.errors import HeadwaterError, QueryError

#: A statement without this word is none of ours, whatever else it is.
_STREAM = re.compile(r"\b(stream|sinks)\b", re.IGNORECASE)
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
_CLAUSES = ("SCHEDULE", "REFRESH MODE", "WITH", "AS")
#: Words that would be taken for a name where the name is forgotten.
_NO_NAMES = ("AS", "SET", "WITH", "SELECT", "IF")
_BACKTICKS = "Names with other than letters, digits and _ need `backticks`."
_CHANGES = ("SET", "SUSPEND", "RESUME", "ADD SINK", "DROP SINK", "AS")


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


@dataclass(frozen=True)
class CreateStream:
    """CREATE [OR REPLACE] STREAM TABLE [IF NOT EXISTS] name … AS query"""

    text: str
    name: tuple[str, ...]
    query: str
    query_place: Place
    options: tuple[Given, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class AlterStream:
    """ALTER STREAM TABLE name SET (…) | SUSPEND | RESUME | AS query"""

    text: str
    name: tuple[str, ...]
    query: str | None = None
    query_place: Place | None = None
    options: tuple[Given, ...] = ()
    status: Literal["active", "suspended"] | None = None


@dataclass(frozen=True)
class AddSink:
    """ALTER STREAM TABLE name ADD SINK sink [WITH (…)]"""

    text: str
    name: tuple[str, ...]
    sink: str
    options: tuple[Given, ...] = ()


@dataclass(frozen=True)
class DropSink:
    """ALTER STREAM TABLE name DROP SINK [IF EXISTS] sink"""

    text: str
    name: tuple[str, ...]
    sink: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowSinks:
    """SHOW SINKS [FOR name]"""

    text: str
    name: tuple[str, ...] | None = None


@dataclass(frozen=True)
class DropStream:
    """DROP STREAM TABLE [IF EXISTS] name"""

    text: str
    name: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class RefreshStream:
    """REFRESH STREAM TABLE name [FULL]"""

    text: str
    name: tuple[str, ...]
    full: bool = False


@dataclass(frozen=True)
class ShowStreams:
    """SHOW STREAM TABLES"""

    text: str


@dataclass(frozen=True)
class ExplainStream:
    """EXPLAIN STREAM TABLE name"""

    text: str
    name: tuple[str, ...]


StreamStatement: TypeAlias = (
    CreateStream
    | AlterStream
    | AddSink
    | DropSink
    | DropStream
    | RefreshStream
    | ShowStreams
    | ShowSinks
    | ExplainStream
)


def parse_stream_statement(text: str) -> StreamStatement | None:
    """Read a statement about stream tables; None if the text is any other SQL.

    >>> parse_stream_statement("drop stream table if exists sales.totals").name
    ('sales', 'totals')
    >>> parse_stream_statement("SELECT stream FROM sales.orders") is None
    True
    """
    if not _STREAM.search(text):
        return None
    tokens, broken = tokens_of(text)
    words = [token.text.upper() for token in tokens[:4]]
    if words[:3] == ["CREATE", "OR", "REPLACE"]:
        ours = words[3:] == ["STREAM"]
    else:
        ours = len(words) > 1 and words[0] in _STATEMENTS and words[1] == "STREAM"
    if not ours and words[:2] != ["SHOW", "SINKS"]:
        return None
    reader = _Reader(without_secrets(text), tokens, source=text)
    if broken is not None:
        reader.fail_at(broken, len(text) - 1, "What begins here is never closed.")
    return _STATEMENTS[words[0]](reader)


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


def parse_name(text: str) -> tuple[str, ...]:
    """Read a name of one to three parts, quoted or not.

    >>> parse_name("sales.`odd name`")
    ('sales', 'odd name')
    """
    tokens, broken = tokens_of(text)
    reader = _Reader(text, tokens)
    if broken is not None:
        reader.fail_at(broken, len(text) - 1, "What begins here is never closed.")
    name = reader.name()
    if reader.next is not None:
        reader.fail("the end of the name", hint=_BACKTICKS)
    return name


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
class _Reader:
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
            self.fail("the end of the name", hint=_BACKTICKS)
        return tuple(parts)

    def word(self) -> str:
        """A name of one part."""
        return self._part()

    def _part(self) -> str:
        token = self.next
        if token is None or not _names(self.text, token) or self.sees_any(_NO_NAMES):
            self.fail("a name", hint=_BACKTICKS)
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


def _create(reader: _Reader) -> CreateStream:
    reader.needs("CREATE")
    or_replace = reader.takes("OR", "REPLACE")
    reader.needs("STREAM", "TABLE")
    if_not_exists = reader.takes("IF")
    if if_not_exists:
        reader.needs("NOT", "EXISTS")
    if or_replace and if_not_exists:
        last = reader.tokens[reader.position - 1]
        reader.fail_at(
            reader.tokens[reader.position - 3].start,
            last.end,
            "OR REPLACE and IF NOT EXISTS exclude each other.",
            "Leave one of them out.",
        )
    name = reader.name()
    while not reader.takes("AS"):
        token = reader.next
        if token is not None and reader.takes("SCHEDULE"):
            value = reader.next
            if value is None or not (value.token_type is TokenType.STRING or reader.sees("DOWNSTREAM")):
                reader.fail("a schedule", hint="Write it in quotes: SCHEDULE '5s'.")
            reader.position += 1
            reader.option("schedule", value, value.text)
        elif reader.takes("REFRESH"):
            reader.needs("MODE")
            value = reader.next
            reader.option("refresh_mode", value or reader.tokens[-1], reader.value())
        elif reader.takes("WITH"):
            reader.options()
        else:
            reader.fail(*_CLAUSES)
    query, place = reader.query()
    reader.end()
    return CreateStream(reader.text, name, query, place, reader.given(), or_replace, if_not_exists)


def _alter(reader: _Reader) -> AlterStream | AddSink | DropSink:
    reader.needs("ALTER", "STREAM", "TABLE")
    name = reader.name()
    made: AlterStream | AddSink | DropSink
    if reader.takes("ADD"):
        reader.needs("SINK")
        sink = reader.word()
        if reader.takes("WITH"):
            reader.options()
        made = AddSink(reader.text, name, sink, reader.given())
    elif reader.takes("DROP"):
        reader.needs("SINK")
        if_exists = reader.takes("IF")
        if if_exists:
            reader.needs("EXISTS")
        made = DropSink(reader.text, name, reader.word(), if_exists)
    elif reader.takes("AS"):
        query, place = reader.query()
        made = AlterStream(reader.text, name, query, place)
    elif reader.takes("SUSPEND"):
        made = AlterStream(reader.text, name, status="suspended")
    elif reader.takes("RESUME"):
        made = AlterStream(reader.text, name, status="active")
    elif reader.takes("SET"):
        reader.options()
        made = AlterStream(reader.text, name, options=reader.given())
    else:
        reader.fail(*_CHANGES)
    reader.end()
    return made


def _drop(reader: _Reader) -> DropStream:
    reader.needs("DROP", "STREAM", "TABLE")
    if_exists = reader.takes("IF")
    if if_exists:
        reader.needs("EXISTS")
    name = reader.name()
    reader.end()
    return DropStream(reader.text, name, if_exists)


def _refresh(reader: _Reader) -> RefreshStream:
    reader.needs("REFRESH", "STREAM", "TABLE")
    name = reader.name()
    full = reader.takes("FULL")
    if not full and reader.next is not None and reader.next.token_type is not TokenType.SEMICOLON:
        reader.fail("FULL", "the end")
    reader.end()
    return RefreshStream(reader.text, name, full)


def _show(reader: _Reader) -> ShowStreams | ShowSinks:
    if reader.takes("SHOW", "SINKS"):
        name = reader.name() if reader.takes("FOR") else None
        if name is None and reader.next is not None and reader.next.token_type is not TokenType.SEMICOLON:
            reader.fail("FOR", "the end")
        reader.end()
        return ShowSinks(reader.text, name)
    reader.needs("SHOW", "STREAM", "TABLES")
    reader.end()
    return ShowStreams(reader.text)


def _explain(reader: _Reader) -> ExplainStream:
    reader.needs("EXPLAIN", "STREAM", "TABLE")
    name = reader.name()
    reader.end()
    return ExplainStream(reader.text, name)


_STATEMENTS: Mapping[str, Callable[[_Reader], StreamStatement]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "REFRESH": _refresh,
    "SHOW": _show,
    "EXPLAIN": _explain,
}


def moved_error(error: QueryError, text: str, query_start: int) -> QueryError:
    """An error about a query as one about the text that the query is a part of."""
    line, column = error.facts.get("line"), error.facts.get("column")
    if line is None or column is None:
        return error
    before = text[query_start:].split("\n")[: line - 1]
    start = query_start + sum(len(one) + 1 for one in before) + column - 1
    fragment = error.facts.get("fragment") or " "
    why = (error.detail or "").partition(f"line {line}, column {column}:")[0].strip() or None
    return error_at(text, start, start + len(fragment) - 1, error.message, why=why, hint=error.hint)


def placed_error(error: HeadwaterError, text: str, place: Place) -> HeadwaterError:
    """An error about a value as one about the place where it stands."""
    shown = error_at(text, place.start, place.end, error.message, why=error.detail, hint=error.hint)
    return type(error)(shown.message, detail=shown.detail, hint=shown.hint, **{**error.facts, **shown.facts})
