"""A copy compared with the mirror, so that only what differs is replaced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.lake.lake import Lake
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.sources.locating import Numbers, every_row, pc
from headwater.storage.duckdb_engine import sandbox

#: Rows that are compared in this process; beyond it, everything is replaced.
MOST_COMPARED = 5_000_000
_NUMBER = "headwater number"


def stored_rows(plan: ScanPlan) -> int:
    """How many rows a plan has, from the catalog alone."""
    files = sum(
        scan.file.record_count - sum(each.delete_count for each in scan.deletes) - len(scan.inlined_deletes)
        for scan in plan.files
    )
    return files + sum(inlined.row_count for inlined in plan.inlined)


def replace_differences(
    lake: Lake, tx: Transaction, name: str, rows: pa.Table, key: Sequence[str]
) -> tuple[int, int, int]:
    """Make a table hold exactly these rows; returns rows inserted, updated and deleted.

    Rows that are equal stay as they are, and those with an equal key keep their row id.
    """
    plan = tx.scan(name)
    stored, found = every_row(lake, plan, rows.schema.names)
    pairs = _pairs(stored, rows, key)
    ours, theirs = pairs.column(0), pairs.column(1)
    both = pairs.filter(pc.and_(ours.is_valid(), theirs.is_valid()))
    changed, changed_to = _numbers(both, 0), _numbers(both, 1)
    gone = _numbers(pairs.filter(theirs.is_null()), 0)
    new = _numbers(pairs.filter(ours.is_null()), 1)
    ids = found.ids(stored.num_rows)
    found.only(np.concatenate([changed, gone])).remove(tx)
    if len(changed):
        tx.replace_rows(name, rows.take(pa.array(changed_to, pa.int64())), ids[changed])
    if len(new):
        tx.append(name, rows.take(pa.array(new, pa.int64())))
    return len(new), len(changed), len(gone)


def _numbers(pairs: pa.Table, place: int) -> Numbers:
    return pairs.column(place).to_numpy().astype(np.int64)


def _pairs(stored: pa.Table, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Numbers of stored rows and of rows that differ, side by side if their keys are equal."""
    names = rows.schema.names
    quoted = [_quoted(name) for name in names]
    number = _quoted(_NUMBER)
    with sandbox() as session:
        for name, table in (("stored", stored), ("given", rows)):
            numbered = table.append_column(_NUMBER, pa.array(np.arange(table.num_rows), pa.int64()))
            session.register(f"{name} rows", numbered)
        if key:
            on = " AND ".join(f"s.{_quoted(name)} = g.{_quoted(name)}" for name in key)
            others = [name for name in names if name not in key]
            differs = (
                " OR ".join(f"s.{_quoted(n)} IS DISTINCT FROM g.{_quoted(n)}" for n in others) or "false"
            )
            text = (
                f'SELECT s.{number} AS a, g.{number} AS b FROM "stored rows" s '
                f'FULL JOIN "given rows" g ON {on} '
                f"WHERE s.{number} IS NULL OR g.{number} IS NULL OR {differs}"
            )
        else:
            listed = ", ".join(quoted)
            ranked = (
                f"(SELECT *, row_number() OVER (PARTITION BY {listed} ORDER BY {number}) AS "
                '"headwater rank" FROM "{} rows")'
            )
            on = " AND ".join(f"s.{name} IS NOT DISTINCT FROM g.{name}" for name in quoted)
            text = (
                f"SELECT s.{number} AS a, g.{number} AS b FROM {ranked.format('stored')} s "
                f"FULL JOIN {ranked.format('given')} g "
                f'ON {on} AND s."headwater rank" = g."headwater rank" '
                f"WHERE s.{number} IS NULL OR g.{number} IS NULL"
            )
        return session.execute(text).to_arrow_table()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
