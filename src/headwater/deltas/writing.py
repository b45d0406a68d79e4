"""Deltas and tombstones on their way into a log. No row that they replace is looked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.deltas.defining import Defining, differences
from headwater.deltas.keys import Keys, parse_keys
from headwater.deltas.model import DELETE, DELTA, OPERATION, PLACE, UPSERT, Bound, Dataset, Delta, bind_now
from headwater.errors import InvalidInputError, NotFoundError
from headwater.lake.format.align import align_input
from headwater.lake.format.ids import new_uuid
from headwater.lake.lake import Lake
from headwater.lake.model import Column
from headwater.lake.writing.dml import as_arrow
from headwater.lake.writing.row_sql import rows_to_table
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.connector import LakeSpark

#: Keys of a DataFrame that one call may tombstone.
MOST_KEYS = 1_000_000

Rows = Any
"""A Spark DataFrame, an Arrow table, batch or reader, a mapping of columns, or a list of dictionaries."""


@dataclass(frozen=True)
class Writing:
    """Writes to datasets of one lake."""

    defining: Defining
    connector: Callable[[], LakeSpark]

    @property
    def lake(self) -> Lake:
        """The lake that is written to."""
        return self.defining.lake

    def upsert(
        self,
        name: TableName,
        key: Sequence[str] | None,
        rows: Rows,
        *,
        operation_id: str | None,
        actor: str | None,
    ) -> Delta:
        """Rows that are to replace those of their keys, or to be new."""
        if isinstance(rows, pa.RecordBatchReader):
            rows = rows.read_all()  # a commit that met another is done again, and a stream is gone by then

        def work(tx: Transaction, delta: Delta) -> tuple[Dataset, Delta]:
            bound = self._bound(tx, name, key, rows)
            if _is_frame(rows):
                bound, count = self._add_frame(tx, bound, rows, delta.id)
            else:
                bound, count = self._add_arrow(tx, bound, rows, delta.id)
            written = replace(delta, rows=count)
            if count:
                tx.join(self.defining.store.add_delta(bound.dataset, written))
            return bound.dataset, written

        return self._committed(name, work, "upsert", operation_id, actor, None)

    def tombstone(
        self, name: TableName, keys: Any, *, operation_id: str | None, actor: str, reason: str
    ) -> Delta:
        """Keys whose rows are to be gone, as far as they are older."""
        for what, text in (("actor", actor), ("reason", reason)):
            if not text or not text.strip():
                raise InvalidInputError(
                    f"A tombstone needs {'an' if what == 'actor' else 'a'} {what}.",
                    detail="Who erased what, and why, stays on record.",
                )
        if _is_frame(keys):
            keys = keys.limit(MOST_KEYS + 1).toArrow()
            if keys.num_rows > MOST_KEYS:
                raise InvalidInputError(
                    f"More than {MOST_KEYS:,} keys are to be tombstoned at once.",
                    detail="Each of them is put on record, by this process.",
                    hint="Write them in several calls.",
                    dataset=str(name),
                )

        def work(tx: Transaction, delta: Delta) -> tuple[Dataset, Delta]:
            dataset = self.existing(name)
            bound = bind_now(dataset, tx.state)
            wanted = parse_keys(str(name), keys, bound.key_columns)
            written = replace(delta, rows=wanted.count)
            if wanted.count:
                tx.append(bound.log.name, _tombstones(bound, wanted, delta.id))
                tx.join(self.defining.store.add_delta(dataset, written, wanted.records()))
            return dataset, written

        return self._committed(name, work, "tombstone", operation_id, actor, reason)

    def existing(self, name: TableName) -> Dataset:
        """A dataset that must be there."""
        found = self.defining.store.get(name)
        if found is None:
            known = [str(one.name) for one in self.defining.store.all()]
            raise NotFoundError(
                f"There is no dataset {name}.",
                hint=f"There are: {', '.join(known)}." if known else "The first write_delta makes it.",
                dataset=str(name),
            )
        return found

    def _bound(self, tx: Transaction, name: TableName, key: Sequence[str] | None, rows: Rows) -> Bound:
        found = self.defining.store.get(name)
        if found is not None:
            return bind_now(found, tx.state)
        if key is None:
            self.existing(name)
        return self.defining.create(tx, name, key or (), _schema(rows))

    def _committed(
        self,
        name: TableName,
        work: Callable[[Transaction, Delta], tuple[Dataset, Delta]],
        kind: Any,
        operation_id: str | None,
        actor: str | None,
        reason: str | None,
    ) -> Delta:
        """Run it in a transaction; an operation that was applied before gives the delta of that time."""
        used: list[Transaction] = []

        def attempt(tx: Transaction) -> tuple[Dataset, Delta] | None:
            used[:] = [tx]
            if tx.already_applied:
                return None
            fresh = Delta(str(new_uuid()), kind, 0, actor, reason, operation_id, None, datetime.now(UTC))
            return work(tx, fresh)

        done = self.lake.run(
            attempt,
            author=actor,
            message=f"{kind} of dataset {name}",
            operation_id=None if operation_id is None else f"delta/{name}/{operation_id}",
        )
        snapshot = used[0].snapshot_id
        if done is None:
            known = self.defining.store.delta_at(self.existing(name), snapshot)
            if known is None:
                raise NotFoundError(f"The delta of snapshot {snapshot} is not on record.", dataset=str(name))
            return replace(known, already_applied=True)
        return replace(done[1], snapshot_id=snapshot if done[1].rows else None)

    # -- rows ---------------------------------------------------------------------------------------

    def _add_arrow(self, tx: Transaction, bound: Bound, rows: Rows, delta: str) -> tuple[Bound, int]:
        data = as_arrow(rows, bound.base)
        _check_key(bound, data.schema.names)
        new, wider = differences(bound, data.schema)
        if not isinstance(rows, pa.Table | pa.RecordBatch):
            wider = {}  # Python's own numbers have no width that anybody chose
        bound = self.defining.evolve(tx, bound, new, wider)
        columns = [pair.base for pair in bound.columns]
        # By the base's columns first: it is there that the rows have to fit in the end.
        aligned = align_input(data, columns)
        logged = _in_log(bound, aligned, UPSERT, delta, None)
        return bound, tx.append(bound.log.name, logged)

    def _add_frame(self, tx: Transaction, bound: Bound, rows: DataFrame, delta: str) -> tuple[Bound, int]:
        from headwater.deltas.frames import log_frame
        from headwater.spark.writing.conforming import fit

        _check_key(bound, rows.columns)
        found = fit(rows, bound.base, merge_schema=True)
        bound = self.defining.evolve(tx, bound, found.new, found.wider)
        frame = log_frame(bound, rows, UPSERT, delta)
        return bound, self.connector().writer.write(tx, tx.state.table(bound.log.name), frame)


def _tombstones(bound: Bound, keys: Keys, delta: str) -> pa.Table:
    names = [pair.log.name for pair in bound.key]
    table = keys.table.rename_columns(names)
    return _labelled(table, DELETE, delta, pa.array(range(keys.count), pa.int64()))


def _in_log(bound: Bound, rows: pa.Table, operation: str, delta: str, places: Any) -> pa.Table:
    """Rows of the base's columns under the names that the log has for them."""
    names = {pair.base.name: pair.log.name for pair in bound.columns}
    renamed = rows.rename_columns([names[name] for name in rows.schema.names])
    if places is None:
        places = pa.nulls(rows.num_rows, pa.int64())
    return _labelled(renamed, operation, delta, places)


