"""Structs, lists and maps in the text that DuckDB stores for inlined rows.

DuckDB reads that text back by casting it; so do we, with DuckDB itself, and get what it gets. One kind it
cannot read itself: inside a struct it writes dates, timestamps, blobs and UUIDs as `CAST('…' AS VARCHAR)`,
and then fails (or returns that very text). Those are unwrapped first.
"""

from __future__ import annotations

import re

import pyarrow as pa

from headwater.lake.format.casting import cast_array
from headwater.lake.format.types import AnyArray, type_text
from headwater.lake.model import Column
from headwater.storage.duckdb_codec import sandbox

_CAST = re.compile(r"CAST\('((?:[^']|'')*)' AS [A-Z_ ]+\)")


def parse_nested(texts: list[str | None], column: Column) -> AnyArray:
    """The values that DuckDB's text stands for, in the column's Arrow type."""
    plain = pa.table(
        {"v": pa.array([None if text is None else _unwrapped(text) for text in texts], pa.string())}
    )
    with sandbox() as duck:
        duck.register("inlined", plain)
        found = duck.execute(f"SELECT CAST(v AS {type_text(column)}) AS v FROM inlined").to_arrow_table()
        duck.unregister("inlined")
    return cast_array(found.column(0).combine_chunks(), column)


def _unwrapped(text: str) -> str:
    """Replace `CAST('it''s' AS VARCHAR)` by a quoted text as DuckDB's cast reads it."""
    return _CAST.sub(
        lambda match: "'" + match[1].replace("''", "'").replace("\\", "\\\\").replace("'", "\\'") + "'", text
    )
