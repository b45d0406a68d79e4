"""Can my changes be ordered after what others committed since I looked?

Two questions, asked under the commit lock:

* Schema: is everything I build on still as I saw it, and are the names I want still free? Compared on
  the states themselves, so a change that alters nothing for me (a comment elsewhere) is no conflict.
* Rows: DuckLake's conflict matrix on the change tokens. Four places are our own:
  a transaction that only *appends* to a table is ordered after other people's deletes instead of failing;
  *any* other delete on a table I delete from is a conflict (DuckDB misses delete against delete on a file
  that already has a delete file); flushes and compactions count for deletes of every kind; and merges of
  DuckDB's, which may forget row ids, count for tables that were only read but whose row ids are relied on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from headwater.errors import ConflictError
from headwater.lake.catalog import CatalogState
from headwater.lake.format.changes import Change
from headwater.lake.model import Table, View
from headwater.lake.writing.draft import Draft
from headwater.typedefs import SnapshotId

_INSERTS = {"inserted_into_table", "inlined_insert"}
_DELETES = {"deleted_from_table", "inlined_delete"}
_MERGES = {"merge_adjacent", "compacted_table"}
_FLUSHES = {"inline_flush", "flushed_inlined"}
_MAINTENANCE = {"merge_adjacent", "rewrite_delete", "compacted_table", "inline_flush", "flushed_inlined"}


@dataclass(frozen=True, slots=True)
class Committed:
    """A change that somebody committed after this transaction began."""

    snapshot_id: SnapshotId
    change: Change


def check_schema(draft: Draft, latest: CatalogState, since: Sequence[Committed]) -> None:
    """Raise ConflictError if the draft's schema changes no longer fit the latest state."""
    base = draft.base
    _check_tables(draft, latest, since)
    base_views = {v.id: v for v in base.views.values()}
    latest_views = {v.id: v for v in latest.views.values()}
    new_views = {v.id: v for v in draft.views.values()}
    for view_id, view in base_views.items():
        wanted = new_views.get(view_id)
        now = latest_views.get(view_id)
        if wanted is not view and (now is None or now != view):
            _conflict(f"view {view.name}", "changed or dropped", since, view_id, view.name)

    schema_ids = {s.id for s in latest.schemas.values()}
    for name, schema in draft.schemas.items():
        if schema.id < 0 and name in latest.schemas:
            _conflict(f"schema {schema.name!r}", "created", since, None, (schema.name,))
    dropped = {s.id: s for s in base.schemas.values()}
    for schema in draft.schemas.values():
        dropped.pop(schema.id, None)
    for schema_id, schema in dropped.items():
        if schema_id not in schema_ids:
            _conflict(f"schema {schema.name!r}", "dropped", since, schema_id, (schema.name,))
        for entry in entries(latest):
            if entry.schema_id == schema_id and not any(e.id == entry.id for e in entries(base)):
                _conflict(f"schema {schema.name!r}", f"given {entry.name}", since, None, entry.name)

    for wanted_entry in entries(draft.state):
        name_key = (wanted_entry.name.schema.lower(), wanted_entry.name.name.lower())
        before = base.tables.get(name_key) or base.views.get(name_key)
        if before is not None and before.id == wanted_entry.id:
            continue
        there = latest.tables.get(name_key) or latest.views.get(name_key)
        if there is not None and (before is None or before.id != there.id):
            _conflict(f"{wanted_entry.name}", "created", since, there.id, wanted_entry.name)
        if wanted_entry.schema_id >= 0 and wanted_entry.schema_id not in schema_ids:
            _conflict(f"{wanted_entry.name}", "left without its schema", since, wanted_entry.schema_id, None)


def entries(state: CatalogState) -> list[Table | View]:
    """Tables and views: they share one namespace."""
    return [*state.tables.values(), *state.views.values()]


def _check_tables(draft: Draft, latest: CatalogState, since: Sequence[Committed]) -> None:
    latest_tables = {t.id: t for t in latest.tables.values()}
    wanted_tables = {t.id: t for t in draft.tables.values()}
    for table in draft.base.tables.values():
        wanted = wanted_tables.get(table.id)
        now = latest_tables.get(table.id)
        if wanted is None:
            if now is None:
                _conflict(f"table {table.name}", "dropped", since, table.id, table.name)
            continue
        spoiled = (
            now != table
            if wanted is not table
            else table.id in draft.data and (now is None or _layout(now) != _layout(table))
        )
        if spoiled:
            became = "dropped" if now is None else "altered"
            # A rename is logged under the new name.
            _conflict(f"table {table.name}", became, since, table.id, now.name if now else table.name)


def _layout(table: Table) -> tuple[object, ...]:
    """What rows written earlier depend on."""
    stored = tuple((c.id, c.name, c.type, c.nulls_allowed) for top in table.columns for c in top.walk())
    return stored, table.partition, table.path


def check_rows(draft: Draft, since: Sequence[Committed]) -> None:
    """Raise ConflictError if the draft's row changes cannot be ordered after those of others."""
    # Compactions of our own keep row ids, and log a flush beside (see compaction_rows).
    flushed = {(other.snapshot_id, other.change.target) for other in since if other.change.token in _FLUSHES}
    for table in draft.tables.values():
        data = draft.data.get(table.id)
        against: set[str] = set()
        if table.id in draft.known_by_row_id:
            for other in since:
                merged = other.change.token in _MERGES and other.change.is_about(table.id)
                if merged and (other.snapshot_id, table.id) not in flushed:
                    raise_conflict(table, other)
        if data is not None and data.removes:
            against |= _DELETES | _MAINTENANCE
            if not data.beside_inserts or data.truncated:
                against |= _INSERTS
        if data is not None and data.flush is not None:
            against |= _DELETES | _MAINTENANCE
        if table.id in draft.null_checked:
            against |= _INSERTS
        if not against:
            continue
        for other in since:
            if other.change.token in against and other.change.is_about(table.id):
                raise_conflict(table, other)


def raise_conflict(table: Table, other: Committed | None) -> NoReturn:
    """The error for a change of rows that another commit got in the way of."""
    what = f"{other.change} in snapshot {other.snapshot_id}" if other else "another commit"
    raise ConflictError(
        f"Table {table.name} was changed by another writer: {what}.",
        detail="Rows this transaction read or deletes may no longer be what it saw.",
        hint="Run the transaction again; nothing of it was applied.",
        table=str(table.name),
        snapshot_id=other.snapshot_id if other else None,
        other_change=str(other.change) if other else None,
    )


def _conflict(
    what: str,
    became: str,
    since: Sequence[Committed],
    object_id: int | None,
    name: tuple[str, ...] | None,
) -> NoReturn:
    lowered = tuple(part.lower() for part in name) if name else None
    culprit = None
    for other in since:
        target = other.change.target
        if target == object_id or (
            isinstance(target, tuple) and tuple(part.lower() for part in target) == lowered
        ):
            culprit = other
    raise ConflictError(
        f"{what[:1].upper()}{what[1:]} was {became} by another writer"
        + (f": {culprit.change} in snapshot {culprit.snapshot_id}." if culprit else "."),
        hint="Run the transaction again; nothing of it was applied.",
        table=".".join(name) if name else None,
        snapshot_id=culprit.snapshot_id if culprit else None,
        other_change=str(culprit.change) if culprit else None,
    )
