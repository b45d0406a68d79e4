"""What a compaction stored, read back before a commit names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow.parquet as pq

from headwater.deltas.folding import Fold, Folded, live_rows, plan_rows, top_columns
from headwater.deltas.matching import has_duplicates
from headwater.errors import CompactionError, StorageError
from headwater.lake.format.file_match import match_file
from headwater.lake.format.statistics import file_statistics
from headwater.lake.lake import Lake
from headwater.lake.model import DataFile, Snapshot, StagedFile, Table
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.storage.duckdb_codec import encrypted_footer
from headwater.storage.parquet import read_footer

_THREADS = 8
_STORED_MAPPING = -1

Twins = Callable[[ScanPlan], bool]


def verify(fold: Fold, folded: Folded, twins: Twins | None = None) -> None:
    """Compare what a fold stored with what it should have; a difference is an error that stops the commit.

    Rows by the catalog's count of what was read, NULL values by what was handed to the writer, columns and
    their ids by the table, and keys by reading them back: no two of them may be equal. `twins` tells whether
    two are, for files that this process should not read by itself.
    """
    stored = StoredFiles(fold.lake, fold.bound.base, str(fold.bound.dataset.name))
    read = live_rows(fold.chosen(folded.file_ids)) + sum(one.row_count for one in fold.base.inlined)
    stored.check_count("written anew", folded.rewritten, read - folded.removed)
    stored.check_count("added", folded.added, folded.inserted)
    if folded.updated + folded.removed > plan_rows(fold.base):
        raise stored.wrong(f"more rows were met than the {plan_rows(fold.base)} that there are")
    stored.check_files(folded.staged, folded.nulls)
    if not folded.staged:
        return
    plan = stored.plan(folded.staged, fold.base.snapshot)
    names = [column.name for column in fold.bound.key_columns]

    def twins_here(plan: ScanPlan) -> bool:
        return has_duplicates(read_plan(plan, fold.lake.store, fold.lake.db, columns=names))

    if (twins or twins_here)(plan):
        raise stored.wrong("two of the stored rows have one key")


@dataclass(frozen=True)
class StoredFiles:
    """Files of a table that no snapshot names yet."""

    lake: Lake
    table: Table
    dataset: str

    def check_count(self, what: str, files: Sequence[StagedFile], expected: int) -> None:
        """Whether files hold as many rows as they should."""
        count = sum(file.record_count for file in files)
        if count != expected:
            raise self.wrong(f"{count} rows were {what} instead of {expected}")

    def check_files(self, files: Sequence[StagedFile], nulls: Mapping[int, int]) -> None:
        """Whether files are in the store as their writer said, with the table's columns and these NULLs."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-verify") as pool:
            footers = list(pool.map(self._footer, files))
        found: dict[int, int | None] = dict.fromkeys(nulls, 0)
        for file, footer in zip(files, footers, strict=True):
            if footer.num_rows != file.record_count:
                raise self.wrong(f"{file.path} holds {footer.num_rows} rows instead of {file.record_count}")
            match = match_file(footer.schema.to_arrow_schema(), self.table.columns, file.mapping)
            if match.missing:
                raise self.wrong(f"{file.path} lacks column {match.missing[0].name!r}")
            for one in file_statistics(footer, self.table.columns, places=match.leaves):
                before = found.get(one.column_id)
                if before is not None:
                    found[one.column_id] = None if one.null_count is None else before + one.null_count
        for column in top_columns(self.table.columns):
            stored, expected = found.get(column.id), nulls.get(column.id)
            if stored is not None and stored != expected:
                raise self.wrong(f"column {column.name!r} holds {stored} NULL values instead of {expected}")

    def plan(self, files: Sequence[StagedFile], snapshot: Snapshot) -> ScanPlan:
        """A plan of the files, as if they were the table."""
        mapped = next((file.mapping for file in files if file.mapping is not None), None)
        mappings = {} if mapped is None else {_STORED_MAPPING: mapped}
        scans = [FileScan(self._data_file(file)) for file in files]
        return ScanPlan(self.table, snapshot, scans, mappings=mappings)

    def wrong(self, what: str) -> CompactionError:
        """The error of something that is not as it should be."""
        return CompactionError(
            f"Compaction of {self.dataset} stored something else than it should have.",
            detail=what[:1].upper() + what[1:] + ".",
            hint="Nothing was committed; run it again, and report it if it happens twice.",
            dataset=self.dataset,
        )

    def _footer(self, file: StagedFile) -> pq.FileMetaData:
        store, location = self.lake.store, self._location(file)
        try:
            store.verify(location, file.file_size_bytes)
            if file.encryption_key is not None:
                return encrypted_footer(store, location, file.file_size_bytes, file.encryption_key)
            with store.reading(location), store.open_input(location) as source:
                footer: pq.FileMetaData = read_footer(source, location, file.file_size_bytes)
                return footer
        except StorageError as error:
            raise self.wrong(f"{location} cannot be read back: {error.message}") from error

    def _location(self, file: StagedFile) -> str:
        return self.table.path + file.path if file.path_is_relative else file.path

    def _data_file(self, file: StagedFile) -> DataFile:
        return DataFile(
            id=-1,
            path=self._location(file),
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
