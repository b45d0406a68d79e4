"""Whatever is written, moved and expired, by us and by DuckDB in turn: every live snapshot is what it was."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headwater.lake.health.check import check_health
from headwater.lake.lake import Lake
from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.compacting import compact
from tests.support import duck

Rows = list[tuple[Any, ...]]


class World:
    """A table that is changed and maintained, and what it must be at each snapshot."""

    def __init__(self, lake: Lake, seed: int):
        self.lake = lake
        self.random = random.Random(seed)
        self.key = 0
        self.rows: dict[int, tuple[str, int | None]] = {}
        self.told: dict[int, Rows] = {}
        self.columns = 2
        with lake.transaction() as tx:
            parts = ["bucket(2, k)"] if seed % 2 else []
            tx.create_table("t", {"k": "int64", "v": "varchar"}, partition_by=parts)
        self.note()

    # -- what is done, each by us or by DuckDB -----------------------------------------------------

    def insert(self, con: Any | None) -> None:
        count = self.random.choice([1, 3, 12, 30])
        new = range(self.key, self.key + count)
        self.key += count
        self.rows.update({k: (f"v{k}", 7 if self.columns == 3 else None) for k in new})
        if con is not None:
            con.execute(f"INSERT INTO t (k, v) SELECT i, 'v' || i FROM range({new.start}, {new.stop}) r(i)")
        else:
            with self.lake.transaction() as tx:
                tx.append("t", [{"k": k, "v": f"v{k}"} for k in new])

    def delete(self, con: Any | None) -> None:
        low = self.random.randrange(self.key + 1)
        high = low + self.random.choice([1, 5, 25])
        self.rows = {k: v for k, v in self.rows.items() if not low <= k < high}
        condition = f"k >= {low} AND k < {high}"
        if con is not None:
            con.execute(f"DELETE FROM t WHERE {condition}")
        else:
            with self.lake.transaction() as tx:
                tx.delete("t", condition)

    def update(self, con: Any | None) -> None:
        low = self.random.randrange(self.key + 1)
        high = low + self.random.choice([1, 4, 15])
        for k, (value, extra) in list(self.rows.items()):
            if low <= k < high:
                self.rows[k] = value + "'", extra
        condition = f"k >= {low} AND k < {high}"
        if con is not None:
            con.execute(f"UPDATE t SET v = v || '''' WHERE {condition}")
        else:
            with self.lake.transaction() as tx:
                tx.update("t", {"v": "v || ''''"}, where=condition)

    def add_column(self, con: Any | None) -> None:
        if self.columns == 3:
            return
        self.columns = 3
        self.rows = {k: (value, 7) for k, (value, _) in self.rows.items()}
        with self.lake.transaction() as tx:
            tx.add_column("t", "extra", "int32", default=7)

    def compact(self, con: Any | None) -> None:
        if con is not None:
            con.execute("CALL ducklake_merge_adjacent_files('lake')")
            return
        before = self.ids()
        ratio = self.random.choice([0.0, 0.3, 1.0])
        wishes = Wishes(delete_ratio=ratio)
        if self.random.random() < 0.4:
            sort_by = self.random.choice([("k desc",), ("v", "k")])
            wishes = Wishes(delete_ratio=ratio, sort_by=sort_by, target_size=1500)
        compact(self.lake, ["t"], wishes, flush=self.random.random() < 0.3)
        assert self.ids() == before

    def flush(self, con: Any | None) -> None:
        if con is not None:
            con.execute("CALL ducklake_flush_inlined_data('lake')")
        else:
            self.lake.run(lambda tx: tx.flush_inlined("t"))

    def expire(self, con: Any | None) -> None:
        kept = self.random.choice([1, 2, 6])
        if con is not None:
            gone = [s.id for s in self.lake.snapshots()][kept:]
            if gone:
                con.execute(f"CALL ducklake_expire_snapshots('lake', versions => {gone})")
        else:
            self.lake.expire(keep_last=kept)
            self.lake.cleanup(older_than=None)

    # -- what must be ------------------------------------------------------------------------------

    def ids(self) -> Rows:
        found = self.lake.read("t", hidden=["rowid"]).to_pylist()
        return sorted((row["k"], row["rowid"]) for row in found)

    def note(self) -> None:
        """What the table is now, at every snapshot that is new."""
        now: Rows = sorted((k, *values)[: self.columns] for k, values in self.rows.items())
        for snapshot in self.lake.snapshots():
            self.told.setdefault(snapshot.id, now)

    def judge(self) -> None:
        con = duck(self.lake.dsn)
        for snapshot in self.lake.snapshots():
            if self.lake.state(snapshot.id).find_table("t") is None:
                continue
            wanted = self.told[snapshot.id]
            mine = sorted(tuple(row.values()) for row in self.lake.read("t", snapshot.id).to_pylist())
            assert mine == wanted, f"ours at {snapshot.id}"
            theirs = con.execute(f"SELECT * FROM t AT (VERSION => {snapshot.id})").fetchall()
            assert sorted(theirs) == wanted, f"DuckDB's at {snapshot.id}"
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(len(self.rows),)]
        con.close()

    def run(self, steps: int) -> None:
        actions: list[tuple[Callable[[Any | None], None], int]] = [
            (self.insert, 6),
            (self.delete, 4),
            (self.update, 4),
            (self.add_column, 1),
            (self.compact, 5),
            (self.flush, 2),
            (self.expire, 2),
        ]
        chosen = self.random.choices([a for a, _ in actions], [w for _, w in actions], k=steps)
        for number, action in enumerate(chosen):
            con = duck(self.lake.dsn) if self.random.random() < 0.4 else None
            action(con)
            if con is not None:
                con.close()
            self.note()
            if action.__name__ in ("compact", "expire") or number == steps - 1:
                self.judge()
        assert check_health(self.lake) == []


@pytest.mark.parametrize("seed", range(2))
def test_every_live_snapshot_is_what_it_was(lake: Lake, seed: int) -> None:
    World(lake, seed).run(14)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_every_live_snapshot_is_what_it_was_for_long(lake: Lake, seed: int) -> None:
    World(lake, seed).run(60)


@pytest.mark.parametrize("step", ["while storing", "written", "committed"])
def test_a_compaction_killed_at_any_step_changes_nothing_or_all(lake: Lake, step: str) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int64"})
    for start in range(0, 120, 30):
        with lake.transaction() as tx:
            tx.append("t", [{"a": i} for i in range(start, start + 30)])
    with lake.transaction() as tx:
        tx.delete("t", "a < 15")
    last = lake.snapshot().id
    before = [lake.read("t", at, hidden=["rowid"]).to_pylist() for at in range(1, last + 1)]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.lake.killed_compactor", lake.dsn, step],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ran.returncode == -9
    assert (lake.snapshot().id > last) == (step == "committed")

    def ordered(found: Any) -> Any:
        return [sorted(rows, key=str) for rows in found]

    now = [lake.read("t", at, hidden=["rowid"]).to_pylist() for at in range(1, last + 1)]
    assert ordered(now) == ordered(before)
    compact(lake, ["t"], Wishes(delete_ratio=0.0))
    now = [lake.read("t", at, hidden=["rowid"]).to_pylist() for at in range(1, last + 1)]
    assert ordered(now) == ordered(before)
    assert check_health(lake) == []


def test_writers_go_on_while_files_are_compacted(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"w": "int64", "a": "int64"})
    stop = threading.Event()
    written: dict[int, set[int]] = {0: set(), 1: set()}
    failures: list[BaseException] = []

    def ours() -> None:
        number = 0
        while not stop.is_set() and number < 60:
            values = range(number * 20, number * 20 + 20)
            gone = number * 20 - 15

            def work(tx: Any, values: range = values, gone: int = gone) -> None:
                tx.append("t", [{"w": 0, "a": a} for a in values])
                tx.delete("t", f"w = 0 AND a = {gone}")

            lake.run(work, attempts=50)
            written[0] |= set(values)
            written[0].discard(gone)
            number += 1

    def theirs() -> None:
        con = duck(lake.dsn)
        number = 0
        while not stop.is_set() and number < 40:
            try:
                con.execute(f"INSERT INTO t SELECT 1, i FROM range({number * 15}, {number * 15 + 15}) r(i)")
            except duckdb.TransactionException as error:
                # DuckDB's rule for an insert beside a delete, whoever compacts.
                assert "has deleted" in str(error)  # noqa: PT017
                continue
            written[1] |= set(range(number * 15, number * 15 + 15))
            number += 1
        con.close()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - told by the test itself
                failures.append(error)

        return run

    threads = [threading.Thread(target=guarded(work)) for work in (ours, theirs)]
    for thread in threads:
        thread.start()
    merged = rounds = 0
    # On a busy machine writers may have stored next to nothing by the sixth round.
    until = time.monotonic() + 60
    while rounds < 6 or (not merged and time.monotonic() < until):
        merged += compact(lake, ["t"], Wishes(delete_ratio=0.0), flush=True).total("merged_files")
        rounds += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    compact(lake, ["t"], flush=True)
    found = lake.read("t").to_pylist()
    for writer, wanted in written.items():
        assert sorted(row["a"] for row in found if row["w"] == writer) == sorted(wanted)
    assert merged > 0
    con = duck(lake.dsn)
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(len(found),)]
    con.close()
