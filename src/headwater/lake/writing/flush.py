"""Flushing: rows and deletes kept in the catalog become Parquet files.

Every row goes, dead ones too, with its row id and the snapshot that wrote it, so older snapshots read the
same as before. Nothing about the data changes: statistics stay, and the change feed shows nothing.

The tables that held the rows stay, empty, also those of older column layouts. DuckDB's own flush drops the
latter, and every other DuckDB session that has the table in its cache then dies of an internal error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from psycopg import sql

from headwater.lake.catalog import CatalogState
from headwater.lake.connection import Connection, Database
from headwater.lake.format.conform import conform
from headwater.lake.format.partitions import split_by_partition
from headwater.lake.format.types import arrow_schema
from headwater.lake.format.values import from_inlined_rows
from headwater.lake.model import (
    ROW_ID_COLUMN,
    ROW_ID_FIELD,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD,
    Column,
    StagedDeletes,
    Table,
)
from headwater.lake.reading.deletes import read_deletes
from headwater.lake.reading.inlined_reader import inlined_fields, inlined_source
from headwater.lake.reading.scan import FileScan, inlined_layouts, plan_scan
from headwater.lake.writing.draft import NO_POSITIONS, FileDeletes, Flush, FlushedFile
from headwater.lake.writing.staging import Stager

_PLACE = "__headwater_place"


@dataclass(frozen=True)
class _InlinedContent:
    name: str
    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    """Row id, begin, end, then the user's columns."""


def plan_flush(db: Database, state: CatalogState, table: Table, stager: Stager) -> Flush | None:
    """Store a table's inlined rows and deletes as files; None if there are none."""

    def work(
        connection: Connection,
    ) -> tuple[list[_InlinedContent], list[FileScan], list[tuple[int, int, int]]]:
        plan = plan_scan(db, state, table, connection=connection)
        deleted = [scan for scan in plan.files if scan.inlined_deletes]
        when: list[tuple[int, int, int]] = []
        if deleted:
            when = connection.execute(
                sql.SQL("SELECT file_id, row_id, begin_snapshot FROM {} WHERE file_id = ANY(%s)").format(
                    db.name(f"ducklake_inlined_delete_{table.id}")
                ),
                ([scan.file.id for scan in deleted],),
            ).fetchall()
        return _contents(db, connection, state, table), deleted, when

    contents, deleted, when = db.read(work)
    by_file: dict[int, dict[int, int]] = {}
    for file_id, position, snapshot in when:
        by_file.setdefault(file_id, {})[position] = snapshot
    flush = Flush()
    for content in contents:
        if content.rows:
            flush.rows[content.name] = [row[:3] for row in content.rows]
            flush.files += _store_rows(table, content, stager)
    for scan in deleted:
        flush.deletes.append(_store_deletes(table, scan, stager, by_file[scan.file.id]))
    return flush if flush.files or flush.deletes else None


def _contents(
    db: Database, connection: Connection, state: CatalogState, table: Table
) -> list[_InlinedContent]:
    layouts = inlined_layouts(db, connection, table, state.snapshot)
    contents = []
    for name, _, columns in layouts:
        rows = connection.execute(
            sql.SQL("SELECT row_id, begin_snapshot, end_snapshot, {} FROM {} ORDER BY 1, 2").format(
                sql.SQL(", ").join(inlined_fields(columns)), inlined_source(db, name, columns)
            )
        ).fetchall()
        contents.append(_InlinedContent(name, columns, rows))
    return contents


def _store_rows(table: Table, content: _InlinedContent, stager: Stager) -> list[FlushedFile]:
    """One file for each partition, in the columns the rows were written with: older snapshots need them."""
    rows = from_inlined_rows([row[3:] for row in content.rows], content.columns)
    row_ids, begins, ends = (np.array([row[i] or 0 for row in content.rows], np.int64) for i in range(3))
    dead = np.array([row[2] is not None for row in content.rows], bool)
    stored = []
    for values, places in _groups(table, rows, content.columns):
        part = rows.take(pa.array(places))
        part = part.append_column(_internal(ROW_ID_COLUMN, ROW_ID_FIELD), pa.array(row_ids[places]))
        part = part.append_column(_internal(SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD), pa.array(begins[places]))
        staged = stager.stage_whole(table, part, content.columns, values)
        gone = np.flatnonzero(dead[places]).astype(np.int64)
        deletes = stager.stage_deletes(table, gone, ends[places][gone]) if len(gone) else None
        stored.append(FlushedFile(staged, int(begins[places].min()), int(begins[places].max()), deletes))
    return stored


def _groups(
    table: Table, rows: pa.Table, columns: tuple[Column, ...]
) -> list[tuple[tuple[str | None, ...], np.ndarray[Any, np.dtype[np.int64]]]]:
    everything = np.arange(rows.num_rows, dtype=np.int64)
    if table.partition is None or not table.partition.fields:
        return [((), everything)]
    labelled = pa.Table.from_arrays(rows.columns, schema=arrow_schema(columns))
    current = conform(labelled, table.columns).append_column(_PLACE, pa.array(everything))
    return [
        (values, group.column(_PLACE).to_numpy())
        for values, group in split_by_partition(current, table.partition.fields, table.columns)
    ]


def _store_deletes(
    table: Table, scan: FileScan, stager: Stager, when: dict[int, int]
) -> tuple[FileDeletes, StagedDeletes]:
    """The file's delete file so far and its inlined deletes, as one delete file."""
    found = dict(when)
    for file in scan.deletes:
        positions, snapshots = read_deletes(stager.store, file)
        known = snapshots if snapshots is not None else np.full(len(positions), file.begin_snapshot)
        for position, snapshot in zip(positions.tolist(), known.tolist(), strict=True):
            found[position] = min(snapshot, found.get(position, snapshot))
    ordered = sorted(found)
    staged = stager.stage_deletes(
        table, np.array(ordered, np.int64), np.array([found[p] for p in ordered], np.int64)
    )
    return FileDeletes(scan.file, scan.deletes, np.array(sorted(when), np.int64), NO_POSITIONS), staged


def _internal(name: str, field_id: int) -> pa.Field[Any]:
    return pa.field(name, pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(field_id)})
