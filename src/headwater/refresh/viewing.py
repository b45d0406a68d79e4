"""The view under a stream table's own name: what users see of what is stored."""

from __future__ import annotations

from headwater.algebra.stages import SHOWN
from headwater.lake.model import Table
from headwater.refresh.model import StreamTable
from headwater.typedefs import quote_name


def view_text(stream: StreamTable, storage: Table) -> str:
    """The view's SELECT, in DuckDB's SQL."""
    columns = ", ".join(quote_name(name) for name, _ in stream.columns)
    text = f"SELECT {columns} FROM {storage.name}"
    if any(column.name == SHOWN for column in storage.columns):
        text += f" WHERE {quote_name(SHOWN)}"
    return text
