"""The objects of a DuckLake catalog as plain, immutable data.

Nothing here does I/O. Field names follow the catalog's own columns where they have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from headwater.typedefs import ColumnId, FileId, SnapshotId, TableId, TableName

#: Field ids that DuckDB reserves for the columns it embeds in files.
ROW_ID_FIELD = 2147483540
SNAPSHOT_ID_FIELD = 2147483539
DELETE_PATH_FIELD = 2147483646
DELETE_POS_FIELD = 2147483645
ROW_ID_COLUMN = "_ducklake_internal_row_id"
SNAPSHOT_ID_COLUMN = "_ducklake_internal_snapshot_id"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One committed state of the whole lake."""

    id: SnapshotId
    time: datetime
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    changes: str | None = None
    author: str | None = None
    message: str | None = None
    extra_info: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a nested field.

    `type` is DuckLake's own text (`int32`, `decimal(10,2)`, `struct`, `list`, `map`, …). A list has one
    child named `element`, a map the children `key` and `value`, a struct any number.
    `default_type` is `literal` or `expression`; a `default_value` of None means no default.
    """

    id: ColumnId
    name: str
    type: str
    nulls_allowed: bool = True
    initial_default: str | None = None
    default_value: str | None = None
    default_type: str = "literal"
    children: tuple[Column, ...] = ()
    tags: Mapping[str, str | None] = field(default_factory=dict)

    def walk(self) -> Iterator[Column]:
        """This column and everything inside it, parents before children (the order of column ids)."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def is_nested(self) -> bool:
        """True for struct, list and map: columns that have children instead of values."""
        return self.type in ("struct", "list", "map")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One key of a partition spec; `transform` is `identity`, `year`, …, or `bucket(N)`."""

    column_id: ColumnId
    transform: str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """How new files of a table are split. A spec without fields means "no longer partitioned"."""

    id: int
    fields: tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True)
class SortField:
    """One key of a sort order; `expression` is SQL in `dialect`."""

    expression: str
    direction: str = "ASC"
    null_order: str = "NULLS_LAST"
    dialect: str = "duckdb"


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema (namespace) of the lake."""

    id: int
    uuid: UUID
    name: str
    path: str
    path_is_relative: bool
    begin_snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it is at one snapshot."""

    id: TableId
    uuid: UUID
    schema_id: int
    name: TableName
    path: str
    """Full location of the table's files, ending in `/`."""
    columns: tuple[Column, ...]
    begin_snapshot: SnapshotId
    partition: PartitionSpec | None = None
    sort: tuple[SortField, ...] = ()
    sort_id: int | None = None
    tags: Mapping[str, str | None] = field(default_factory=dict)
    stored_path: str = ""
    """The path as the catalog stores it (usually relative to the schema's)."""
    path_is_relative: bool = True

    def column(self, name: str) -> Column | None:
        """The top-level column of that name (DuckDB compares names without regard to case)."""
        wanted = name.lower()
        return next((c for c in self.columns if c.name.lower() == wanted), None)

    def by_id(self) -> dict[ColumnId, Column]:
        """Every column and nested field by its id."""
        return {c.id: c for top in self.columns for c in top.walk()}

    @property
    def comment(self) -> str | None:
        """The table's comment."""
        return self.tags.get("comment")


@dataclass(frozen=True, slots=True)
class View:
    """A view registered in the lake."""

    id: int
    uuid: UUID
    schema_id: int
    name: TableName
    dialect: str
    sql: str
    column_aliases: str
    begin_snapshot: SnapshotId
    tags: Mapping[str, str | None] = field(default_factory=dict)


class DeleteFile(NamedTuple):
    """Positions of deleted rows of one data file. (A named tuple: plans hold thousands of them.)"""

    id: FileId
    data_file_id: FileId
    path: str
    """Full location."""
    format: str
    delete_count: int
    file_size_bytes: int
    footer_size: int | None
    encryption_key: str | None
    begin_snapshot: SnapshotId
    partial_max: SnapshotId | None


class DataFile(NamedTuple):
    """One Parquet file of a table. (A named tuple: plans hold tens of thousands of them.)"""

    id: FileId
    path: str
    """Full location."""
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    row_id_start: int | None
    begin_snapshot: SnapshotId
    end_snapshot: SnapshotId | None
    partition_id: int | None
    encryption_key: str | None
    mapping_id: int | None
    partial_max: SnapshotId | None


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one leaf column, of a file or of a whole table, in DuckLake's own text form.

    A min or max of None with a `value_count` above zero means "unknown".
    """

    column_id: ColumnId
    size_bytes: int | None
    value_count: int | None
    """Values that are not NULL."""
    null_count: int | None
    min_value: str | None
    max_value: str | None
    contains_nan: bool | None = None
    extra_stats: str | None = None


@dataclass(frozen=True, slots=True)
class NameMapping:
    """A column of a file that is found by its name there, and the field of the table it holds."""

    source_name: str
    target_id: ColumnId
    children: tuple[NameMapping, ...] = ()
    is_partition: bool = False
    """The value is in the folder's name, not in the file."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file that is stored and checked, and that no snapshot names yet."""

    path: str
    """Location relative to the table's folder, unless `path_is_relative` is false."""
    record_count: int
    file_size_bytes: int
    footer_size: int
    column_stats: tuple[ColumnStats, ...]
    partition_id: int | None = None
    partition_values: tuple[str | None, ...] = ()
    encryption_key: str | None = None
    has_row_ids: bool = False
    path_is_relative: bool = True
    mapping: tuple[NameMapping, ...] | None = None
    """Names by which the file's columns are found, for files without field ids at every level."""


@dataclass(frozen=True, slots=True)
class StagedDeletes:
    """A stored delete file that no snapshot names yet."""

    path: str
    count: int
    file_size_bytes: int
    footer_size: int
    encryption_key: str | None = None
    first_snapshot: int | None = None
    """Smallest and largest snapshot id inside, where it holds any; else the commit's own applies."""
    last_snapshot: int | None = None
