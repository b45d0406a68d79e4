"""The data source itself: from options to readers and writers."""

from __future__ import annotations

from pyspark.sql import types as st
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

from headwater.errors import SettingsError
from headwater.lake.lake import At, Lake
from headwater.lake.model import Table
from headwater.spark.datasource.batch_read import (
    MAX_PARTITION_BYTES,
    ReadScope,
    TableReader,
    check_schema,
    found,
    scope_schema,
)
from headwater.spark.datasource.batch_write import TableWriter
from headwater.spark.datasource.options import SourceOptions
from headwater.spark.datasource.place import OpenLake, Place
from headwater.storage.options import StorageOptions
from headwater.typedefs import SnapshotId


class DuckLakeSource(DataSource):
    """DuckLake tables by `format("ducklake")`.

    Spark makes a source in one process and its reader in another, lets a third one read, and pickles what
    goes between them. Once a source was asked for its schema it stays with that lake and that snapshot.
    """

    def __init__(self, options: dict[str, str]):
        super().__init__(options)
        self.said = SourceOptions(options)
        self._opened: OpenLake | None = None
        self._snapshot_id: SnapshotId | None = None

    @classmethod
    def name(cls) -> str:
        """What `format(…)` is called with."""
        return "ducklake"

    def connect(self, place: Place, create: bool) -> OpenLake:
        """Find and open the lake. `pyspark_ducklake` replaces this by one that knows the settings."""
        if place.dsn is None:
            raise SettingsError(
                "It is not said which lake is meant.",
                hint='Give its PostgreSQL address: .option("catalog", "postgresql://user@host/database").',
            )
        lake = Lake.open(
            place.dsn,
            data_path=place.data_path,
            metadata_schema=place.metadata_schema or "public",
            storage=StorageOptions(**place.storage),
            create=create and place.data_path is not None,
        )
        return OpenLake(lake)

    def _open(self, *, create: bool = False) -> OpenLake:
        if self._opened is None:
            self._opened = self.connect(self.said.place, create)
        return self._opened

    # -- batch reading --------------------------------------------------------------------------------

    def schema(self) -> st.StructType:
        """The columns that a read gives."""
        table = self._pinned_table()
        names = self.said.names("columns") or tuple(column.name for column in table.columns)
        return scope_schema(table, names, self.said.hidden)

    def reader(self, schema: st.StructType) -> DataSourceReader:
        """A reader of the table at the snapshot that was current when the schema was asked for."""
        table = self._pinned_table()
        columns, hidden = check_schema(schema, table)
        said = self.said
        scope = ReadScope(
            table.name,
            self._pinned_snapshot(),
            tuple(found(table, name).name for name in columns),
            hidden,
            said.text("where"),
            said.size("maxPartitionBytes") or MAX_PARTITION_BYTES,
        )
        return TableReader(self._open(), scope, schema)

    # -- batch writing --------------------------------------------------------------------------------

    def writer(self, schema: st.StructType, overwrite: bool) -> DataSourceWriter:
        """A writer for one DataFrame."""
        return TableWriter(self._open(create=True), self.said, schema, overwrite)

    # -- helpers --------------------------------------------------------------------------------------

    def _pinned_snapshot(self) -> SnapshotId:
        if self._snapshot_id is None:
            self.said.refuse_both("versionAsOf", "timestampAsOf")
            at: At = self.said.number("versionAsOf")
            at = self.said.time("timestampAsOf") if at is None else at
            self._snapshot_id = self._open().open().snapshot(at).id
        return self._snapshot_id

    def _pinned_table(self) -> Table:
        return self._open().open().table(self.said.table, self._pinned_snapshot())
