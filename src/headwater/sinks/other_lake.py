"""A sink in another lake: another catalog, another data path. One delivery is one snapshot there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
import pyarrow as pa

from headwater.deltas.row_log import INSERT, log_beginning, log_changes, log_rows, log_view
from headwater.errors import AlreadyExistsError, NotFoundError, SettingsError, SinkError
from headwater.lake.catalog import table_name
from headwater.lake.connection import Cursor, Database
from headwater.lake.format.types import columns_from_arrow
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.lake.own import lake_id as id_of_lake
from headwater.lake.own import write
from headwater.lake.writing.transaction import Transaction
from headwater.sinks.model import Sink, SinkMode
from headwater.sinks.multiset import remove_equal
from headwater.sinks.positions import (
    Position,
    ensure_positions,
    forget_position,
    read_position,
    write_position,
)
from headwater.sinks.result import Result
from headwater.sinks.tables import check_fits, check_log_names, table_schema
from headwater.sinks.target import Applied
from headwater.storage.options import StorageOptions
from headwater.typedefs import STORAGE_SCHEMA, TableName

#: Seconds that a lake which does not answer is waited for.
_PATIENCE = 5.0

_TAG = """
    UPDATE {ducklake_tag} t SET value = %(value)s, begin_snapshot = %(snapshot)s
    WHERE t.key = %(key)s AND t.end_snapshot IS NULL AND t.value IS DISTINCT FROM %(value)s
        AND t.object_id IN (
            SELECT o.id FROM (
                SELECT table_id AS id, schema_id, table_name AS name, end_snapshot FROM {ducklake_table}
                UNION ALL SELECT view_id, schema_id, view_name, end_snapshot FROM {ducklake_view}) o
            JOIN {ducklake_schema} s ON s.schema_id = o.schema_id AND s.end_snapshot IS NULL
            WHERE o.end_snapshot IS NULL AND s.schema_name = %(schema)s AND o.name = %(name)s)"""


def open_lake(sink: Sink, dsn: str, s3: Mapping[str, str]) -> Lake:
    """The lake of a sink; it is made if the sink says where its files are to be."""
    storage = StorageOptions(
        s3_region=s3.get("s3_region"),
        s3_endpoint=s3.get("s3_endpoint"),
        s3_access_key_id=s3.get("s3_access_key_id"),
        s3_secret_access_key=s3.get("s3_secret_access_key"),
    )
    with _explained(Database(dsn), sink.name):
        lake = Lake.open(dsn, data_path=sink.path, storage=storage, create=sink.path is not None)
    lake.db.patience = _PATIENCE
    return lake


@contextmanager
def _explained(db: Database, sink: str) -> Iterator[None]:
    """What PostgreSQL or Arrow refuse, as a failure of the sink and without anything secret."""
    try:
        yield
    except psycopg.Error as error:
        raise db.explain(error) from None
    except pa.ArrowException as error:
        raise SinkError(f"Sink {sink} cannot take the result.", detail=str(error), sink=sink) from None


@dataclass(frozen=True)
class LakeTarget:
    """Writes a result into another lake."""

    lake: Lake
    sink: Sink

    def deliver(self, result: Result) -> Applied:
        """Bring the lake to a result, in one transaction that remembers it."""
        with _explained(self.lake.db, self.sink.name):
            return self._delivered(result)

    def _delivered(self, result: Result) -> Applied:
        self._refuse_home(result)
        write(self.lake.db, ensure_positions)
        return self.lake.run(
            lambda tx: self._deliver(tx, result),
            author=result.tags.get("author"),
            message=f"sink {self.sink.name} of stream table {result.name}",
            extra_info=json.dumps(
                {
                    "stream_table": str(result.name),
                    "refresh_id": result.refresh_id,
                    "source_snapshot_id": result.snapshot_id,
                }
            ),
        )

    def withdraw(self, lake_id: str, stream_id: str) -> None:
        """Remove what the sink made; a table that was there before stays, with its rows."""
        with _explained(self.lake.db, self.sink.name):
            self._withdrawn(lake_id, stream_id)

    def _withdrawn(self, lake_id: str, stream_id: str) -> None:
        position = write(
            self.lake.db,
            lambda connection: forget_position(connection, lake_id, stream_id, self.sink.name),
        )
        if position is None or not position.own:
            return
        name = table_name(position.target)

        def work(tx: Transaction) -> None:
            with suppress(NotFoundError):
                tx.drop_view(name)
            tx.drop_table(name, if_exists=True)
            tx.drop_table(self._log_name(name), if_exists=True)

        self.lake.run(work, message=f"sink {self.sink.name} was dropped")

    # -- one transaction ----------------------------------------------------------------------------

    def _deliver(self, tx: Transaction, result: Result) -> Applied:
        before = self.lake.db.read(lambda connection: read_position(connection, result, self.sink.name))
        if before is not None and before.holds(result):
            return Applied("nothing", sequence=before.sequence)
        shown, table, own = self._prepared(tx, result, before)
        sequence = 0 if before is None else before.sequence
        delta = None
        if before is not None and before.follows(result) and before.target == str(shown):
            delta = result.changes(before.snapshot_id)
        applied = self._applied(tx, result, table, delta, sequence, anew=before is None)
        after = Position(
            str(shown), own, result.storage.id, result.snapshot_id, result.refresh_id, applied.sequence
        )

        def join(cursor: Cursor, snapshot: int) -> None:
            write_position(cursor, result, self.sink.name, before, after)
            for tag, value in self._tags(result).items():
                given = {"value": value, "key": tag, "snapshot": snapshot}
                cursor.execute(self.lake.db.text(_TAG), {**given, "schema": shown.schema, "name": shown.name})

        tx.join(join)
        return applied

    def _applied(
        self,
        tx: Transaction,
        result: Result,
        table: Table,
        delta: tuple[pa.Table, pa.Table] | None,
        sequence: int,
        *,
        anew: bool,
    ) -> Applied:
        logs = self.sink.mode is SinkMode.ACCUMULATE
        if delta is not None and not delta[0].num_rows and not delta[1].num_rows:
            return Applied("changes", sequence=sequence)
        if delta is not None and self.sink.mode is not SinkMode.REPLACE:
            came, went = delta
            if logs:
                tx.append(table.name, log_changes(came, went, sequence, result.refresh_id, result.moment))
                sequence += came.num_rows + went.num_rows
                return Applied("changes", came.num_rows, went.num_rows, sequence)
            if remove_equal(self.lake, tx, table.name, went) == went.num_rows:
                tx.append(table.name, came)
                return Applied("changes", came.num_rows, went.num_rows, sequence)
        if not logs:
            tx.truncate(table.name)
            rows = pa.RecordBatchReader.from_batches(result.schema, result.batches())
            return Applied("everything", tx.append(table.name, rows), 0, sequence)
        if not anew:
            tx.append(table.name, log_beginning(sequence, result.refresh_id, result.moment))
            sequence += 1
        logged = pa.RecordBatchReader.from_batches(
            table_schema(result.columns, self.sink.mode), self._logged(result, sequence)
        )
        count = tx.append(table.name, logged)
        return Applied("everything", count, 0, sequence + count)

    def _logged(self, result: Result, first: int) -> Iterator[pa.RecordBatch]:
        schema = table_schema(result.columns, SinkMode.ACCUMULATE)
        for batch in result.batches():
            rows = log_rows(pa.Table.from_batches([batch]), INSERT, first, result.refresh_id, result.moment)
            first += rows.num_rows
            yield from rows.cast(schema).to_batches()

    # -- its table ----------------------------------------------------------------------------------

    def _prepared(
        self, tx: Transaction, result: Result, before: Position | None
    ) -> tuple[TableName, Table, bool]:
        """The name under which readers find the result, and the table that is written."""
        stream = str(result.name)
        check_log_names(stream, result.names, self.sink.mode)
        if self.sink.table_id is not None:
            found = tx.state.table_by_id(self.sink.table_id)
            if found is None:
                raise NotFoundError(
                    f"There is no table with the id {self.sink.table_id} in the lake of sink "
                    f"{self.sink.name}.",
                    sink=self.sink.name,
                    table_id=self.sink.table_id,
                )
            check_fits(stream, self.sink.name, found, result.columns, self.sink.mode)
            return found.name, found, False
        shown = result.name if self.sink.table is None else table_name(self.sink.table)
        logs = self.sink.mode is SinkMode.ACCUMULATE
        name = self._log_name(shown) if logs else shown
        mine = before is not None and before.own and before.target == str(shown)
        self._refuse_taken(tx, shown, mine)
        for schema in (shown.schema, name.schema):
            tx.create_schema(schema, if_not_exists=True)
        wanted = table_schema(result.columns, self.sink.mode)
        there = tx.state.find_table(name)
        if there is None or _shape(there) != [(c.name, c.type) for c in columns_from_arrow(wanted)]:
            tx.create_table(name, wanted, or_replace=there is not None)
        self._show(tx, result, shown, name)
        return shown, tx.state.table(name), True

    def _show(self, tx: Transaction, result: Result, shown: TableName, name: TableName) -> None:
        view = tx.state.find_view(shown)
        if shown == name:
            if view is not None:
                tx.drop_view(shown)
            known: Mapping[str, str | None] = tx.state.table(name).tags
        else:
            if tx.state.find_table(shown) is not None:
                tx.drop_table(shown)
            text = log_view(name, result.names)
            if view is None or view.sql != text:
                tx.create_view(shown, text, tags=self._tags(result), or_replace=True)
            known = tx.state.view(shown).tags
        for tag, value in self._tags(result).items():
            if tag not in known:
                tx.set_tag(shown, tag, value)

    def _tags(self, result: Result) -> dict[str, str]:
        return {tag: value for tag, value in result.tags.items() if tag.startswith("headwater.")}

    def _refuse_taken(self, tx: Transaction, shown: TableName, mine: bool) -> None:
        taken = tx.state.find_table(shown) is not None or tx.state.find_view(shown) is not None
        if taken and not mine:
            raise AlreadyExistsError(
                f"The lake of sink {self.sink.name} has something named {shown} already.",
                hint="Choose another name with ducklake_sink_table, or name the table by "
                "ducklake_sink_table_id.",
                sink=self.sink.name,
                table=str(shown),
            )

    def _refuse_home(self, result: Result) -> None:
        there = self.lake.db.read(lambda connection: id_of_lake(self.lake.db, connection))
        if there == result.lake_id:
            raise SettingsError(
                f"ducklake_sink_catalog of sink {self.sink.name} is the lake that {result.name} is in.",
                hint="Leave it out.",
                sink=self.sink.name,
            )

    def _log_name(self, shown: TableName) -> TableName:
        return TableName(STORAGE_SCHEMA, f"{shown.schema}__{shown.name}__log")


def _shape(table: Table) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in table.columns]


__all__ = ["LakeTarget", "open_lake"]
