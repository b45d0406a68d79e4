"""Keys in DuckDB's SQL: declared by CREATE TABLE, used by INSERT OR REPLACE, ON CONFLICT and MERGE.

DuckLake has no keys. So a declared key is taken out of the statement and told to whoever keeps it, and what
relies on one becomes a MERGE on the columns of the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.algebra.duckdb_text import (
    Edit,
    Piece,
    Word,
    closing,
    dotted_name,
    edited,
    sees,
    separated,
    words,
)
from headwater.typedefs import quote_name

#: Catalogs in memory, where DuckDB has keys of its own.
_IN_MEMORY = ("memory", "temp")


@dataclass(frozen=True, slots=True)
class DeclaredKey:
    """A key that CREATE TABLE declares."""

    table: tuple[str, ...]
    """The name as it is written, part by part."""
    columns: tuple[str, ...]
    edits: tuple[Edit, ...]
    """Take the constraints out; columns of a primary key stay NOT NULL."""


def declared_key(piece: Piece) -> DeclaredKey | None:
    """The primary key of a CREATE TABLE, else its first UNIQUE; None for anything else."""
    found = piece.words
    place = _after_create_table(found)
    if place is None:
        return None
    table, place = dotted_name(found, place)
    if not table or not sees(found, place, "(") or table[0].lower() in _IN_MEMORY:
        return None
    parts = separated(found, place + 1, closing(found, place))
    columns: dict[str, int] = {}
    keys: list[tuple[bool, tuple[str, ...]]] = []
    edits: list[Edit] = []
    for number, (start, end) in enumerate(parts):
        table_key = _table_key(found, start, end)
        if table_key is None:
            columns[found[start].name.lower()] = end
            for primary, edit in _column_keys(found, start, end):
                keys.append((primary, (found[start].name,)))
                edits.append(edit)
        else:
            keys.append(table_key)
            # With the comma before it; what declares a key is never the first column.
            before = parts[number - 1][1] if number else start
            edits.append(Edit(found[before].start, found[end - 1].end, ""))
            if table_key[0]:
                ends = [columns[name.lower()] for name in table_key[1] if name.lower() in columns]
                edits += [Edit(found[end - 1].end, found[end - 1].end, " NOT NULL") for end in ends]
    if not keys:
        return None
    chosen = next((names for primary, names in keys if primary), keys[0][1])
    return DeclaredKey(table, chosen, tuple(edits))


def _after_create_table(found: Sequence[Word]) -> int | None:
    if not sees(found, 0, "CREATE"):
        return None
    place = 3 if sees(found, 1, "OR", "REPLACE") else 1
    if not sees(found, place, "TABLE"):
        return None  # temporary ones have keys of their own
    return place + (4 if sees(found, place + 1, "IF", "NOT", "EXISTS") else 1)


def _table_key(found: Sequence[Word], start: int, end: int) -> tuple[bool, tuple[str, ...]] | None:
    place = start + 2 if found[start].reads("CONSTRAINT") else start
    primary = sees(found, place, "PRIMARY", "KEY")
    if not primary and not sees(found, place, "UNIQUE"):
        return None
    place += 2 if primary else 1
    if place >= end or found[place].text != "(":
        return None
    inner = separated(found, place + 1, closing(found, place))
    return primary, tuple(found[first].name for first, _ in inner)


def _column_keys(found: Sequence[Word], start: int, end: int) -> list[tuple[bool, Edit]]:
    keys = []
    depth = found[start].depth
    for place in range(start + 1, end):
        if found[place].depth != depth:
            continue
        named = place >= start + 3 and found[place - 2].reads("CONSTRAINT")
        begins = found[place - 2].start if named else found[place].start
        if sees(found, place, "PRIMARY", "KEY"):
            keys.append((True, Edit(begins, found[place + 1].end, "NOT NULL")))
        elif found[place].reads("UNIQUE"):
            keys.append((False, Edit(begins, found[place].end, "")))
    return keys


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT [OR …] INTO table [(columns)] source [ON CONFLICT …] [RETURNING …], as pieces of its text."""

    table: tuple[str, ...]
    table_text: str
    columns: tuple[str, ...]
    """None are given: all of the table's, in its order."""
    source: str
    before: str
    """What stands before INSERT: WITH …"""
    on_conflict: Literal["replace", "ignore", "update"] | None = None
    target: tuple[str, ...] = ()
    """The columns after ON CONFLICT."""
    assignments: str = ""
    condition: str = ""
    returning: str = ""
    by_name: bool = False
    words: tuple[Word, ...] = ()
    """Those of the source."""
    source_start: int = 0


