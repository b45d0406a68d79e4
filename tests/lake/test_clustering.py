"""Rows sorted across files: each file holds a range of the keys, and nothing else changes."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.errors import InvalidInputError, StorageError
from headwater.lake.format.layout import parse_sort_by, sort_keys
from headwater.lake.format.types import SCALARS
from headwater.lake.health.check import check_health
from headwater.lake.lake import Lake
from headwater.lake.maintenance import spreading
from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.clustering import Candidate, apart, outputs, together
from headwater.lake.maintenance.compacting import compact
from headwater.lake.maintenance.ordering import Span
from headwater.lake.model import DataFile
from headwater.lake.reading.scan import FileScan
from headwater.lake.writing.staging import plain_values
from tests.lake.test_compaction import _Meanwhile, duckdb_feed, everything, feed, files, one, plain
from tests.support import duck

TARGET = 30_000
KINDS: dict[str, Callable[[random.Random], Any]] = {
    "int64": lambda r: r.randrange(-1000, 1000),
    "varchar": lambda r: "".join(r.choices("abÄß€", k=r.randrange(7))),
    "float64": lambda r: r.choice([float("nan"), 0.0, float("inf"), r.uniform(-5, 5), r.uniform(-5, 5)]),
    "decimal(20,3)": lambda r: Decimal(r.randrange(-(10**6), 10**6)).scaleb(-3),
    "timestamp": lambda r: dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=r.randrange(10**13)),  # noqa: DTZ001
    "timestamptz": lambda r: dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=r.randrange(9999)),
    "date": lambda r: dt.date(2020, 1, 1) + dt.timedelta(days=r.randrange(2000)),
    "time": lambda r: dt.time(r.randrange(24), r.randrange(60)),
    "uuid": lambda r: r.randbytes(16),
    "boolean": lambda r: r.random() < 0.5,
    "blob": lambda r: r.randbytes(r.randrange(4)),
    "int128": lambda r: Decimal(r.randrange(10**30)),
}


WITHOUT_STATISTICS = ("blob", "int128")


def arrow(kind: str) -> Any:
    return pa.decimal128(20, 3) if kind.startswith("decimal") else SCALARS[kind][0]


def assert_in_ranges(
    lake: Lake, sort_by: Sequence[str], partition: str | None = None, *, across: int = 1
) -> None:
    """Rows are in order within files, and by the first so many keys across those of a partition."""
    table = lake.table("t")
    keys: Any = sort_keys(replace(table, sort=parse_sort_by(table, sort_by)))
    rows = lake.read("t", hidden=["filename", "file_row_number"])
    parts = [rows]
    if partition is not None:
        values = pc.unique(rows.column(partition))
        parts = [rows.filter(pc.equal(rows.column(partition), value)) for value in values]
    for part in parts:
        columns = {name: plain_values(part.column(name)) for name, _, _ in keys}
        places = {name: part.column(name) for name in ("filename", "file_row_number")}
        plain = pa.table({**columns, **places}).sort_by([(name, "ascending") for name in places])
        names: Any = plain.column("filename").to_pylist()
        starts = [0, *(i for i in range(1, len(names)) if names[i] != names[i - 1]), len(names)]
        stored = [plain.slice(a, b - a) for a, b in itertools.pairwise(starts)]
        for inside in stored:
            assert is_sorted(inside, keys)
        ends = pa.concat_tables([one.slice(at, 1) for one in stored for at in (0, one.num_rows - 1)])
        firsts, lasts = ends.take(list(range(0, len(ends), 2))), ends.take(list(range(1, len(ends), 2)))
        for name, _, _ in keys:
            firsts = firsts.append_column(f"last {name}", lasts.column(name))
        by = keys[:across]
        by_ends: Any = [*by, *((f"last {name}", order, nulls) for name, order, nulls in by)]
        if by:
            order = pc.sort_indices(firsts, sort_keys=by_ends).to_pylist()
            assert is_sorted(pa.concat_tables([stored[cast(int, i)] for i in order]), by)


def is_sorted(table: pa.Table, keys: Any) -> bool:
    numbered = table.append_column("n", pa.array(range(table.num_rows)))
    places = pc.sort_indices(numbered, sort_keys=[*keys, ("n", "ascending", "at_end")])
    return places.to_pylist() == list(range(table.num_rows))


def unchanged(lake: Lake, work: Callable[[], Any]) -> Any:
    """Do it, and see that no snapshot, no feed and no check tells."""
    before, last = everything(lake, "t"), lake.snapshot().id
    first = min(snapshot.id for snapshot in lake.snapshots()) + 1
    told = fed(lake, first, last)
    result = work()
    after = everything(lake, "t")
    assert before.items() <= after.items()
    assert after[max(after)] == before[max(before)]
    assert fed(lake, first, last) == told
    now = lake.snapshot().id
    assert fed(lake, last + 1, now) == []
    if last < now and not result.rewritten_files:
        # (DuckDB shows rows of files that were written again, whoever did it.)
        assert duckdb_feed(lake, last + 1, now) == []
    assert check_health(lake) == []
    return result


def fed(lake: Lake, start: int, end: int) -> list[Any]:
    return [] if end < start else [plain(row) for row in feed(lake, "t", start, end)]


class Filling:
    """A table `t` of keys `a` and `b`, and of something that takes room."""

    def __init__(self, lake: Lake, seed: int, kinds: Sequence[str] = ("int64", "int64"), **more: Any):
        self.lake = lake
        self.random = random.Random(seed)
        self.kinds = kinds
        self.count = 0
        with lake.transaction() as tx:
            columns = {"k": "int64", "p": "varchar", "a": kinds[0], "b": kinds[1], "room": "varchar"}
            tx.create_table("t", columns, **more)
            tx.set_option("data_inlining_row_limit", 0)

    def append(self, rows: int, a: Callable[[int], Any] | None = None) -> None:
        keys = range(self.count, self.count + rows)
        self.count += rows

        def column(kind: str) -> Any:
            values = [None if self.random.random() < 0.1 else KINDS[kind](self.random) for _ in keys]
            return pa.array(values, arrow(kind))

        data = {
            "k": pa.array(keys),
            "p": pa.array([self.random.choice("xy") for _ in keys]),
            "a": column(self.kinds[0]) if a is None else pa.array([a(k) for k in keys]),
            "b": column(self.kinds[1]),
            "room": pa.array([self.random.randbytes(40).hex() for _ in keys]),
        }
        with self.lake.transaction() as tx:
            tx.append("t", pa.table(data))

    def delete(self, low: int, high: int) -> None:
        with self.lake.transaction() as tx:
            tx.delete("t", f"k >= {low} AND k < {high}")


def check_random(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.choices(list(KINDS), k=2)
    partitioned = chance.random() < 0.3
    filling = Filling(lake, seed, kinds, partition_by=["p"] if partitioned else [])
    for _ in range(chance.randrange(2, 7)):
        filling.append(chance.choice([1, 40, 300, 700]))
        if chance.random() < 0.3:
            low = chance.randrange(filling.count)
            filling.delete(low, low + 100)
    renamed = chance.random() < 0.25
    if chance.random() < 0.5:
        lake.expire(keep_last=1)
    if renamed:
        with lake.transaction() as tx:
            tx.rename_column("t", "a", "c")
            tx.rename_column("t", "b", "a")
            tx.rename_column("t", "c", "b")
        filling.kinds = kinds[::-1]
        filling.append(200)
    words = ["", " desc", " nulls first", " desc nulls first"]
    sort_by = tuple(name + chance.choice(words) for name in chance.choice(["a", "b", "ab"]))
    unchanged(lake, lambda: one(lake, sort_by=sort_by, target_size=TARGET, delete_ratio=0.0))
    if not renamed:  # files of other columns stay apart
        across = dict(zip("ab", kinds, strict=True))[sort_by[0][0]] not in WITHOUT_STATISTICS
        assert_in_ranges(lake, sort_by, "p" if partitioned else None, across=int(across))
    assert not one(lake, sort_by=sort_by, target_size=TARGET, delete_ratio=0.0).changed


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_any_type_are_sorted_across_files(lake: Lake, seed: int) -> None:
    check_random(lake, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_rows_of_any_type_are_sorted_across_files_for_long(lake: Lake, seed: int) -> None:
    check_random(lake, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_a_key(lake: Lake, kind: str) -> None:
    filling = Filling(lake, 1, (kind, "int64"))
    for _ in range(3):
        filling.append(600)
    sort_by = ("a desc nulls first", "b")
    result = unchanged(lake, lambda: one(lake, sort_by=sort_by, target_size=TARGET))
    assert result.files_written > 2
    assert_in_ranges(lake, sort_by, across=int(kind not in WITHOUT_STATISTICS))
    assert not one(lake, sort_by=sort_by, target_size=TARGET).changed


def test_a_filter_on_the_key_reads_few_files(lake: Lake) -> None:
    filling = Filling(lake, 2)
    for _ in range(5):
        filling.append(600, lambda k: k * 7919 % 3000)
    assert len(lake.scan("t", where="a >= 1000 AND a < 1100").files) == 5
    told = compact(lake, ["t"], Wishes(sort_by=("a",), target_size=TARGET), dry_run=True).tables[0]
    assert files(lake) == 5
    result = unchanged(lake, lambda: one(lake, sort_by=("a",), target_size=TARGET))
    assert (result.files_written, result.files_after) == (told.files_written, told.files_after)
    assert (result.merged_files, result.rows_moved) == (told.merged_files, told.rows_moved) == (5, 3000)
    assert result.files_after == files(lake) >= 6
    assert len(lake.scan("t", where="a >= 1000 AND a < 1100").files) <= 2
    assert lake.read("t", where="a >= 1000 AND a < 1100").num_rows == 100
    sizes = [scan.file.file_size_bytes for scan in lake.scan("t").files]
    assert max(sizes) < 2 * min(sizes)
    con = duck(lake.dsn)
    assert con.execute("SELECT count(*) FROM t WHERE a >= 1000 AND a < 1100").fetchall() == [(100,)]
    con.close()


def test_partitions_are_sorted_one_by_one(lake: Lake) -> None:
    filling = Filling(lake, 3, partition_by=["p"])
    for _ in range(4):
        filling.append(800)
    result = unchanged(lake, lambda: one(lake, sort_by=("a",), target_size=TARGET))
    assert result.files_written >= 4
    assert_in_ranges(lake, ("a",), "p")
    assert not one(lake, sort_by=("a",), target_size=TARGET).changed


def test_deleted_rows_are_left_behind_where_no_snapshot_needs_them(lake: Lake) -> None:
    filling = Filling(lake, 4)
    for _ in range(4):
        filling.append(500)
    filling.delete(100, 700)
    wishes: dict[str, Any] = {"sort_by": ("a",), "target_size": TARGET, "delete_ratio": 0.0}
    result = unchanged(lake, lambda: one(lake, **wishes))
    assert (result.rewritten_files, result.deleted_rows) == (2, 600)
    assert_in_ranges(lake, ("a",))
    assert not one(lake, **wishes).changed
    lake.expire(keep_last=1)
    filling.delete(0, 20)
    lake.expire(keep_last=1)
    unchanged(lake, lambda: one(lake, **wishes))
    assert not lake.scan("t").files[0].deletes
    assert_in_ranges(lake, ("a",))
    assert not one(lake, **wishes).changed


def test_the_tables_own_order_is_kept_across_new_files(lake: Lake) -> None:
    filling = Filling(lake, 5, sort_by=["a desc", "b"])
    with lake.transaction() as tx:
        tx.set_option("target_file_size", TARGET * 4, table="t")
    for _ in range(30):
        filling.append(60)
    assert files(lake) == 30
    result = unchanged(lake, lambda: one(lake, target_size=TARGET))
    assert result.files_written > 3
    assert_in_ranges(lake, ("a desc", "b"))
    assert not one(lake, target_size=TARGET).changed
    large = {scan.file.id for scan in lake.scan("t").files}
    filling.append(20)
    filling.append(20)
    assert one(lake, target_size=TARGET).merged_files == 2
    assert large < {scan.file.id for scan in lake.scan("t").files}


def test_one_value_may_span_files(lake: Lake) -> None:
    filling = Filling(lake, 6)
    for _ in range(3):
        filling.append(700, lambda k: 5 if k % 10 else k)
    result = unchanged(lake, lambda: one(lake, sort_by=("a",), target_size=TARGET))
    sizes = [scan.file.file_size_bytes for scan in lake.scan("t").files]
    assert result.files_written == len(sizes) >= 4
    assert max(sizes) < 2 * min(sizes)
    assert_in_ranges(lake, ("a",))
    assert not one(lake, sort_by=("a",), target_size=TARGET).changed


def test_files_of_one_value_are_told_apart_by_the_next_key(lake: Lake) -> None:
    filling = Filling(lake, 7)
    for _ in range(3):
        filling.append(700, lambda _: 5)
    # As they were appended, they are in this order.
    assert not one(lake, sort_by=("a", "k"), target_size=TARGET).changed
    assert one(lake, sort_by=("a", "b"), target_size=TARGET).merged_files == 3
    assert_in_ranges(lake, ("a", "b"), across=2)
    assert not one(lake, sort_by=("a", "b"), target_size=TARGET).changed


def test_files_that_are_apart_are_sorted_by_themselves_and_only_once(lake: Lake) -> None:
    filling = Filling(lake, 8)
    for start in range(0, 4000, 1000):
        filling.append(600, lambda k, start=start: start + k * 7919 % 600)  # type: ignore[misc]
    sources = {scan.file.id for scan in lake.scan("t").files}
    result = unchanged(lake, lambda: one(lake, sort_by=("a",), target_size=60_000))
    assert (result.merged_files, result.files_written) == (4, 4)
    assert_in_ranges(lake, ("a",))
    assert not one(lake, sort_by=("a",), target_size=60_000).changed
    sources = {scan.file.id for scan in lake.scan("t").files}
    filling.append(600, lambda k: 2000 + k * 7919 % 600)
    assert one(lake, sort_by=("a",), target_size=60_000).merged_files == 2
    assert len(sources & {scan.file.id for scan in lake.scan("t").files}) == 3
    assert_in_ranges(lake, ("a",))


def test_ranges_are_taken_a_few_at_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "_AT_ONCE", TARGET)
    filling = Filling(lake, 9, ("varchar", "float64"))
    for _ in range(3):
        filling.append(700)
    result = unchanged(lake, lambda: one(lake, sort_by=("a", "b"), target_size=TARGET))
    assert result.files_written > 3
    assert_in_ranges(lake, ("a", "b"))


def test_a_file_that_cannot_be_stored_leaves_everything_as_it_was(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling = Filling(lake, 10)
    for _ in range(3):
        filling.append(700)
    stored = {file.location for file in lake.store.list(lake.data_path)}
    last, store, calls = lake.snapshot().id, spreading.store_rows, itertools.count()

    def fails(*given: Any) -> Any:
        if next(calls) == 2:
            raise StorageError("The disk is full.")
        return store(*given)

    monkeypatch.setattr(spreading, "store_rows", fails)
    with pytest.raises(StorageError, match="full"):
        one(lake, sort_by=("a",), target_size=TARGET)
    assert lake.snapshot().id == last
    assert {file.location for file in lake.store.list(lake.data_path)} == stored


def test_files_that_another_writer_changed_meanwhile_stay_with_all_that_they_overlap(lake: Lake) -> None:
    filling = Filling(lake, 12)
    for _ in range(3):
        filling.append(700)
    stored = {scan.file.path for scan in lake.scan("t").files}
    wishes = Wishes(sort_by=("a",), target_size=TARGET)
    mover = _Meanwhile(lambda: filling.delete(5, 6))
    assert compact(lake, ["t"], wishes, mover=mover).tables[0].skipped == 3
    assert {scan.file.path for scan in lake.scan("t").files} == stored
    assert {
        file.location for file in lake.store.list(lake.data_path) if "delete" not in file.location
    } == stored
    assert lake.read("t").num_rows == 2099


def test_an_order_that_compaction_cannot_make_is_refused(lake: Lake) -> None:
    Filling(lake, 11).append(20)
    for wrong in ("lower(p)", "lower(p) || p"):
        with pytest.raises(InvalidInputError):
            one(lake, sort_by=(wrong,))


# -- choosing --------------------------------------------------------------------------------------


def candidate(number: int, low: int, high: int, size: int = 10) -> Candidate:
    file = DataFile(number, "", 1, size, None, 0, 1, None, None, None, None, None)
    return Candidate(FileScan(file), size, (Span((0, low), (0, high)),))


def ids(groups: Sequence[Sequence[Candidate]]) -> list[list[int]]:
    return [[one.scan.file.id for one in group] for group in groups]


def test_files_that_overlap_are_together_and_others_apart() -> None:
    found = apart([candidate(1, 5, 9), candidate(2, 0, 3), candidate(3, 2, 4), candidate(4, 4, 5)])
    assert ids(found) == [[2, 3], [4], [1]]
    assert ids(apart([candidate(1, 5, 5), candidate(2, 5, 5), candidate(3, 5, 7)])) == [[1], [2], [3]]
    assert ids(apart([candidate(1, 0, 9), candidate(2, 5, 5), candidate(3, 5, 5)])) == [[1, 2, 3]]


def test_small_neighbours_are_put_together_up_to_the_target() -> None:
    small = [[candidate(number, number, number, 40)] for number in range(5)]
    assert ids(together(small, 100)) == [[0, 1], [2, 3, 4]]
    large = [candidate(9, 9, 9, 90)]
    assert ids(together([small[0], large, small[1]], 100)) == [[0], [9], [1]]
    overlapping = [candidate(7, 7, 9, 90), candidate(8, 8, 8, 90)]
    assert ids(together([small[0], overlapping, small[1]], 100)) == [[0, 7, 8, 1]]


@pytest.mark.parametrize(("size", "count"), [(1, 1), (125, 1), (130, 2), (290, 2), (310, 3), (10_050, 100)])
def test_rather_fewer_files_than_too_many(size: int, count: int) -> None:
    assert outputs([candidate(1, 0, 1, size)], 100) == count


def test_a_long_file_is_sampled_in_some_places_only() -> None:
    scan = candidate(1, 0, 1).scan
    scan = scan._replace(file=scan.file._replace(record_count=50_000_000))
    positions = spreading._random_positions(scan, 4000)
    groups = np.unique(positions // spreading.ROW_GROUP_ROWS)
    assert len(positions) > 3900
    assert len(groups) <= 2 * spreading._WINDOWS
    assert (np.diff(positions) > 0).all()
