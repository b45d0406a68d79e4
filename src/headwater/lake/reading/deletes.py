"""Which rows of a data file are deleted at a snapshot."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError, UnsupportedError
from headwater.lake.format.types import FIELD_ID_KEY, AnyArray, AnyField
from headwater.lake.model import (
    DELETE_PATH_FIELD,
    DELETE_POS_FIELD,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD,
    DeleteFile,
)
from headwater.lake.reading.deletion_vectors import decode_deletion_vector
from headwater.lake.reading.kept_columns import KeptColumns
from headwater.storage.duckdb_codec import read_encrypted
from headwater.storage.store import Store
from headwater.typedefs import SnapshotId

Positions = npt.NDArray[np.int64]

#: Positions are put in their places, which is quicker than to sort them, if these are so many times as many.
_DENSE = 30


def deleted_positions(
    store: Store,
    files: Iterable[DeleteFile],
    inlined: Iterable[int],
    snapshot: SnapshotId,
    kept: KeptColumns | None = None,
) -> Positions:
    """Positions of the rows that are deleted at `snapshot`, ascending, each once."""
    parts = [np.fromiter(inlined, np.int64)]
    for file in files:
        positions, snapshots = read_deletes(store, file, kept)
        # Every position of an old snapshot is in the file; what came later is not yet deleted.
        parts.append(positions if snapshots is None else positions[snapshots <= snapshot])
    return _ascending(np.concatenate(parts))


def _ascending(positions: Positions) -> Positions:
    """Positions in order, each once. (One delete file has them so already; sorting them would take longer
    than reading them.)"""
    if (positions[1:] > positions[:-1]).all():
        return positions
    ordered: Positions = np.sort(positions)
    kept: Positions = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return kept


def first_deletes(positions: Positions, snapshots: Positions) -> tuple[Positions, Positions]:
    """Positions in order, each once, and the first of the snapshots beside each."""
    if (positions[1:] > positions[:-1]).all():
        return positions, snapshots
    if (last := int(positions.max())) < _DENSE * len(positions):
        whole = np.full(last + 1, -1, np.int64)
        whole[positions] = snapshots
        found = np.flatnonzero(whole >= 0)
        if len(found) == len(positions):
            return found, whole[found]
    order = np.lexsort((snapshots, positions))
    unique, first = np.unique(positions[order], return_index=True)
    return unique, snapshots[order][first]


def read_deletes(
    store: Store, file: DeleteFile, kept: KeptColumns | None = None
) -> tuple[Positions, Positions | None]:
    """The positions that a delete file holds and, if it says so, the snapshot that deleted each.

    What is read may be `kept` for the next time.
    """
    if file.format == "puffin":
        return decode_deletion_vector(store.read(file.path), file.path), None
    if file.format != "parquet":
        raise UnsupportedError(
            f"The delete file {file.path!r} has the format {file.format!r}.",
            hint="Headwater reads parquet and puffin.",
            location=file.path,
        )
    table = _read(store, file, kept)
    positions = _column(table, DELETE_POS_FIELD, "pos")
    if positions is None or positions.null_count:
        raise CorruptFileError(f"The delete file {file.path!r} has no positions.", location=file.path)
    # Only the file itself can tell whether it has snapshots: `partial_max` may be NULL although it has.
    snapshots = _column(table, SNAPSHOT_ID_FIELD, SNAPSHOT_ID_COLUMN)
    return (
        positions.to_numpy().astype(np.int64),
        None if snapshots is None else snapshots.to_numpy().astype(np.int64),
    )


def _read(store: Store, file: DeleteFile, kept: KeptColumns | None) -> pa.Table:
    if file.encryption_key is not None:
        return read_encrypted(store, file.path, file.encryption_key)
    with store.open_input(file.path) as source:
        try:
            parquet = pq.ParquetFile(source) if kept is None else kept.open(file.path, source)
            # Which data file they are of the catalog says; the path in the file is the largest part of it.
            names = [f.name for f in parquet.schema_arrow if _field_id(f) != str(DELETE_PATH_FIELD).encode()]
            if kept is not None:
                return kept.read(file.path, parquet, range(parquet.num_row_groups), names)
            table: pa.Table = parquet.read(columns=names)
            return table
        except pa.ArrowInvalid as error:
            raise CorruptFileError(
                f"The delete file {file.path!r} is no Parquet file.", detail=str(error), location=file.path
            ) from None


def _field_id(field: AnyField) -> bytes | None:
    return (field.metadata or {}).get(FIELD_ID_KEY)


def _column(table: pa.Table, field_id: int, name: str) -> AnyArray | None:
    for place, field in enumerate(table.schema):
        if field.name == name or _field_id(field) == str(field_id).encode():
            return table.column(place)
    return None
