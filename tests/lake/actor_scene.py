"""A lake with everything around it: DuckDB sessions, the model, and what each snapshot should hold."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from headwater.lake.lake import Lake
from tests.lake.actor_ops import Model, ModelTable
from tests.lake.actor_values import quoted, sql_type
from tests.support import duck


@dataclass
class Frozen:
    """A table as it was at one snapshot: the model's copy of its rows, and the row ids first seen there."""

    table: ModelTable
    rows: str
    """Name of the copy in the model."""
    expected: Counter[tuple[Any, ...]]
    row_ids: list[tuple[Any, ...]] | None = None


class Scene:
    """A lake, its DuckDB sessions, and the model."""

    def __init__(self, dsn: str, folder: Path):
        self.dsn = dsn
        self.folder = folder
        self.lake = Lake.open(dsn, data_path=folder)
        self.sessions = {name: duck(dsn) for name in ("duck", "second")}
        self.model = Model(duckdb.connect())
        self.model.duck.execute("SET TimeZone = 'UTC'")
        self.history: dict[int, dict[int, Frozen]] = {0: {}}
        self.copies: dict[int, Frozen] = {}
        self.dirty: set[int] = set()
        self.log: list[str] = []
        self.pg = psycopg.connect(dsn, autocommit=True)
        self.numbers = itertools.count()
        self.bugs: Counter[str] = Counter()
        self.types: dict[int, str] = {}
        """Types of columns, by id, as they are now or were last."""

    def close(self) -> None:
        self.pg.close()
        self.lake.close()
        for session in (*self.sessions.values(), self.model.duck):
            session.close()

    def snapshots(self) -> list[int]:
        rows = self.pg.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1").fetchall()
        return [row[0] for row in rows]

    def freeze(self) -> None:
        """Remember the model's tables as the contents of the snapshots that are new."""
        live = self.snapshots()
        for number in self.dirty:
            table = self.model.tables.get(number)
            if table is None:
                self.copies.pop(number, None)
                continue
            copy = f"h{next(self.numbers)}"
            self.model.duck.execute(f"CREATE TABLE {copy} AS FROM {table.rows}")
            rows = self.model.duck.execute(f"SELECT {texts(table)} FROM {copy}").fetchall()
            self.copies[number] = Frozen(table, copy, Counter(tuple(row[0]) for row in rows))
        self.dirty.clear()
        self.types |= {c.id: c.type for table in self.model.tables.values() for c in table.columns}
        for snapshot in live:
            if snapshot not in self.history:
                self.history[snapshot] = {
                    number: Frozen(f.table, f.rows, f.expected) for number, f in self.copies.items()
                }
        # Also after a step without a snapshot: then nothing may have changed.
        latest = self.history[live[-1]]
        assert latest.keys() == self.copies.keys(), "a change of tables was not committed"
        for number, frozen in self.copies.items():
            assert latest[number].expected == frozen.expected, "a change of rows was not committed"

    def known(self, bug: str) -> bool:
        self.bugs[bug] += 1
        return True

    def say(self, who: str, what: str) -> None:
        self.log.append(f"{who}: {what}")

    @contextlib.contextmanager
    def session(self, who: str) -> Iterator[Any]:
        if who != "fresh":
            yield self.sessions[who]
            return
        session = duck(self.dsn)
        try:
            yield session
        finally:
            session.close()

    def reopen(self) -> None:
        """New DuckDB sessions, which have nothing in their caches."""
        for name, session in self.sessions.items():
            session.close()
            self.sessions[name] = duck(self.dsn)


def texts(table: ModelTable) -> str:
    """All columns as a list of texts. The cast names the type, for Arrow has not all of them."""
    return (
        "["
        + ", ".join(f"CAST(CAST({quoted(c.name)} AS {sql_type(c.type)}) AS VARCHAR)" for c in table.columns)
        + "]"
    )
