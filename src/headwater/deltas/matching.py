"""Rows of equal keys found in this process, by DuckDB: what is equal here is equal in the dataset's view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.deltas.model import DELETE, UPSERT
from headwater.storage.duckdb_engine import sandbox

Numbers = npt.NDArray[np.int64]


def _plain(data: Any) -> Any:
    """Values in the type that stores them: UUIDs are compared as their bytes."""
    if not isinstance(data.type, pa.BaseExtensionType):
        return data
    kind: Any = data.type
    chunks: list[Any] = [chunk.storage for chunk in data.chunks]
    return pa.chunked_array(chunks, kind.storage_type)


def _numbered(keys: pa.Table) -> tuple[pa.Table, list[str]]:
    names = [f"k{place}" for place in range(keys.num_columns)]
    arrays = [*map(_plain, keys.columns), pa.array(np.arange(keys.num_rows), pa.int64())]
    return pa.Table.from_arrays(arrays, names=[*names, "n"]), names


@dataclass(frozen=True)
class KeyIndex:
    """Keys that others are compared with."""

    keys: pa.Table

    def matches(self, piece: pa.Table) -> tuple[Numbers, Numbers]:
        """The rows of a piece that have one of these keys: places, ascending, and numbers of the keys."""
        wanted, names = _numbered(self.keys)
        found, _ = _numbered(piece)
        same = " AND ".join(f"p.{name} IS NOT DISTINCT FROM w.{name}" for name in names)
        with sandbox() as session:
            session.register("wanted", wanted)
            session.register("piece", found)
            rows = session.execute(
                f"SELECT p.n AS place, w.n AS number FROM piece p JOIN wanted w ON {same} ORDER BY p.n"
            ).to_arrow_table()
        return rows.column(0).to_numpy(), rows.column(1).to_numpy()


def has_duplicates(keys: pa.Table) -> bool:
    """Whether two rows have one key."""
    found, names = _numbered(keys)
    with sandbox() as session:
        session.register("piece", found)
        listed = ", ".join(names)
        rows = session.execute(
            f"SELECT 1 FROM piece GROUP BY {listed} HAVING count(*) > 1 LIMIT 1"
        ).fetchall()
    return bool(rows)


@dataclass(frozen=True)
class FoldedLog:
    """What a log says of each of its keys. Arrays are by row of the log, `newest` by key."""

    #: The number of each row's key, from 0.
    key: Numbers
    #: The row that decides, by the number of the key.
    newest: Numbers
    #: Whether a row is a tombstone that took away a row of the log, one that took away none, or neither.
    applied: npt.NDArray[np.bool_]
    missed: npt.NDArray[np.bool_]
    #: Tombstones that are the first of their key: they take away the row of the base, if it has one.
    first_deletes: npt.NDArray[np.bool_]


def fold_log(keys: pa.Table, operations: Any, sequence: Any) -> FoldedLog:
    """What is left of a log whose rows are in any order; `sequence` numbers them."""
    found, names = _numbered(keys)
    found = found.append_column("op", operations).append_column("seq", sequence)
    listed = ", ".join(names)
    with sandbox() as session:
        session.register("log", found)
        rows = session.execute(
            f"SELECT n, op, min(n) OVER (PARTITION BY {listed}) AS key, "
            f"lag(op) OVER (PARTITION BY {listed} ORDER BY seq) AS before, "
            f"row_number() OVER (PARTITION BY {listed} ORDER BY seq DESC) AS back FROM log ORDER BY n"
        ).to_arrow_table()
    _, key = np.unique(rows.column("key").to_numpy(), return_inverse=True)
    back = rows.column("back").to_numpy()
    newest = np.zeros(int(key.max()) + 1 if len(key) else 0, np.int64)
    newest[key[back == 1]] = np.flatnonzero(back == 1)
    deletes = np.array([op == DELETE for op in rows.column("op").to_pylist()], bool)
    before = rows.column("before").to_pylist()
    after_row = np.array([op == UPSERT for op in before], bool)
    after_delete = np.array([op == DELETE for op in before], bool)
    first = np.array([op is None for op in before], bool)
    return FoldedLog(key, newest, deletes & after_row, deletes & after_delete, deletes & first)


def merged_places(base: pa.Table, log: pa.Table, operations: Any, sequence: Any) -> tuple[Numbers, Numbers]:
    """The rows of a base and those of a log that a dataset shows, by their places."""
    if not log.num_rows:
        return np.arange(base.num_rows), np.empty(0, np.int64)
    folded = fold_log(log, operations, sequence)
    hidden, _ = KeyIndex(log.take(folded.newest)).matches(base)
    kept = np.ones(base.num_rows, bool)
    kept[hidden] = False
    said: Sequence[str] = operations.to_pylist()
    shown = [place for place in folded.newest.tolist() if said[place] == UPSERT]
    return np.flatnonzero(kept), np.array(sorted(shown), np.int64)
