"""Datasets made, adopted, changed and dropped: two tables and a view, in one commit with the record of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa

from headwater.deltas.keys import check_key_types
from headwater.deltas.model import (
    LOG_COLUMNS,
    SEQUENCE,
    Bound,
    Dataset,
    bind,
    bind_now,
)
from headwater.deltas.store import DatasetStore
from headwater.deltas.viewing import dataset_view
from headwater.errors import AlreadyExistsError, DeltaError, InvalidInputError, NotFoundError
from headwater.lake.format.types import arrow_field, can_widen, columns_from_arrow
from headwater.lake.lake import Lake
from headwater.lake.model import Column, Table
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import STORAGE_SCHEMA, TableName, quote_name

#: What a view says of the dataset that it shows.
DATASET_TAG, KEY_TAG = "headwater.dataset_id", "headwater.dataset_key"
_INLINING = "data_inlining_row_limit"
_NOT_COMMITTED = -1

Schema = pa.Schema | Mapping[str, Any]


@dataclass(frozen=True)
class Defining:
    """Makes and changes datasets of one lake, inside transactions."""

    lake: Lake
    store: DatasetStore

    # -- making -------------------------------------------------------------------------------------

    def create(self, tx: Transaction, name: TableName, key: Sequence[str], schema: Schema) -> Bound:
        """A new dataset, empty, with the columns of an Arrow schema or of names with types."""
        self._refuse_taken(tx, name)
        identity = str(uuid4())
        tx.create_schema(name.schema, if_not_exists=True)
        tx.create_schema(STORAGE_SCHEMA, if_not_exists=True)
        base = _storage_name(name, identity, "base")
        tx.create_table(base, schema, comment=f"the base of dataset {name}")
        return self._finish(tx, name, identity, tx.state.table(base), key)

    def adopt(self, tx: Transaction, name: TableName, key: Sequence[str]) -> Bound:
        """A table that is there becomes the base of a dataset, whose view takes its name.

        It stays in its schema, under a name of its own, with all its rows, files and history.
        """
        found = tx.state.find_table(name)
        if found is None:
            raise NotFoundError(f"There is no table {name} to be adopted.", table=str(name))
        tx.create_schema(STORAGE_SCHEMA, if_not_exists=True)
        columns = _named(found, key)
        check_key_types(str(name), columns)
        self._refuse_twins(tx, found, columns)
        identity = str(uuid4())
        tx.rename_table(found.name, f"{found.name.name}__base_{identity[:8]}")
        table = next(one for one in tx.state.tables.values() if one.id == found.id)
        return self._finish(tx, found.name, identity, table, key)

    def _finish(
        self, tx: Transaction, name: TableName, identity: str, base: Table, key: Sequence[str]
    ) -> Bound:
        _check_names(str(name), [column.name for column in base.columns])
        columns = _named(base, key)
        check_key_types(str(name), columns)
        # Rows that a compaction wrote are whole files: what is removed later can be erased from them.
        tx.set_option(_INLINING, 0, table=base.name)
        tx.set_sort_by(base.name, [_quoted(column.name) for column in columns])
        log = _storage_name(name, identity, "log")
        wanted = {column.name: _nullable(column) for column in base.columns}
        tx.create_table(log, _log_schema(wanted), comment=f"the deltas of dataset {name}")
        made = tx.state.table(log)
        logged = {column.name: column.id for column in made.columns}
        dataset = Dataset(
            identity,
            name,
            base.id,
            made.id,
            tuple(column.id for column in columns),
            tuple((column.id, logged[column.name]) for column in base.columns),
            _NOT_COMMITTED,
        )
        bound = bind(dataset, tx.state)
        self._show(tx, bound)
        tx.join(self.store.add(dataset, base.name, log))
        return bound

    def _refuse_taken(self, tx: Transaction, name: TableName) -> None:
        if tx.state.find_table(name) is not None:
            raise AlreadyExistsError(
                f"There is already a table {name}.",
                hint="Pass adopt=True to make it the base of the dataset; its rows stay as they are.",
                table=str(name),
            )
        if tx.state.find_view(name) is not None:
            raise AlreadyExistsError(f"There is already a view {name}.", view=str(name))

    def _refuse_twins(self, tx: Transaction, table: Table, columns: Sequence[Column]) -> None:
        """The rows of a base have different keys; those of any table may not."""
        listed = ", ".join(quote_name(column.name) for column in columns)
        at = tx.base_snapshot_id
        with self.lake.duckdb() as session:
            twins = session.execute(
                f"SELECT 1 FROM {table.name} AT (VERSION => {at}) "
                f"GROUP BY {listed} HAVING count(*) > 1 LIMIT 1"
            ).fetchall()
        if twins:
            raise DeltaError(
                f"Table {table.name} has several rows of one key ({listed}).",
                hint="Choose columns that tell its rows apart, or remove the duplicates first.",
                table=str(table.name),
            )
        tx.join(self.store.unchanged(table.id, table.name, at))

    # -- changing -----------------------------------------------------------------------------------

    def evolve(self, tx: Transaction, bound: Bound, new: Sequence[Any], wider: Mapping[str, str]) -> Bound:
        """Add columns (Arrow fields), and widen others to the types they need, in base, log and view."""
        if not new and not wider:
            return bound
        dataset = bound.dataset
        _check_names(str(dataset.name), [field.name for field in new])
        for field in new:
            for table in (bound.base, bound.log):
                tx.add_column(table.name, field.name, field.with_nullable(True))
        by_name = {pair.name.lower(): pair for pair in bound.columns}
        for name, kind in wider.items():
            pair = by_name[name.lower()]
            tx.widen_column(bound.base.name, pair.base.name, kind)
            tx.widen_column(bound.log.name, pair.log.name, kind)
        pairs = list(dataset.columns)
        base, log = tx.state.table(bound.base.name), tx.state.table(bound.log.name)
        for field in new:
            one, other = base.column(field.name), log.column(field.name)
            if one is not None and other is not None:
                pairs.append((one.id, other.id))
        changed = bind(replace(dataset, columns=tuple(pairs)), tx.state)
        if new:
            self._show(tx, changed)
            tx.join(self.store.set_columns(changed.dataset))
        return changed

    def rename_column(self, tx: Transaction, dataset: Dataset, old: str, new: str) -> None:
        """Give a column another name in base, log and view."""
        bound = bind_now(dataset, tx.state)
        pair = next((one for one in bound.columns if one.name.lower() == old.lower()), None)
        if pair is None:
            raise NotFoundError(
                f"Dataset {dataset.name} has no column {old!r}.",
                hint=f"There are: {', '.join(one.name for one in bound.columns)}.",
                dataset=str(dataset.name),
                column=old,
            )
        _check_names(str(dataset.name), [new])
        tx.rename_column(bound.base.name, pair.base.name, new)
        tx.rename_column(bound.log.name, pair.log.name, new)
        self._show(tx, bind(dataset, tx.state))

    def drop(self, tx: Transaction, dataset: Dataset) -> None:
        """Remove view and tables; older snapshots still have them, and the record of tombstones stays."""
        tx.drop_view(dataset.name, if_exists=True)
        for table_id in (dataset.base_id, dataset.log_id):
            table = tx.state.table_by_id(table_id)
            if table is not None:
                tx.drop_table(table.name)
        tx.join(self.store.drop(dataset))

    def _show(self, tx: Transaction, bound: Bound) -> None:
        """Let the view of the dataset's name show its rows."""
        tx.create_view(
            bound.dataset.name,
            dataset_view(bound),
            comment=f"dataset with key ({', '.join(pair.name for pair in bound.key)})",
            tags={DATASET_TAG: bound.dataset.id, KEY_TAG: ", ".join(pair.name for pair in bound.key)},
            or_replace=True,
        )


