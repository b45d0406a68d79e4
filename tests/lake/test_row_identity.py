"""Whether rows kept their ids when DuckDB merged files: what is found out, against the ids themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from headwater.lake.lake import Lake
from headwater.lake.maintenance.compacting import compact
from headwater.lake.reading.row_identity import first_loss
from tests.lake.feed_model import FLUSH, MERGE
from tests.support import duck

CREATE = "CREATE TABLE t (k INTEGER, v INTEGER)"
STEPS = int(os.environ.get("HEADWATER_ROW_ID_STEPS", "60"))


def insert(first: int, end: int) -> str:
    return f"INSERT INTO t SELECT range, range FROM range({first}, {end})"


def update(*keys: int) -> str:
    return f"UPDATE t SET v = v + 100 WHERE k IN ({', '.join(map(str, keys))})"


class Ids:
    """A lake that DuckDB writes, and the row ids of its table by the rows' own keys."""

    def __init__(self, lake: Lake, con: Any):
        self.lake, self.con = lake, con
        self.start = lake.snapshot().id + 1

    def run(self, *statements: str) -> None:
        for text in statements:
            self.con.execute(text)

    def held(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self.con.execute("SELECT k, rowid FROM t ORDER BY ALL").fetchall()
        return found

    def from_here(self) -> None:
        self.start = self.lake.snapshot().id + 1

    def loss(self) -> int | None:
        lake = self.lake
        if lake.snapshot().id < self.start:
            return None
        return first_loss(lake.db, lake.store, lake.data_path, lake.plan_changes("t", self.start))


@pytest.fixture
def ids(lake: Lake) -> Iterator[Ids]:
    with duck(lake.dsn) as con:
        con.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        con.execute(CREATE)
        yield Ids(lake, con)


INLINED = "CALL lake.set_option('data_inlining_row_limit', 10)"
SORTED = "ALTER TABLE t SET SORTED BY (v DESC)"
OWN_ROWS = ("BEGIN", insert(0, 20), update(*range(20)), "COMMIT")  # logged as if it were an insert alone

KEPT = {
    "inserts": (insert(0, 20), insert(20, 40), insert(40, 60)),
    "flushes": (INLINED, insert(0, 5), FLUSH, insert(5, 9), FLUSH),
    "inserts and flushes": (insert(0, 20), INLINED, insert(20, 25), insert(25, 27), FLUSH),
    "updates that do not look contiguous": (
        insert(0, 50), INLINED, update(3, 7), FLUSH, update(4, 9), FLUSH),
    "no longer sorted": (SORTED, "ALTER TABLE t RESET SORTED BY", insert(0, 20), insert(20, 40)),
}  # fmt: skip
LOST = {
    "updates": (insert(0, 20), insert(20, 40), update(3, 5)),
    "updates of whole files": (insert(0, 20), update(*range(20)), insert(20, 40)),
    "updates of rows of the same transaction": (*OWN_ROWS, insert(20, 40)),
    "flushed updates that look contiguous": (
        insert(0, 50), INLINED, update(3, 7), FLUSH, update(5, 9), FLUSH),
    "flushed rows with a gap": (
        INLINED, insert(0, 5), "CALL lake.set_option('data_inlining_row_limit', 0)", insert(5, 8),
        insert(8, 25), "DELETE FROM t WHERE k BETWEEN 5 AND 7", INLINED, insert(25, 28), FLUSH),
    "sorted": (SORTED, insert(0, 20), insert(20, 40)),
}  # fmt: skip


@pytest.mark.parametrize("done", KEPT.values(), ids=KEPT)
def test_merges_that_kept_row_ids_are_known(ids: Ids, done: tuple[str, ...]) -> None:
    ids.run(*done)
    before = ids.held()
    ids.from_here()
    ids.run(MERGE)
    assert ids.lake.snapshot().id == ids.start, "nothing was merged"
    assert ids.held() == before
    assert ids.loss() is None


@pytest.mark.parametrize("done", LOST.values(), ids=LOST)
def test_merges_that_lost_row_ids_are_found(ids: Ids, done: tuple[str, ...]) -> None:
    ids.run(*done)
    before = ids.held()
    ids.from_here()
    ids.run(MERGE)
    assert ids.held() != before
    assert ids.loss() == ids.start
    ids.run(insert(100, 120))
    assert ids.loss() == ids.start
    ids.from_here()
    ids.run(insert(120, 140), MERGE)
    assert (ids.loss() is None) == (done is not LOST["sorted"])


@pytest.mark.parametrize("done", ["kept", "lost"])
def test_files_that_were_merged_again_still_tell(ids: Ids, done: str) -> None:
    ids.run(insert(0, 20), insert(20, 40), *([update(3, 5)] if done == "lost" else []))
    ids.from_here()
    ids.run(MERGE, insert(40, 60), MERGE, insert(60, 80), MERGE)
    assert ids.loss() == (None if done == "kept" else ids.start)


def test_what_cannot_be_told_counts_as_lost(ids: Ids) -> None:
    ids.run(insert(0, 20), insert(20, 40))
    ids.from_here()
    ids.run(MERGE)
    assert ids.loss() is None
    ids.run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert ids.loss() == ids.start


def test_merged_files_with_ids_inside_need_not_be_proven(ids: Ids) -> None:
    ids.run(*KEPT["updates that do not look contiguous"])
    ids.from_here()
    ids.run(MERGE, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert ids.loss() is None


def test_merges_of_other_tables_are_told_apart(ids: Ids) -> None:
    ids.run("CREATE TABLE u (k INTEGER)", insert(0, 20), insert(20, 40), "INSERT INTO u FROM range(20)")
    ids.run("INSERT INTO u FROM range(20, 40)", "UPDATE u SET k = -k WHERE k < 9")
    ids.from_here()
    ids.run(MERGE)
    assert ids.loss() is None
    plan = ids.lake.plan_changes("u", ids.start)
    assert first_loss(ids.lake.db, ids.lake.store, ids.lake.data_path, plan) == ids.start


def test_compaction_of_our_own_keeps_row_ids(ids: Ids) -> None:
    ids.run(*LOST["updates"])
    before = ids.held()
    ids.from_here()
    compact(ids.lake, ["t"])
    ids.run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert ids.lake.snapshot().id >= ids.start
    assert (ids.held(), ids.loss()) == (before, None)


def test_nothing_is_asked_without_a_merge(ids: Ids, monkeypatch: pytest.MonkeyPatch) -> None:
    ids.run(insert(0, 20), update(3))
    plan = ids.lake.plan_changes("t", ids.start)
    monkeypatch.setattr(ids.lake.db, "read", None)
    assert first_loss(ids.lake.db, ids.lake.store, ids.lake.data_path, plan) is None


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_have_their_ids_wherever_no_loss_is_found(ids: Ids, seed: int) -> None:
    choices = Random(f"row ids {seed}")
    highest, known = 0, 0
    for step in range(STEPS):
        for _ in range(choices.randint(1, 4)):
            highest = _change(ids, choices, highest)
        before = ids.held()
        ids.from_here()
        ids.run(MERGE)
        if choices.random() < 0.1:
            ids.run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        same = ids.held() == before
        assert same or ids.loss() is not None, f"seed {seed}, step {step}"
        known += same and ids.loss() is None and ids.lake.snapshot().id >= ids.start
    assert known > STEPS / 10, "hardly any merge was known to keep ids"


def _change(ids: Ids, choices: Random, highest: int) -> int:
    count = choices.randint(1, 6)
    match choices.choice(
        ["insert"] * 4 + ["update"] * 2 + ["flush"] * 2 + ["inlining", "sort", "delete", "own"]
    ):
        case "insert":
            ids.run(insert(highest, highest + count))
            return highest + count
        case "update" if highest:
            ids.run(update(*(choices.randrange(highest) for _ in range(count))))
        case "delete" if highest:
            ids.run(f"DELETE FROM t WHERE k % {choices.randint(2, 20)} = 1")
        case "flush":
            ids.run(FLUSH)
        case "inlining":
            ids.run(f"CALL lake.set_option('data_inlining_row_limit', {choices.choice([0, 0, 3, 10])})")
        case "sort":
            ids.run(*([SORTED] if choices.random() < 0.2 else []), "ALTER TABLE t RESET SORTED BY")
        case "own":
            ids.run(
                "BEGIN", insert(highest, highest + count), update(*range(highest, highest + count)), "COMMIT"
            )
            return highest + count
    return highest
