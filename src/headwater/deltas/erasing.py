"""Where rows of a key are still stored: every place is looked into, or named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.deltas import catalog_tables as sql
from headwater.deltas.keys import Keys, key_hash
from headwater.deltas.matching import KeyIndex
from headwater.deltas.model import OPERATION, SEQUENCE, UPSERT, Bound, ErasureReport, Finding
from headwater.deltas.store import DatasetStore
from headwater.errors import FileMissingError, StorageError
from headwater.lake.connection import Connection
from headwater.lake.format.conform import conform, name_mapping
from headwater.lake.lake import Lake
from headwater.lake.model import Column, DataFile, Table
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import FileScan, InlinedScan, ScanPlan, inlined_layouts
from headwater.typedefs import TableName

COMPACT = "compact() the dataset"
EXPIRE = "expire the snapshots that still see it (headwater expire)"
CLEAN_UP = "delete the files that no snapshot sees (headwater cleanup)"
ORPHANS = "remove files that the catalog does not know (hw.remove_orphans)"
REFRESH = "refresh it, and expire its old snapshots"

Readers = Callable[[Iterable[int], TableName], Sequence[str]]


def erasure_report(
    lake: Lake, store: DatasetStore, bound: Bound, key: Keys, readers: Readers | None = None
) -> ErasureReport:
    """Look for one key in everything that is stored for a dataset."""
    (texts,) = key.texts()
    findings = tuple(_Search(lake, store, bound, key).findings(readers))
    report = ErasureReport(
        str(bound.dataset.name),
        {column.name: text for column, text in zip(key.columns, texts, strict=True)},
        lake.snapshot().id,
        findings,
        (),
    )
    if report.erased:
        store.verified(bound.dataset, key_hash(texts))
    return replace(report, audit=tuple(store.audit(bound.dataset, key_hash(texts))))


@dataclass(frozen=True)
class _Search:
    lake: Lake
    store: DatasetStore
    bound: Bound
    key: Keys

    def findings(self, readers: Readers | None) -> Iterator[Finding]:
        """Every place, in the order in which a row leaves them."""
        known: set[str] = set()
        for what, table, columns in (
            ("base", self.bound.base, [pair.base for pair in self.bound.key]),
            ("log", self.bound.log, [pair.log for pair in self.bound.key]),
        ):
            yield from self._files(what, table, columns, known)
            yield from self._inlined(table, columns)
        scheduled = self._scheduled()
        yield from self._left_behind(known, scheduled)
        if readers is not None:
            ids = (self.bound.base.id, self.bound.log.id)
            for name in readers(ids, self.bound.dataset.name):
                yield Finding(
                    "reader", name, None, "it reads the dataset, and may hold what it computed", REFRESH
                )

    # -- files that the catalog names ---------------------------------------------------------------

    def _files(
        self, what: str, table: Table, columns: Sequence[Column], known: set[str]
    ) -> Iterator[Finding]:
        folder = {"table": table.id, "folder": table.path}
        mappings: dict[int, list[Any]] = {}
        for mapping_id, *row in self.store.catalog(sql.MAPPINGS, table=table.id):
            mappings.setdefault(mapping_id, []).append(tuple(row))
        plan = ScanPlan(
            table,
            self.lake.snapshot(),
            (),
            mappings={number: name_mapping(rows) for number, rows in mappings.items()},
        )
        files = [DataFile._make(row) for row in self.store.catalog(sql.FILES, **folder)]
        known.update(file.path for file in files)
        known.update(row[0] for row in self.store.catalog(sql.DELETE_FILES, **folder))
        live = [file for file in files if file.end_snapshot is None]
        older = [file for file in files if file.end_snapshot is not None]
        rows = sum(self._rows_in(plan, file, columns) for file in live)
        yield Finding(
            "base" if what == "base" else "log",
            f"{table.name}: {len(live)} current files",
            rows,
            "read without regard to delete files" if live else "",
            COMPACT,
        )
        found = [(file, self._rows_in(plan, file, columns)) for file in older]
        hits = [(file, count) for file, count in found if count]
        yield Finding(
            "older snapshot",
            f"{table.name}: {len(older)} files of older snapshots",
            sum(count for _, count in hits),
            "" if not hits else f"seen until snapshot {max((f.end_snapshot or 0) - 1 for f, _ in hits)}",
            EXPIRE,
        )

    def _rows_in(self, plan: ScanPlan, file: DataFile, columns: Sequence[Column]) -> int:
        """Rows with the key that a file holds, deleted or not; a tombstone of it is no row."""
        alone = replace(plan, files=(FileScan(file),))
        try:
            return self._matches(self._read(alone, columns), columns)
        except FileMissingError:
            return 0

    def _read(self, plan: ScanPlan, columns: Sequence[Column]) -> pa.Table:
        names = [column.name for column in columns]
        if plan.table.id == self.bound.log.id:
            names.append(OPERATION)
        return read_plan(plan, self.lake.store, self.lake.db, columns=names, hidden=(SEQUENCE,))

    def _matches(self, rows: pa.Table, columns: Sequence[Column]) -> int:
        if OPERATION in rows.schema.names:
            kept = [operation == UPSERT for operation in rows.column(OPERATION).to_pylist()]
            rows = rows.filter(pa.array(kept, pa.bool_()))
        keys = rows.select([column.name for column in columns])
        return len(KeyIndex(self.key.table).matches(keys)[0])

    # -- rows that the catalog keeps ----------------------------------------------------------------

    def _inlined(self, table: Table, columns: Sequence[Column]) -> Iterator[Finding]:
        """Inlined rows of all times: what ended is still there until it is flushed."""
        snapshot = self.lake.snapshot()

        def layouts(connection: Connection) -> list[tuple[str, int, tuple[Column, ...]]]:
            return inlined_layouts(self.lake.db, connection, table, snapshot)

        for name, version, stored in self.lake.db.read(layouts):
            counts: dict[int, int] = {}
            ends = self.store.catalog(
                f"SELECT DISTINCT end_snapshot - 1 FROM {{{name}}} WHERE end_snapshot IS NOT NULL"
            )
            for at in sorted({snapshot.id, *(int(row[0]) for row in ends)}):
                ((count,),) = self.store.catalog(
                    f"SELECT count(*) FROM {{{name}}} WHERE begin_snapshot <= %(at)s "
                    "AND (end_snapshot IS NULL OR %(at)s < end_snapshot)",
                    at=at,
                )
                scan = InlinedScan(name, version, stored, count)
                then = replace(snapshot, id=at)
                counts[at] = self._matches(self._read(ScanPlan(table, then, (), (scan,)), columns), columns)
            current = counts.pop(snapshot.id, 0)
            total = max([current, *counts.values()], default=0)
            yield Finding(
                "inlined",
                f"{table.name}: rows kept in the catalog ({name})",
                total,
                _how(current, total),
                COMPACT if current else EXPIRE,
            )

    # -- files that no table names ------------------------------------------------------------------

    def _scheduled(self) -> list[str]:
        rows = self.store.catalog(sql.SCHEDULED, folder=self.lake.data_path)
        return [str(row[0]) for row in rows]

    def _left_behind(self, known: set[str], scheduled: Sequence[str]) -> Iterator[Finding]:
        waiting = set(scheduled)
        for table, columns in (
            (self.bound.base, [pair.base for pair in self.bound.key]),
            (self.bound.log, [pair.log for pair in self.bound.key]),
        ):
            there = [file.location for file in self.lake.store.list(table.path)]
            due = [place for place in there if place in waiting and place not in known]
            lost = [place for place in there if place not in waiting and place not in known]
            yield self._stray("scheduled", table, columns, due, CLEAN_UP)
            yield self._stray("orphan", table, columns, lost, ORPHANS)

    def _stray(
        self, store: str, table: Table, columns: Sequence[Column], places: Sequence[str], step: str
    ) -> Finding:
        rows, closed = 0, 0
        for place in places:
            found = self._rows_at(table, columns, place)
            rows += found or 0
            closed += found is None
        what = "files that are to be deleted" if store == "scheduled" else "files that nobody names"
        detail = f"{closed} of them cannot be read by anybody: their keys are gone" if closed else ""
        return Finding(
            "scheduled" if store == "scheduled" else "orphan",
            f"{table.name}: {len(places)} {what}",
            rows,
            detail,
            step,
        )

    def _rows_at(self, table: Table, columns: Sequence[Column], place: str) -> int | None:
        """Rows with the key in a file that only its name is known of; None if nobody can read it."""
        wanted = list(columns)
        operation = table.column(OPERATION)
        if table.id == self.bound.log.id and operation is not None:
            wanted.append(operation)
        try:
            with self.lake.store.reading(place), self.lake.store.open_input(place) as source:
                data = pq.ParquetFile(source).read()
        except FileMissingError:
            return 0
        except (StorageError, pa.ArrowInvalid, OSError):
            return None
        return self._matches(conform(data, wanted), columns)


def _how(current: int, total: int) -> str:
    if current:
        return "they are current"
    return "they ended, and are kept for older snapshots" if total else ""
