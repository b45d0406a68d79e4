"""A table of the lake, in Spark's hands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from headwater.errors import InvalidInputError, SnapshotError
from headwater.lake.lake import At
from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.compacting import compact
from headwater.lake.maintenance.model import TableCompaction
from headwater.lake.model import Table
from headwater.lake.writing.transaction import Transaction
from headwater.spark.changes import changes
from headwater.spark.explaining import explain_scan
from headwater.spark.inspecting import detail, files, history
from headwater.spark.literals import name_sql
from headwater.spark.maintenance import SparkMover
from headwater.spark.writing.assigning import Value, fitted, value_of
from headwater.spark.writing.overwrite import overwrite_partitions, overwrite_where
from headwater.spark.writing.row_level import delete_rows, update_rows
from headwater.spark.writing.transactions import Note, WriteResult, in_transaction
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark
    from headwater.spark.merge import Merge

#: Rows as callers have them: a DataFrame, or what the lake itself takes.
Rows = DataFrame | pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class LakeTable:
    """A handle on a table by its name; it is looked up anew whenever it is used.

    >>> orders = hw.table("sales.orders")  # doctest: +SKIP
    >>> orders.df(where="day >= DATE'2026-01-01'").count()  # doctest: +SKIP
    """

    session: LakeSpark
    name: TableName | str

    @property
    def table(self) -> Table:
        """What the catalog says of it now."""
        return self.session.lake.table(self.name)

    # -- reading ------------------------------------------------------------------------------------

    def df(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        hidden: Collection[str] = (),
    ) -> DataFrame:
        """The rows, now or at an older snapshot (by number, or the newest not after a time).

        `where` is a condition in Spark's SQL; files that cannot hold matching rows are not read. Filters that
        are added to the DataFrame later do the same. `hidden` may ask for `rowid`, `snapshot_id`, `filename`
        and `file_row_number`.
        """
        at = one_of(version, timestamp)
        return self.session.frame(self.name, at, where=where, columns=columns, hidden=hidden)

    def explain(
        self, version: int | None = None, timestamp: datetime | str | None = None, where: str | None = None
    ) -> str:
        """What reading would do: files left after pruning, who reads them and why, deletes, inlined rows.

        >>> print(hw.table("sales.orders").explain(where="id = 7"))  # doctest: +SKIP
        sales.orders at snapshot 12
          files: 1 of 40, 3.1 MB
          pruned by: (id IS NOT NULL AND id = 7)
          Spark's own reader: 1 files by field id
        """
        return explain_scan(self.session, self.name, one_of(version, timestamp), where)

    def changes(self, start: At, end: At = None, *, net: bool = False) -> DataFrame:
        """How rows changed from snapshot `start` to `end` (the latest), both included.

        After the table's columns as of `end` come `_change_type` (insert, update_preimage, update_postimage,
        delete), `_rowid`, `_commit_version` and `_commit_timestamp`. Compaction is no change. With `net`
        there is only the difference between the states before and after. Times may be given for numbers.
        """
        return changes(self.session, self.name, start, end, net=net)

    def history(self, limit: int | None = None) -> DataFrame:
        """The snapshots that changed this table, newest first."""
        return history(self.session, self.name, limit)

    def files(self, version: int | None = None, timestamp: datetime | str | None = None) -> DataFrame:
        """Its data files: path, rows, deleted rows, size, partition."""
        return files(self.session, self.name, one_of(version, timestamp))

    def detail(self) -> DataFrame:
        """One row about it: location, files, bytes, rows, partition columns, properties."""
        return detail(self.session, self.name)

    # -- writing ------------------------------------------------------------------------------------

    def append(self, rows: Rows, *, merge_schema: bool = False, **note: Any) -> WriteResult:
        """Add rows; columns are matched by name.

        Columns that are missing, unknown or of another type are an error, unless `merge_schema` lets the
        table change: unknown columns are added, missing ones get their default, types are widened. The note
        (`author`, `message`, `extra_info`, `operation_id`) goes into the snapshot.
        """

        def work(tx: Transaction) -> WriteResult:
            return WriteResult(inserted=self._add(tx, rows, merge_schema))

        return in_transaction(self.session, work, Note(**note), f"append to {self.name}")

    def overwrite(
        self,
        rows: Rows,
        where: str | None = None,
        *,
        dynamic_partitions: bool = False,
        merge_schema: bool = False,
        **note: Any,
    ) -> WriteResult:
        """Put rows in the place of all rows, of those that meet a condition, or of the same partitions.

        With `where` every new row must meet it too. With `dynamic_partitions` the partitions that the new
        rows are of are replaced, and the others stay.
        """
        if where is not None and dynamic_partitions:
            raise InvalidInputError("Overwrite by a condition or by partitions, not by both.")

        def work(tx: Transaction) -> WriteResult:
            if where is not None:
                deleted = overwrite_where(self.session, tx, self.name, self._frame(rows), where)
            elif dynamic_partitions:
                return overwrite_partitions(self.session, tx, self.name, self._frame(rows))
            else:
                deleted = self.session.live_rows(tx, self.name)
                tx.truncate(self.name)
            return WriteResult(inserted=self._add(tx, rows, merge_schema), deleted=deleted)

        return in_transaction(self.session, work, Note(**note), f"overwrite {self.name}")

    def delete(self, where: str | SparkColumn | None = None, **note: Any) -> WriteResult:
        """Remove the rows that meet a condition; all without one."""

        def work(tx: Transaction) -> WriteResult:
            return WriteResult(deleted=delete_rows(self.session, tx, self.name, where))

        return in_transaction(self.session, work, Note(**note), f"delete from {self.name}")

    def update(
        self,
        where: str | SparkColumn | None = None,
        set: Mapping[str, Value] | None = None,
        **note: Any,
    ) -> WriteResult:
        """Change columns of the rows that meet a condition; rows keep their ids.

        A text is an expression in Spark's SQL (`{"price": "price * 1.1"}`).
        """
        if not set:
            raise InvalidInputError(
                "An update needs at least one column to set.", hint='set={"column": "value"}'
            )
        values = {name: value_of(value) for name, value in set.items()}

        def work(tx: Transaction) -> WriteResult:
            return WriteResult(updated=update_rows(self.session, tx, self.name, where, values))

        return in_transaction(self.session, work, Note(**note), f"update {self.name}")

    def merge(
        self, source: DataFrame, on: str | SparkColumn, *, target_alias: str = "t", source_alias: str = "s"
    ) -> Merge:
        """Begin a MERGE of `source` into this table: clauses follow, then `execute()`.

        In conditions and values `t` is the table and `s` the source.
        """
        from headwater.spark.merge import Merge

        return Merge(self, source, on, target_alias=target_alias, source_alias=source_alias)

    # -- keeping it healthy -------------------------------------------------------------------------

    def compact(
        self, *, target_size: int | None = None, sort_by: Sequence[str] | None = None, dry_run: bool = False
    ) -> TableCompaction:
        """Merge its small files, and leave deleted rows behind; every snapshot reads the same."""
        wishes = Wishes(target_size=target_size, sort_by=None if sort_by is None else tuple(sort_by))
        mover = SparkMover(lambda: self.session.spark)
        name = str(self.table.name)
        return compact(self.session.lake, [name], wishes, mover=mover, dry_run=dry_run).tables[0]

    def restore(
        self, version: int | None = None, timestamp: datetime | str | None = None, **note: Any
    ) -> WriteResult:
        """Put the rows of an older snapshot in the place of today's, as one snapshot.

        Columns stay as they are now: those that there were not get their defaults.
        """
        at = one_of(version, timestamp)
        if at is None:
            raise InvalidInputError("Say to which version or timestamp.", table=str(self.name))
        then = self.session.lake.table(self.name, at)
        if then.id != self.table.id:
            raise SnapshotError(
                f"At {at} {self.name} was another table.",
                hint="Read it with df(version=…) and overwrite this one with what you need.",
                table=str(self.name),
            )
        names = {column.id: column.name for column in then.columns}
        shared = [(names[column.id], column.name) for column in self.table.columns if column.id in names]
        frame = self.session.frame(self.name, at)
        rows = frame.select(*(frame[name_sql(old)].alias(new) for old, new in shared))

        def work(tx: Transaction) -> WriteResult:
            deleted = self.session.live_rows(tx, self.name)
            tx.truncate(self.name)
            inserted = self.session.writer.write(tx, tx.state.table(self.name), rows)
            return WriteResult(inserted=inserted, deleted=deleted)

        return in_transaction(self.session, work, Note(**note), f"restore {self.name} to {at}")

    # -- helpers ------------------------------------------------------------------------------------

    def _frame(self, rows: Rows) -> DataFrame:
        return rows if isinstance(rows, DataFrame) else self.session.local_frame(rows, self.table)

    def _add(self, tx: Transaction, rows: Rows, merge_schema: bool) -> int:
        if not isinstance(rows, DataFrame):
            if not merge_schema:
                return tx.append(self.name, rows)
            rows = self.session.local_frame(rows, tx.state.table(self.name))
        table = fitted(tx, self.name, rows, merge_schema=merge_schema)
        return self.session.writer.write(tx, table, rows)


def one_of(version: int | None, timestamp: datetime | str | None) -> At:
    """The snapshot that is meant by two arguments of which one may be given."""
    if version is not None and timestamp is not None:
        raise InvalidInputError("Give a version or a timestamp, not both.")
    return version if version is not None else timestamp
