"""The sinks of a stream table in its own lake: written in the transaction of the refresh itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.algebra.relations import WEIGHT
from headwater.algebra.stages import SHOWN
from headwater.deltas.row_log import (
    COMMITTED_AT,
    DELETE,
    INSERT,
    OPERATION,
    REFRESH_ID,
    SEQUENCE,
    log_beginning,
    log_changes,
    log_rows,
)
from headwater.errors import ConflictError, HeadwaterError, NotFoundError, SettingsError, StreamTableError
from headwater.lake.catalog import table_name
from headwater.lake.format.types import columns_from_arrow
from headwater.lake.lake import Lake
from headwater.lake.model import Column, Table
from headwater.lake.writing.transaction import Transaction
from headwater.refresh.deltas import Delta
from headwater.refresh.inputs import WaveState
from headwater.refresh.model import PublishedTable, StreamTable
from headwater.sinks.failing import failed, is_due
from headwater.sinks.model import Sink, SinkMode, SinkState
from headwater.sinks.multiset import net, remove_equal
from headwater.sinks.tables import check_fits, check_log_names, table_schema
from headwater.spark.connector import LakeSpark
from headwater.spark.literals import name_sql
from headwater.spark.types import from_spark
from headwater.spark.writing.rows import few_rows
from headwater.typedefs import STORAGE_SCHEMA, TableName

log = logging.getLogger("headwater.sinks")

#: Numbers that Spark gives to rows have gaps; the next log rows begin after all of them.
_SPARK_NUMBERS = 1 << 48
#: What stands for the snapshot that a commit becomes.
_THIS_COMMIT = -1


def home_sinks(stream: StreamTable) -> Iterator[Sink]:
    """The sinks in the stream table's own lake that have a table besides the storage."""
    return (sink for sink in stream.sinks if not sink.remote and not sink.in_storage)


def shown_columns(stream: StreamTable, storage: Table) -> list[Column]:
    """The columns of the result, as the storage has them."""
    names = {name for name, _ in stream.columns}
    return [column for column in storage.columns if column.name in names]


