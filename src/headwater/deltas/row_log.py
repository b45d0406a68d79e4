"""Logs of whole rows: what came and what went, for results that need not have a key.

This is what a sink of the mode `accumulate` writes. Rows are numbered in the order in which they apply; of
equal rows as many are left as came more often than went, since the last row that says that all begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from headwater.typedefs import TableName, quote_name

#: Columns that such a log has after those of the result.
OPERATION, SEQUENCE, REFRESH_ID, COMMITTED_AT = "_op", "_sequence", "_refresh_id", "_committed_at"
LOG_COLUMNS: tuple[tuple[str, str], ...] = (
    (OPERATION, "varchar"),
    (SEQUENCE, "int64"),
    (REFRESH_ID, "varchar"),
    (COMMITTED_AT, "timestamptz"),
)
#: What `_op` says: a row came, a row went, or everything before it no longer counts.
INSERT, DELETE, TRUNCATE = "insert", "delete", "truncate"
_TIME = pa.timestamp("us", "UTC")


def log_rows(rows: pa.Table, operation: str, first: int, refresh_id: str, moment: datetime) -> pa.Table:
    """Rows with the columns of a log, numbered from `first`."""
    count = rows.num_rows
    columns = (
        (OPERATION, pa.repeat(pa.scalar(operation), count)),
        (SEQUENCE, pa.array(range(first, first + count), pa.int64())),
        (REFRESH_ID, pa.repeat(pa.scalar(refresh_id), count)),
        (COMMITTED_AT, pa.repeat(pa.scalar(moment, _TIME), count)),
    )
    for name, values in columns:
        rows = rows.append_column(name, values)
    return rows


def log_changes(came: pa.Table, went: pa.Table, first: int, refresh_id: str, moment: datetime) -> pa.Table:
    """A delta for a log: tombstones first, then what came."""
    gone = log_rows(went, DELETE, first, refresh_id, moment)
    new = log_rows(came, INSERT, first + went.num_rows, refresh_id, moment)
    return pa.concat_tables([gone, new.cast(gone.schema)])


def log_beginning(first: int, refresh_id: str, moment: datetime) -> pa.Table:
    """The row that says that what follows is everything; its other columns are NULL."""
    return log_rows(pa.table({"_": [None]}), TRUNCATE, first, refresh_id, moment).drop_columns(["_"])


def log_view(table: TableName, columns: Sequence[str]) -> str:
    """The SELECT that shows the current result, in plain SQL."""
    listed = ", ".join(map(quote_name, columns))
    counted = counted_rows(str(table), columns, listed)
    shown = f"{OPERATION} = '{INSERT}' AND _hw_place <= _hw_copies"
    return f"SELECT {listed} FROM ({counted}) AS _hw_log WHERE {shown}"


def net_rows(table: str, columns: Sequence[str], chosen: str) -> str:
    """The SELECT of the rows that a compaction leaves: those shown, and those that went before they came."""
    return (
        f"SELECT {chosen} FROM ({counted_rows(table, columns, chosen)}) AS _hw_log "
        f"WHERE _hw_place <= CASE WHEN {OPERATION} = '{INSERT}' THEN _hw_copies ELSE -_hw_copies END"
    )


def counted_rows(table: str, columns: Sequence[str], chosen: str) -> str:
    """The rows that count, with their place among equal ones and how many of these are left.

    `_hw_copies` is how much more often such a row came than it went.
    """
    equal = ", ".join(map(quote_name, columns))
    weight = f"CASE WHEN {OPERATION} = '{DELETE}' THEN -1 ELSE 1 END"
    return (
        f"SELECT {chosen}, {OPERATION}, "
        f"row_number() OVER (PARTITION BY {equal}, {OPERATION} ORDER BY {SEQUENCE}) AS _hw_place, "
        f"sum({weight}) OVER (PARTITION BY {equal}) AS _hw_copies "
        f"FROM {table} WHERE {OPERATION} <> '{TRUNCATE}' AND {SEQUENCE} > "
        f"(SELECT coalesce(max(CASE WHEN {OPERATION} = '{TRUNCATE}' THEN {SEQUENCE} END), -1) FROM {table})"
    )
