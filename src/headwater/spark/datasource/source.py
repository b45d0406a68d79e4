"""The data source itself: from options to readers and writers."""

from __future__ import annotations

from pyspark.sql import types as st
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)

from headwater.errors import InvalidInputError, SettingsError
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
from headwater.spark.datasource.change_feed import ChangeFeedReader, feed_schema
from headwater.spark.datasource.options import SourceOptions
from headwater.spark.datasource.place import OpenLake, Place
from headwater.spark.datasource.stream_options import StreamOptions
from headwater.spark.datasource.stream_read import TableStreamReader, stream_schema
from headwater.spark.datasource.stream_write import TableStreamWriter
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
        if self.said.flag("readChangeFeed"):
            return feed_schema(table)
        names = self.said.names("columns") or tuple(column.name for column in table.columns)
        return scope_schema(table, names, self.said.hidden)

    def reader(self, schema: st.StructType) -> DataSourceReader:
        """A reader of the table at the snapshot that was current when the schema was asked for."""
        table = self._pinned_table()
        said = self.said
        if said.flag("readChangeFeed"):
            return self._change_feed(table, schema)
        columns, hidden = check_schema(schema, table)
        scope = ReadScope(
            table.name,
            self._pinned_snapshot(),
            tuple(found(table, name).name for name in columns),
            hidden,
            said.text("where"),
            said.size("maxPartitionBytes") or MAX_PARTITION_BYTES,
        )
        return TableReader(self._open(), scope, schema)

    def _change_feed(self, table: Table, schema: st.StructType) -> DataSourceReader:
        said = self.said
        _refuse_other_names(schema, feed_schema(table))
        said.refuse_both("startingVersion", "startingTimestamp")
        start: SnapshotId | str | None = said.number("startingVersion")
        start = said.text("startingTimestamp") if start is None else start
        if start is None:
            raise SettingsError(
                "It is not said from where on changes are read.",
                hint="Give startingVersion or startingTimestamp; both ends of the range belong to it.",
            )
        opened, end = self._open(), self._pinned_snapshot()
        plan = opened.open().plan_changes(table.name, start, end)
        return ChangeFeedReader(opened, table, (plan.start.id, end), said.text("where"), schema)

    # -- streaming ------------------------------------------------------------------------------------

    def streamReader(self, schema: st.StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of what is inserted into the table, or of its changes."""
        table = self._pinned_table()
        options = StreamOptions.of(self.said, MAX_PARTITION_BYTES)
        _refuse_other_names(schema, stream_schema(table, options))
        return TableStreamReader(self._open(), table, options, schema)

    def streamWriter(self, schema: st.StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """A writer for the batches of one streaming query."""
        return TableStreamWriter(self._open(create=True), self.said, schema, overwrite)

    # -- batch writing --------------------------------------------------------------------------------

    def writer(self, schema: st.StructType, overwrite: bool) -> DataSourceWriter:
        """A writer for one DataFrame."""
        return TableWriter(self._open(create=True), self.said, schema, overwrite)

    # -- helpers --------------------------------------------------------------------------------------

    def _pinned_snapshot(self) -> SnapshotId:
        if self._snapshot_id is None:
            version, time = "versionAsOf", "timestampAsOf"
            if self.said.flag("readChangeFeed"):  # its columns are those that the table has at the end
                version, time = "endingVersion", "endingTimestamp"
            self.said.refuse_both(version, time)
            at: At = self.said.number(version)
            at = self.said.time(time) if at is None else at
            self._snapshot_id = self._open().open().snapshot(at).id
        return self._snapshot_id

    def _pinned_table(self) -> Table:
        return self._open().open().table(self.said.table, self._pinned_snapshot())


def _refuse_other_names(given: st.StructType, known: st.StructType) -> None:
    if [name.lower() for name in given.fieldNames()] != [name.lower() for name in known.fieldNames()]:
        raise InvalidInputError(
            "Streams and change feeds have all columns of the table, in its order.",
            hint="Leave .schema(…) out, and select columns afterwards.",
        )
