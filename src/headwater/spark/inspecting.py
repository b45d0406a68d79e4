"""What the catalog knows about a table, as DataFrames: its history, its files, itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from headwater.lake.format.changes import read_changes
from headwater.lake.lake import At
from headwater.lake.model import Snapshot, Table
from headwater.spark.reading.deletes import delete_count
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

_HISTORY = (
    "version bigint, timestamp timestamp, operation string, author string, message string, extra_info string"
)
_FILES = (
    "path string, record_count bigint, deleted_count bigint, size_bytes bigint, begin_snapshot bigint, "
    "partition_values array<string>"
)
_DETAIL = (
    "name string, id bigint, location string, snapshot_id bigint, columns int, "
    "partition_columns array<string>, num_files bigint, size_bytes bigint, num_rows bigint, "
    "properties map<string,string>"
)


def history(session: LakeSpark, name: TableName | str, limit: int | None = None) -> DataFrame:
    """The snapshots that changed a table, newest first, with what they did and say of themselves."""
    table = session.lake.table(name)
    rows = []
    for snapshot in session.lake.snapshots():
        done = operations(snapshot, table)
        if done:
            said = (snapshot.author, snapshot.message, snapshot.extra_info)
            rows.append((snapshot.id, snapshot.time, ", ".join(done), *said))
    return session.spark.createDataFrame(rows[:limit], _HISTORY)


def operations(snapshot: Snapshot, table: Table) -> list[str]:
    """What a snapshot did to a table; the one that began it names it, and not its number."""
    created = (table.name.schema, table.name.name)
    return [
        change.token
        for change in read_changes(snapshot.changes)
        if change.is_about(table.id) or (change.token == "created_table" and change.target == created)  # noqa: S105
    ]


def files(session: LakeSpark, name: TableName | str, at: At = None) -> DataFrame:
    """The data files of a table at a snapshot."""
    rows = [
        (
            scan.file.path,
            scan.file.record_count,
            delete_count([scan]),
            scan.file.file_size_bytes,
            scan.file.begin_snapshot,
            list(scan.partition_values),
        )
        for scan in session.lake.scan(name, at).files
    ]
    return session.spark.createDataFrame(rows, _FILES)


def detail(session: LakeSpark, name: TableName | str) -> DataFrame:
    """One row about a table as it is now."""
    plan = session.lake.scan(name)
    table = plan.table
    stored = sum(scan.file.record_count for scan in plan.files) - delete_count(plan.files)
    by_id = table.by_id()
    keys = [] if table.partition is None else [by_id[key.column_id].name for key in table.partition.fields]
    row = (
        str(table.name),
        table.id,
        table.path,
        plan.snapshot.id,
        len(table.columns),
        keys,
        len(plan.files),
        sum(scan.file.file_size_bytes for scan in plan.files),
        stored + sum(inlined.row_count for inlined in plan.inlined),
        {key: value for key, value in table.tags.items() if value is not None},
    )
    return session.spark.createDataFrame([row], _DETAIL)
