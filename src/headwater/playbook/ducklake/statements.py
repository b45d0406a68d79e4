"""The commands of a step as statements that DuckDB understands, with what has to be known to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import duckdb

from headwater.algebra.duckdb_keys import (
    DeclaredKey,
    Insert,
    MergeWithoutCondition,
    declared_key,
    merge_without_condition,
    read_insert,
)
from headwater.algebra.duckdb_text import Edit, Edited, Piece, edited, sees, statements
from headwater.algebra.duckdb_translations import translate
from headwater.errors import QueryError
from headwater.playbook.results.failures import described, field_error, sql_error
from headwater.playbook.task import TaskError, TaskFailed
from headwater.storage.duckdb_engine import cursor
from headwater.typedefs import TableName

Leaves = Literal["nothing", "cursor", "session"]

#: Types of statements that change no lake.
_READS = frozenset(
    ("SELECT", "EXPLAIN", "SET", "PRAGMA", "ATTACH", "DETACH", "LOAD", "PREPARE", "EXPORT", "VARIABLE_SET")
)
#: Functions of a lake that change it; any CALL of another name does so too, unless it is known to read.
_CHANGING = (
    "expire_snapshots",
    "cleanup_old_files",
    "merge_adjacent_files",
    "rewrite_data_files",
    "flush_inlined_data",
    "delete_orphaned_files",
    "add_data_files",
    "set_option",
    "set_commit_message",
)
_READING_CALLS = (
    "snapshots",
    "table_info",
    "table_changes",
    "table_insertions",
    "table_deletions",
    "list_files",
    "options",
    "settings",
    "current_snapshot",
    "last_committed_snapshot",
)
_PLACEHOLDER = ' USING ("headwater key") '


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, ready to run but for what only the lake knows."""

    piece: Piece = field(repr=False)
    edited: Edited = field(repr=False)
    kind: str
    """DuckDB's own name for its type."""
    writes: bool
    gives_rows: bool
    leaves: Leaves = "nothing"
    """What later tasks would notice: variables and temporary tables, or settings and attached databases."""
    needs_latest: bool = False
    insert: Insert | None = None
    key: DeclaredKey | None = None
    merge: MergeWithoutCondition | None = None
    returning: bool = False
    sets_message: bool = False
    """Whether it says itself what the snapshot is about."""

    @property
    def text(self) -> str:
        """As DuckDB gets it."""
        return self.edited.text

    @property
    def upsert(self) -> Insert | None:
        """An INSERT that says what becomes of keys that are there already."""
        return self.insert if self.insert is not None and self.insert.on_conflict else None

    def position(self, byte: int | None) -> int | None:
        """The character of the command that DuckDB means by a byte of `text`."""
        if byte is None:
            return None
        character = len(self.text.encode()[:byte].decode(errors="ignore"))
        return self.piece.start + self.edited.origin(character)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a step: what one entry of the envelope is about."""

    index: int
    statements: tuple[Statement, ...]

    @property
    def writes(self) -> bool:
        """Whether it may change the lake."""
        return any(one.writes for one in self.statements)


def lake_name(parts: Sequence[str], catalog: str) -> TableName | None:
    """A table as a statement names it: table, schema.table, catalog.table or catalog.schema.table.

    In lower case, as states of the catalog hold names; None for what is in another catalog.
    """
    names = [part.lower() for part in parts]
    if len(names) > 1 and names[0] == catalog.lower():
        names = names[1:]
    return TableName("main", names[0]) if len(names) == 1 else TableName(*names) if len(names) == 2 else None


def read_commands(fields: Mapping[str, Any], catalog: str, *, use_catalog: bool = True) -> list[Command]:
    """The commands of a step.

    Each statement of a `command` is one; so is each entry of `commands`, whose result is that of its last
    statement.
    """
    given = fields.get("commands")
    if given is None:
        text = fields.get("command")
        if not isinstance(text, str):
            raise field_error("`command` must be a text.")
        found = _statements(text, 0, catalog, alone=True, use_catalog=use_catalog)
        return [Command(index, (one,)) for index, one in enumerate(found)]
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise field_error("`commands` must be a list.")
    return [
        Command(index, tuple(_statements(str(text), index, catalog, alone=False, use_catalog=use_catalog)))
        for index, text in enumerate(given)
    ]


def _statements(text: str, index: int, catalog: str, *, alone: bool, use_catalog: bool) -> list[Statement]:
    try:
        pieces = statements(text)
    except QueryError as error:
        before = text.split("\n")[: error.line - 1]
        position = sum(len(line) + 1 for line in before) + error.column - 1
        raise _failed("ParserException", error.message, index, position) from None
    if not pieces:
        raise _failed("empty", "There is no statement in the command.", index, 0)
    return [
        _statement(piece, number if alone else index, catalog, use_catalog)
        for number, piece in enumerate(pieces)
    ]


def _statement(piece: Piece, index: int, catalog: str, use_catalog: bool) -> Statement:
    translation = translate(piece.text, piece.words, catalog)
    key = declared_key(piece)
    if key is not None and not use_catalog and key.table[0].lower() != catalog.lower():
        key = None  # a table in memory, where DuckDB has keys of its own
    merge = merge_without_condition(piece)
    edits = [*translation.edits, *(key.edits if key else ())]
    text = edited(piece.text, edits)
    parsed = edited(piece.text, [*edits, Edit(merge.place, merge.place, _PLACEHOLDER)]) if merge else text
    try:
        kinds = [_kind(one) for one in duckdb.extract_statements(parsed.text)]
    except duckdb.Error as error:
        place = _place_in(parsed.text)
        position = None if place is None else piece.start + parsed.origin(place)
        raise TaskFailed(sql_error(error, (), index, position)) from None
    kind = kinds[-1] if kinds else "EMPTY"
    if any(one == "TRANSACTION" for one in kinds) and len(kinds) == 1:
        raise TaskFailed(
            TaskError("sql", "transaction", "A step begins and ends its transaction itself.", False, index),
            hint="Leave BEGIN, COMMIT and ROLLBACK out; `transaction: false` lets each command commit alone.",
        )
    checkpoint = sees(piece.words, 0, "CHECKPOINT") or sees(piece.words, 0, "FORCE", "CHECKPOINT")
    returning = "RETURNING" in piece.text.upper() and any(
        word.depth == 0 and word.reads("RETURNING") for word in piece.words
    )
    return Statement(
        piece,
        text,
        kind,
        writes=any(_writes(one, piece) for one in kinds),
        gives_rows=(kind in ("SELECT", "EXPLAIN", "CALL", "EXECUTE") and not checkpoint) or returning,
        leaves=_leaves(kinds, piece),
        needs_latest=translation.needs_latest,
        insert=read_insert(_translated(piece, text)) if kind == "INSERT" else None,
        key=key,
        merge=replace(merge, place=parsed.text.index(_PLACEHOLDER)) if merge else None,
        returning=returning,
        sets_message=kind != "INSERT" and "set_commit_message" in piece.text.lower(),
    )


def _translated(piece: Piece, text: Edited) -> Piece:
    return piece if text.text == piece.text else statements(text.text)[0]


def _kind(statement: duckdb.Statement) -> str:
    return str(statement.type).rpartition(".")[2]


def _writes(kind: str, piece: Piece) -> bool:
    found = piece.words
    if kind == "CALL":
        # CHECKPOINT comes as a CALL too.
        called = found[1].name if len(found) > 1 else ""
        for place in range(1, len(found)):
            if found[place].text == "(":
                called = found[place - 1].name
                break
        return called.lower().removeprefix("ducklake_") not in _READING_CALLS
    if kind == "EXPLAIN":
        return any(word.reads("ANALYZE") for word in found[:3])
    if kind == "SELECT":
        names = {
            word.name.lower().removeprefix("ducklake_") for word in found if word.kind in ("word", "quoted")
        }
        return not names.isdisjoint(_CHANGING)
    if kind == "COPY":
        return not any(word.depth == 0 and word.reads("TO") for word in found)
    return kind not in _READS


def _leaves(kinds: Sequence[str], piece: Piece) -> Leaves:
    found = piece.words
    if any(kind in ("ATTACH", "DETACH", "LOAD", "EXTENSION", "COPY_DATABASE") for kind in kinds):
        return "session"
    if "SET" in kinds or "PRAGMA" in kinds:
        of_cursor = (
            sees(found, 0, "USE") or sees(found, 0, "SET", "VARIABLE") or sees(found, 0, "RESET", "VARIABLE")
        )
        return "cursor" if of_cursor else "session"
    if len(kinds) > 1 or any(kind in ("PREPARE", "EXECUTE", "VARIABLE_SET") for kind in kinds):
        return "cursor"
    if "CREATE" in kinds and any(word.reads("TEMP", "TEMPORARY") for word in found[:4]):
        return "cursor"
    return "nothing"


def _place_in(text: str) -> int | None:
    """The character of a text at which DuckDB stops understanding it."""
    with cursor() as parser:
        parser.execute("SET errors_as_json = true")
        try:
            parser.extract_statements(text)
        except duckdb.Error as error:
            return described(error)[1]  # its parser counts characters, whatever comes later counts bytes
    return None


def _failed(code: str, message: str, index: int, position: int) -> TaskFailed:
    return TaskFailed(TaskError("sql", code, message, False, index, position))
