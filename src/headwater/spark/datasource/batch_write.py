"""`df.write.format("ducklake")`: tasks store files, the driver commits them as one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from headwater.errors import CommitOutcomeUnknownError, SettingsError, UnsupportedError
from headwater.lake.format.types import type_text
from headwater.lake.lake import Lake
from headwater.lake.model import StagedFile, Table
from headwater.lake.writing.transaction import Transaction
from headwater.spark.datasource.options import SourceOptions
from headwater.spark.datasource.place import OpenLake
from headwater.spark.datasource.staging import CommitNote, TaskWriter, Written, commit_all
from headwater.spark.datasource.target import Target
from headwater.typedefs import quote_name


@dataclass(frozen=True, slots=True)
class Replacement:
    """Which rows the new ones replace."""

    everything: bool = False
    where: str | None = None
    partitions: bool = False
    """Those of the partitions that the new rows fall into."""

    def apply(self, tx: Transaction, table: Table, files: Sequence[StagedFile]) -> None:
        """Remove them in a transaction."""
        if table.id < 0:
            return
        if self.everything or (self.partitions and not _keys(table)):
            tx.truncate(table.name)
        elif self.where is not None:
            tx.delete(table.name, self.where)
        elif self.partitions and files:
            values = sorted({file.partition_values for file in files}, key=repr)
            tx.delete(table.name, " OR ".join(f"({_partition_condition(table, v)})" for v in values))


def _keys(table: Table) -> bool:
    return table.partition is not None and bool(table.partition.fields)


def _partition_condition(table: Table, values: Sequence[str | None]) -> str:
    """A condition that the rows of one partition meet, in DuckDB's SQL."""
    parts = []
    by_id = table.by_id()
    for key, value in zip(table.partition.fields if table.partition else (), values, strict=True):
        column = by_id[key.column_id]
        name = quote_name(column.name)
        if key.transform.startswith("bucket"):
            raise UnsupportedError(
                f"Partitions of {table.name} cannot be replaced dynamically: {name} is split into buckets.",
                hint="Say which rows are replaced with replaceWhere.",
                table=str(table.name),
            )
        if value is None:
            parts.append(f"{name} IS NULL")
        elif key.transform == "identity":
            text = value.replace("'", "''")
            parts.append(f"{name} = CAST('{text}' AS {type_text(column)})")
        else:
            parts.append(f"{key.transform}({name}) = {int(value)}")
    return " AND ".join(parts)


def target_of(said: SourceOptions, schema: st.StructType, overwrite: bool) -> Target:
    """The table that the options name, for rows of that schema."""
    return Target(
        said.table,
        schema,
        merge_schema=said.flag("mergeSchema"),
        replace_schema=overwrite and said.flag("overwriteSchema"),
        partition_by=said.expressions("partitionedBy"),
    )


def prepare(opened: OpenLake, target: Target, **more: object) -> TaskWriter:
    """Check that the rows fit the table, and say to tasks how to store them. Nothing is written."""
    lake: Lake = opened.open()
    tx = lake.transaction()
    try:
        table = target.make(tx)
        target.check(table)
    finally:
        tx.rollback()
    return TaskWriter(opened, table, lake.options(), **more)  # type: ignore[arg-type]


class TableWriter(DataSourceArrowWriter):
    """Writes one DataFrame."""

    def __init__(self, opened: OpenLake, said: SourceOptions, schema: st.StructType, overwrite: bool):
        self._replacement = _replacement(said, overwrite)
        self._target = target_of(said, schema, overwrite)
        self._note = _note(said)
        self._writer = prepare(
            opened,
            self._target,
            must_match=self._replacement.where,
            # Few rows have no partition yet, by which the others could be replaced.
            keep_few=not self._replacement.partitions,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Store the rows of one task."""
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all of it one snapshot; whatever fails, nothing is left of it."""
        written = cast("list[Written | None]", messages)
        try:
            commit_all(self._writer, self._target, written, self._note, self._replacement.apply)
        except CommitOutcomeUnknownError:
            raise  # the files may belong to a snapshot
        except BaseException:
            self._writer.discard(written)
            raise

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks stored."""
        self._writer.discard(cast("list[Written | None]", messages))


def _replacement(said: SourceOptions, overwrite: bool) -> Replacement:
    where = said.text("replaceWhere")
    mode = said.text("partitionOverwriteMode") or "static"
    if mode.lower() not in ("static", "dynamic"):
        raise SettingsError(f"partitionOverwriteMode is static or dynamic, not {mode!r}.")
    dynamic = mode.lower() == "dynamic"
    if not overwrite:
        if where is not None:
            raise SettingsError('replaceWhere replaces rows: it needs .mode("overwrite").')
        return Replacement()
    if where is not None and dynamic:
        raise SettingsError("replaceWhere and partitionOverwriteMode=dynamic exclude each other.")
    if said.flag("overwriteSchema") and (where is not None or dynamic):
        raise SettingsError("overwriteSchema replaces the whole table, not a part of its rows.")
    return Replacement(everything=where is None and not dynamic, where=where, partitions=dynamic)


def _note(said: SourceOptions) -> CommitNote:
    application, version = said.text("txnAppId"), said.number("txnVersion")
    if (application is None) != (version is None):
        raise SettingsError("txnAppId and txnVersion go together.", hint="Give both, or neither.")
    # An id of its own even if the user gives none: a commit whose outcome is unknown can be asked about.
    once = f"txn/{application}/{version}" if application is not None else f"spark/{uuid4()}"
    return CommitNote(once, said.text("userMetadata"))
