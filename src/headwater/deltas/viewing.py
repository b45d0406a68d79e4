"""The SELECT that shows a dataset: the base without the keys of the log, and what the log says last.

DuckDB and Spark both run it. Everything in the log is newer than everything in the base, and in the log the
row id tells what is newer: it is drawn under the lake's commit lock, and keeps through flushes and merges.
"""

from __future__ import annotations

from headwater.deltas.model import OPERATION, SEQUENCE, UPSERT, Bound
from headwater.typedefs import quote_name


def dataset_view(bound: Bound) -> str:
    """The rows of a dataset, in plain SQL. Keys are equal as `IS NOT DISTINCT FROM` means it."""
    base = ", ".join(f"b.{quote_name(pair.base.name)}" for pair in bound.columns)
    logged = ", ".join(f"n.{quote_name(pair.log.name)} AS {quote_name(pair.name)}" for pair in bound.columns)
    inner = ", ".join(quote_name(pair.log.name) for pair in bound.columns)
    key = ", ".join(quote_name(pair.log.name) for pair in bound.key)
    same = " AND ".join(
        f"l.{quote_name(pair.log.name)} IS NOT DISTINCT FROM b.{quote_name(pair.base.name)}"
        for pair in bound.key
    )
    return (
        f"SELECT {base} FROM {bound.base.name} AS b "
        f"WHERE NOT EXISTS (SELECT 1 FROM {bound.log.name} AS l WHERE {same}) "
        f"UNION ALL SELECT {logged} FROM (SELECT {inner}, {OPERATION}, "
        f"row_number() OVER (PARTITION BY {key} ORDER BY {SEQUENCE} DESC) AS _hw_back "
        f"FROM {bound.log.name}) AS n WHERE n._hw_back = 1 AND n.{OPERATION} = '{UPSERT}'"
    )
