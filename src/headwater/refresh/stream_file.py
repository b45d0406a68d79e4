"""A stream table as a file: comments that say how it is kept, then its SELECT.

-- name: sales.revenue_by_region
-- schedule: 5s
-- mode: auto
-- option max_failures: 5
SELECT region, sum(amount) AS revenue FROM sales.orders GROUP BY region

Keys are lower-case words before a colon; all other comments are for people.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.algebra.references import table_references
from headwater.algebra.statement_reader import tokens_of
from headwater.algebra.statements import moved_error, parse_name, parse_stream_statement
from headwater.errors import HeadwaterError, InvalidInputError, QueryError, SettingsError
from headwater.lake.catalog import DEFAULT_SCHEMA, key
from headwater.refresh.model import Definition, Mode
from headwater.refresh.options import NAMES, check_option, nearest_name
from headwater.typedefs import TableName

_LAKE = "lake"
_KEYS = ("name", "schedule", "mode")
_OPTIONS = tuple(f"option {name}" for name in NAMES if name not in ("schedule", "refresh_mode"))
_LINE = re.compile(r"[\s*]*(?P<key>[A-Za-z_]+(?:[ \t]+[A-Za-z_]+)?)[ \t]*:(?:[ \t]+(?P<value>.*?))?[ \t\r]*")


@dataclass(frozen=True)
class StreamFile:
    """A file of a project, read."""

    path: Path
    text: str
    definition: Definition
    #: Where the query begins in the text.
    query_start: int
    #: The tables and views it names, as the lake calls them.
    reads: tuple[TableName, ...]

    @property
    def name(self) -> TableName:
        """The stream table's name."""
        return self.definition.name

    def located(self, error: HeadwaterError) -> HeadwaterError:
        """An error about the query as one about the file, with its place."""
        if isinstance(error, QueryError):
            moved = moved_error(error, self.text, self.query_start)
            return _placed(moved, self.path, moved.facts.get("line"), moved.facts.get("column"))
        return error


def stream_name(parts: Sequence[str]) -> TableName:
    """The stream table that a name of one to three parts means.

    >>> stream_name(["totals"]), stream_name(["lake", "sales", "totals"])
    (TableName(schema='main', name='totals'), TableName(schema='sales', name='totals'))
    """
    match list(parts):
        case [name]:
            return TableName(DEFAULT_SCHEMA, name)
        case [schema, name]:
            return TableName(schema, name)
        case [catalog, schema, name] if catalog.lower() == _LAKE:
            return TableName(schema, name)
    raise InvalidInputError(
        f"{'.'.join(parts)} is not a name in the lake.", hint="Write name, schema.name or lake.schema.name."
    )


def read_stream_file(path: Path, default: Sequence[str], options: Mapping[str, str]) -> StreamFile:
    """Read one file. `default` is the name by its path; `options` are added to its own."""
    return _FileReader(path, _text(path)).read(default, options)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} cannot be read.",
            detail=error.strerror if isinstance(error, OSError) else "It is not UTF-8 text.",
            file=str(path),
        ) from None


