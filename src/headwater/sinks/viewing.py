"""The SELECT that shows a result of its rows themselves, in plain SQL. (Of a log: `deltas.row_log`.)"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.typedefs import TableName, quote_name


def rows_view(table: TableName, columns: Sequence[str], condition: str | None = None) -> str:
    """The columns of a table's rows."""
    text = f"SELECT {', '.join(map(quote_name, columns))} FROM {table}"
    return text if condition is None else f"{text} WHERE {condition}"
