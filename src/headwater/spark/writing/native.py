"""Spark's own Parquet writer, and the lake's view of the files that it wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.lake.format.conform import conform as by_field_id
from headwater.lake.format.ids import new_uuid
from headwater.lake.format.layout import sort_keys
from headwater.lake.format.name_mappings import names_in_file, needs_names, row_id_column
from headwater.lake.format.partitions import split_by_partition
from headwater.lake.format.types import decimal_parts
from headwater.lake.model import ROW_ID_FIELD, Column, StagedFile, Table
from headwater.lake.writing.staging import Stager
from headwater.lake.writing.stored_files import stage_stored_file
from headwater.spark.literals import name_sql
from headwater.spark.stores import JvmStores
from headwater.spark.writing.conforming import with_field_ids
from headwater.spark.writing.partitions import folder_name, partition_keys
from headwater.storage.locations import parse_location
from headwater.storage.store import StoredFile

#: Types that Spark writes as DuckDB reads them.
_WRITABLE = frozenset(
    {"boolean", "int8", "int16", "int32", "int64", "float32", "float64", "date", "timestamp", "timestamptz"}
    | {"varchar", "blob"}
)
_THREADS = 8
#: Larger files have rows; of smaller ones the footer is looked at.
_SMALL = 64 << 10
_CODECS = {"none": "uncompressed", "gzip": "gzip", "zstd": "zstd", "snappy": "snappy", "lz4": "lz4_raw"}
ROW_ID = "headwater row id"
"""The column of row ids of rows that are to keep theirs."""


def is_writable(column: Column) -> bool:
    """Whether Spark's writer stores the column as the lake wants it."""
    if column.is_nested:
        return all(map(is_writable, column.children))
    return column.type in _WRITABLE or decimal_parts(column.type) is not None


@dataclass(frozen=True)
class NativeWriter:
    """Stores rows with Spark's writer, in a folder of their own below the table's."""

    stager: Stager
    stores: JvmStores

    def can_write(self, frame: DataFrame, table: Table) -> bool:
        """Whether this writer can do it as the table needs it."""
        return (
            not self.stager.options.encrypted
            and all(map(is_writable, table.columns))
            and self.stores.reachable(table.path)
            and partition_keys(frame.sparkSession, table) is not None
        )

    def write(self, frame: DataFrame, table: Table, bytes_per_row: float) -> list[StagedFile]:
        """Store rows that have the table's columns, and `ROW_ID` if they keep their ids."""
        keeps_ids = ROW_ID in frame.columns
        extra: dict[str, int] = {}
        if keeps_ids:
            extra = {row_id_column(table.columns): ROW_ID_FIELD}
            frame = frame.withColumnRenamed(ROW_ID, row_id_column(table.columns))
        rows = with_field_ids(frame, table.columns, extra)
        rows, folders = self._laid_out(rows, table)
        folder = f"{table.path}ducklake-{new_uuid()}/"
        form = self.stager.file_format(table)
        options: dict[str, str | int] = {
            "compression": _CODECS[form.codec.name],
            "maxRecordsPerFile": max(1, int(self.stager.target_size(table) / max(bytes_per_row, 1e-3))),
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        }
        if form.codec.name == "zstd" and form.compression_level is not None:
            options["parquet.compression.codec.zstd.level"] = form.compression_level
        try:
            rows.write.options(**options).partitionBy(*folders).parquet(self.stores.path(folder))
            return self._staged(table, folder, keeps_ids)
        except BaseException:
            self.remove(folder)
            raise

    def remove(self, folder: str) -> None:
        """Take back what was stored in vain."""
        for file in self.stager.store.list(folder):
            self.stager.remove(file.location)

    def _laid_out(self, rows: DataFrame, table: Table) -> tuple[DataFrame, list[str]]:
        """Rows of one partition together, in the table's order, with a column for each folder."""
        keys = partition_keys(rows.sparkSession, table) or []
        fields = table.partition.fields if table.partition else ()
        folders = [folder_name(table, one) for one in fields]
        for name, key in zip(folders, keys, strict=True):
            rows = rows.withColumn(name, key)
        if folders:
            rows = rows.hint("rebalance", *folders)
        order = [F.col(name) for name in folders]
        if self.stager.sorts(table):
            for name, direction, nulls in sort_keys(table):
                column = F.col(name_sql(name))
                suffix = "nulls_first" if "start" in nulls else "nulls_last"
                order.append(getattr(column, f"{'asc' if direction == 'ascending' else 'desc'}_{suffix}")())
        return (rows.sortWithinPartitions(*order) if order else rows), folders

    def _staged(self, table: Table, folder: str, keeps_ids: bool) -> list[StagedFile]:
        stored = list(self.stager.store.list(folder))
        for file in stored:
            if not file.location.endswith(".parquet"):
                self.stager.remove(file.location)  # checksums, which Hadoop keeps beside local files
        found = [f.location for f in stored if f.location.endswith(".parquet") and self._has_rows(f)]
        if parse_location(folder).is_local and self.stager.store.options.local_fsync:
            _sync(found)
        mapping = names_in_file(table.columns) if needs_names(table.columns) else None

        def stage(location: str) -> StagedFile:
            return stage_stored_file(
                self.stager.store,
                table,
                location,
                columns=table.columns,
                partition_values=self._partition_values(table, location),
                has_row_ids=keeps_ids,
                mapping=mapping,
            )

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-stage") as pool:
            return list(pool.map(stage, sorted(found)))

    def _has_rows(self, file: StoredFile) -> bool:
        """Spark writes a file without rows where there are none at all."""
        if file.size > _SMALL:
            return True
        with self.stager.store.reading(file.location), self.stager.store.open_input(file.location) as source:
            if pq.read_metadata(source).num_rows:
                return True
        self.stager.remove(file.location)
        return False

    def _partition_values(self, table: Table, location: str) -> tuple[str | None, ...]:
        """The partition of a file, by the lake's own rules, from its first row: all others are like it."""
        if table.partition is None or not table.partition.fields:
            return ()
        by_id = table.by_id()
        names = list(dict.fromkeys(by_id[f.column_id].name for f in table.partition.fields))
        columns = [column for column in table.columns if column.name in names]
        with self.stager.store.reading(location), self.stager.store.open_input(location) as source:
            batches = pq.ParquetFile(source).iter_batches(batch_size=1, columns=[c.name for c in columns])
            first = next(iter(batches), None)
        if first is None:
            return (None,) * len(table.partition.fields)
        row = by_field_id(pa.Table.from_batches([first]), columns)
        ((values, _),) = split_by_partition(row, table.partition.fields, columns)
        return values


def _sync(locations: Sequence[str]) -> None:
    """Wait until local files are on disk, as the lake does with those it writes itself."""

    def sync(path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    paths = [Path(parse_location(location).path) for location in locations]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(sync, [*paths, *{folder for path in paths for folder in path.parents[:2]}]))
