"""Rows of a DataFrame into a transaction: through the driver, Spark's writer, or the workers.

| rows | who stores them |
|---|---|
| few, by Spark's own estimate | the driver; the fewest are inlined |
| of types, in a store and by partitions that Spark's writer can do | Spark's writer |
| everything else (encrypted lakes, UUIDs, bucket partitions, …) | the lake's writer in Python workers |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.errors import InvalidInputError
from headwater.lake.format.conform import conform as by_field_id
from headwater.lake.format.values import can_inline
from headwater.lake.model import Column, StagedFile, Table
from headwater.lake.writing.prepared import inlining_limit
from headwater.lake.writing.transaction import Transaction
from headwater.spark.literals import default_sql
from headwater.spark.stores import JvmStores
from headwater.spark.types import from_spark, spark_type
from headwater.spark.writing.conforming import stored_rows
from headwater.spark.writing.native import ROW_ID, NativeWriter
from headwater.spark.writing.workers import write_in_workers

#: Rows of which Spark expects fewer bytes than this are not worth a job that writes files.
FOR_THE_DRIVER = 16 << 20


def estimated_bytes(frame: DataFrame) -> int:
    """How large Spark expects the rows to be; usually more than they are."""
    statistics: Any = frame._jdf.queryExecution().optimizedPlan().stats()
    return int(str(statistics.sizeInBytes()))


def row_bytes(frame: DataFrame) -> int:
    """How many bytes Spark expects a row to have."""
    schema: Any = frame._jdf.schema()
    return max(1, int(schema.defaultSize()))


def most_rows(frame: DataFrame) -> int:
    """How many rows of this kind the driver takes at most."""
    return 4 * FOR_THE_DRIVER // row_bytes(frame)


def few_rows(frame: DataFrame) -> pa.Table | None:
    """The rows, if Spark expects few of them and there are few; None otherwise.

    The expectation alone is no bound: a small file may hold a great many rows that are alike.
    """
    if estimated_bytes(frame) > FOR_THE_DRIVER:
        return None
    most = most_rows(frame)
    rows: pa.Table = frame.limit(most + 1).toArrow()
    return rows if rows.num_rows <= most else None


@dataclass(frozen=True)
class RowWriter:
    """Writes rows for one Spark session."""

    stores: JvmStores

    def write(self, tx: Transaction, table: Table, frame: DataFrame, *, small: bool | None = None) -> int:
        """Add rows to a table, or with a column `ROW_ID` put them in the places of rows that were removed.

        Columns are the table's, found by name; those that are missing get their defaults. `small` says
        whether the rows fit into the driver, where the caller knows better than Spark. Returns their number.
        """
        if tx.already_applied:
            return 0
        name = str(table.name)
        frame = stored_rows(frame, table)
        few = few_rows(frame) if small is None else frame.toArrow() if small else None
        if few is not None:
            rows = from_spark(few, table.columns)
            if ROW_ID in rows.schema.names:
                return tx.replace_rows(name, rows.drop_columns([ROW_ID]), rows.column(ROW_ID).to_numpy())
            return tx.append(name, rows)
        staged = self.stage(tx, table, frame)
        count = sum(file.record_count for file in staged)
        keeps_ids = ROW_ID in frame.columns
        limit = inlining_limit(tx.stager.options, table.schema_id, table.id)
        if staged and not keeps_ids and count <= limit and can_inline(table.columns):
            rows = pa.concat_tables([_stored(tx, table, file) for file in staged])
            tx.stager.discard(table, staged)
            return tx.append(name, rows)
        tx.add_files(name, staged)
        return count

    def stage(self, tx: Transaction, table: Table, frame: DataFrame) -> list[StagedFile]:
        """Store rows in files, for a commit to name."""
        native = NativeWriter(tx.stager, self.stores)
        if native.can_write(frame, table):
            filled = _with_defaults(frame, table)
            if filled is not None:
                return native.write(filled, table, row_bytes(frame) / 2)
        return write_in_workers(frame, table, tx.stager)


def _with_defaults(frame: DataFrame, table: Table) -> DataFrame | None:
    """The rows with a value for every column; None where a default is an expression of DuckDB's."""
    given = {name.lower() for name in frame.columns}
    for column in table.columns:
        if column.name.lower() not in given:
            text = _default(column, table)
            if text is None:
                return None
            frame = frame.withColumn(column.name, F.expr(text).cast(spark_type(column)))
    return frame


def _default(column: Column, table: Table) -> str | None:
    if column.default_value is None:
        if not column.nulls_allowed:
            raise InvalidInputError(
                f"The rows lack column {column.name!r} of table {table.name}.",
                detail="It is NOT NULL and has no default.",
                hint="Add it to the rows.",
                table=str(table.name),
                column=column.name,
            )
        return "NULL"
    return default_sql(column, column.default_value) if column.default_type == "literal" else None


def _stored(tx: Transaction, table: Table, file: StagedFile) -> pa.Table:
    """Rows of a file that was just stored."""
    location = table.path + file.path if file.path_is_relative else file.path
    store = tx.stager.store
    with store.reading(location), store.open_input(location) as source:
        rows: pa.Table = pq.ParquetFile(source).read()
    return by_field_id(rows, table.columns, mapping=file.mapping, path=location)
