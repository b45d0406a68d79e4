"""The SQL statements of stream tables: CREATE, ALTER, DROP, REFRESH, SHOW, EXPLAIN STREAM TABLE, SHOW SINKS.

What options mean is not known here: they are handed on with their places, so that an error can point at them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlglot.tokenizer_core import TokenType

from headwater.algebra.building.places import error_at
from headwater.algebra.statement_reader import (
    BACKTICKS,
    CLAUSES,
    Given,
    Place,
    StatementReader,
    tokens_of,
    without_secrets,
)
from headwater.errors import HeadwaterError, QueryError

#: A statement without this word is none of ours, whatever else it is.
_STREAM = re.compile(r"\b(stream|sinks)\b", re.IGNORECASE)
_CHANGES = ("SET", "SUSPEND", "RESUME", "ADD SINK", "DROP SINK", "AS")


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
    reader = StatementReader(without_secrets(text), tokens, source=text)
    if broken is not None:
        reader.fail_at(broken, len(text) - 1, "What begins here is never closed.")
    return _STATEMENTS[words[0]](reader)


def parse_name(text: str) -> tuple[str, ...]:
    """Read a name of one to three parts, quoted or not.

    >>> parse_name("sales.`odd name`")
    ('sales', 'odd name')
    """
    tokens, broken = tokens_of(text)
    reader = StatementReader(text, tokens)
    if broken is not None:
        reader.fail_at(broken, len(text) - 1, "What begins here is never closed.")
    name = reader.name()
    if reader.next is not None:
        reader.fail("the end of the name", hint=BACKTICKS)
    return name


def _create(reader: StatementReader) -> CreateStream:
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
            reader.fail(*CLAUSES)
    query, place = reader.query()
    reader.end()
    return CreateStream(reader.text, name, query, place, reader.given(), or_replace, if_not_exists)


def _alter(reader: StatementReader) -> AlterStream | AddSink | DropSink:
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


def _drop(reader: StatementReader) -> DropStream:
    reader.needs("DROP", "STREAM", "TABLE")
    if_exists = reader.takes("IF")
    if if_exists:
        reader.needs("EXISTS")
    name = reader.name()
    reader.end()
    return DropStream(reader.text, name, if_exists)


def _refresh(reader: StatementReader) -> RefreshStream:
    reader.needs("REFRESH", "STREAM", "TABLE")
    name = reader.name()
    full = reader.takes("FULL")
    if not full and reader.next is not None and reader.next.token_type is not TokenType.SEMICOLON:
        reader.fail("FULL", "the end")
    reader.end()
    return RefreshStream(reader.text, name, full)


def _show(reader: StatementReader) -> ShowStreams | ShowSinks:
    if reader.takes("SHOW", "SINKS"):
        name = reader.name() if reader.takes("FOR") else None
        if name is None and reader.next is not None and reader.next.token_type is not TokenType.SEMICOLON:
            reader.fail("FOR", "the end")
        reader.end()
        return ShowSinks(reader.text, name)
    reader.needs("SHOW", "STREAM", "TABLES")
    reader.end()
    return ShowStreams(reader.text)


def _explain(reader: StatementReader) -> ExplainStream:
    reader.needs("EXPLAIN", "STREAM", "TABLE")
    name = reader.name()
    reader.end()
    return ExplainStream(reader.text, name)


_STATEMENTS: Mapping[str, Callable[[StatementReader], StreamStatement]] = {
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
