"""One writer of the load test, run as a program: kind, number, DSN, commits. Prints what it committed."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import duckdb
import pyarrow as pa

from headwater.lake.lake import Lake
from tests.support import duck

ATTEMPTS = 60


def rows_of(worker: int, turn: int, rng: random.Random) -> list[int]:
    """Ids nobody else uses: a few (they stay in the catalog) or many (a file)."""
    first = worker * 1_000_000 + turn * 1000
    return list(range(first, first + rng.choice([1, 3, 15])))


class Ours:
    """A writer through Headwater; conflicts are met by running the transaction again."""

    def __init__(self, dsn: str):
        self.lake = Lake.open(dsn, create=False)

    def insert(self, ids: list[int]) -> None:
        self.lake.run(lambda tx: tx.append("t", pa.table({"id": ids})), attempts=ATTEMPTS)

    def delete(self, ids: list[int]) -> None:
        listed = ", ".join(map(str, ids))
        gone = self.lake.run(lambda tx: tx.delete("t", f"id IN ({listed})"), attempts=ATTEMPTS)
        assert gone == len(ids), f"deleted {gone} of {len(ids)} own rows"

    def side_table(self, name: str) -> None:
        def work(tx: Any) -> None:
            tx.create_table(name, {"id": "int64"})
            tx.append(name, pa.table({"id": range(20)}))

        self.lake.run(work, attempts=ATTEMPTS)
        self.lake.run(lambda tx: tx.add_column(name, "extra", "varchar", default="x"), attempts=ATTEMPTS)
        self.lake.run(lambda tx: tx.drop_table(name), attempts=ATTEMPTS)


class Theirs:
    """A writer through DuckDB's extension, with its default settings; failed statements are run again."""

    def __init__(self, dsn: str):
        self.session = duck(dsn)

    def _execute(self, sql: str) -> None:
        for _ in range(ATTEMPTS):
            try:
                self.session.execute(sql)
                return
            except duckdb.Error as error:
                if "onflict" not in str(error) and "retry" not in str(error):
                    raise
        raise SystemExit("DuckDB did not get its turn")

    def insert(self, ids: list[int]) -> None:
        self._execute(f"INSERT INTO t VALUES {', '.join(f'({i})' for i in ids)}")

    def delete(self, ids: list[int]) -> None:
        self._execute(f"DELETE FROM t WHERE id IN ({', '.join(map(str, ids))})")

    def side_table(self, name: str) -> None:
        self._execute(f"CREATE TABLE {name} AS SELECT range AS id FROM range(20)")
        self._execute(f"ALTER TABLE {name} ADD COLUMN extra VARCHAR DEFAULT 'x'")
        self._execute(f"DROP TABLE {name}")


def main(kind: str, worker: int, dsn: str, commits: int) -> None:
    writer: Ours | Theirs = Ours(dsn) if kind == "ours" else Theirs(dsn)
    rng = random.Random(worker)
    kept: list[list[int]] = []
    deleted: list[int] = []
    # Two DuckDB sessions that delete from one table corrupt it without anybody's help, so one of them does.
    may_delete = kind == "ours" or worker % 4 == 0
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    while done < commits:
        choice = rng.random()
        if choice < 0.1:
            writer.side_table(f"side_{worker}_{done}")
            done += 3
        elif choice < 0.35 and kept and may_delete:
            ids = kept.pop(rng.randrange(len(kept)))
            writer.delete(ids)
            deleted += ids
            done += 1
        else:
            ids = rows_of(worker, done, rng)
            writer.insert(ids)
            kept.append(ids)
            done += 1
    print(json.dumps({"kept": [i for ids in kept for i in ids], "deleted": deleted, "commits": done}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
