"""Checks of the files: is everything there that the catalog names, and is it what the catalog says it is?"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError, FileMissingError, StorageError, UnsupportedError
from headwater.lake.health.findings import CatalogView, Finding, Progress, finding
from headwater.lake.model import DeleteFile
from headwater.lake.reading.deletes import read_deletes
from headwater.storage.duckdb_codec import encrypted_footer
from headwater.storage.store import Store
from headwater.typedefs import FileId, TableId

_THREADS = 8
_TAIL = 64 * 1024
_FRAME = 8  # four bytes of length and the magic number after the footer
#: What writers of a lake leave behind; other files under the data path are none of our business.
_OURS = (".parquet", ".puffin")
_SCRATCH = ".headwater-"

Item = TypeVar("Item")


class ListedFile(NamedTuple):
    """A file as the catalog names it."""

    kind: str
    """`data` or `delete`."""
    id: FileId
    table_id: TableId
    location: str
    size: int
    footer_size: int | None
    entries: int
    """Rows of a data file, deleted rows of a delete file."""
    encryption_key: str | None
    format: str
    data_file_id: FileId


@dataclass
class FileReport:
    """What the check of the files found."""

    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    footers: int = 0
    """Files whose end was read."""


class _Faults:
    """Faults by kind and table, so that a thousand missing files are one finding."""

    def __init__(self, name: Callable[[TableId], str]):
        self._name = name
        self._found: dict[tuple[str, TableId | None], list[str]] = {}

    def add(self, code: str, table_id: TableId | None, text: str) -> None:
        self._found.setdefault((code, table_id), []).append(text)

    def findings(self) -> Iterator[Finding]:
        for (code, table_id), texts in self._found.items():
            what = code.replace("_", " ")
            table = None if table_id is None else self._name(table_id)
            yield finding(code, table, f"{len(texts)} file(s): {what}", sorted(texts))


_LOCATION = (
    "CASE WHEN NOT f.path_is_relative THEN f.path WHEN NOT t.path_is_relative THEN t.path || f.path "
    "WHEN NOT s.path_is_relative THEN s.path || t.path || f.path "
    "ELSE %(data_path)s::text || s.path || t.path || f.path END"
)
_JOINED = (
    "JOIN (SELECT DISTINCT ON (table_id) table_id, path, path_is_relative, schema_id FROM {ducklake_table} "
    "ORDER BY table_id, begin_snapshot DESC) t ON t.table_id = f.table_id "
    "JOIN {ducklake_schema} s ON s.schema_id = t.schema_id"
)
_FILES = (
    f"SELECT 'data', f.data_file_id, f.table_id, {_LOCATION}, f.file_size_bytes, f.footer_size, "
    "f.record_count, f.encryption_key, f.file_format, f.data_file_id "
    f"FROM {{ducklake_data_file}} f {_JOINED} WHERE f.begin_snapshot > %(after)s "
    f"UNION ALL SELECT 'delete', f.delete_file_id, f.table_id, {_LOCATION}, f.file_size_bytes, "
    "f.footer_size, f.delete_count, f.encryption_key, f.format, f.data_file_id "
    f"FROM {{ducklake_delete_file}} f {_JOINED} WHERE f.begin_snapshot > %(after)s"
)


def listed_files(catalog: CatalogView, after: int = -1) -> list[ListedFile]:
    """Every file that some snapshot names, or one newer than `after`."""
    with catalog.stream(_FILES, data_path=catalog.data_path, after=after) as rows:
        return [ListedFile._make(row) for row in rows]


def scheduled_files(catalog: CatalogView) -> set[str]:
    """Files that no snapshot names any more and that cleanup will remove."""
    rows = catalog.rows(
        "SELECT CASE WHEN path_is_relative THEN %(data_path)s::text || path ELSE path END "
        "FROM {ducklake_files_scheduled_for_deletion}",
        data_path=catalog.data_path,
    )
    return {location for (location,) in rows}


@dataclass
class FileCheck:
    """Compares what the catalog names with what the store has."""

    store: Store
    data_path: str
    files: Sequence[ListedFile]
    scheduled: set[str]
    name: Callable[[TableId], str]
    refresh: Callable[[], tuple[set[str], set[str]]]
    """The locations that the catalog names now, and those scheduled now: both change meanwhile."""
    deep: bool = False
    sample: int = 100
    grace: timedelta = timedelta(days=1)
    progress: Progress | None = None

    def run(self) -> FileReport:
        """Look at everything."""
        faults = _Faults(self.name)
        present = self._compare_listing(faults)
        footers = self._footer_sample(present)
        for file, fault in self._in_threads("reading footers", footers, self._check_footer):
            if fault is not None:
                faults.add(fault[0], file.table_id, f"{file.location}: {fault[1]}")
        if self.deep:
            self._check_deletes(present, faults)
        return FileReport(list(faults.findings()), len(self.files), len(footers))

    # -- there or not -------------------------------------------------------------------------------

    def _compare_listing(self, faults: _Faults) -> list[ListedFile]:
        """Missing, orphaned and replaced files; returns those that are there, with the right size."""
        expected: dict[str, list[ListedFile]] = {}
        for file in self.files:
            expected.setdefault(file.location, []).append(file)
        orphans: list[str] = []
        present: list[ListedFile] = []
        limit = datetime.now(UTC) - self.grace

        def compare(file: ListedFile, size: int) -> None:
            if size == file.size:
                present.append(file)
            else:
                text = f"{file.location}: {size} bytes instead of {file.size}"
                faults.add("file_size", file.table_id, text)

        for number, stored in enumerate(self.store.list(self.data_path)):
            self._tell("listing files", number)
            named = expected.pop(stored.location, None)
            if named is not None:
                for file in named:
                    compare(file, stored.size)
            elif (
                stored.location not in self.scheduled
                and stored.modified < limit
                and _is_ours(stored.location)
            ):
                orphans.append(stored.location)
        # What is left lies elsewhere (files that were added by their full path), or is not there.
        missing: list[ListedFile] = []
        elsewhere = [file for files in expected.values() for file in files]
        for file, size in self._in_threads("looking for files", elsewhere, self._size):
            if size is None:
                missing.append(file)
            else:
                compare(file, size)
        if missing or orphans:
            named_now, scheduled_now = self.refresh()
            for file in missing:
                if file.location in named_now:
                    faults.add("file_missing", file.table_id, file.location)
            for location in orphans:
                if location not in named_now and location not in scheduled_now:
                    faults.add("file_orphaned", None, location)
        return present

    def _size(self, file: ListedFile) -> int | None:
        try:
            return self.store.size(file.location)
        except FileMissingError:
            return None

    # -- what is in them ----------------------------------------------------------------------------

    def _footer_sample(self, present: Sequence[ListedFile]) -> list[ListedFile]:
        parquet = [file for file in present if file.format == "parquet"]
        if self.deep or len(parquet) <= self.sample:
            return parquet
        return random.sample(parquet, self.sample)

    def _check_footer(self, file: ListedFile) -> tuple[str, str] | None:
        """A fault and what is wrong, or None. Reading an encrypted footer takes the whole file."""
        wanted = _TAIL if file.footer_size is None else file.footer_size + _FRAME
        try:
            tail = self.store.read_tail(file.location, file.size, max(wanted, _FRAME))
        except StorageError as error:
            return "file_unreadable", error.detail or error.message
        magic, length = tail[-4:], int.from_bytes(tail[-8:-4], "little")
        encrypted = file.encryption_key is not None
        if magic != (b"PARE" if encrypted else b"PAR1") or length + _FRAME > file.size:
            return "file_unreadable", f"it ends in {magic!r}"
        if file.footer_size is not None and length != file.footer_size:
            return "footer_size", f"{length} instead of {file.footer_size}"
        if encrypted and not self.deep:
            return None
        try:
            rows = self._rows(file, tail, length + _FRAME)
        except (pa.ArrowException, OSError) as error:
            return "file_unreadable", str(error)
        except (StorageError, UnsupportedError) as error:
            return "file_unreadable", error.detail or error.message
        if rows != file.entries:
            code = "record_count" if file.kind == "data" else "delete_count"
            return code, f"{rows} rows instead of {file.entries}"
        return None

    def _rows(self, file: ListedFile, tail: bytes, needed: int) -> int:
        """How many rows the footer states."""
        if file.encryption_key is not None:
            footer = encrypted_footer(self.store, file.location, file.size, file.encryption_key)
            return int(footer.num_rows)
        if needed > len(tail):
            tail = self.store.read_tail(file.location, file.size, needed)
        return int(pq.read_metadata(io.BytesIO(tail)).num_rows)

    def _check_deletes(self, present: Sequence[ListedFile], faults: _Faults) -> None:
        rows = {file.id: file.entries for file in self.files if file.kind == "data"}
        deletes = [file for file in present if file.kind == "delete"]

        def check(file: ListedFile) -> tuple[str, str] | None:
            return self._check_positions(file, rows.get(file.data_file_id))

        for file, fault in self._in_threads("reading delete files", deletes, check):
            if fault is not None:
                faults.add(fault[0], file.table_id, f"{file.location}: {fault[1]}")

    def _check_positions(self, file: ListedFile, rows: int | None) -> tuple[str, str] | None:
        try:
            positions, _ = read_deletes(self.store, _delete_file(file))
        except (CorruptFileError, UnsupportedError) as error:
            return "file_unreadable", error.detail or error.message
        if len(positions) != file.entries:
            return "delete_count", f"{len(positions)} positions instead of {file.entries}"
        if len(positions) and (np.any(np.diff(positions) <= 0) or positions[0] < 0):
            return "delete_positions", "its positions do not ascend"
        if rows is not None and len(positions) and positions[-1] >= rows:
            return "delete_positions", f"position {positions[-1]} in a file of {rows} rows"
        return None

    # -- how ----------------------------------------------------------------------------------------

    def _in_threads(
        self, what: str, files: Sequence[ListedFile], work: Callable[[ListedFile], Item]
    ) -> Iterator[tuple[ListedFile, Item]]:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-health") as pool:
            for number, result in enumerate(pool.map(work, files)):
                self._tell(what, number, len(files))
                yield files[number], result

    def _tell(self, what: str, done: int, total: int | None = None) -> None:
        if self.progress is not None and done % 100 == 0:
            self.progress(what, done, total)


def _is_ours(location: str) -> bool:
    name = location.rsplit("/", 1)[-1]
    return name.endswith(_OURS) or name.startswith(_SCRATCH)


def _delete_file(file: ListedFile) -> DeleteFile:
    return DeleteFile(
        id=file.id,
        data_file_id=file.data_file_id,
        path=file.location,
        format=file.format,
        delete_count=file.entries,
        file_size_bytes=file.size,
        footer_size=file.footer_size,
        encryption_key=file.encryption_key,
        begin_snapshot=0,
        partial_max=None,
    )


def locations(files: Iterable[ListedFile]) -> set[str]:
    """Where the files are."""
    return {file.location for file in files}
