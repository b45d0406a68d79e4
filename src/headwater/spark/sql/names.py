"""Names in a statement, and what they mean in the lake."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from headwater.errors import NotFoundError
from headwater.lake.catalog import DEFAULT_SCHEMA, CatalogState
from headwater.spark.sql.catalyst import LAKE
from headwater.typedefs import TableName


def lake_name(parts: Sequence[str], schema: str = DEFAULT_SCHEMA) -> TableName | None:
    """The table that a name of one to three parts would be in the lake; None if it is of another catalog.

    >>> lake_name(["orders"]), lake_name(["lake", "sales", "orders"]), lake_name(["other", "sales", "orders"])
    (TableName(schema='main', name='orders'), TableName(schema='sales', name='orders'), None)
    """
    match list(parts):
        case [name]:
            return TableName(schema, name)
        case [first, name]:
            return TableName(first, name)
        case [catalog, first, name] if catalog.lower() == LAKE:
            return TableName(first, name)
    return None


def lake_schema(parts: Sequence[str]) -> str | None:
    """The schema that a name of one or two parts would be in the lake; None if it is of another catalog."""
    match list(parts):
        case []:
            return DEFAULT_SCHEMA
        case [name]:
            return name
        case [catalog, name] if catalog.lower() == LAKE:
            return name
    return None


def has(state: CatalogState, name: TableName) -> bool:
    """Whether the lake has a table or view of that name."""
    return state.find_table(name) is not None or state.find_view(name) is not None


def not_there(parts: Sequence[str], state: CatalogState) -> NotFoundError:
    """The error for a name that neither the lake nor Spark knows, with the nearest that the lake has."""
    shown = ".".join(parts)
    known: dict[str, str] = {}
    for name in [*(t.name for t in state.tables.values()), *(v.name for v in state.views.values())]:
        known[str(name).lower()] = str(name)
        if name.schema.lower() == DEFAULT_SCHEMA or len(parts) == 1:
            known[name.name.lower()] = str(name)
    near = difflib.get_close_matches(shown.lower(), known, n=1)
    if near:
        hint = f"Did you mean {known[near[0]]}?"
    else:
        listed = sorted(set(known.values()))
        hint = f"The lake has: {', '.join(listed[:10])}{', …' if len(listed) > 10 else ''}."
        if not listed:
            hint = "The lake has no tables yet."
    return NotFoundError(
        f"There is no table or view {shown} in the lake at snapshot {state.snapshot.id}, nor in Spark.",
        hint=hint,
        table=shown,
        snapshot_id=state.snapshot.id,
    )