@dataclass(frozen=True)
class HomeSinks:
    """Writes the sinks of one stream table."""

    session: Callable[[], LakeSpark]
    tx: Transaction
    stream: StreamTable
    storage: Table
    refresh_id: str
    moment: datetime

    # -- their tables -------------------------------------------------------------------------------

    def prepare(self, inputs: Mapping[int, str]) -> tuple[PublishedTable, ...]:
        """Make the tables that are missing, and drop those that no sink needs any more.

        `inputs` are the tables that the stream table reads, by id: it must not publish into one of them.
        """
        wanted = {sink.name: sink for sink in home_sinks(self.stream)}
        kept: dict[str, PublishedTable] = {}
        for old in self.stream.published:
            sink = wanted.get(old.sink)
            if sink is not None and self._still_fits(sink, old):
                kept[old.sink] = old
            else:
                self.drop(old)
        return tuple(kept.get(sink.name) or self._made(sink, inputs) for sink in wanted.values())

    def drop(self, published: PublishedTable) -> None:
        """Remove the table of a sink, if the sink made it."""
        table = self.tx.state.table_by_id(published.table_id)
        if published.own and table is not None:
            self.tx.drop_table(table.name)

    def _still_fits(self, sink: Sink, old: PublishedTable) -> bool:
        table = self.tx.state.table_by_id(old.table_id)
        if table is None or old.own is not (sink.table_id is None):
            return False
        if not old.own:
            return sink.table_id == old.table_id
        if table.name != self._name(sink) or (sink.path is not None and table.path != sink.path):
            return False
        wanted = table_schema(self._columns, sink.mode)
        return [(c.name, c.type) for c in table.columns] == [
            (c.name, c.type) for c in columns_from_arrow(wanted)
        ]

    def _made(self, sink: Sink, inputs: Mapping[int, str]) -> PublishedTable:
        stream = str(self.stream.name)
        check_log_names(stream, [column.name for column in self._columns], sink.mode)
        if sink.table_id is not None:
            table = self._existing(sink, sink.table_id, inputs)
            check_fits(stream, sink.name, table, self._columns, sink.mode)
            return PublishedTable(sink.name, table.id, table.name, own=False)
        name = self._name(sink)
        self.tx.create_schema(name.schema, if_not_exists=True)
        self.tx.create_table(name, table_schema(self._columns, sink.mode), path=sink.path)
        return PublishedTable(sink.name, self.tx.state.table(name).id, name, own=True)

    def _existing(self, sink: Sink, table_id: int, inputs: Mapping[int, str]) -> Table:
        table = self.tx.state.table_by_id(table_id)
        if table is None:
            raise NotFoundError(
                f"There is no table with the id {table_id} for the sink of {self.stream.name}.",
                hint="`headwater tables -o json` lists tables with their ids.",
                sink=sink.name,
                table_id=table_id,
            )
        if table.name.schema == STORAGE_SCHEMA or table_id in inputs:
            what = f"{self.stream.name} reads it" if table_id in inputs else "it is Headwater's own"
            raise StreamTableError(
                f"Stream table {self.stream.name} cannot be published into {table.name}: {what}.",
                stream_table=str(self.stream.name),
                sink=sink.name,
            )
        return table

    def _name(self, sink: Sink) -> TableName:
        if sink.table is not None:
            return table_name(sink.table)
        schema, name = self.stream.name
        return TableName(STORAGE_SCHEMA, f"{schema}__{name}__sink_{sink.name}")

    @property
    def _columns(self) -> list[Column]:
        return shown_columns(self.stream, self.storage)

    # -- their rows ---------------------------------------------------------------------------------

    def write(
        self, sink: Sink, published: PublishedTable, delta: Delta | None, everything: Callable[[], DataFrame]
    ) -> SinkState:
        """Bring a sink up to date: by a delta if there is one and it suffices, else by all rows."""
        table = self.tx.state.table_by_id(published.table_id) or self.tx.state.find_table(published.table)
        if table is None:
            raise NotFoundError(
                f"Table {published.table}, which {self.stream.name} is published into, is gone.",
                hint="DROP SINK, or set ducklake_sink_table_id to another table.",
                stream_table=str(self.stream.name),
                sink=sink.name,
            )
        check_fits(str(self.stream.name), sink.name, table, self._columns, sink.mode)
        state = self.stream.sink_state(sink.name)
        if delta is None or state.behind or state.snapshot_id is None:
            sequence = self._everything(sink, table, state, everything)
        elif sink.mode is SinkMode.ACCUMULATE:
            sequence = self._log_delta(table, state.sequence, delta)
        elif sink.mode is SinkMode.REPLACE or not self._merge(table, delta):
            sequence = self._everything(sink, table, state, everything)
        else:
            sequence = state.sequence
        return SinkState(
            sink.name,
            snapshot_id=_THIS_COMMIT,
            refresh_id=self.refresh_id,
            sequence=sequence,
            delivered_at=self.moment,
        )

    def _merge(self, table: Table, delta: Delta) -> bool:
        """Whether the table holds the result after this delta; it may be large, or the table changed."""
        if delta.rows is None:
            return False
        came, went = self._net(delta.rows)
        lake = self.session().lake
        if remove_equal(lake, self.tx, table.name, went) != went.num_rows:
            log.warning("%s: %s was changed by others, and is written anew.", self.stream.name, table.name)
            return False
        self.tx.append(table.name, came)
        return True

    def _net(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """What came and what went for users."""
        if SHOWN in rows.schema.names:
            rows = rows.filter(rows.column(SHOWN))
        names = [column.name for column in self._columns]
        weights = rows.column(WEIGHT).to_numpy()
        sides = (pa.array(weights > 0), pa.array(weights < 0))
        came, went = (from_spark(rows.filter(side).select(names), self._columns) for side in sides)
        return net(came, went)

    def _log_delta(self, table: Table, first: int, delta: Delta) -> int:
        if delta.rows is not None:
            came, went = self._net(delta.rows)
            self.tx.append(table.name, log_changes(came, went, first, self.refresh_id, self.moment))
            return first + came.num_rows + went.num_rows
        frame = delta.data(self.session())
        if SHOWN in frame.columns:
            frame = frame.where(F.col(SHOWN))
        operation = F.when(F.col(WEIGHT) > 0, F.lit(INSERT)).otherwise(F.lit(DELETE))
        return self._log_frame(table, frame, operation, first)

    def _everything(
        self, sink: Sink, table: Table, state: SinkState, everything: Callable[[], DataFrame]
    ) -> int:
        rows = everything()
        if SHOWN in rows.columns:
            rows = rows.where(F.col(SHOWN))
        if sink.mode is not SinkMode.ACCUMULATE:
            self.tx.truncate(table.name)
            names = [name_sql(column.name) for column in self._columns]
            self.session().writer.write(self.tx, table, rows.select(*names))
            return state.sequence
        first = state.sequence
        if state.snapshot_id is not None or state.behind:
            self.tx.append(table.name, log_beginning(first, self.refresh_id, self.moment))
            first += 1
        few = few_rows(rows.select(*(name_sql(column.name) for column in self._columns)))
        if few is None:
            return self._log_frame(table, rows, F.lit(INSERT), first)
        inserted = from_spark(few, self._columns)
        self.tx.append(table.name, log_rows(inserted, INSERT, first, self.refresh_id, self.moment))
        return first + inserted.num_rows

    def _log_frame(self, table: Table, frame: DataFrame, operation: SparkColumn, first: int) -> int:
        """Rows for a log, numbered by Spark."""
        names = [name_sql(column.name) for column in self._columns]
        numbered = frame.select(
            *names,
            operation.alias(OPERATION),
            (F.monotonically_increasing_id() + F.lit(first)).alias(SEQUENCE),
            F.lit(self.refresh_id).alias(REFRESH_ID),
            F.lit(self.moment).cast("timestamp").alias(COMMITTED_AT),
        )
        self.session().writer.write(self.tx, table, numbered)
        return first + _SPARK_NUMBERS


def has_sinks_to_mend(stream: StreamTable) -> bool:
    """Whether a sink in this lake failed before, and may be tried again."""
    names = {one.sink for one in stream.published}
    return any(state.name in names and state.behind and is_due(state) for state in stream.sink_states)


def publish_at_home(
    wave: WaveState, stream: StreamTable, refresh_id: str, moment: datetime
) -> list[SinkState]:
    """Write what a wave did to a stream table to its sinks in the same lake. Returns how far they are then.

    A sink that cannot be written is left behind, and does not stop the refresh.
    """
    if not stream.published:
        return []
    storage = wave.tx.state.table(stream.storage.table)
    delta = wave.moved.get(storage.id)
    home = HomeSinks(lambda: wave.session, wave.tx, stream, storage, refresh_id, moment)
    sinks = {sink.name: sink for sink in home_sinks(stream)}

    def everything() -> DataFrame:
        plan = wave.session.lake.scan(storage.name, wave.snapshot_id)
        return wave.after(storage, wave.session.reader.read(plan).frame)

    states = []
    for one in stream.published:
        state = stream.sink_state(one.sink)
        changed = delta is not None and not delta.empty
        if not is_due(state) or not (changed or state.behind):
            continue
        try:
            with wave.tx.savepoint():
                states.append(home.write(sinks[one.sink], one, delta, everything))
        except ConflictError:
            raise
        except (HeadwaterError, PySparkException, Py4JError) as error:
            states.append(failed(str(stream.name), replace(state, behind=True), error))
    return states


def check_store(sink: Sink, lake: Lake) -> None:
    """The files of one lake are reached in one way: that of its settings."""
    options = lake.store.options.resolved()
    differing = [
        f"ducklake_sink_{name}"
        for name, value in sink.s3.items()
        if not sink.remote and name != "s3_secret_access_key" and getattr(options, name) != value
    ]
    if differing:
        raise SettingsError(
            f"{differing[0]} of sink {sink.name!r} differs from the settings of the lake.",
            detail="All readers of a lake reach its files by one set of S3 settings.",
            hint="Set it under `storage:` in headwater.yaml, or name a lake with ducklake_sink_catalog.",
            sink=sink.name,
            option=differing[0],
        )


__all__ = [
    "HomeSinks",
    "check_store",
    "has_sinks_to_mend",
    "home_sinks",
    "publish_at_home",
    "shown_columns",
]
