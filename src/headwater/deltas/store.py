"""What the delta store remembers in PostgreSQL: datasets, deltas, tombstones and compactions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from headwater.deltas import catalog_tables as sql
from headwater.deltas.model import CompactResult, Dataset, Delta, Erasure
from headwater.deltas.unmatched import Unmatched
from headwater.errors import ConflictError
from headwater.lake.connection import Connection, Cursor, Database
from headwater.lake.format.changes import read_changes
from headwater.lake.own import ComponentStore, write
from headwater.lake.writing.commit import Join
from headwater.typedefs import SnapshotId, TableName


@dataclass(frozen=True)
class Waiting:
    """What was written and is not folded yet."""

    deltas: int
    tombstones: int
    oldest_at: Any
    seconds: float


class DatasetStore(ComponentStore):
    """The delta store's own rows. What joins a commit is there with its snapshot, or not at all."""

    def __init__(self, db: Database):
        super().__init__(db, sql.COMPONENT, sql.VERSIONS)

    # -- datasets -----------------------------------------------------------------------------------

    def get(self, name: TableName) -> Dataset | None:
        """The dataset of a name."""
        rows = self.rows(sql.DATASET, schema=name.schema, name=name.name)
        return _dataset(rows[0]) if rows else None

    def all(self) -> list[Dataset]:
        """All datasets, by name."""
        return [_dataset(row) for row in self.rows(sql.DATASETS)]

    def add(self, dataset: Dataset, base: TableName, log: TableName) -> Join:
        """Note a new dataset; tables that the commit creates get their ids in it."""

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            ids = []
            for name, known in ((base, dataset.base_id), (log, dataset.log_id)):
                if known < 0:
                    cursor.execute(self._db.text(sql.TABLE_IDS), {"schema": name.schema, "name": name.name})
                    known = int(cursor.fetchall()[0][1])
                ids.append(known)
            given = {
                "lake": lake,
                "id": dataset.id,
                "schema": dataset.name.schema,
                "name": dataset.name.name,
                "base": ids[0],
                "log": ids[1],
                "key": list(dataset.key),
                "columns": json.dumps(dataset.columns),
                "snapshot": snapshot,
            }
            cursor.execute(sql.ADD_DATASET.encode(), given)

        lake = self.ensure()
        return join

    def unchanged(self, table_id: int, name: TableName, since: SnapshotId) -> Join:
        """Let a commit stand only if nobody has added rows to a table since a snapshot."""

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            given = {"table": table_id, "since": since, "snapshot": snapshot}
            cursor.execute(self._db.text(sql.CHANGES_SINCE), given)
            others = [change for (text,) in cursor.fetchall() for change in read_changes(text)]
            if any(change.is_about(table_id) for change in others):
                raise ConflictError(f"Table {name} was changed meanwhile.", table=str(name))

        return join

    def set_columns(self, dataset: Dataset) -> Join:
        """Note which columns a dataset has now."""
        return self._change(sql.SET_COLUMNS, dataset, {"columns": json.dumps(dataset.columns)})

    def drop(self, dataset: Dataset) -> Join:
        """Note that a dataset is gone. Its deltas, tombstones and compactions stay on record."""
        return self._change(sql.DROP_DATASET, dataset, {})

    # -- deltas -------------------------------------------------------------------------------------

    def add_delta(self, dataset: Dataset, delta: Delta, keys: Sequence[Mapping[str, Any]] = ()) -> Join:
        """Note a delta, and the keys of its tombstones."""
        given = {
            "delta": delta.id,
            "kind": delta.kind,
            "rows": delta.rows,
            "actor": delta.actor,
            "reason": delta.reason,
            "operation": delta.operation_id,
        }
        note = self._change(sql.ADD_DELTA, dataset, given)

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            note(cursor, snapshot)
            if keys:
                named = {**given, "lake": lake, "id": dataset.id, "snapshot": snapshot, "keys": listed}
                cursor.execute(sql.ADD_AUDIT.encode(), named)

        lake, listed = self.ensure(), json.dumps(list(keys))
        return join

    def deltas(self, dataset: Dataset, *, folded: bool = False) -> list[Delta]:
        """The deltas of a dataset in the order of their commits; with `folded` those of the past too."""
        return [_delta(row) for row in self.rows(sql.DELTAS, id=dataset.id, all=folded)]

    def delta_at(self, dataset: Dataset, snapshot: SnapshotId | None) -> Delta | None:
        """The delta that a snapshot brought."""
        rows = self.rows(sql.DELTA_AT, id=dataset.id, snapshot=snapshot)
        return _delta(rows[0]) if rows else None

    def waiting(self, dataset: Dataset) -> Waiting:
        """How much is not folded yet."""
        rows = self.rows(sql.WAITING, id=dataset.id)
        return Waiting(*rows[0]) if rows else Waiting(0, 0, None, 0.0)

    # -- compactions --------------------------------------------------------------------------------

    def fold(self, dataset_id: str, result: CompactResult, unmatched: Unmatched | None = None) -> Join:
        """Note a compaction, the deltas that it folded, and which tombstones met no row."""

        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            done = replace(result, snapshot_id=snapshot)
            given = {
                "lake": lake,
                "id": dataset_id,
                "snapshot": snapshot,
                "read": result.read_snapshot_id,
                "compaction": identity,
                "operation": result.operation_id,
                "result": json.dumps(done.as_dict()),
            }
            for text in (sql.FOLD, sql.FOLD_AUDIT, sql.ADD_COMPACTION):
                cursor.execute(text.encode(), given)
            for batch in unmatched.batches() if unmatched else ():
                cursor.execute(sql.UNMATCHED.encode(), {"lake": lake, "unmatched": batch})

        lake, identity = self.ensure(), str(uuid4())
        return join

    def compactions(self, dataset_id: str, limit: int = 20) -> list[CompactResult]:
        """Past compactions, newest first."""
        rows = self.rows(sql.COMPACTIONS, id=dataset_id, limit=limit)
        return [CompactResult(**{**result, "snapshot_id": snapshot}) for result, snapshot in rows]

    def compaction_at(self, dataset_id: str, snapshot: SnapshotId | None) -> CompactResult | None:
        """The compaction that a snapshot is."""
        rows = self.rows(sql.COMPACTION_AT, id=dataset_id, snapshot=snapshot)
        return CompactResult(**{**rows[0][0], "snapshot_id": rows[0][1]}) if rows else None

    # -- audit --------------------------------------------------------------------------------------

    def audit(self, dataset: Dataset, key_hash: str | None = None) -> list[Erasure]:
        """The record of tombstones, of all or of one key, in the order of their commits."""
        if key_hash is None:
            rows = self.rows(sql.AUDIT, id=dataset.id, limit=100_000)
        else:
            rows = self.rows(sql.AUDIT_OF, id=dataset.id, hash=key_hash)
        return [Erasure(*row) for row in rows]

    def verified(self, dataset: Dataset, key_hash: str) -> None:
        """Note that no store held a row of a key."""
        given = {"lake": self.ensure(), "id": dataset.id, "hash": key_hash}
        write(self._db, lambda connection: connection.execute(sql.VERIFIED.encode(), given))

    # -- the catalog --------------------------------------------------------------------------------

    def catalog(self, text: str, **given: Any) -> list[tuple[Any, ...]]:
        """Rows of the lake's own catalog."""

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(self._db.text(text), given).fetchall()

        return self._db.read(work)

    def _change(self, text: str, dataset: Dataset, given: Mapping[str, Any]) -> Join:
        def join(cursor: Cursor, snapshot: SnapshotId) -> None:
            cursor.execute(text.encode(), {**given, "lake": lake, "id": dataset.id, "snapshot": snapshot})
            if cursor.rowcount != 1:
                raise ConflictError(
                    f"Dataset {dataset.name} was dropped meanwhile.", dataset=str(dataset.name)
                )

        lake = self.ensure()
        return join


def _dataset(row: Sequence[Any]) -> Dataset:
    identity, schema, name, base, log, key, columns, created = row
    pairs = tuple((int(one), int(other)) for one, other in columns)
    return Dataset(identity, TableName(schema, name), base, log, tuple(key), pairs, created)


def _delta(row: Sequence[Any]) -> Delta:
    return Delta(*row)
