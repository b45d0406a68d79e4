"""Rows found by the values of one column, wherever they are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.lake import Lake
from headwater.lake.reading import file_reader, lookup
from headwater.lake.reading.deletes import Positions, first_deletes
from headwater.lake.reading.kept_columns import KeptColumns
from headwater.lake.reading.lookup import PLACE, Wanted, find_rows
from headwater.lake.reading.members import Members, distinct
from headwater.lake.reading.searching import _found, search


def found(
    lake: Lake, at: int | None, name: str, values: list[object], *, nulls: bool = False
) -> list[object]:
    plan = lake.scan("t", at)
    column = plan.table.column(name)
    assert column is not None
    kind = lake.read("t", at).schema.field(column.name).type
    wanted = Wanted(column, pa.array(values, kind), nulls)
    got = find_rows(plan, lake.store, lake.db, [wanted], ["id", "word"], 10_000)
    again = find_rows(plan, lake.store, lake.db, [wanted], ["id", "word"], 10_000, kept=lake.kept_columns)
    assert got is not None
    assert again is not None
    rows = got[1]
    assert again[1].equals(rows)
    assert set(rows.schema.names) == {"id", "word", "file_row_number", "rowid", PLACE}
    places = [row[PLACE] for row in rows.to_pylist()]
    assert all(place < len(got[0].files) for place in places)
    return sorted((row["rowid"], row["id"], row["word"]) for row in rows.to_pylist())


def expected(lake: Lake, at: int | None, name: str, values: list[object], *, nulls: bool) -> list[object]:
    rows = lake.read("t", at, hidden=["rowid"]).to_pylist()
    kept = (r for r in rows if r[name] in values or (nulls and r[name] is None))
    return sorted((r["rowid"], r["id"], r["word"]) for r in kept if r[name] is not None or nulls)


@pytest.mark.parametrize("seed", range(6))
def test_the_rows_are_those_of_a_read_at_every_snapshot(
    lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inlined and stored rows, deletes of both kinds, NULLs, old snapshots; picked or decoded."""
    monkeypatch.setattr(file_reader, "worth_picking", lambda footer, at: bool(len(at)) and seed % 2 == 1)
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


def test_columns_that_would_push_others_out_are_picked_and_not_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "word": "varchar"})
        tx.append("t", pa.table({"id": range(300_000), "word": [str(n) for n in range(300_000)]}))
    picked: list[int] = []
    real = file_reader.pick_rows

    def spy(location: str, schema: pa.Schema, names: list[str], at: Positions) -> pa.Table | None:
        picked.append(len(at))
        return real(location, schema, names, at)

    monkeypatch.setattr(file_reader, "pick_rows", spy)
    plan = lake.scan("t")
    column = plan.table.column("id")
    assert column is not None
    wanted = Wanted(column, pa.array([7, 150_000, 299_999], pa.int64()))
    for most_bytes, expected in ((1 << 30, []), (8 << 20, [3])):
        got = find_rows(plan, lake.store, lake.db, [wanted], ["word"], 10, kept=KeptColumns(most_bytes))
        assert got is not None
        assert got[1].column("word").to_pylist() == ["7", "150000", "299999"]
        assert picked == expected


def test_columns_that_are_here_are_not_picked(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "word": "varchar", "other": "varchar"})
        words = [str(n) for n in range(300_000)]
        tx.append("t", pa.table({"id": range(300_000), "word": words, "other": words}))
    picked: list[list[str]] = []
    real = file_reader.pick_rows

    def spy(location: str, schema: pa.Schema, names: list[str], at: Positions) -> pa.Table | None:
        picked.append(names)
        return real(location, schema, names, at)

    monkeypatch.setattr(file_reader, "pick_rows", spy)
    with lake.transaction() as tx:
        tx.rename_column("t", "word", "text")
    plan = lake.scan("t")
    column = plan.table.column("id")
    assert column is not None
    kept = KeptColumns(8 << 20)
    for values, columns, expected in (
        ([7, 150_000, 299_999], ["text", "id"], ["word"]),
        ([7, 150_000, 299_999], ["id", "text", "other"], ["other"]),
        ([7, 150_000, 299_999], ["other", "text"], None),
        ([8, 150_000], ["other", "id"], ["other"]),
    ):
        picked.clear()
        wanted = Wanted(column, pa.array(values, pa.int64()))
        got = find_rows(plan, lake.store, lake.db, [wanted], columns, 10, kept=kept)
        assert got is not None
        for name in columns:
            assert got[1].column(name).to_pylist() == (values if name == "id" else [str(n) for n in values])
        assert picked == ([] if expected is None else [expected])


