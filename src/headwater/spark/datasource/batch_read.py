"""Reading a table at one snapshot: planned on the driver, read in the workers.

The plan is cut into tasks there where it is made. Inlined rows travel with the task, so that they belong to
the same state as the files even if they are flushed to a file in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.errors import ConflictError, InvalidInputError, NotFoundError
from headwater.lake.lake import Lake
from headwater.lake.model import Column, Table
from headwater.lake.reading.read import iter_plan, read_plan
from headwater.lake.reading.row_filter import HIDDEN
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.spark.datasource.place import OpenLake
from headwater.spark.types import spark_field, spark_type, to_spark
from headwater.typedefs import SnapshotId, TableName

#: A task reads about this much, unless `maxPartitionBytes` says otherwise (Spark's own default).
MAX_PARTITION_BYTES = 128 << 20
#: Opening a file costs as much as reading this.
_OPEN_COST = 4 << 20
_ROWS_IN_TASK = 100_000
_REPLANS = 5
_HIDDEN_TYPES: dict[str, st.DataType] = {
    name: st.StringType() if name == "filename" else st.LongType() for name in HIDDEN
}


@dataclass(frozen=True, slots=True)
class ReadScope:
    """What is read: a table at one snapshot, some of its columns, the rows that meet a condition."""

    table: TableName
    snapshot_id: SnapshotId
    columns: tuple[str, ...]
    """The table's own names."""
    hidden: tuple[str, ...] = ()
    where: str | None = None
    max_partition_bytes: int = MAX_PARTITION_BYTES


def scope_schema(table: Table, columns: Sequence[str], hidden: Sequence[str]) -> st.StructType:
    """The Spark schema of columns and hidden columns of a table."""
    fields = [spark_field(found(table, name)) for name in columns]
    for name in hidden:
        if table.column(name) is not None:
            raise InvalidInputError(
                f"Table {table.name} has a column {name!r} of its own, which hides the hidden one.",
                table=str(table.name),
                column=name,
            )
        fields.append(st.StructField(name, _HIDDEN_TYPES[name]))
    return st.StructType(fields)


def found(table: Table, name: str) -> Column:
    """The column of that name, or an error that lists those there are."""
    column = table.column(name)
    if column is None:
        raise NotFoundError(
            f"Table {table.name} has no column {name!r}.",
            hint=f"There are: {', '.join(c.name for c in table.columns)}.",
            table=str(table.name),
            column=name,
        )
    return column


def check_schema(schema: st.StructType, table: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns and hidden columns that a schema names; a schema of the user's own must fit the table.

    It chooses columns and their order, and Spark then reads no others.
    """
    columns: list[str] = []
    hidden: list[str] = []
    for field in schema.fields:
        name = field.name.lower()
        if name in _HIDDEN_TYPES and table.column(name) is None:
            hidden.append(name)
            continue
        column = found(table, field.name)
        if hidden:
            raise InvalidInputError(
                f"Column {field.name!r} stands behind a hidden column.", hint="Put hidden columns last."
            )
        wanted = spark_type(column).simpleString()
        said = field.dataType.simpleString()
        if said.lower() != wanted.lower():
            raise InvalidInputError(
                f"The schema says that column {field.name!r} is {said}; it is {wanted}.",
                hint="Leave .schema(…) out, and cast the column afterwards.",
                table=str(table.name),
                column=field.name,
            )
        columns.append(column.name)
    return tuple(columns), tuple(hidden)


@dataclass
class FilesTask(InputPartition):
    """Some files of a plan."""

    plan: ScanPlan


@dataclass
class RowsTask(InputPartition):
    """Rows that were read with the plan, in Spark's types."""

    rows: pa.Table


class TableReader(DataSourceReader):
    """Reads a scope; the columns come out under the names and in the order of `schema`.

    It takes no filters (`pushFilters`), although Spark offers them: Spark 4.3 keeps what was planned with the
    filters of one scan for every other scan of the same DataFrame, so `df.filter("k = 1").union(df)` would
    lose rows. The option `where` is the safe way to leave files out.
    """

    def __init__(self, opened: OpenLake, scope: ReadScope, schema: st.StructType):
        self._opened = opened
        self._scope = scope
        self._names = schema.fieldNames()

    def partitions(self) -> list[InputPartition]:
        """The tasks: files by size, inlined rows on their own."""
        lake = self._opened.open()
        plan, rows = self._consistent_plan(lake)
        tasks: list[InputPartition] = [
            FilesTask(sub_plan(plan, files)) for files in grouped(plan.files, self._scope.max_partition_bytes)
        ]
        for start in range(0, rows.num_rows, _ROWS_IN_TASK):
            tasks.append(RowsTask(rows.slice(start, _ROWS_IN_TASK)))
        return tasks

    def _consistent_plan(self, lake: Lake) -> tuple[ScanPlan, pa.Table]:
        """A plan, and the inlined rows that belong to it."""
        scope = self._scope
        for attempt in range(_REPLANS):
            plan = lake.scan(scope.table, scope.snapshot_id, scope.where)
            try:
                return plan, self._rows(lake, replace(plan, files=()))
            except ConflictError:  # flushed since
                if attempt == _REPLANS - 1:
                    raise
        raise AssertionError("unreachable")

    def _rows(self, lake: Lake, plan: ScanPlan) -> pa.Table:
        scope = self._scope
        rows = read_plan(
            plan, lake.store, lake.db, columns=scope.columns, where=scope.where, hidden=scope.hidden
        )
        return to_spark(rows, plan.table.columns).rename_columns(self._names)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, RowsTask):
            yield from partition.rows.to_batches()
        elif isinstance(partition, FilesTask):
            lake = self._opened.open()
            scope, plan = self._scope, partition.plan
            for batch in iter_plan(
                plan, lake.store, lake.db, columns=scope.columns, where=scope.where, hidden=scope.hidden
            ):
                if batch.num_rows:
                    rows = to_spark(pa.Table.from_batches([batch]), plan.table.columns)
                    yield from rows.rename_columns(self._names).to_batches()


def sub_plan(plan: ScanPlan, files: Sequence[FileScan]) -> ScanPlan:
    """The same plan for some of its files, and for none of its inlined rows."""
    wanted = {scan.file.mapping_id for scan in files}
    mappings = {key: mapping for key, mapping in plan.mappings.items() if key in wanted}
    return replace(plan, files=tuple(files), inlined=(), mappings=mappings)


def grouped(files: Sequence[FileScan], most: int) -> Iterator[list[FileScan]]:
    """Files together that make a task of a good size, as Spark itself would cut them."""
    total = sum(scan.file.file_size_bytes + _OPEN_COST for scan in files)
    limit = min(most, max(_OPEN_COST, total // max(1, os.cpu_count() or 1)))
    group: list[FileScan] = []
    size = 0
    for scan in files:
        cost = scan.file.file_size_bytes + _OPEN_COST
        if group and size + cost > limit:
            yield group
            group, size = [], 0
        group.append(scan)
        size += cost
    if group:
        yield group
