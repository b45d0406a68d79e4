"""What a stream table shows in its own lake: tables of its sinks, and the view of its name with its tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame

from headwater.errors import NotFoundError
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.lake.writing.transaction import Transaction
from headwater.refresh.home_sinks import HomeSinks, home_sinks
from headwater.refresh.model import Definition, PublishedTable, StreamTable
from headwater.refresh.store import StreamStore
from headwater.refresh.viewing import comment_of, lasting_tags, view_text
from headwater.sinks.model import Sink, SinkKind, SinkState
from headwater.spark.connector import LakeSpark

_COMPRESSION = "parquet_compression"


@dataclass(frozen=True)
class Presenting:
    """Publishes stream tables in their own lake, when they are made and when their sinks change."""

    lake: Lake
    store: StreamStore
    connector: Callable[[], LakeSpark]

    def fill(
        self,
        tx: Transaction,
        stream: StreamTable,
        storage: Table,
        refresh_id: str,
        inputs: Mapping[int, str],
        everything: Callable[[], DataFrame],
        before: Iterable[Sink] = (),
    ) -> tuple[StreamTable, list[SinkState]]:
        """Make the tables of its sinks and fill them, but for those that are `before` and still right."""
        home = HomeSinks(self.connector, tx, stream, storage, refresh_id, datetime.now(UTC))
        published = home.prepare(inputs)
        self._compress(tx, stream, published)
        known = [_place(sink) for sink in before]
        sinks = {sink.name: sink for sink in home_sinks(stream)}
        states = [
            home.write(sinks[one.sink], one, None, everything)
            for one in published
            if one not in stream.published or _place(sinks[one.sink]) not in known
        ]
        return replace(stream, published=published), states

    def change(self, tx: Transaction, stream_id: str, definition: Definition, refresh_id: str) -> None:
        """Publish the rows that are there in another way."""
        found = self.store.get(definition.name)
        if found is None or found.id != stream_id:
            raise NotFoundError(
                f"Stream table {definition.name} was dropped meanwhile.", stream_table=str(definition.name)
            )
        storage = tx.state.table(found.storage.table)
        sources = found.frontier.sources if found.frontier is not None else ()
        inputs = {source.table_id: source.name for source in sources}
        stream, states = self.fill(
            tx,
            replace(found, definition=definition),
            storage,
            refresh_id,
            inputs,
            lambda: self._stored(tx, storage),
            found.sinks,
        )
        self.show(tx, stream, storage, inputs)
        tx.join(self.store.change_sinks(stream, states))

    def show(
        self,
        tx: Transaction,
        stream: StreamTable,
        storage: Table,
        sources: Iterable[int],
        fresh: Mapping[str, str] | None = None,
    ) -> None:
        """Let the view of the stream table's name show its result."""
        text, tags = view_text(stream, storage), lasting_tags(stream, sources)
        old = tx.state.find_view(stream.name)
        if old is not None and old.sql == text:
            for tag, value in tags.items():
                if old.tags.get(tag) != value:
                    tx.set_tag(stream.name, tag, value)
            return
        before = {} if old is None else {tag: value for tag, value in old.tags.items() if value is not None}
        tx.create_view(
            stream.name,
            text,
            comment=comment_of(stream),
            tags={**before, **tags, **(fresh or {})},
            or_replace=True,
        )

    def remove(self, tx: Transaction, stream: StreamTable, *, sinks: bool = True) -> None:
        """Take away the view and what is stored; with `sinks` their tables too."""
        tx.drop_view(stream.name, if_exists=True)
        for one in stream.published:
            table = tx.state.table_by_id(one.table_id)
            if sinks and one.own and table is not None:
                tx.drop_table(table.name)
        for stage in stream.stages:
            tx.drop_table(stage.table, if_exists=True)

    def _stored(self, tx: Transaction, storage: Table) -> DataFrame:
        return self.connector().reader.read(tx.scan(storage.name)).frame

    def _compress(self, tx: Transaction, stream: StreamTable, published: Sequence[PublishedTable]) -> None:
        """Tell the lake how files written for a stream table are compressed."""
        codecs = {sink.name: sink.compression for sink in stream.sinks if not sink.remote}
        tables = [(stage.table, codecs.get(SinkKind.DUCKLAKE)) for stage in stream.stages]
        tables += [(one.table, codecs.get(one.sink)) for one in published if one.own]
        for table, codec in tables:
            place = (_COMPRESSION, "table", tx.state.table(table).id)
            wanted = "uncompressed" if codec == "none" else codec
            if tx.stager.options.values.get(place) != wanted:
                tx.set_option(_COMPRESSION, wanted, table=table)


def _place(sink: Sink) -> Sink:
    """A sink without what changes only files to come."""
    return replace(sink, compression=None)
