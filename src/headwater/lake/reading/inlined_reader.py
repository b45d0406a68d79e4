"""Rows that are kept in the catalog's own database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from headwater.errors import ConflictError
from headwater.lake.connection import Connection, Database
from headwater.lake.format.conform import conform
from headwater.lake.format.types import AnyArray, arrow_schema
from headwater.lake.format.values import default_array, from_inlined_rows, inlined_select_cast
from headwater.lake.model import Column
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import InlinedScan, ScanPlan


def read_inlined(db: Database, plan: ScanPlan, request: Request) -> list[pa.Table]:
    """The inlined rows of a plan, a table for each place they are in."""
    if not plan.inlined:
        return []

    def fetch(connection: Connection) -> list[list[tuple[Any, ...]]]:
        with connection.pipeline():
            cursors = [_select(db, connection, plan, scan, request) for scan in plan.inlined]
        return [cursor.fetchall() for cursor in cursors]

    try:
        found = db.read(fetch)
    except psycopg.errors.UndefinedTable:
        raise _flushed(plan) from None
    if [len(rows) for rows in found] != [scan.row_count for scan in plan.inlined]:
        raise _flushed(plan)
    return [_as_table(rows, scan, request) for rows, scan in zip(found, plan.inlined, strict=True)]


def inlined_source(db: Database, name: str, columns: Sequence[Column]) -> sql.Composed:
    """A table of inlined rows for a FROM clause; its columns are called as `inlined_fields` calls them.

    DuckDB leaves quotes out where it thinks they are not needed, and PostgreSQL then stores `CamelCase`
    as `camelcase`; so columns are found by their place.
    """
    names = ["row_id", "begin_snapshot", "end_snapshot", *(f"c{place}" for place in range(len(columns)))]
    listed = sql.SQL(", ").join(map(sql.Identifier, names))
    return sql.SQL("{} AS t({})").format(db.name(name), listed)


def inlined_fields(columns: Sequence[Column]) -> list[sql.Composable]:
    """The columns of `inlined_source`, as `from_inlined_rows` wants them selected."""
    casts = (inlined_select_cast(column) for column in columns)
    return [
        sql.Identifier(f"c{place}")
        if cast is None
        else sql.SQL("{}::{}").format(sql.Identifier(f"c{place}"), sql.SQL(cast))
        for place, cast in enumerate(casts)
    ]


def _stored(scan: InlinedScan, request: Request) -> list[Column]:
    wanted = {column.id for column in request.needed}
    return [column for column in scan.columns if column.id in wanted]


def _select(
    db: Database, connection: Connection, plan: ScanPlan, scan: InlinedScan, request: Request
) -> psycopg.Cursor[tuple[Any, ...]]:
    wanted = {column.id for column in _stored(scan, request)}
    selected: list[sql.Composable] = [sql.Identifier("row_id"), sql.Identifier("begin_snapshot")]
    for column, field in zip(scan.columns, inlined_fields(scan.columns), strict=True):
        if column.id in wanted:
            selected.append(field)
    query = sql.SQL(
        "SELECT {} FROM {} WHERE begin_snapshot <= %(at)s "
        "AND (end_snapshot IS NULL OR %(at)s < end_snapshot) ORDER BY row_id"
    ).format(sql.SQL(", ").join(selected), inlined_source(db, scan.table_name, scan.columns))
    return connection.execute(query, {"at": plan.snapshot.id})


def inlined_rows(
    rows: Sequence[tuple[Any, ...]], stored: Sequence[Column], needed: Sequence[Column]
) -> pa.Table:
    """Rows of the `stored` columns, as `needed` has them now."""
    if stored:
        data = from_inlined_rows(list(rows), stored)
        labelled = pa.Table.from_arrays(data.columns, schema=arrow_schema(stored))
        return conform(labelled, needed)
    arrays = [default_array(column, len(rows)) for column in needed]
    return pa.Table.from_arrays(arrays, names=[column.name for column in needed])


def _as_table(rows: list[tuple[Any, ...]], scan: InlinedScan, request: Request) -> pa.Table:
    row_ids = pa.array([row[0] for row in rows], pa.int64())
    snapshots = pa.array([row[1] for row in rows], pa.int64())
    current = inlined_rows([row[2:] for row in rows], _stored(scan, request), request.needed)

    def hidden(name: str) -> AnyArray:
        match name:
            case "filename":  # what DuckDB says of such rows
                return pa.repeat(pa.scalar(scan.table_name), len(rows))
            case "snapshot_id":
                return snapshots
            case _:
                return row_ids

    return request.finish(current, hidden)


def _flushed(plan: ScanPlan) -> ConflictError:
    return ConflictError(
        f"Rows of {plan.table.name} moved from the catalog to a file while it was read.",
        hint="Plan the scan again; the rows are the same.",
        table=str(plan.table.name),
        snapshot_id=plan.snapshot.id,
    )
