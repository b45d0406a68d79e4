"""What playbooks may write and DuckDB does not understand, as what it does understand.

    FROM t FOR SYSTEM_TIME AS OF SNAPSHOT 5         FROM t AT (VERSION => 5)
    FROM t FOR SYSTEM_TIME AS OF '2025-01-06' s     FROM t AS s AT (TIMESTAMP => TIMESTAMPTZ '2025-01-06')
    current_setting('worker_id')                    getvariable('worker_id')
    ducklake_table_changes('c', 's', 't', 0, 10)    … , least(10, getvariable('…')::BIGINT))

The last one because a playbook that asks for changes up to snapshot 10 should see those that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.algebra.duckdb_text import Edit, Word, closing, may_alias, sees, separated

WORKER_VARIABLE = "worker_id"
LATEST_VARIABLE = "headwater_latest_snapshot"

_CHANGES = ("TABLE_CHANGES", "TABLE_INSERTIONS", "TABLE_DELETIONS")
#: Most statements hold none of these.
_ANYTHING = re.compile("system_time|current_setting|" + "|".join(_CHANGES), re.IGNORECASE)
_MOMENTS = ("TIMESTAMP", "TIMESTAMPTZ", "DATE", "DATETIME")


@dataclass(frozen=True, slots=True)
class Translation:
    """The edits of a statement, and what it needs."""

    edits: tuple[Edit, ...]
    needs_latest: bool = False
    """Whether the variable `LATEST_VARIABLE` has to hold the newest snapshot."""


def translate(sql: str, found: Sequence[Word], catalog: str) -> Translation:
    """The edits that turn a statement into DuckDB's SQL. `catalog` is the lake's name in the session."""
    if not _ANYTHING.search(sql):
        return Translation(())
    changes = list(_clamped_changes(found, catalog))
    return Translation((*_time_travel(sql, found), *_settings(found), *changes), bool(changes))


def _settings(found: Sequence[Word]) -> Iterator[Edit]:
    for place, word in enumerate(found):
        if sees(found, place, "CURRENT_SETTING", "(") and place + 3 < len(found):
            value, end = found[place + 2], found[place + 3]
            if value.kind == "text" and value.content.lower() == WORKER_VARIABLE and end.text == ")":
                yield Edit(word.start, end.end, f"getvariable('{WORKER_VARIABLE}')")


def _time_travel(sql: str, found: Sequence[Word]) -> Iterator[Edit]:
    for place, word in enumerate(found):
        if not sees(found, place, "FOR", "SYSTEM_TIME", "AS", "OF"):
            continue
        moment, after = _moment(sql, found, place + 4)
        if moment is None:
            continue  # DuckDB says where it stops understanding
        alias, after = _alias(sql, found, after)
        yield Edit(word.start, found[after - 1].end, f"{alias}AT ({moment})")


def _moment(sql: str, found: Sequence[Word], place: int) -> tuple[str | None, int]:
    """What stands after AS OF, as DuckDB's AT has it, and the place after it."""
    if place >= len(found):
        return None, place
    word = found[place]
    follower = found[place + 1] if place + 1 < len(found) else None
    if word.reads("SNAPSHOT", "VERSION") and follower is not None and follower.kind == "number":
        return f"VERSION => {follower.text}", place + 2
    if word.kind == "text":
        return f"TIMESTAMP => TIMESTAMPTZ {word.text}", place + 1
    if word.reads(*_MOMENTS) and follower is not None and follower.kind == "text":
        return f"TIMESTAMP => TIMESTAMPTZ {follower.text}", place + 2
    if word.text == "(":
        last = closing(found, place)
    elif follower is not None and follower.text == "(":
        last = closing(found, place + 1)
    elif word.reads("CURRENT_TIMESTAMP"):
        last = place
    else:
        return None, place
    last = _intervals(found, last)
    return f"TIMESTAMP => ({sql[word.start : found[last].end]})::TIMESTAMPTZ", last + 1


def _intervals(found: Sequence[Word], last: int) -> int:
    """The last word of the intervals that are added to or taken from what ends at `last`."""
    while last + 3 < len(found) and found[last + 1].text in "+-" and found[last + 2].reads("INTERVAL"):
        last += 3
        if found[last].text == "(":
            last = closing(found, last)
        unit = found[last + 1] if last + 1 < len(found) else None
        if unit is not None and unit.text.upper().rstrip("S") in _UNITS and unit.kind == "word":
            last += 1
    return last


_UNITS = frozenset(("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"))


def _alias(sql: str, found: Sequence[Word], place: int) -> tuple[str, int]:
    """The alias after a moment, to be written before AT, where DuckDB wants it; and the place after it."""
    if place >= len(found):
        return "", place
    first = place
    if found[place].reads("AS") and place + 1 < len(found):
        place += 1
    elif not may_alias(found[place]):
        return "", first
    name, place = found[place], place + 1
    columns = ""
    if place < len(found) and found[place].text == "(" and found[place].depth == name.depth:
        last = closing(found, place)
        columns = sql[found[place].start : found[last].end]
        place = last + 1
    return f"AS {name.text}{columns} ", place


def _clamped_changes(found: Sequence[Word], catalog: str) -> Iterator[Edit]:
    for place, word in enumerate(found):
        plain = word.text.upper().removeprefix("DUCKLAKE_")
        if word.kind != "word" or plain not in _CHANGES or not sees(found, place + 1, "("):
            continue
        arguments = separated(found, place + 2, closing(found, place + 1))
        whole = word.text.upper().startswith("DUCKLAKE_")
        if len(arguments) != (5 if whole else 3) or not _is_ours(found, place, catalog, whole=whole):
            continue
        first, last = arguments[-1]
        if last - first == 1 and found[first].kind == "number":
            bound = found[first]
            text = f"least({bound.text}, getvariable('{LATEST_VARIABLE}')::BIGINT)"
            yield Edit(bound.start, bound.end, text)


def _is_ours(found: Sequence[Word], place: int, catalog: str, *, whole: bool) -> bool:
    """Whether a function is about this lake: by its first argument, or by the name before the dot."""
    if whole:
        named = found[place + 2]
        return named.kind == "text" and named.content.lower() == catalog.lower()
    if place < 2 or found[place - 1].text != ".":
        return True
    return found[place - 2].name.lower() == catalog.lower()
