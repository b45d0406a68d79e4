"""One writer of the load test, run as a program: kind, number, DSN, commits. Prints what it committed.

Every row has an id of its own, so what the lake must hold in the end is known exactly. Transactions that meet
a conflict are run again and counted; any other error ends the program.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa

from headwater.errors import ConflictError
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from tests.support import duck

ATTEMPTS = 200
#: Ids from 0 are in one file that has a delete file from the start; each writer deletes those it owns.
SHARED = 4000
WRITERS = 8


class Turns:
    """Runs attempts until one commits."""

    def __init__(self) -> None:
        self.conflicts = 0
        self.seconds: list[float] = []
        self._rng = random.Random()

    def take(self, attempt: Callable[[], Any], conflict: type[Exception]) -> Any:
        started = time.monotonic()
        for _ in range(ATTEMPTS):
            try:
                result = attempt()
            except conflict:
                self.conflicts += 1
                time.sleep(self._rng.uniform(0, 0.05))
                continue
            self.seconds.append(time.monotonic() - started)
            return result
        raise SystemExit(f"no commit in {ATTEMPTS} attempts")


class Ours:
    """A writer through Headwater."""

    def __init__(self, dsn: str):
        self.lake = Lake.open(dsn, create=False)
        self.turns = Turns()

    def _run(self, work: Callable[[Transaction], Any]) -> Any:
        def attempt() -> Any:
            with self.lake.transaction() as tx:
                return work(tx)

        return self.turns.take(attempt, ConflictError)

    def insert(self, ids: list[int]) -> None:
        self._run(lambda tx: tx.append("t", pa.table({"id": ids})))

    def delete(self, ids: list[int]) -> None:
        gone = self._run(lambda tx: tx.delete("t", f"id IN ({', '.join(map(str, ids))})"))
        assert gone == len(ids), f"deleted {gone} of {len(ids)} own rows"

    def add_column(self, name: str) -> None:
        self._run(lambda tx: tx.add_column("t", name, "varchar", default="x"))

    def create(self, name: str) -> None:
        def work(tx: Transaction) -> None:
            tx.create_table(name, {"id": "int64"})
            tx.append(name, pa.table({"id": range(20)}))

        self._run(work)

    def alter(self, name: str) -> None:
        self._run(lambda tx: tx.add_column(name, "extra", "varchar", default="x"))

    def drop(self, name: str) -> None:
        self._run(lambda tx: tx.drop_table(name))


class Theirs:
    """A writer through DuckDB's extension, with its default settings."""

    def __init__(self, dsn: str):
        self.session = duck(dsn)
        self.turns = Turns()

    def _run(self, sql: str) -> Any:
        return self.turns.take(lambda: self.session.execute(sql).fetchall(), duckdb.TransactionException)

    def insert(self, ids: list[int]) -> None:
        self._run(f"INSERT INTO t (id) VALUES {', '.join(f'({i})' for i in ids)}")

    def delete(self, ids: list[int]) -> None:
        gone = self._run(f"DELETE FROM t WHERE id IN ({', '.join(map(str, ids))})")
        assert gone == [(len(ids),)], f"deleted {gone} of {len(ids)} own rows"

    def add_column(self, name: str) -> None:
        self._run(f"ALTER TABLE t ADD COLUMN {name} VARCHAR DEFAULT 'x'")

    def create(self, name: str) -> None:
        self._run(f"CREATE TABLE {name} AS SELECT range AS id FROM range(20)")

    def alter(self, name: str) -> None:
        self._run(f"ALTER TABLE {name} ADD COLUMN extra VARCHAR DEFAULT 'x'")

    def drop(self, name: str) -> None:
        self._run(f"DROP TABLE {name}")


def main(kind: str, worker: int, dsn: str, commits: int) -> None:
    writer: Ours | Theirs = Ours(dsn) if kind == "ours" else Theirs(dsn)
    rng = random.Random(worker)
    kept: list[list[int]] = []
    shared = [i for i in range(100, SHARED) if i % WRITERS == worker]
    deleted: list[int] = []
    side: list[str] = []
    columns: list[str] = []
    # Two DuckDB sessions that delete from one table corrupt it without anybody's help, so one of them does.
    deletes = kind == "ours" or worker == WRITERS - 1
    alters = worker in (0, WRITERS - 1)
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(commits):
        choice = rng.random()
        if choice < 0.15:
            # Made, altered, dropped, one after the other.
            if not side or side[-1].endswith("_dropped"):
                side.append(f"side_{worker}_{turn}")
                writer.create(side[-1])
            elif side[-1].endswith("_altered"):
                writer.drop(side[-1].removesuffix("_altered"))
                side[-1] = "_dropped"
            else:
                writer.alter(side[-1])
                side[-1] += "_altered"
        elif choice < 0.18 and alters:
            columns.append(f"c_{worker}_{turn}")
            writer.add_column(columns[-1])
        elif choice < 0.3 and deletes:
            ids = [shared.pop(rng.randrange(len(shared))) for _ in range(rng.choice([2, 14]))]
            writer.delete(ids)
            deleted += ids
        elif choice < 0.45 and deletes and kept:
            writer.delete(kept.pop(rng.randrange(len(kept))))
        else:
            first = (worker + 1) * 1_000_000 + turn * 1000
            ids = list(range(first, first + rng.choice([1, 3, 15])))
            writer.insert(ids)
            kept.append(ids)
    result = {
        "kept": [i for ids in kept for i in ids],
        "deleted": deleted,
        "columns": columns,
        "side": [name for name in side if name != "_dropped"],
        "commits": len(writer.turns.seconds),
        "conflicts": writer.turns.conflicts,
        "seconds": writer.turns.seconds,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
