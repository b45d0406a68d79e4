"""ALTER TABLE at the source: what the lake can follow, what is copied again, and what stops a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pyarrow as pa

from headwater.errors import HeadwaterError, SourceChangedError
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import can_widen, decimal_parts
from headwater.lake.writing.transaction import Transaction
from headwater.sources.describing import Described
from headwater.sources.model import Form, Layout, SourceColumn, SourceTable
from headwater.sources.values import to_arrow

#: Types of which a column can be added with a value for the rows that are there.
_WITH_DEFAULT = frozenset(
    {"boolean", "int16", "int32", "int64", "float32", "float64", "varchar", "date", "timestamp"}
)


class Action(Enum):
    """What becomes of a table."""

    GO_ON = auto()
    FOLLOW = auto()
    """Its columns change in the lake, too."""
    COPY_AGAIN = auto()
    """Its rows may have changed without anybody seeing it."""
    STOP = auto()


@dataclass(frozen=True)
class Verdict:
    """What becomes of a table, and why."""

    action: Action
    reason: str = ""
    error: HeadwaterError | None = None


def judge(table: SourceTable, now: Described | None, emptied: str | None, parts: int) -> Verdict:
    """Compare a table with what was mirrored of it.

    `emptied` is the storage that a TRUNCATE gave it, and `parts` how many parts should capture it.
    """
    was = table.layout
    if now is None or was is None or now.layout.oid != was.oid:
        what = "is not there any more" if now is None else "was dropped and made anew"
        return _stop(table, f"Table {table.source_name} {what}.", None)
    columns = {column.number: column for column in now.layout.columns}
    names = {column.number: column.name for column in was.columns}
    for column in was.columns:
        found = columns.get(column.number)
        if found is None:
            return _stop(table, f"Column {column.name!r} of {table.source_name} was dropped.", column.name)
        if found.name != column.name:
            return _stop(
                table,
                f"Column {column.name!r} of {table.source_name} was renamed to {found.name!r}.",
                column.name,
            )
        if not _follows(column, found):
            return _stop(
                table,
                f"Column {column.name!r} of {table.source_name} changed from {column.type} to {found.type}.",
                column.name,
            )
    if now.installed < parts:
        return Verdict(Action.COPY_AGAIN, "what captures its changes had been removed or disabled")
    if now.layout.storage not in (was.storage, emptied):
        what = "partitions came, went or were emptied" if now.partitioned else "the table was rewritten"
        return Verdict(Action.COPY_AGAIN, what)
    if now.layout.key != was.key:
        return Verdict(Action.COPY_AGAIN, "the key changed")
    added = [column for column in now.layout.columns if column.number not in names]
    for column in added:
        if column.number in now.defaulted or not _can_fill(column):
            return Verdict(Action.COPY_AGAIN, f"column {column.name!r} was added with values of its own")
    if now.layout.columns != was.columns:
        return Verdict(Action.FOLLOW, "columns were added or widened")
    return Verdict(Action.FOLLOW if now.layout != was else Action.GO_ON)


def _follows(was: SourceColumn, now: SourceColumn) -> bool:
    if was.lake_type == now.lake_type and was.form is now.form:
        return True
    return was.form is now.form is Form.PLAIN and can_widen(
        column_from_text(was.name, was.lake_type), now.lake_type
    )


def _can_fill(column: SourceColumn) -> bool:
    if column.missing is None:
        return True
    known = column.lake_type in _WITH_DEFAULT or decimal_parts(column.lake_type) is not None
    return known and "infinity" not in column.missing.lower() and not column.missing.endswith("BC")


def _stop(table: SourceTable, message: str, column: str | None) -> Verdict:
    error = SourceChangedError(
        message,
        detail=f"The mirror {table.lake_table} stays as it is; the other tables of the source go on.",
        hint="Run a resync: it changes the mirror's columns to those of the source, and its rows where they "
        "differ. Stream tables that read the column must be changed first.",
        table=table.source_name,
        column=column,
    )
    return Verdict(Action.STOP, message, error)


def reshape(tx: Transaction, name: str, was: Layout, now: Layout) -> bool:
    """Give a mirror the columns that the source has now. Returns whether anything changed."""
    before = tx.state.table(name).columns
    old = {column.number: column for column in was.columns}
    new = {column.number: column for column in now.columns}
    going = []
    for number, column in old.items():
        if tx.state.table(name).column(column.name) is None:
            continue
        # Under a name that nobody has, so that others can take theirs.
        parked = f"headwater column {number}"
        kept = new.get(number)
        if kept is None or not _follows(column, kept):
            tx.rename_column(name, column.name, parked)
            going.append(parked)
        elif kept.name != column.name:
            tx.rename_column(name, column.name, parked)
    for number, column in new.items():
        table = tx.state.table(name)
        parked = f"headwater column {number}"
        if parked not in going and table.column(parked) is not None:
            tx.rename_column(name, parked, column.name)
        if tx.state.table(name).column(column.name) is None:
            tx.add_column(name, column.name, column.lake_type, default=_default(column))
        elif number in old and old[number].lake_type != column.lake_type:
            tx.widen_column(name, column.name, column.lake_type)
    for parked in going:
        tx.drop_column(name, parked)
    return tx.state.table(name).columns != before


def _default(column: SourceColumn) -> Any:
    if column.missing is None or not _can_fill(column):
        return None
    return to_arrow(pa.array([column.missing], pa.string()), column)[0].as_py()
