"""What a compaction stored, read back before a commit names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.deltas.folding import Fold, Folded, live_rows, plan_rows, top_columns
from headwater.deltas.matching import has_duplicates
from headwater.errors import CompactionError, StorageError
from headwater.lake.format.file_match import match_file
from headwater.lake.format.statistics import file_statistics
from headwater.lake.model import DataFile, StagedFile
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.storage.duckdb_codec import encrypted_footer
from headwater.storage.parquet import read_footer

_THREADS = 8
_STORED_MAPPING = -1


def verify(fold: Fold, folded: Folded, twins: Callable[[ScanPlan], bool] | None = None) -> None:
    """Compare the stored files with what they should be; a difference is an error, and nothing is committed.

    Rows by the catalog's count of what was read, NULL values by what was handed to the writer, columns and
    their ids by the table, and keys by reading them back: no two of them may be equal. `twins` tells whether
    two are, for files that this process should not read by itself.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-verify") as pool:
        footers = list(pool.map(lambda file: _footer(fold, file), folded.staged))
    _check_rows(fold, folded, footers)
    _check_columns(fold, folded, footers)
    if folded.staged and (twins or (lambda plan: _twins_here(fold, plan)))(stored_plan(fold, folded)):
        raise _wrong(fold, "two of the stored rows have one key")


def stored_plan(fold: Fold, folded: Folded) -> ScanPlan:
    """A plan of the stored files, as if they were the base."""
    base = fold.bound.base
    scans = [FileScan(_data_file(fold, file)) for file in folded.staged]
    mapped = next((file.mapping for file in folded.staged if file.mapping is not None), None)
    mappings = {} if mapped is None else {_STORED_MAPPING: mapped}
    return ScanPlan(base, fold.base.snapshot, scans, mappings=mappings)


def _footer(fold: Fold, file: StagedFile) -> pq.FileMetaData:
    store, location = fold.lake.store, _location(fold, file)
    try:
        store.verify(location, file.file_size_bytes)
        if file.encryption_key is not None:
            return encrypted_footer(store, location, file.file_size_bytes, file.encryption_key)
        with store.reading(location), store.open_input(location) as source:
            footer: pq.FileMetaData = read_footer(source, location, file.file_size_bytes)
            return footer
    except StorageError as error:
        raise _wrong(fold, f"{location} cannot be read back: {error.message}") from error


def _check_rows(fold: Fold, folded: Folded, footers: Sequence[pq.FileMetaData]) -> None:
    for file, footer in zip(folded.staged, footers, strict=True):
        if footer.num_rows != file.record_count:
            raise _wrong(fold, f"{file.path} holds {footer.num_rows} rows instead of {file.record_count}")
    read = live_rows(fold.chosen(folded.file_ids)) + sum(one.row_count for one in fold.base.inlined)
    expected = {"rewritten": read - folded.removed, "added": folded.inserted}
    for what, files in (("rewritten", folded.rewritten), ("added", folded.added)):
        count = sum(file.record_count for file in files)
        if count != expected[what]:
            raise _wrong(fold, f"{count} rows were {what} instead of {expected[what]}")
    met = folded.updated + folded.removed
    if met > plan_rows(fold.base):
        raise _wrong(fold, f"{met} rows of the base were met, and it has {plan_rows(fold.base)}")


def _check_columns(fold: Fold, folded: Folded, footers: Sequence[pq.FileMetaData]) -> None:
    base = fold.bound.base
    nulls: dict[int, int | None] = dict.fromkeys(folded.nulls, 0)
    for file, footer in zip(folded.staged, footers, strict=True):
        found = match_file(footer.schema.to_arrow_schema(), base.columns, file.mapping)
        if found.missing:
            raise _wrong(fold, f"{file.path} lacks column {found.missing[0].name!r}")
        for one in file_statistics(footer, base.columns, places=found.leaves):
            before = nulls.get(one.column_id)
            if before is not None:
                nulls[one.column_id] = None if one.null_count is None else before + one.null_count
    for column in top_columns(base.columns):
        stored, expected = nulls.get(column.id), folded.nulls.get(column.id)
        if stored is not None and stored != expected:
            raise _wrong(fold, f"column {column.name!r} holds {stored} NULL values instead of {expected}")


def _twins_here(fold: Fold, plan: ScanPlan) -> bool:
    names = [column.name for column in fold.bound.key_columns]
    keys: pa.Table = read_plan(plan, fold.lake.store, fold.lake.db, columns=names)
    return has_duplicates(keys)


def _location(fold: Fold, file: StagedFile) -> str:
    return fold.bound.base.path + file.path if file.path_is_relative else file.path


def _data_file(fold: Fold, file: StagedFile) -> DataFile:
    return DataFile(
        id=-1,
        path=_location(fold, file),
        record_count=file.record_count,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        row_id_start=0,
        begin_snapshot=0,
        end_snapshot=None,
        partition_id=None,
        encryption_key=file.encryption_key,
        mapping_id=None if file.mapping is None else _STORED_MAPPING,
        partial_max=None,
    )


def _wrong(fold: Fold, what: str) -> CompactionError:
    facts: dict[str, Any] = {"dataset": str(fold.bound.dataset.name)}
    return CompactionError(
        f"Compaction of dataset {fold.bound.dataset.name} stored something else than it should have.",
        detail=what[:1].upper() + what[1:] + ".",
        hint="Nothing was committed; run it again, and report it if it happens twice.",
        **facts,
    )
