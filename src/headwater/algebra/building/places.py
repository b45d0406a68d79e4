"""Errors that point at their place in the SQL."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sqlglot import exp

from headwater.errors import QueryError


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
    start, end = _span(node)
    if start is None or end is None:
        return QueryError(message, detail=why, hint=hint, line=None, column=None, fragment=None)
    return error_at(text, start, end, message, why=why, hint=hint)


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


def _span(node: exp.Expr | None) -> tuple[int | None, int | None]:
    """Where the node stands in the text: from the first to the last of its parts with a place."""
    if node is None:
        return None, None
    places = [part.meta for part in node.walk() if "start" in part.meta]
    while not places and node.parent is not None:
        node = node.parent
        places = [part.meta for part in node.walk() if "start" in part.meta][:1]
    if not places:
        return None, None
    return min(place["start"] for place in places), max(place["end"] for place in places)