def read_insert(piece: Piece) -> Insert | None:
    """An INSERT taken apart; None for other statements and for forms that are left to DuckDB."""
    found, sql = piece.words, piece.text
    begin = next((n for n, word in enumerate(found) if word.depth == 0 and word.reads("INSERT")), None)
    if begin is None or (begin > 0 and not found[0].reads("WITH")):
        return None
    place = begin + 1
    conflict: Literal["replace", "ignore", "update"] | None = None
    if sees(found, place, "OR"):
        conflict = "replace" if sees(found, place + 1, "REPLACE") else "ignore"
        place += 2
    if not sees(found, place, "INTO"):
        return None
    name_at = place + 1
    table, place = dotted_name(found, name_at)
    if not table or place >= len(found):
        return None
    table_text = sql[found[name_at].start : found[place - 1].end]
    by_name = sees(found, place, "BY", "NAME")
    place += 2 if by_name or sees(found, place, "BY", "POSITION") else 0
    columns: tuple[str, ...] = ()
    if (
        sees(found, place, "(")
        and not sees(found, place + 1, "SELECT")
        and not sees(found, place + 1, "WITH")
    ):
        end = closing(found, place)
        columns = tuple(found[first].name for first, _ in separated(found, place + 1, end))
        place = end + 1
    end = _end_of_source(found, place)
    if end <= place:
        return None
    source = sql[found[place].start : found[end - 1].end]
    made = Insert(
        table, table_text, columns, source, sql[: found[begin].start], conflict, by_name=by_name,
        words=tuple(found[place:end]), source_start=found[place].start,
    )  # fmt: skip
    return _with_tail(made, sql, found, end)


def _end_of_source(found: Sequence[Word], place: int) -> int:
    for number in range(place, len(found)):
        word = found[number]
        if word.depth or word.kind != "word":
            continue
        if word.reads("RETURNING") or sees(found, number, "ON", "CONFLICT"):
            return number
    return len(found)


def _with_tail(made: Insert, sql: str, found: Sequence[Word], place: int) -> Insert | None:
    conflict, target, assignments, condition = made.on_conflict, made.target, "", ""
    if sees(found, place, "ON", "CONFLICT"):
        place += 2
        if sees(found, place, "("):
            end = closing(found, place)
            target = tuple(found[first].name for first, _ in separated(found, place + 1, end))
            place = end + 1
        if sees(found, place, "DO", "NOTHING"):
            conflict, place = "ignore", place + 2
        elif sees(found, place, "DO", "UPDATE", "SET"):
            conflict, place = "update", place + 3
            end = _end_of_source(found, place)
            where = next(
                (n for n in range(place, end) if found[n].reads("WHERE") and not found[n].depth), end
            )
            assignments = sql[found[place].start : found[where - 1].end]
            condition = sql[found[where + 1].start : found[end - 1].end] if where + 1 < end else ""
            place = end
        else:
            return None
    returning = ""
    if place < len(found):
        if not found[place].reads("RETURNING") or place + 1 >= len(found):
            return None
        returning = sql[found[place + 1].start : found[-1].end]
    return Insert(
        made.table, made.table_text, made.columns, made.source, made.before, conflict, target, assignments,
        condition, returning, made.by_name, made.words, made.source_start,
    )  # fmt: skip


