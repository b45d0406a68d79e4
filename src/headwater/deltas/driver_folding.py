"""Folding in this process: for logs of few rows, or without Spark. Memory holds a group of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.deltas.folding import Fold, Folded, plan_rows, stored_bytes, top_columns
from headwater.deltas.matching import FoldedLog, KeyIndex, Numbers, fold_log
from headwater.deltas.model import DELTA, OPERATION, PLACE, SEQUENCE, UPSERT
from headwater.deltas.pruning import among
from headwater.lake.format.align import align_input
from headwater.lake.format.texts import plain_values
from headwater.lake.reading.file_reader import read_file
from headwater.lake.reading.read import ROWS_AT_ONCE, read_plan
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import FileScan

#: A longer log is Spark's.
MOST_LOG_ROWS = 500_000
#: How many stored bytes of the base are written anew here, where Spark could do it too.
MOST_BYTES = 64 << 20
#: How many stored bytes are in memory at once; what they become there is larger.
_GROUP_BYTES = 32 << 20
_POSITION = "file_row_number"


@dataclass
class _Matched:
    """Rows of one file that have a key of the log: their positions and the numbers of the keys."""

    positions: list[Numbers] = field(default_factory=list)
    keys: list[Numbers] = field(default_factory=list)


@dataclass
class DriverFold:
    """Folds a log with Arrow and DuckDB."""

    fold: Fold
    #: Whether Spark may be asked instead, when there is much to do.
    spark_too: bool

    def run(self) -> Folded | None:
        """Store what the base is to hold; None if that is too much for this process."""
        if self.spark_too and plan_rows(self.fold.log) > MOST_LOG_ROWS:
            return None
        # Rows that were flushed from the catalog meanwhile are a conflict, and the transaction runs again.
        self._log = read_plan(self.fold.log, self.fold.lake.store, self.fold.lake.db, hidden=(SEQUENCE,))
        keys = self._log.select([pair.log.name for pair in self.fold.bound.key])
        operations = self._log.column(OPERATION)
        self._said = fold_log(keys, operations, self._log.column(SEQUENCE))
        self._upserts = np.array([one == UPSERT for one in operations.to_pylist()], bool)
        newest = keys.take(self._said.newest)
        files = self._affected_files(newest)
        if self.spark_too and stored_bytes(self.fold.chosen(files)) > MOST_BYTES:
            return None
        folded = self._counted()
        self._met = np.zeros(len(self._said.newest), bool)
        self._store_rewritten(folded, files)
        self._store_added(folded)
        self._match_tombstones(folded)
        return folded

    # -- finding ------------------------------------------------------------------------------------

    def _affected_files(self, newest: pa.Table) -> dict[int, _Matched]:
        """The files that hold keys of the log, and where."""
        fold, bound = self.fold, self.fold.bound
        index = KeyIndex(newest)
        values = plain_values(newest.column(0).combine_chunks(), bound.key[0].log)
        left = fold.lake.files_left(fold.base, among(bound.key[0].base, values))
        request = Request.of(bound.base, [pair.base.name for pair in bound.key], None, [_POSITION])
        found: dict[int, _Matched] = {}
        for scan in fold.chosen(left):
            for piece in read_file(fold.lake.store, fold.base, scan, request, rows_at_once=ROWS_AT_ONCE):
                places, numbers = index.matches(piece.drop_columns([_POSITION]))
                if len(places):
                    one = found.setdefault(scan.file.id, _Matched())
                    one.positions.append(piece.column(_POSITION).to_numpy()[places])
                    one.keys.append(numbers)
        self._index = index
        return found

    # -- storing ------------------------------------------------------------------------------------

    def _store_rewritten(self, folded: Folded, files: dict[int, _Matched]) -> None:
        """Store anew the rows of affected files, and those that the catalog keeps for the base."""
        fold = self.fold
        request = Request.of(fold.bound.base, None, None, [SEQUENCE, _POSITION])
        folded.file_ids = sorted(files)
        for group in _groups(fold.chosen(files)):
            tables: list[pa.Table] = []
            for scan in group:
                matched = files[scan.file.id]
                positions, numbers = np.concatenate(matched.positions), np.concatenate(matched.keys)
                for piece in read_file(fold.lake.store, fold.base, scan, request, rows_at_once=ROWS_AT_ONCE):
                    at = piece.column(_POSITION).to_numpy()
                    here = np.isin(positions, at)
                    places = np.searchsorted(at, positions[here])
                    rows = piece.drop_columns([_POSITION])
                    tables.append(self._changed(folded, rows, places, numbers[here]))
            self._stage(folded, tables)
        if fold.base.inlined:
            rows = read_plan(replace(fold.base, files=()), fold.lake.store, fold.lake.db, hidden=(SEQUENCE,))
            keys = rows.select([pair.base.name for pair in fold.bound.key])
            self._stage(folded, [self._changed(folded, rows, *self._index.matches(keys))])

    def _changed(self, folded: Folded, rows: pa.Table, places: Numbers, numbers: Numbers) -> pa.Table:
        """Rows of the base with their row ids, as the log leaves them."""
        self._met[numbers] = True
        if not len(places):
            return rows
        decided = self._said.newest[numbers]
        stays = self._upserts[decided]
        keep = np.ones(rows.num_rows, bool)
        keep[places] = False
        folded.updated += int(stays.sum())
        folded.removed += int((~stays).sum())
        ids = rows.column(SEQUENCE).take(pa.array(places[stays]))
        new = pa.Table.from_arrays([*self._as_base(decided[stays]).columns, ids], schema=rows.schema)
        return pa.concat_tables([rows.filter(pa.array(keep)), new])

    def _as_base(self, places: Numbers) -> pa.Table:
        """Rows of the log in the columns of the base."""
        bound = self.fold.bound
        chosen = self._log.select([pair.log.name for pair in bound.columns]).take(places)
        named = chosen.rename_columns([pair.base.name for pair in bound.columns])
        return align_input(named, bound.base.columns)

    def _stage(self, folded: Folded, tables: Sequence[pa.Table]) -> None:
        rows = pa.concat_tables(tables)
        if not rows.num_rows:
            return
        base = self.fold.bound.base
        ids = rows.column(SEQUENCE).combine_chunks()
        data = align_input(rows.drop_columns([SEQUENCE]), base.columns)
        self._count_nulls(folded, data)
        folded.rewritten += self.fold.keep(self.fold.tx.stager.stage(base, data, ids))

    def _store_added(self, folded: Folded) -> None:
        """Store the rows of keys that the base has not."""
        decided = self._said.newest[~self._met]
        new = decided[self._upserts[decided]]
        folded.inserted = len(new)
        if len(new):
            data = self._as_base(new)
            self._count_nulls(folded, data)
            folded.added += self.fold.keep(self.fold.tx.stager.stage(self.fold.bound.base, data))

    def _count_nulls(self, folded: Folded, data: pa.Table) -> None:
        for place, column in enumerate(self.fold.bound.base.columns):
            if column in top_columns([column]):
                count = data.column(place).null_count
                folded.nulls[column.id] = folded.nulls.get(column.id, 0) + count

    # -- counting -----------------------------------------------------------------------------------

    def _counted(self) -> Folded:
        deltas = self._log.column(DELTA).filter(pa.array(self._upserts))
        return Folded(
            keys=len(self._said.newest),
            delta_rows=int(self._upserts.sum()),
            deltas=len(set(deltas.to_pylist())),
        )

    def _match_tombstones(self, folded: Folded) -> None:
        said: FoldedLog = self._said
        in_base = said.first_deletes & self._met[said.key]
        missed = said.missed | (said.first_deletes & ~in_base)
        folded.applied = int(said.applied.sum() + in_base.sum())
        rows: Any = self._log.select([DELTA, PLACE]).filter(pa.array(missed)).to_pylist()
        folded.unmatched.add((row[DELTA], row[PLACE]) for row in rows)


def _groups(scans: Sequence[FileScan]) -> Iterator[list[FileScan]]:
    """Files that are in memory together."""
    group: list[FileScan] = []
    for scan in scans:
        if group and stored_bytes([*group, scan]) > _GROUP_BYTES:
            yield group
            group = []
        group.append(scan)
    if group:
        yield group
