"""Datasets of the delta store: opened by name, listed, and compacted when they are due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.deltas.accumulated import AccumulatedLog
from headwater.deltas.dataset import DeltaDataset
from headwater.deltas.defining import Schema
from headwater.deltas.model import CompactionPolicy, CompactResult
from headwater.deltas.row_log_folding import RowLog
from headwater.deltas.store import DatasetStore
from headwater.errors import DeltaError, InvalidInputError
from headwater.lake.catalog import table_name
from headwater.lake.lake import Lake
from headwater.sinks.model import SinkMode
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.refresh.model import StreamTable
    from headwater.refresh.store import StreamStore
    from headwater.spark.connector import LakeSpark


class Deltas:
    """The datasets of one lake. Spark starts when rows are read or many are written."""

    def __init__(self, lake: Lake, connector: Callable[[], LakeSpark], streams: StreamStore):
        self._lake = lake
        self._connector = connector
        self._streams = streams

    def open(
        self,
        name: str,
        key: Sequence[str] | str | None = None,
        *,
        schema: Schema | None = None,
        adopt: bool = False,
    ) -> DeltaDataset | AccumulatedLog:
        """A dataset by its name, or the log of a stream table that accumulates."""
        wanted = table_name(name)
        stream = self._streams.get(wanted)
        if stream is not None:
            if key is not None or schema is not None or adopt:
                raise InvalidInputError(
                    f"{wanted} is a stream table: its log has neither a key nor columns of its own.",
                    hint="Open it by its name alone.",
                    stream_table=str(wanted),
                )
            return self._log(stream)
        names = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        found = DeltaDataset(self._lake, self._connector, wanted, names, self._readers)
        return found.open(schema=schema, adopt=adopt)

    def all(self) -> list[DeltaDataset]:
        """All datasets, by name."""
        found = DatasetStore(self._lake.db).all()
        return [DeltaDataset(self._lake, self._connector, one.name, None, self._readers) for one in found]

    def compact_due(self, policy: CompactionPolicy | None = None) -> list[CompactResult]:
        """Compact the datasets whose backlog is due by a policy; what was not due is left out."""
        done = [one.compact(policy=policy or CompactionPolicy()) for one in self.all()]
        return [result for result in done if result.outcome == "compacted"]

    def _log(self, stream: StreamTable) -> AccumulatedLog:
        modes = {sink.name: sink.mode for sink in stream.sinks if not sink.remote}
        for published in stream.published:
            if published.own and modes.get(published.sink) is SinkMode.ACCUMULATE:
                columns = tuple(name for name, _ in stream.columns)
                log = RowLog(stream.id, str(stream.name), published.table_id, columns)
                return AccumulatedLog(self._lake, self._connector, log)
        raise DeltaError(
            f"Stream table {stream.name} keeps no log in this lake.",
            hint="ALTER STREAM TABLE … SET (ducklake_sink_mode = 'accumulate') makes it keep one.",
            stream_table=str(stream.name),
        )

    def _readers(self, table_ids: Iterable[int], name: TableName) -> list[str]:
        """Stream tables that read a dataset, and where their results are published."""
        ids = set(table_ids)
        found = []
        for stream in self._streams.all():
            sources = stream.frontier.sources if stream.frontier is not None else ()
            if any(source.table_id in ids or source.name == str(name) for source in sources):
                found.append(f"stream table {stream.name}")
                found += [f"sink {sink.name} of {stream.name}" for sink in stream.sinks if sink.remote]
        return found