class _FileReader:
    """Reads a file's comments, then its query."""

    def __init__(self, path: Path, text: str):
        self.path = path
        self.text = text

    def read(self, default: Sequence[str], options: Mapping[str, str]) -> StreamFile:
        start, query = self._query()
        values: dict[str, tuple[str, int]] = {}
        for word, value, place, value_place in self._header(start):
            if word in values:
                raise self._error(place, f"`{word}` is there twice.", "Keep one of them.")
            values[word] = self._checked(word, value, value_place), value_place
        definition = Definition(
            name=self._name(values.get("name"), default),
            query=query,
            mode=Mode(values["mode"][0]) if "mode" in values else Mode.AUTO,
            schedule=values["schedule"][0] if "schedule" in values else None,
            options={
                **{
                    word.split()[1]: value
                    for word, (value, _) in values.items()
                    if word.startswith("option ")
                },
                **options,
            },
        )
        made = StreamFile(self.path, self.text, definition, start, ())
        try:
            read = [parts for parts in table_references(query) if len(parts) < 3 or parts[0].lower() == _LAKE]
        except QueryError as error:
            raise made.located(error) from None
        names = {key(name): name for name in (stream_name(parts) for parts in read)}
        return StreamFile(self.path, self.text, definition, start, tuple(names.values()))

    def _query(self) -> tuple[int, str]:
        """Where the query begins, and the query."""
        try:
            if parse_stream_statement(self.text) is not None:
                raise self._error(
                    0, "The file holds a statement.", "Keep the SELECT, and put the rest into its comments."
                )
        except QueryError:
            pass  # whatever it was to be, it is reported as a query
        tokens, broken = tokens_of(self.text)
        if broken is not None:
            raise self._error(broken, "What begins here is never closed.", "Close the quote or the comment.")
        while tokens and tokens[-1].text == ";":
            tokens.pop()
        if not tokens:
            raise self._error(len(self.text.rstrip()), "There is no query in the file.", "Write its SELECT.")
        return tokens[0].start, self.text[tokens[0].start : tokens[-1].end + 1]

    def _name(self, given: tuple[str, int] | None, default: Sequence[str]) -> TableName:
        if given is not None:
            return self._parsed_name(*given)
        if len(default) > 2:
            raise self._error(
                0,
                "The name cannot be that of the path, which has more than a schema and a name.",
                "Add `-- name: schema.name`.",
            )
        return stream_name(default)

    def _parsed_name(self, text: str, place: int) -> TableName:
        try:
            return stream_name(parse_name(text))
        except HeadwaterError as error:
            raise self._error(place, f"{text!r} is not a name. {error.message}", error.hint) from None

    def _checked(self, word: str, value: str, place: int) -> str:
        """The value of a key in its usual form."""
        if not value:
            raise self._error(place, f"`{word}` has no value.", f"Write `-- {word}: value`.")
        if word == "name":
            return value
        option = "refresh_mode" if word == "mode" else word.removeprefix("option ")
        try:
            return check_option(option, value)
        except HeadwaterError as error:
            raise self._error(place, error.message, error.hint, error.detail, type(error)) from None

    def _header(self, end: int) -> Iterator[tuple[str, str, int, int]]:
        """Keys with their values, and the places of both."""
        for start, line in _comment_lines(self.text, end):
            found = _LINE.fullmatch(line)
            if found is None:
                continue
            words = re.sub(r"\s+", " ", found["key"])
            place = start + found.start("key")
            known = words.lower() if " " not in words else f"option {words.split()[1].lower()}"
            if words.lower() in (*_KEYS, *_OPTIONS):
                value = found["value"] or ""
                yield words.lower(), value, place, start + found.start("value") if value else place
            elif not _is_prose(words):
                hint = nearest_name(known, (*_KEYS, *_OPTIONS))
                if known in NAMES:
                    hint = f"Did you mean '{'mode' if known == 'refresh_mode' else f'option {known}'}'?"
                raise self._error(
                    place,
                    f"There is no key `{words}`.",
                    f"{hint} (A comment that is no key begins with a capital letter.)",
                )

    def _error(
        self,
        place: int,
        message: str,
        hint: str | None,
        detail: str | None = None,
        kind: type[HeadwaterError] = SettingsError,
    ) -> HeadwaterError:
        line = self.text.count("\n", 0, place) + 1
        column = place - self.text.rfind("\n", 0, place)
        return _placed(kind(message, detail=detail, hint=hint), self.path, line, column)


def _is_prose(words: str) -> bool:
    """Whether something before a colon is a sentence of a comment and no misspelt key."""
    first, *rest = words.split(" ")
    if rest:
        return not difflib.get_close_matches(first.lower(), ["option"])
    return first != first.lower()


def _comment_lines(text: str, end: int) -> Iterator[tuple[int, str]]:
    """The lines inside of the comments before the query, with their places."""
    place = 0
    while place < end:
        if text.startswith("--", place):
            stop = text.find("\n", place)
            stop = end if stop < 0 else stop
            yield place + 2, text[place + 2 : stop]
            place = stop
        elif text.startswith("/*", place):
            stop = text.find("*/", place)
            inner = place + 2
            for line in text[inner:stop].split("\n"):
                yield inner, line
                inner += len(line) + 1
            place = stop + 2
        else:
            place += 1


def _placed(error: HeadwaterError, path: Path, line: int | None, column: int | None) -> HeadwaterError:
    """The error with its place in front: `file:line:column`."""
    place = str(path) if line is None else f"{path}:{line}:{column}"
    facts = {**error.facts, "place": place, "file": str(path)}
    return type(error)(f"{place}: {error.message}", detail=error.detail, hint=error.hint, **facts)
