"""Storing rows as Parquet files that a commit can then name.

A file is written once under a name nobody else has, read back (size and footer) from where it is stored,
and only then handed on. Until a snapshot names it, it does not exist for any reader.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import StorageError
from headwater.lake.format.ids import data_file_name, delete_file_name
from headwater.lake.format.layout import sort_keys
from headwater.lake.format.partitions import hive_path, split_by_partition
from headwater.lake.format.types import AnyArray, arrow_schema
from headwater.lake.model import (
    DELETE_PATH_FIELD,
    DELETE_POS_FIELD,
    ROW_ID_COLUMN,
    ROW_ID_FIELD,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD,
    Column,
    StagedDeletes,
    StagedFile,
    Table,
)
from headwater.lake.options import DEFAULT_TARGET_FILE_SIZE, LakeOptions
from headwater.lake.writing.draft import Positions
from headwater.lake.writing.parquet_files import FileFormat, Written, write_file, write_stream
from headwater.storage.parquet import ROW_GROUP_ROWS, resolve_codec
from headwater.storage.store import Store
from headwater.typedefs import ColumnId

log = logging.getLogger("headwater.lake")


@dataclass
class Stager:
    """Writes files for one transaction, by the lake's options."""

    store: Store
    options: LakeOptions
    codec: str | None = None
    """Overrides the lake's own compression setting."""

    def stage(self, table: Table, data: pa.Table, row_ids: AnyArray | None = None) -> list[StagedFile]:
        """Store rows that already have the table's columns; `row_ids` are kept inside the file."""
        if data.num_rows == 0:
            return []
        data, row_ids = self._sorted(table, data, row_ids)
        if row_ids is not None:
            data = data.append_column(_int64(ROW_ID_COLUMN, ROW_ID_FIELD), row_ids)
        if table.partition is None or not table.partition.fields:
            return [self._file(table, part, row_ids is not None) for part in self._parts(table, data)]
        staged = []
        for values, group in split_by_partition(data, table.partition.fields, table.columns):
            hive = self._hive(table) and hive_path(table.partition.fields, table.columns, values)
            for part in self._parts(table, group):
                staged.append(self._file(table, part, row_ids is not None, hive or "", values))
        return staged

    def stage_whole(
        self,
        table: Table,
        data: pa.Table,
        columns: tuple[Column, ...],
        partition_values: tuple[str | None, ...],
    ) -> StagedFile:
        """Store rows of an older column layout as one file; further columns of `data` go along."""
        folder = ""
        if partition_values and table.partition is not None and self._hive(table):
            folder = hive_path(table.partition.fields, table.columns, partition_values)
        return self._file(table, data, True, folder, partition_values, columns)

    def stage_moved(
        self,
        table: Table,
        data: pa.Table | Iterable[pa.RecordBatch],
        columns: tuple[Column, ...],
        partition_id: int | None,
        partition_values: tuple[str | None, ...],
        maybe_nan: Collection[ColumnId] = (),
    ) -> StagedFile:
        """Store rows that other files hold as one file of their partition; further columns go along.

        A stream is never held in memory as a whole; `maybe_nan` are its columns that can hold NaN.
        """
        folder = ""
        if table.partition is not None and table.partition.id == partition_id and self._hive(table):
            folder = hive_path(table.partition.fields, table.columns, partition_values)
        path = folder + data_file_name()
        if isinstance(data, pa.Table):
            written = self._write(table, path, data, columns)
        else:
            schema = arrow_schema(columns)
            batches = iter(data)
            first = next(batches, None)
            for place in range(len(schema), first.num_columns if first is not None else 0):
                schema = schema.append(cast(pa.RecordBatch, first).schema.field(place))
            written = write_stream(
                self.store,
                table.path + path,
                itertools.chain([] if first is None else [first], batches),
                schema,
                columns,
                self.file_format(table),
                maybe_nan,
            )
        return StagedFile(
            path=path,
            record_count=written.rows,
            file_size_bytes=written.size,
            footer_size=written.footer_size,
            column_stats=written.column_stats,
            partition_id=partition_id,
            partition_values=partition_values,
            encryption_key=written.encryption_key,
            has_row_ids=True,
        )

    def stage_stream(
        self, table: Table, batches: Iterable[pa.RecordBatch], bytes_at_once: int = 256 << 20
    ) -> Iterator[StagedFile]:
        """Store a stream in files, holding no more than `bytes_at_once` of it in memory."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        limit = min(bytes_at_once, self.target_size(table))
        for batch in batches:
            waiting.append(batch)
            size += batch.nbytes
            if size >= limit:
                yield from self.stage(table, pa.Table.from_batches(waiting))
                waiting, size = [], 0
        if waiting:
            yield from self.stage(table, pa.Table.from_batches(waiting))

    def stage_deletes(self, table: Table, positions: Positions, snapshots: Positions | None) -> StagedDeletes:
        """Store a delete file: ascending positions, with the snapshot of each where they differ."""
        name = delete_file_name()
        fields = [_field("file_path", pa.string(), DELETE_PATH_FIELD), _int64("pos", DELETE_POS_FIELD)]
        # DuckDB ignores what the path says; the catalog knows which data file is meant.
        arrays: list[AnyArray] = [
            pa.repeat(pa.scalar(""), len(positions)),
            pa.array(positions, pa.int64()),
        ]
        if snapshots is not None:
            fields.append(_int64(SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD))
            arrays.append(pa.array(snapshots, pa.int64()))
        data = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        written = self._write(table, name, data, ())
        return StagedDeletes(
            path=name,
            count=len(positions),
            file_size_bytes=written.size,
            footer_size=written.footer_size,
            encryption_key=written.encryption_key,
            first_snapshot=int(snapshots.min()) if snapshots is not None else None,
            last_snapshot=int(snapshots.max()) if snapshots is not None else None,
        )

    def discard(self, table: Table, files: Iterable[StagedFile]) -> None:
        """Remove files that no commit will name; what cannot be removed is left for clean-up.

        Files outside the table's folder stay: somebody else's, who may still want them.
        """
        for file in files:
            if file.path_is_relative:
                self.remove(table.path + file.path)

    def remove(self, location: str) -> None:
        """Remove one file nobody names; a failure leaves an orphan, which clean-up collects."""
        try:
            self.store.delete(location)
        except StorageError as error:
            log.warning("left behind for clean-up: %s (%s)", location, error.message)

    def _file(
        self,
        table: Table,
        data: pa.Table,
        has_row_ids: bool,
        folder: str = "",
        partition_values: tuple[str | None, ...] = (),
        columns: tuple[Column, ...] | None = None,
    ) -> StagedFile:
        path = folder + data_file_name()
        written = self._write(table, path, data, table.columns if columns is None else columns)
        return StagedFile(
            path=path,
            record_count=data.num_rows,
            file_size_bytes=written.size,
            footer_size=written.footer_size,
            column_stats=written.column_stats,
            partition_id=table.partition.id if partition_values and table.partition else None,
            partition_values=partition_values,
            encryption_key=written.encryption_key,
            has_row_ids=has_row_ids,
        )

    def _write(self, table: Table, path: str, data: pa.Table, columns: tuple[Column, ...]) -> Written:
        schema = arrow_schema(columns)
        for place in range(len(schema), data.num_columns):
            schema = schema.append(data.schema.field(place))
        return write_file(self.store, table.path + path, data, schema, columns, self.file_format(table))

    def file_format(self, table: Table) -> FileFormat:
        """Codec, level and size of row groups of a table's files."""
        where = {"schema_id": table.schema_id, "table_id": table.id}
        level = self.options.get("parquet_compression_level", **where)
        return FileFormat(
            codec=resolve_codec(self.codec or self.options.get("parquet_compression", **where)),
            compression_level=int(level) if level is not None else None,
            row_group_rows=self.options.number("parquet_row_group_size", ROW_GROUP_ROWS, **where),
            encrypted=self.options.encrypted,
        )

    def _hive(self, table: Table) -> bool:
        if self.options.encrypted:  # a folder name would give values away
            return False
        where = {"schema_id": table.schema_id, "table_id": table.id}
        return self.options.flag("hive_file_pattern", True, **where)

    def target_size(self, table: Table) -> int:
        """How many bytes a file should have."""
        return self.options.number(
            "target_file_size", DEFAULT_TARGET_FILE_SIZE, schema_id=table.schema_id, table_id=table.id
        )

    def sorts(self, table: Table) -> bool:
        """Whether new files of a table are put in its sort order."""
        where = {"schema_id": table.schema_id, "table_id": table.id}
        return self.options.flag("sort_on_insert", True, **where)

    def _parts(self, table: Table, data: pa.Table) -> Iterator[pa.Table]:
        """Slices of about the target file size."""
        count = max(1, math.ceil(data.nbytes / max(1, self.target_size(table))))
        rows = max(1, math.ceil(data.num_rows / count))
        for start in range(0, data.num_rows, rows):
            yield data.slice(start, rows)

    def _sorted(
        self, table: Table, data: pa.Table, row_ids: AnyArray | None
    ) -> tuple[pa.Table, AnyArray | None]:
        keys = sort_keys(table)
        if not keys or not self.sorts(table):
            return data, row_ids
        columns = {name: plain_values(data.column(name)) for name, _, _ in keys}
        # The stubs do not know null placement.
        order = pc.sort_indices(pa.table(columns), sort_keys=cast(Any, keys))
        return data.take(order), None if row_ids is None else row_ids.take(order)


def plain_values(data: AnyArray) -> AnyArray:
    """Values in the type that stores them: Arrow does not sort by UUIDs or JSON."""
    if not isinstance(data.type, pa.BaseExtensionType):
        return data
    return pa.chunked_array([chunk.storage for chunk in data.chunks], cast(Any, data.type).storage_type)


def _field(name: str, kind: pa.DataType, field_id: int) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(field_id)})


def _int64(name: str, field_id: int) -> pa.Field[Any]:
    return _field(name, pa.int64(), field_id)