def as_merge(insert: Insert, columns: Sequence[str], key: Sequence[str]) -> str:
    """An INSERT with a rule for keys that are there already, as a MERGE.

    `columns` are the table's. Of rows with the same key in one INSERT the last one counts where rows replace
    each other, the first one where the rest is ignored; where they are added up, that is an error.
    """
    given = list(insert.columns or columns)
    names = ", ".join(map(quote_name, given))
    keys = ", ".join(map(quote_name, key))
    others = [quote_name(name) for name in given if name.lower() not in {one.lower() for one in key}]
    order = " DESC" if insert.on_conflict == "replace" else ""
    if insert.on_conflict == "update":
        one_each = (
            f"QUALIFY CASE WHEN (count(*) OVER (PARTITION BY {keys})) > 1 THEN "
            "error('ON CONFLICT DO UPDATE cannot change the same row twice') ELSE true END"
        )
    else:
        one_each = f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY headwater_place{order}) = 1"
    source = (
        f"SELECT * EXCLUDE (headwater_place) FROM (SELECT *, row_number() OVER () AS headwater_place "
        f"FROM ({insert.before}{insert.source}) AS headwater_rows({names})) {one_each}"
    )
    matched = ""
    if insert.on_conflict == "replace" and others:
        matched = "WHEN MATCHED THEN UPDATE SET " + ", ".join(f"{one} = excluded.{one}" for one in others)
    elif insert.on_conflict == "update":
        table = quote_name(insert.table[-1])
        changes = _of_table(insert.assignments, columns, table, assigned=True)
        condition = _of_table(insert.condition, columns, table)
        only_if = f" AND ({condition})" if condition else ""
        matched = f"WHEN MATCHED{only_if} THEN UPDATE SET {changes}"
    values = ", ".join(f"excluded.{quote_name(name)}" for name in given)
    return (
        f"MERGE INTO {insert.table_text} USING ({source}) AS excluded({names}) USING ({keys}) "
        f"{matched} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    )


def _of_table(text: str, columns: Sequence[str], table: str, *, assigned: bool = False) -> str:
    """A text in which bare columns are those of the table, as they are after ON CONFLICT.

    In a MERGE they could be those of either side. In assignments, what stands left of `=` stays as it is.
    """
    found = words(text)
    known = {name.lower() for name in columns}
    left = {start for start, _ in separated(found, 0, len(found))} if assigned else set()
    edits = []
    for place, word in enumerate(found):
        named = word.kind in ("word", "quoted") and word.name.lower() in known and place not in left
        follows_dot = place > 0 and found[place - 1].text == "."
        leads = place + 1 < len(found) and found[place + 1].text in (".", "(")
        if named and not follows_dot and not leads:
            edits.append(Edit(word.start, word.start, f"{table}."))
    return edited(text, edits).text


@dataclass(frozen=True, slots=True)
class MergeWithoutCondition:
    """MERGE INTO table USING source WHEN …: the key of the table is meant."""

    table: tuple[str, ...]
    place: int
    """Where `USING (key)` is missing."""


def merge_without_condition(piece: Piece) -> MergeWithoutCondition | None:
    """A MERGE that says nothing about which rows match."""
    found = piece.words
    if "MERGE" not in piece.text.upper():
        return None
    begin = next(
        (n for n in range(len(found)) if sees(found, n, "MERGE", "INTO") and not found[n].depth), None
    )
    if begin is None:
        return None
    table, place = dotted_name(found, begin + 2)
    when = next((n for n in range(place, len(found)) if found[n].reads("WHEN") and not found[n].depth), None)
    if not table or when is None:
        return None
    between = [word for word in found[place:when] if word.depth == 0]
    usings = sum(word.reads("USING") for word in between)
    if usings != 1 or any(word.reads("ON") for word in between):
        return None
    return MergeWithoutCondition(table, found[when].start)
