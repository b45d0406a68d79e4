"""The SELECT that shows a result, of the rows themselves or of a log of deltas, in plain SQL."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.sinks.model import DELETE, INSERT, OPERATION, SEQUENCE, TRUNCATE
from headwater.typedefs import TableName, quote_name


def rows_view(table: TableName, columns: Sequence[str], condition: str | None = None) -> str:
    """The columns of a table's rows."""
    text = f"SELECT {', '.join(map(quote_name, columns))} FROM {table}"
    return text if condition is None else f"{text} WHERE {condition}"


def log_view(table: TableName, columns: Sequence[str]) -> str:
    """The current result, from a log.

    Of equal rows as many are left as came more often than went, so that results without a key are right.
    """
    listed = ", ".join(map(quote_name, columns))
    op, sequence = quote_name(OPERATION), quote_name(SEQUENCE)
    return (
        f"SELECT {listed} FROM ("
        f"SELECT {listed}, {op}, "
        f"row_number() OVER (PARTITION BY {listed}, {op} ORDER BY {sequence}) AS _hw_place, "
        f"sum(CASE WHEN {op} = '{DELETE}' THEN -1 ELSE 1 END) OVER (PARTITION BY {listed}) AS _hw_copies "
        f"FROM {table} WHERE {op} <> '{TRUNCATE}' AND {sequence} > "
        f"(SELECT coalesce(max(CASE WHEN {op} = '{TRUNCATE}' THEN {sequence} END), -1) FROM {table})"
        f") AS _hw_log WHERE {op} = '{INSERT}' AND _hw_place <= _hw_copies"
    )
