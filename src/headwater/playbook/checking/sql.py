"""SQL that no engine could even split into words: quotes and comments that are never closed."""

from __future__ import annotations

from jinja2.exceptions import TemplateSyntaxError

from headwater.playbook.language.document import Place, Text
from headwater.playbook.language.findings import Findings
from headwater.playbook.templates.engine import is_template
from headwater.playbook.templates.sandbox import SANDBOX
from headwater.playbook.templates.sql_scanner import UNCLOSED, Dialect, Scanner


def check_sql(sql: str, place: Place, dialect: Dialect, findings: Findings) -> None:
    """Find what a command opens and never closes, and commands without any SQL."""
    text = without_templates(sql) if is_template(sql) else str(sql)
    if text is None:
        return
    if not text.strip(" \t\r\n;"):
        findings.error(place, "empty_command", "the command is empty.")
        return
    scanner = Scanner(dialect)
    scanner.feed(text)
    if scanner.state in UNCLOSED:
        where = sql.at(scanner.opened) if isinstance(sql, Text) else place
        findings.error(
            where, "sql", f"{UNCLOSED[scanner.state]} begins here and is never closed.", "Close the quotes."
        )


def without_templates(sql: str) -> str | None:
    """The text with 0 in the place of every template, character by character.

    None where parts of the text depend on conditions: what closes a quote may stand in another branch.

    >>> without_templates("SELECT '{{ x }}'")
    "SELECT '0000000'"
    """
    pieces = []
    try:
        for _, token, value in SANDBOX.lexer.tokeniter(str(sql), None):
            if token == "block_begin":  # noqa: S105
                return None
            if "comment" in token:
                pieces.append(" " * len(value))
            elif token == "data":  # noqa: S105
                pieces.append(value)
            else:
                pieces.append("0" * len(value))
    except TemplateSyntaxError:  # found and told already
        return None
    return "".join(pieces)
