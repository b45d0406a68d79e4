"""Which row ids a file holds, so that a limit can cut between files."""

from __future__ import annotations

import pyarrow.parquet as pq

from headwater.lake.model import ROW_ID_COLUMN, DataFile
from headwater.storage.store import Store

Range = tuple[int, int]


def catalog_range(file: DataFile) -> Range | None:
    """The row ids of a file as one insert wrote it: the first, and one after the last."""
    if file.row_id_start is None or file.partial_max is not None:
        return None
    return file.row_id_start, file.row_id_start + file.record_count


def footer_range(store: Store, file: DataFile) -> Range | None:
    """The row ids of any file, as it tells them itself; None if it does not."""
    if file.encryption_key is not None:
        return None
    with store.open_input(file.path) as source:
        metadata = pq.read_metadata(source)
    names = metadata.schema.names
    if ROW_ID_COLUMN not in names:
        return (
            None if file.row_id_start is None else (file.row_id_start, file.row_id_start + file.record_count)
        )
    place = names.index(ROW_ID_COLUMN)
    low: list[int] = []
    high: list[int] = []
    for group in range(metadata.num_row_groups):
        found = metadata.row_group(group).column(place).statistics
        if found is None or not found.has_min_max:
            return None
        low.append(int(found.min or 0))
        high.append(int(found.max or 0))
    return (min(low), max(high) + 1) if low else None
