"""Rows of a log: what came and what went, numbered in the order in which it is to be applied."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from headwater.sinks.model import COMMITTED_AT, DELETE, INSERT, OPERATION, REFRESH_ID, SEQUENCE, TRUNCATE

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
