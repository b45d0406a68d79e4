"""Datasets read without Spark, for those that fit into memory."""

from __future__ import annotations

import pyarrow as pa

from headwater.deltas.matching import merged_places
from headwater.deltas.model import OPERATION, SEQUENCE, Bound
from headwater.lake.lake import Lake
from headwater.typedefs import SnapshotId


def shown_rows(lake: Lake, bound: Bound, at: SnapshotId) -> pa.Table:
    """The rows of a dataset at a snapshot."""
    base = lake.read(bound.base.name, at, columns=[pair.base.name for pair in bound.columns])
    base = base.rename_columns([pair.name for pair in bound.columns])
    log = log_rows(lake, bound, at)
    if not log.num_rows:
        return base
    kept, new = merged_places(
        base.select([pair.name for pair in bound.key]),
        log.select([pair.log.name for pair in bound.key]),
        log.column(OPERATION),
        log.column(SEQUENCE),
    )
    rows = log.select([pair.log.name for pair in bound.columns]).take(new)
    shown = pa.Table.from_arrays(rows.columns, schema=base.schema)
    return pa.concat_tables([base.take(kept), shown])


def log_rows(lake: Lake, bound: Bound, at: SnapshotId) -> pa.Table:
    """The rows of a log at a snapshot, with their numbers."""
    return lake.read(bound.log.name, at, hidden=(SEQUENCE,))
