"""Parquet files that somebody else stored (Spark's own writer), looked at before a commit names them.

staged = stage_stored_file(store, table, location, columns=table.columns)
tx.add_files("orders", [staged])

Only the footer is read. Values that no reader would see as they were written are refused, and statistics
that the footer does not give stay unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import InvalidInputError
from headwater.lake.format.align import align_input
from headwater.lake.format.conform import conform, field_id, hive_values
from headwater.lake.format.file_match import FileMatch, match_file
from headwater.lake.format.leaves import leaves
from headwater.lake.format.name_mappings import MAPPED_ROW_ID_COLUMN
from headwater.lake.format.statistics import file_statistics
from headwater.lake.model import (
    ROW_ID_COLUMN,
    ROW_ID_FIELD,
    Column,
    ColumnStats,
    NameMapping,
    StagedFile,
    Table,
)
from headwater.storage.locations import parse_location
from headwater.storage.parquet import read_footer
from headwater.storage.store import Store

#: Spark says so in the footer when it shifted dates before 1582 into the calendar of that time.
_OLD_CALENDAR = b"org.apache.spark.legacyDateTime"


def stage_stored_file(
    store: Store,
    table: Table,
    location: str,
    *,
    columns: Sequence[Column],
    partition_values: Sequence[str | None] = (),
    has_row_ids: bool = False,
    mapping: Sequence[NameMapping] | None = None,
) -> StagedFile:
    """Describe a stored Parquet file with these columns, so that `add_files` can take it.

    Columns are found by field id, or by `mapping` (see `names_in_file`). With `has_row_ids` the file has a
    column of row ids, named as `row_id_column` says and with the field id `ROW_ID_FIELD`.
    """
    fields = table.partition.fields if table.partition is not None else ()
    if partition_values and len(partition_values) != len(fields):
        raise InvalidInputError(
            f"Table {table.name} has {len(fields)} partition keys, not {len(partition_values)}.",
            table=str(table.name),
        )
    stored = _StoredFile(store, table, location, tuple(columns), mapping)
    stored.check(has_row_ids)
    path = path_in_table(table, location)
    return StagedFile(
        path=_plain(location) if path is None else path,
        path_is_relative=path is not None,
        record_count=stored.footer.num_rows,
        file_size_bytes=stored.size,
        footer_size=stored.footer.serialized_size,
        column_stats=stored.statistics,
        partition_id=table.partition.id if partition_values and table.partition else None,
        partition_values=tuple(partition_values),
        has_row_ids=has_row_ids,
        mapping=None if mapping is None else tuple(mapping),
    )


def path_in_table(table: Table, location: str) -> str | None:
    """The path of a file relative to the table's folder, however its location is spelled; None if elsewhere.

    Spark spells local files `file:/x`, and buckets `s3a://`.
    """
    file, folder = parse_location(location), parse_location(table.path)
    root = folder.path.rstrip("/") + "/"
    if (file.kind, file.account) != (folder.kind, folder.account) or not file.path.startswith(root):
        return None
    return file.path[len(root) :] or None


def _plain(location: str) -> str:
    place = parse_location(location)
    return place.path if place.is_local else location


class _StoredFile:
    """A stored file's footer, and what it says of a table's columns."""

    def __init__(
        self,
        store: Store,
        table: Table,
        location: str,
        columns: tuple[Column, ...],
        mapping: Sequence[NameMapping] | None,
    ):
        self.store = store
        self.table = table
        self.location = location
        self.columns = columns
        self.mapping = mapping
        with store.reading(location), store.open_input(location) as file:
            self.size = file.size()
            self.footer: pq.FileMetaData = read_footer(file, location, self.size)
        self._check_values()
        self.schema: pa.Schema = self.footer.schema.to_arrow_schema()
        try:
            self.match: FileMatch = match_file(self.schema, columns, mapping)
        except InvalidInputError as error:
            raise self._refused(error.message, error.detail, error.hint, **error.facts) from None
        self.statistics: tuple[ColumnStats, ...] = file_statistics(
            self.footer, columns, places=self.match.leaves
        )

    def check(self, has_row_ids: bool) -> None:
        """Raise for a file that must not become part of the table."""
        if not self.footer.num_rows:
            raise self._refused("It holds no rows.", hint="Leave empty files out.")
        self._check_row_ids(has_row_ids)
        by_leaf = {stats.column_id: stats for stats in self.statistics}
        missing = {column.id for column in self.match.missing} - self._in_folders()
        for column in self.columns:
            if column.id in missing:
                if not column.nulls_allowed and column.initial_default is None:
                    raise self._refused(
                        f"Column {column.name!r} is NOT NULL, and the file does not have it.",
                        column=column.name,
                    )
            elif column.id in self.match.names and any(not inner.nulls_allowed for inner in column.walk()):
                self._check_nulls(column, [by_leaf.get(leaf.id) for leaf in leaves([column])])

    def _in_folders(self) -> set[int]:
        """Columns whose value is in the names of the folders, and is not NULL."""
        values = {key.lower(): value for key, value in hive_values(self.location).items()}
        return {
            entry.target_id
            for entry in self.mapping or ()
            if entry.is_partition and values.get(entry.source_name.lower()) is not None
        }

    def _check_nulls(self, column: Column, found: Sequence[ColumnStats | None]) -> None:
        counts = [None if stats is None else stats.null_count for stats in found]
        if all(count == 0 for count in counts):
            return
        if not column.children and counts[0]:
            raise self._refused(
                f"Column {column.name!r} is NOT NULL, and {counts[0]} rows of the file have NULL.",
                hint="Fill the values, or allow NULL in the column.",
                column=column.name,
                null_count=counts[0],
            )
        # The footer cannot tell a NULL from an empty list or a NULL around it, or says nothing at all.
        with self.store.reading(self.location), self.store.open_input(self.location) as file:
            data = pq.ParquetFile(file).read(columns=[self.match.names[column.id]])
        mapping = None if self.mapping is None else [m for m in self.mapping if m.target_id == column.id]
        align_input(conform(data, [column], mapping=mapping, path=self.location), [column])

    def _check_row_ids(self, wanted: bool) -> None:
        name = ROW_ID_COLUMN if self.mapping is None else MAPPED_ROW_ID_COLUMN
        found = [one for one in self.schema if field_id(one) == ROW_ID_FIELD or one.name == ROW_ID_COLUMN]
        if not wanted and not found:
            return
        fits = (
            wanted
            and len(found) == 1
            and (found[0].name, found[0].type, field_id(found[0])) == (name, pa.int64(), ROW_ID_FIELD)
        )
        if not fits:
            raise self._refused(
                "It must have one column of row ids." if wanted else "It has a column of row ids.",
                detail=f"Row ids are int64, named {name!r}, with the field id {ROW_ID_FIELD}.",
                hint=None if wanted else "Pass has_row_ids=True if rows keep their ids.",
            )
        places = [
            number
            for number in range(self.footer.num_columns)
            if self.footer.schema.column(number).path == found[0].name
        ]
        for group in range(self.footer.num_row_groups):
            stats: Any = self.footer.row_group(group).column(places[0]).statistics
            optional = self.footer.schema.column(places[0]).max_definition_level > 0
            if optional and (stats is None or not stats.has_null_count or stats.null_count):
                raise self._refused("Its column of row ids may hold NULL.", hint="Make the column required.")

    def _check_values(self) -> None:
        """Values that would come back as others."""
        for number in range(self.footer.num_columns):
            column = self.footer.schema.column(number)
            if column.physical_type == "INT96":
                raise self._refused(
                    f"Column {column.path!r} holds timestamps in 96 bits.",
                    detail="Readers disagree about their time zone.",
                    hint="Set spark.sql.parquet.outputTimestampType to TIMESTAMP_MICROS.",
                    column=column.path,
                )
        if _OLD_CALENDAR in (self.footer.metadata or {}):
            raise self._refused(
                "Its dates are in the calendar of their time.",
                detail="Readers other than Spark take them for other dates.",
                hint="Set spark.sql.parquet.datetimeRebaseModeInWrite to CORRECTED.",
            )

    def _refused(
        self, message: str, detail: str | None = None, hint: str | None = None, **facts: object
    ) -> InvalidInputError:
        return InvalidInputError(
            f"{self.location} cannot become a file of table {self.table.name}: "
            + message[:1].lower()
            + message[1:],
            detail=detail,
            hint=hint,
            **{"table": str(self.table.name), "location": self.location, **facts},
        )
