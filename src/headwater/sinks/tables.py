"""Tables that sinks write: their columns, and whether a table that is there already can take a result."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.deltas.row_log import COMMITTED_AT, LOG_COLUMNS, OPERATION, REFRESH_ID, SEQUENCE
from headwater.errors import StreamTableError
from headwater.lake.format.types import arrow_schema, type_text
from headwater.lake.model import Column, Table
from headwater.sinks.model import SinkMode

_LOG = (
    pa.field(OPERATION, pa.string()),
    pa.field(SEQUENCE, pa.int64()),
    pa.field(REFRESH_ID, pa.string()),
    pa.field(COMMITTED_AT, pa.timestamp("us", "UTC")),
)


def table_schema(columns: Sequence[Column], mode: SinkMode) -> pa.Schema:
    """The columns of a table for a result: its own, and those of a log after them."""
    fields = [field.with_nullable(True) for field in arrow_schema(tuple(columns), field_ids=False)]
    return pa.schema([*fields, *(_LOG if mode is SinkMode.ACCUMULATE else ())])


def check_log_names(stream: str, columns: Sequence[str], mode: SinkMode) -> None:
    """A result that has a column like one of a log cannot be accumulated."""
    taken = {name for name, _ in LOG_COLUMNS} & {name.lower() for name in columns}
    if mode is SinkMode.ACCUMULATE and taken:
        raise StreamTableError(
            f"The result of {stream} has a column {min(taken)!r}, as the log of a sink has.",
            hint="Give the column another name, or use the mode merge or replace.",
            stream_table=stream,
            column=min(taken),
        )


def check_fits(stream: str, sink: str, table: Table, wanted: Sequence[Column], mode: SinkMode) -> None:
    """Refuse a table that cannot hold a result exactly."""
    problems = list(_problems(table, wanted, mode))
    if problems:
        raise StreamTableError(
            f"Table {table.name} does not fit the result of {stream}.",
            detail="; ".join(problems),
            hint="Change the table, or let the sink make one of its own (without ducklake_sink_table_id).",
            stream_table=stream,
            sink=sink,
            table=str(table.name),
        )


def _problems(table: Table, wanted: Sequence[Column], mode: SinkMode) -> list[str]:
    problems = []
    needed = {column.name.lower(): type_text(column) for column in wanted}
    if mode is SinkMode.ACCUMULATE:
        needed |= {name: type_text(Column(0, name, kind)) for name, kind in LOG_COLUMNS}
    known = {column.name.lower(): column for column in table.columns}
    for name, kind in needed.items():
        if name not in known:
            problems.append(f"it has no column {name!r} ({kind})")
        elif type_text(known[name]) != kind:
            problems.append(f"its column {name!r} is {type_text(known[name])}, not {kind}")
    problems += [
        f"its column {name!r} must have a value, and the result has none for it"
        for name, column in known.items()
        if name not in needed and not column.nulls_allowed and column.default_value is None
    ]
    return problems