def _labelled(rows: pa.Table, operation: str, delta: str, places: Any) -> pa.Table:
    count = rows.num_rows
    for name, values in (
        (OPERATION, pa.repeat(pa.scalar(operation), count)),
        (DELTA, pa.repeat(pa.scalar(delta), count)),
        (PLACE, places),
    ):
        rows = rows.append_column(name, values)
    return rows


def _check_key(bound: Bound, names: Sequence[str]) -> None:
    given = {name.lower() for name in names}
    missing = [pair.name for pair in bound.key if pair.name.lower() not in given]
    if missing:
        raise InvalidInputError(
            f"The rows lack {missing[0]!r}, which is part of the key of dataset {bound.dataset.name}.",
            hint="A key that is not known is NULL, and must be given as such.",
            dataset=str(bound.dataset.name),
            column=missing[0],
        )


def _schema(rows: Rows) -> pa.Schema:
    """The columns that a dataset gets from its first rows."""
    if _is_frame(rows):
        from headwater.spark.types import columns_of

        return columns_of(rows.schema)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        schema = rows.schema
    elif isinstance(rows, Mapping):
        schema = pa.table(dict(rows)).schema
    else:
        schema = rows_to_table(rows, _NO_COLUMNS).schema
    return pa.schema([field.with_nullable(True) for field in schema])


_NO_COLUMNS: tuple[Column, ...] = ()


def _is_frame(rows: Any) -> bool:
    """Whether rows are Spark's, found out without importing Spark."""
    return hasattr(rows, "sparkSession") and hasattr(rows, "toArrow")