@pytest.mark.parametrize("picking", [True, False])
def test_columns_are_found_by_their_ids_whatever_is_kept(
    lake: Lake, picking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renamed, dropped, added and added again; in files of all ages, and merged ones that carry row ids."""
    monkeypatch.setattr(file_reader, "worth_picking", lambda footer, at: bool(len(at)) and picking)

    def rows(first: int, **columns: list[object]) -> pa.Table:
        return pa.table({"id": pa.array(range(first, first + 200), pa.int64()), **columns})

    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "a": "int64", "b": "int64"})
        tx.append("t", rows(0, a=[*range(200)], b=[-n for n in range(200)]))
    with lake.transaction() as tx:
        tx.drop_column("t", "a")
        tx.rename_column("t", "b", "a")
    with lake.transaction() as tx:
        tx.add_column("t", "b", "int64", default=7)
        tx.append("t", rows(200, a=[*range(200)], b=[2 * n for n in range(200)]))
    with lake.transaction() as tx:
        tx.update("t", {"a": "a + 1"}, "id % 3 = 0")
    with lake.transaction() as tx:
        tx.add_column("t", "c", "int64", default=9)
    plan = lake.scan("t")
    column = plan.table.column("id")
    assert column is not None
    wanted = Wanted(column, pa.array(range(0, 400, 5), pa.int64()))
    everything = {row["id"]: row for row in lake.read("t", hidden=["rowid"]).to_pylist()}
    for columns in (["b", "a"], ["c", "a", "id"], ["a", "c", "b"], ["c"], ["b", "c"]):
        for kept in (None, lake.kept_columns, KeptColumns(0)):
            got = find_rows(plan, lake.store, lake.db, [wanted], columns, 1000, kept=kept)
            assert got is not None
            found = {row["rowid"]: [row[name] for name in columns] for row in got[1].to_pylist()}
            assert found == {
                everything[n]["rowid"]: [everything[n][name] for name in columns] for n in range(0, 400, 5)
            }


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


def test_the_column_that_leaves_the_fewest_rows_of_a_file_is_looked_at_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer values need not mean fewer rows: it depends on how many different ones there are."""
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "k": "int32", "one": "int64", "word": "varchar"})
        numbers = range(1000)
        tx.append(
            "t",
            pa.table(
                {
                    "id": pa.array(numbers),
                    "k": pa.array([n % 20 for n in numbers]),
                    "one": pa.array([7] * 1000),
                    "word": [str(n % 5) for n in numbers],
                }
            ),
        )
    plan = lake.scan("t")
    looked: list[str] = []

    def searching(*arguments: Any) -> Any:
        looked.append(arguments[2].name)
        return search(*arguments)

    monkeypatch.setattr(lookup, "search", searching)

    def rows(**values: Sequence[object]) -> list[int]:
        looked.clear()
        asked = []
        for name, wanted in values.items():
            column = plan.table.column(name)
            assert column is not None
            asked.append(Wanted(column, pa.array(wanted, lake.read("t").schema.field(name).type)))
        got = find_rows(plan, lake.store, lake.db, asked, ["id"], 1000, kept=lake.kept_columns)
        assert got is not None
        return sorted(got[1].column("id").to_pylist())

    assert rows(one=[7], k=[3, 4], id=[3, 24, 5]) == [3, 5, 24]
    assert looked == ["id"]
    assert rows(one=[7], k=[3]) == [n for n in numbers if n % 20 == 3]
    assert looked == ["k"]
    # Of texts it is not known how many there are: numbers that leave fewer than a tenth come before them.
    assert rows(word=["3"], id=[3, 4]) == [3, 4]
    assert looked == ["id"]
    assert rows(one=[7], word=["3"]) == [n for n in numbers if n % 5 == 3]


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("statistics", [True, False])
def test_numbers_are_searched_for_in_row_groups(tmp_path: Path, in_order: bool, statistics: bool) -> None:
    """Keys that repeat, within and across row groups, and values that no row has."""
    dice = random.Random(7)
    numbers = [dice.choice([-(2**63), 2**63 - 1, *range(-50, 50)]) for _ in range(1000)]
    numbers = sorted(numbers) if in_order else numbers
    file = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": numbers}), file, row_group_size=64, write_statistics=statistics)
    kept = KeptColumns()
    for _ in range(50):
        chosen = dice.sample([-(2**63), 2**63 - 1, *range(-60, 60)], dice.randint(0, 20))
        values = pa.array(chosen, pa.int64())
        with pa.OSFile(str(file)) as source:
            parquet = kept.open(str(file), source)
            members = Members(values)
            found = [int(n) for part in _found(str(file), parquet, "a", members, kept) for n in part]
        assert found == [place for place, number in enumerate(numbers) if number in chosen]


@given(
    st.lists(st.integers(-40, 40) | st.sampled_from([-(2**63), 2**63 - 1, 2**40, -(2**40)]), unique=True),
    st.lists(st.none() | st.integers(-60, 60) | st.sampled_from([-(2**63), 2**63 - 1, 2**40])),
    st.sampled_from([pa.int8(), pa.int32(), pa.int64(), pa.string(), pa.decimal128(20, 0)]),
    st.integers(0, 4),
)
def test_members_are_told_as_sets_tell_them(
    values: list[int], looked_at: list[int | None], kind: pa.DataType, cut: int
) -> None:
    def fits(number: int) -> bool:
        return not pa.types.is_integer(kind) or -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1

    def array(numbers: Sequence[int | None]) -> pa.Array[Any]:
        if pa.types.is_string(kind):
            return pa.array([None if n is None else str(n) for n in numbers], kind)
        return pa.array(numbers, pa.int64()).cast(kind)

    values = [number for number in values if fits(number)]
    looked_at = [number for number in looked_at if number is None or fits(number)]
    members = Members(array(values))
    expected = [number in set(values) for number in looked_at]
    whole = array(looked_at)
    assert members.among(whole).tolist() == expected
    pieces = pa.chunked_array([whole.slice(0, cut), whole.slice(cut)], kind)
    assert members.among(pieces).tolist() == expected
    once = distinct(pieces)
    assert once.type == kind
    assert sorted(map(str, once.to_pylist())) == sorted(map(str, set(whole.to_pylist())))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 9))))
def test_of_deletes_the_first_counts(found: list[tuple[int, int]]) -> None:
    positions = np.array([position for position, _ in found], np.int64)
    snapshots = np.array([snapshot for _, snapshot in found], np.int64)
    first: dict[int, int] = {}
    for position, snapshot in found:
        first[position] = min(snapshot, first.get(position, snapshot))
    ordered, when = first_deletes(positions, snapshots)
    assert dict(zip(ordered.tolist(), when.tolist(), strict=True)) == first
    assert ordered.tolist() == sorted(first)