def check_key(dataset: Dataset, bound: Bound, key: Sequence[str] | None) -> None:
    """A dataset that is opened again has the key that it was made with."""
    names = [pair.name.lower() for pair in bound.key]
    if key is not None and [name.lower() for name in key] != names:
        raise DeltaError(
            f"Dataset {dataset.name} has the key ({', '.join(names)}), not ({', '.join(key)}).",
            hint="Leave the key out, or drop the dataset and make it anew.",
            dataset=str(dataset.name),
        )


def differences(bound: Bound, schema: pa.Schema) -> tuple[list[Any], dict[str, str]]:
    """What a dataset lacks to take rows of an Arrow schema: columns to add, and types to widen."""
    known = {pair.name.lower(): pair.base for pair in bound.columns}
    new: list[Any] = []
    wider: dict[str, str] = {}
    for field in schema:
        column = known.get(field.name.lower())
        if column is None:
            new.append(field)
            continue
        (given,) = columns_from_arrow(pa.schema([field]))
        if not column.is_nested and given.type != column.type and can_widen(column, given.type):
            wider[column.name] = given.type
    return new, wider


def _named(table: Table, key: Sequence[str]) -> list[Column]:
    if not key:
        raise InvalidInputError(
            "A dataset needs a key: the columns that tell its rows apart.", hint="key=['id']"
        )
    columns = []
    for name in key:
        column = table.column(name)
        if column is None:
            raise InvalidInputError(
                f"The key column {name!r} is not among the columns: "
                f"{', '.join(column.name for column in table.columns)}.",
                column=name,
            )
        columns.append(column)
    if len({column.id for column in columns}) < len(columns):
        raise InvalidInputError(f"The key names a column twice: {', '.join(key)}.")
    return columns


def _check_names(dataset: str, names: Sequence[str]) -> None:
    for name in names:
        if name.lower().startswith("_hw_") or name.lower() == SEQUENCE:
            raise InvalidInputError(
                f"Dataset {dataset} cannot have a column {name!r}.",
                detail="Names that begin with _hw_, and rowid, are the delta store's own.",
                hint="Give the column another name.",
                dataset=dataset,
                column=name,
            )


def _storage_name(name: TableName, identity: str, what: str) -> TableName:
    """Part of the dataset's id is in the name, so that no two datasets can share a table or a folder."""
    return TableName(STORAGE_SCHEMA, f"{name.schema}__{name.name}__{what}_{identity[:8]}")


def _nullable(column: Column) -> Column:
    return replace(
        column, nulls_allowed=True, initial_default=None, default_value=None, default_type="literal", tags={}
    )


def _log_schema(columns: Mapping[str, Column]) -> pa.Schema:
    kinds = {"varchar": pa.string(), "int64": pa.int64()}
    own = [arrow_field(column, field_ids=False) for column in columns.values()]
    return pa.schema([*own, *(pa.field(name, kinds[kind]) for name, kind in LOG_COLUMNS.items())])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
