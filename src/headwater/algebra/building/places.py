"""Errors that point at their place in the SQL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from sqlglot import exp

from headwater.errors import QueryError

#: Words to which the parser gives no place.
_WORDS: dict[type[exp.Expr], str] = {
    exp.CurrentDate: r"\b(current_date|curdate)\b",
    exp.CurrentTimestamp: r"\bcurrent_timestamp\b",
    exp.Localtimestamp: r"\blocaltimestamp\b",
    exp.CurrentTime: r"\bcurrent_time\b",
    exp.Localtime: r"\blocaltime\b",
    exp.Placeholder: r":\w+|\?",
}


class NoRuleError(Exception):
    """A part of the query for which the algebra has no rule; the query around it is computed anew."""

    def __init__(self, reason: str, *, whole: bool = False):
        super().__init__(reason)
        self.reason = reason
        self.whole = whole


def query_error(
    text: str, node: exp.Expr | None, message: str, *, why: str | None = None, hint: str | None = None
) -> QueryError:
    """An error about a part of a query."""
    span = _span(text, node)
    if span is None:
        return QueryError(message, detail=why, hint=hint, line=None, column=None, fragment=None)
    return error_at(text, *_balanced(text, node, *span), message, why=why, hint=hint)


def error_at(
    text: str, start: int, end: int, message: str, *, why: str | None = None, hint: str | None = None
) -> QueryError:
    """An error about the characters from `start` to `end`, both included."""
    line = text.count("\n", 0, start) + 1
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    source = text[begin : stop if stop >= 0 else len(text)]
    column = start - begin + 1
    width = max(1, min(end, begin + len(source) - 1) - start + 1)
    shown = f"line {line}, column {column}:\n    {source}\n    {' ' * (column - 1)}{'^' * width}"
    return QueryError(
        message,
        detail=shown if why is None else f"{why}\n  {shown}",
        hint=hint,
        line=line,
        column=column,
        fragment=text[start : end + 1],
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """ "Did you mean": the name most like the one that is not there."""
    given = {one.lower(): one for one in names}
    found = difflib.get_close_matches(name.lower(), given, n=1, cutoff=0.6)
    return f"Did you mean `{given[found[0]]}`?" if found else None


def _span(text: str, node: exp.Expr | None) -> tuple[int, int] | None:
    """Where the node stands in the text: from the first to the last of its parts with a place."""
    if node is None:
        return None
    places = [part.meta for part in node.walk() if "start" in part.meta]
    if not places and type(node) in _WORDS:
        found = list(re.finditer(_WORDS[type(node)], text, re.IGNORECASE))
        if len(found) == 1:
            return found[0].start(), found[0].end() - 1
    while not places and node.parent is not None:
        node = node.parent
        places = [part.meta for part in node.walk() if "start" in part.meta][:1]
    if not places:
        return None
    return min(place["start"] for place in places), max(place["end"] for place in places)


def _balanced(text: str, node: exp.Expr | None, start: int, end: int) -> tuple[int, int]:
    """With the parentheses of a call, of which only the name and the arguments have places."""
    if isinstance(node, exp.Func) and text[end + 1 : end + 2] == "(":
        end += 1
    depth = text.count("(", start, end + 1) - text.count(")", start, end + 1)
    for place in range(end + 1, len(text)):
        if depth <= 0:
            break
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        end = place
    return start, end
