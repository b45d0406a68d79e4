"""Templates inside SQL. A value is always data, never SQL.

What a value becomes depends on where it stands: a literal between words, escaped text inside `'…'`, part of a
name inside `"…"`. `| identifier` writes a quoted name, `| each` a list of literals for `IN (…)`, and `| raw`
inserts SQL as it is, for those who ask for it. A value in a place that cannot hold data is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headwater.errors import TemplateError
from headwater.playbook.templates.engine import Rendering, compile_template, is_template
from headwater.playbook.templates.sandbox import MAX_TEXT, Each, Identifier, RawSql, Value, as_text
from headwater.playbook.templates.sql_literals import escape_spark, literal, name
from headwater.playbook.templates.sql_scanner import UNCLOSED, Dialect, Scanner, in_word


def render_sql(text: str, names: Mapping[str, Any], dialect: Dialect = "duckdb") -> str:
    """SQL with every template in it evaluated.

    >>> render_sql("SELECT {{ who }}, '{{ who }}!'", {"who": "O'Neil"})
    "SELECT 'O''Neil', 'O''Neil!'"
    """
    if not is_template(text):
        return str(text)
    rendering = Rendering(text, compile_template(text), names)
    sql = _Sql(dialect, rendering.error)
    for part in rendering:
        if isinstance(part, Value) and not isinstance(part.value, RawSql):
            sql.value(part.value)
        else:
            sql.text(str.__str__(part.value) if isinstance(part, Value) else part)
        if sql.length > MAX_TEXT:
            raise rendering.error(f"the template gives more than {MAX_TEXT >> 20} MiB of SQL.")
    return sql.finished()


class _Sql:
    """SQL that is being written: pieces of the template, and values between them."""

    def __init__(self, dialect: Dialect, error: Callable[..., TemplateError]):
        self._dialect = dialect
        self._error = error
        self._scanner = Scanner(dialect)
        self._pieces: list[str] = []
        self._waiting: list[str] = []
        """Pieces that are scanned together: a token may begin in one and end in the next."""
        self._written: str | None = None
        """The literal that the next piece of text comes right after."""
        self.length = 0

    def text(self, text: str) -> None:
        """A piece of the template itself."""
        self._waiting.append(text)
        self.length += len(text)

    def finished(self) -> str:
        """The whole text."""
        self._scan()
        return "".join(self._pieces)

    def value(self, value: Any) -> None:
        """What an expression gave."""
        self._scan()
        scanner = self._scanner
        if scanner.lost:
            raise self._error(
                "a quote or `$$` stands right behind a number, before this value: what it means is unclear.",
                "Put a blank between them.",
            )
        if scanner.state == "sql":
            self._literal(value)
        elif scanner.state in ("comment", "line comment"):
            text = "" if value is None else as_text(value)
            self._append(" " + re.sub(r"[^\w .,:=]", " ", text) + " ")
        elif value is None:
            raise self._error(
                f"the value is null, inside {UNCLOSED[scanner.state]}.",
                "Leave the quotes out, and it becomes NULL.",
            )
        else:
            text = ".".join(value) if isinstance(value, Identifier) else as_text(value)
            self._append(self._escaped(text))

    def _scan(self) -> None:
        text = "".join(self._waiting)
        self._waiting.clear()
        if not text:
            return
        if self._written is not None:
            # '…' next to '…' would be one text; a word next to a literal would become part of it.
            if in_word(text[0]) and not self._written.isdigit():
                raise self._error(_BESIDE_A_WORD, _WORD_HINT)
            if text[0] in "'\"`" and in_quotes(self._written):
                text = " " + text
            self._written = None
        self._scanner.feed(text)
        self._append(text)

    def _append(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)

    def _escaped(self, text: str) -> str:
        """Text inside quotes, so that it cannot end them."""
        scanner = self._scanner
        if scanner.sealed or scanner.dangling:
            raise self._error("a value cannot stand in this place inside quotes.", "Leave the quotes out.")
        if "\0" in text:
            raise self._error("the text has a NUL character, which cannot stand inside quotes.")
        if scanner.state == "dollar":
            if "$" in text or scanner.last == "$":
                raise self._error("there is a `$` in or before a value inside $$…$$.", "Use '…' instead.")
            return text
        if scanner.state == "escaped text":
            if self._dialect == "spark":
                return escape_spark(text)
            # A quote is doubled, not escaped: before it parses, DuckDB replaces blanks of other scripts
            # outside of texts, and takes an escaped quote for the end of one.
            text = text.replace("\\", "\\\\")
        if self._dialect == "spark" and "{" in text:
            raise self._error("a name in Spark's SQL cannot have a `{`, which may begin a variable there.")
        return text.replace(scanner.quote, scanner.quote * 2)

    def _literal(self, value: Any) -> None:
        try:
            written = self._spelled(value)
        except ValueError as problem:
            raise self._error(str(problem)) from None
        if self._scanner.after_text and written.startswith("'"):
            raise self._error(
                "a value right after a text in quotes would become part of it.", "Put `||` between."
            )
        beside = self._scanner.last if self._written is None else self._written[-1]
        if in_word(beside) and not written.isdigit():
            raise self._error(_BESIDE_A_WORD, _WORD_HINT)
        if beside in ("'", '"', "`", "&") or (beside == "-" and written.startswith("-")):
            written = " " + written
        self._scanner.feed(written)
        self._append(written)
        self._written = written

    def _spelled(self, value: Any) -> str:
        if isinstance(value, Identifier):
            if not value:
                raise ValueError("there is no name: the list is empty.")
            return ", ".join(name(one, self._dialect) for one in value)
        if isinstance(value, Each):  # `x IN (NULL)` holds for no row, as `x IN ()` would
            return ", ".join(literal(one, self._dialect) for one in value) or "NULL"
        return literal(value, self._dialect)


def in_quotes(written: str) -> bool:
    """Whether a literal ends with a quote."""
    return written[-1] in "'\"`"


_BESIDE_A_WORD = "a value stands right next to a word, and would change the word."
_WORD_HINT = (
    'Put the whole name into "…", or write {{ … | identifier }} for a name, {{ … | raw }} for a piece of SQL.'
)
