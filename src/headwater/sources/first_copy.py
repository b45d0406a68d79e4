"""Tables copied at one moment of the source, while writers go on.

What captures changes is installed first, so whatever commits after the moment is captured; then everything is
read at that moment, and committed to the lake together with it as the position of the tables. Killed
anywhere, nothing of it is in the lake, and the next capture begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ConflictError, HeadwaterError, NotFoundError
from headwater.lake.connection import Connection
from headwater.lake.format.align import align_input
from headwater.lake.format.types import arrow_schema, no_rows
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.sources.copying import estimated_rows, read_all, stage_with_spark
from headwater.sources.describing import Described, describe
from headwater.sources.model import Counts, Source, SourceTable, TableStatus
from headwater.sources.resync import MOST_COMPARED, replace_differences, stored_rows

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

#: Tables that PostgreSQL believes to be smaller are copied without Spark.
FOR_THE_DRIVER = 50_000


@dataclass(frozen=True)
class Copy:
    """A copy under way: the lake's transaction, and the source at a moment that is kept open."""

    lake: Lake
    tx: Transaction
    source: Source
    connection: Connection
    dsn: str
    exported: str
    """The moment, for other connections."""
    connector: Callable[[], LakeSpark]

    def run(self, tables: Sequence[SourceTable], position: str, counts: Counts) -> list[SourceTable]:
        """Put tables into the transaction; returns them as they are then. One that cannot be copied stops."""
        problems: dict[int, HeadwaterError] = {}
        now = describe(self.connection, tables, problems=problems)
        done = []
        for table in tables:
            try:
                with self.tx.savepoint():
                    described = now.get(table.number)
                    if described is None:
                        raise problems.get(table.number) or missing(table)
                    counts.add(str(table.lake_table), *self._one(table, described))
            except ConflictError:
                raise
            except HeadwaterError as error:
                if error.retryable:
                    raise
                done.append(stopped(table, error))
            else:
                done.append(followed(table, described, position))
        return done

    def _one(self, table: SourceTable, described: Described) -> tuple[int, int, int]:
        """Copy a table; returns rows inserted, updated and deleted."""
        tx, name = self.tx, str(table.lake_table)
        if table.layout is None:
            tx.create_schema(table.lake_table.schema, if_not_exists=True)
            tx.create_table(
                table.lake_table,
                {column.name: column.lake_type for column in described.layout.columns},
                comment=f"Mirror of {table.source_name} of source {self.source.name}",
            )
            return self._fill(table, described), 0, 0
        before = stored_rows(tx.scan(name))
        if max(before, estimated_rows(self.connection, described)) > MOST_COMPARED:
            tx.truncate(name)
            return self._fill(table, described), 0, before
        columns = tx.state.table(name).columns
        batches = list(read_all(self.connection, table, described))
        found = pa.Table.from_batches(batches) if batches else no_rows(arrow_schema(columns, field_ids=False))
        rows = align_input(found, columns)
        return replace_differences(self.lake, tx, name, rows, described.layout.key)

    def _fill(self, table: SourceTable, described: Described) -> int:
        name = str(table.lake_table)
        if estimated_rows(self.connection, described) >= FOR_THE_DRIVER:
            files = stage_with_spark(
                self.connector(), self, table, described, self.tx.state.table(name), self.tx.stager
            )
            return self.tx.add_files(name, files)
        batches = read_all(self.connection, table, described)
        first = next(batches, None)
        if first is None:
            return 0
        kept = first

        def all_of_them() -> Iterator[pa.RecordBatch]:
            yield kept
            yield from batches

        return self.tx.append(name, pa.RecordBatchReader.from_batches(first.schema, all_of_them()))


def followed(table: SourceTable, described: Described, position: str) -> SourceTable:
    """A table whose mirror is what the source is at a position."""
    return replace(table, status=TableStatus.ACTIVE, layout=described.layout, position=position, error=None)


def stopped(table: SourceTable, error: HeadwaterError) -> SourceTable:
    """A table that cannot be followed any further."""
    return replace(table, status=TableStatus.STOPPED, position=None, error=error.as_dict())


def missing(table: SourceTable) -> NotFoundError:
    """The error about a table that the source does not have."""
    return NotFoundError(
        f"The source has no table {table.source_name}.",
        hint="Names are exact, with upper and lower case; `schema.table`, or only `table` for public.",
        table=table.source_name,
    )
