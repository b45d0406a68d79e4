"""`df.writeStream.format("ducklake")`: every batch is one snapshot, applied exactly once.

A batch that was committed to the lake but not yet noted in Spark's checkpoint is run again after a restart,
with the number it had. The lake knows it by the query's id, which the checkpoint keeps, and that number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headwater.errors import CommitOutcomeUnknownError, SettingsError, StorageError
from headwater.spark.datasource.batch_write import Replacement, prepare, target_of
from headwater.spark.datasource.options import SourceOptions
from headwater.spark.datasource.place import OpenLake
from headwater.spark.datasource.staging import CommitNote, Written, commit_all
from headwater.storage.store import Store


class TableStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of one query. Spark makes a new one for storing and for each commit."""

    def __init__(self, opened: OpenLake, said: SourceOptions, schema: st.StructType, overwrite: bool):
        for name in ("replaceWhere", "partitionOverwriteMode", "txnVersion"):
            if said.text(name) is not None:
                raise SettingsError(f"A stream has no option {name!r}.", hint="Use foreachBatch for it.")
        self._said = said
        self._replacement = Replacement(everything=overwrite)
        self._target = target_of(said, schema, overwrite)
        self._writer = prepare(opened, self._target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Store the rows of one task."""
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the batch one snapshot, unless it is one already."""
        written = cast("list[Written | None]", messages)
        note = CommitNote(f"stream/{self._query(written)}/{batchId}", self._said.text("userMetadata"))
        try:
            commit_all(self._writer, self._target, written, note, self._replacement.apply)
        except CommitOutcomeUnknownError:
            raise  # the files may belong to a snapshot
        except BaseException:
            self._writer.discard(written)
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what tasks stored."""
        self._writer.discard(cast("list[Written | None]", messages))

    def _query(self, written: Sequence[Written | None]) -> str:
        """What tells this query from all others and stays the same when it is restarted."""
        own = self._said.text("txnAppId")
        if own is not None:
            return own
        for message in written:
            if message is not None and message.query_id is not None:
                return message.query_id
        # A batch without tasks, which complete mode can have: the checkpoint knows the id too.
        known = _checkpoint_id(self._writer.opened.lake.store, self._said.text("checkpointLocation"))
        if known is None:
            raise SettingsError(
                "The query's id cannot be found, without which a batch might be applied twice.",
                hint='Name the query yourself: .option("txnAppId", "some name that no other query has").',
            )
        return known


def _checkpoint_id(store: Store, location: str | None) -> str | None:
    if location is None:
        return None
    path = location.removeprefix("file:") if location.startswith("file:/") else location
    try:
        with store.open_input(path.rstrip("/") + "/metadata") as source:
            return str(json.loads(source.read())["id"])
    except (StorageError, SettingsError, OSError, ValueError, KeyError):
        return None
