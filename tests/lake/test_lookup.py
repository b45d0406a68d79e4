"""Rows found by the values of one column, wherever they are."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headwater.lake.lake import Lake
from headwater.lake.reading.lookup import PLACE, Wanted, find_rows


def found(
    lake: Lake, at: int | None, name: str, values: list[object], *, nulls: bool = False
) -> list[object]:
    plan = lake.scan("t", at)
    column = plan.table.column(name)
    assert column is not None
    kind = lake.read("t", at).schema.field(column.name).type
    wanted = Wanted(column, pa.array(values, kind), nulls)
    got = find_rows(plan, lake.store, lake.db, [wanted], ["id", "word"], 10_000)
    assert got is not None
    rows = got[1]
    assert set(rows.schema.names) == {"id", "word", "file_row_number", "rowid", PLACE}
    places = [row[PLACE] for row in rows.to_pylist()]
    assert all(place < len(got[0].files) for place in places)
    return sorted((row["rowid"], row["id"], row["word"]) for row in rows.to_pylist())


def expected(lake: Lake, at: int | None, name: str, values: list[object], *, nulls: bool) -> list[object]:
    rows = lake.read("t", at, hidden=["rowid"]).to_pylist()
    kept = (r for r in rows if r[name] in values or (nulls and r[name] is None))
    return sorted((r["rowid"], r["id"], r["word"]) for r in kept if r[name] is not None or nulls)


@pytest.mark.parametrize("seed", range(6))
def test_the_rows_are_those_of_a_read_at_every_snapshot(lake: Lake, seed: int) -> None:
    """Inlined and stored rows, deletes of both kinds, NULLs, old snapshots."""
    dice = random.Random(seed)
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "k": "int32", "word": "varchar"})
    for step in range(10):
        with lake.transaction() as tx:
            count = dice.choice([1, 3, 200])
            rows = [
                {
                    "id": step * 1000 + n,
                    "k": dice.choice([None, *range(8)]),
                    "word": dice.choice([None, "a", "bb", "ccc"]),
                }
                for n in range(count)
            ]
            tx.append("t", rows)
        if dice.random() < 0.6:
            with lake.transaction() as tx:
                tx.delete("t", f"k = {dice.randrange(8)} AND id % 3 = {dice.randrange(3)}")
    for snapshot in lake.snapshots():
        if snapshot.id == 0:
            continue
        for name, domain in (("k", range(8)), ("word", ["a", "bb", "zz"])):
            values = dice.sample(list(domain), dice.randrange(3))
            nulls = dice.random() < 0.3
            want = expected(lake, snapshot.id, name, values, nulls=nulls)
            assert found(lake, snapshot.id, name, values, nulls=nulls) == want


def test_too_many_rows_are_not_taken(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "word": "varchar"})
        tx.append("t", pa.table({"id": pa.array([1] * 500, pa.int64()), "word": ["x"] * 500}))
    plan = lake.scan("t")
    column = plan.table.column("id")
    assert column is not None
    wanted = Wanted(column, pa.array([1], pa.int64()))
    assert find_rows(plan, lake.store, lake.db, [wanted], ["word"], 499) is None
    everything = find_rows(plan, lake.store, lake.db, (), ["word"], 500)
    assert everything is not None
    assert everything[1].num_rows == 500


def test_a_column_that_leaves_many_rows_is_followed_by_the_next(lake: Lake) -> None:
    """Stored rows and inlined ones, of which the first column alone tells next to nothing."""
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "k": "int32"})
        tx.append("t", pa.table({"id": pa.array(range(1000)), "k": pa.array([n % 2 for n in range(1000)])}))
    with lake.transaction() as tx:
        tx.append("t", [{"id": 5, "k": 1}, {"id": 2000, "k": 0}])
    plan = lake.scan("t")
    asked = [
        Wanted(column, pa.array(values, kind))
        for name, values, kind in (("k", [0, 1], pa.int32()), ("id", [5, 999], pa.int64()))
        if (column := plan.table.column(name)) is not None
    ]
    got = find_rows(plan, lake.store, lake.db, asked, ["id"], 10)
    assert got is not None
    assert sorted(got[1].column("id").to_pylist()) == [5, 5, 999]
