"""Merging and rewriting files: the same rows at every snapshot, and no change in the feed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import HeadwaterError
from headwater.lake.health.check import check_health
from headwater.lake.lake import Lake
from headwater.lake.maintenance.choosing import Move, Wishes
from headwater.lake.maintenance.compacting import compact
from headwater.lake.maintenance.model import Limits, TableCompaction
from headwater.lake.maintenance.moving import LocalMover, Moved
from headwater.lake.model import NameMapping
from headwater.lake.writing.staging import Stager
from headwater.lake.writing.stored_files import stage_stored_file
from tests.support import catalog_rows, duck


def plain(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row that is equal to itself: NaN is not."""
    return tuple("NaN" if value != value else value for value in row)


def mine(lake: Lake, table: str, at: int | None = None) -> list[tuple[Any, ...]]:
    found = lake.read(table, at, hidden=["rowid"])
    return sorted((plain(row.values()) for row in found.to_pylist()), key=repr)


def theirs(con: Any, table: str, at: int | None = None) -> list[tuple[Any, ...]]:
    version = "" if at is None else f" AT (VERSION => {at})"
    return sorted(map(plain, con.execute(f"SELECT *, rowid FROM {table}{version}").fetchall()), key=repr)


def everything(lake: Lake, table: str) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of a table at every live snapshot that has it, the same for both readers."""
    con = duck(lake.dsn)
    found = {}
    for snapshot in lake.snapshots():
        if lake.state(snapshot.id).find_table(table) is not None:
            found[snapshot.id] = mine(lake, table, snapshot.id)
            assert found[snapshot.id] == theirs(con, table, snapshot.id), snapshot.id
    con.close()
    return found


def feed(lake: Lake, table: str, start: int, end: int) -> list[tuple[Any, ...]]:
    rows = lake.changes(table, start, end).to_pylist()
    return sorted((tuple(v for k, v in row.items() if "time" not in k) for row in rows), key=repr)


def duckdb_feed(lake: Lake, start: int, end: int) -> list[tuple[Any, ...]]:
    con = duck(lake.dsn)
    rows = con.execute(f"FROM ducklake_table_changes('lake', 'main', 't', {start}, {end})").fetchall()
    con.close()
    return sorted(map(plain, rows), key=repr)


def one(lake: Lake, table: str = "t", **wishes: Any) -> TableCompaction:
    (result,) = compact(lake, [table], Wishes(**wishes)).tables
    return result


def files(lake: Lake, table: str = "t") -> int:
    return len(lake.scan(table).files)


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """Six files, some with deletes, some with updated rows, over two sets of columns."""
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int64", "b": "varchar", "f": "float64"})
        tx.set_option("data_inlining_row_limit", 0)
    for start in range(0, 400, 100):
        with lake.transaction() as tx:
            tx.append("t", [{"a": i, "b": f"x{i}", "f": i / 7} for i in range(start, start + 100)])
    with lake.transaction() as tx:
        tx.update("t", {"b": "'new'"}, where="a % 100 = 5")
    with lake.transaction() as tx:
        tx.delete("t", "a < 50")
    return lake


def test_small_files_become_one_and_nothing_else_changes(filled: Lake) -> None:
    lake = filled
    lake_before, last = everything(lake, "t"), lake.snapshot().id
    changes = feed(lake, "t", 1, last)
    with lake.transaction() as tx:
        for start in (400, 500, 600):
            tx.append("t", [{"a": i, "b": "y", "f": None} for i in range(start, start + 50)])
    with lake.transaction() as tx:
        tx.append("t", [{"a": 1000, "b": "z", "f": float("nan")}])
    before = everything(lake, "t")
    told = duckdb_feed(lake, 1, max(before))
    result = one(lake, rewrite=False)
    # Five of the files have deletes that older snapshots do not have.
    assert (result.merged_files, result.files_written) == (4, 1)
    assert result.files_after == files(lake) == result.files_before - 3
    after = everything(lake, "t")
    assert {at: rows for at, rows in after.items() if at in before} == before
    assert after[max(after)] == before[max(before)]
    assert lake_before.items() <= after.items()
    assert feed(lake, "t", 1, last) == changes
    assert lake.changes("t", max(before) + 1, max(after)).num_rows == 0
    assert duckdb_feed(lake, 1, max(before)) == told
    assert duckdb_feed(lake, max(before) + 1, max(after)) == []
    assert lake.snapshot().changes == "inline_flush:1,merge_adjacent:1"
    assert check_health(lake) == []
    assert one(lake, rewrite=False).changed is False


def test_files_with_many_deletes_are_written_again_and_history_keeps_the_old(filled: Lake) -> None:
    lake = filled
    before = everything(lake, "t")
    result = one(lake, merge=False, delete_ratio=0.5)
    assert (result.rewritten_files, result.merged_files, result.deleted_rows) == (1, 0, 50)
    after = everything(lake, "t")
    assert before.items() <= after.items()
    assert after[max(after)] == before[max(before)]
    assert lake.snapshot().changes == "inline_flush:1,rewrite_delete:1"
    assert lake.changes("t", max(after), max(after)).num_rows == 0
    assert check_health(lake) == []
    assert one(lake, merge=False, delete_ratio=0.5).changed is False
    everything_else = one(lake, delete_ratio=0.0)
    assert everything_else.rewritten_files == 4
    assert everything(lake, "t").items() >= after.items()


def test_deletes_older_than_every_snapshot_vanish_with_a_merge(filled: Lake) -> None:
    lake = filled
    with lake.transaction() as tx:
        tx.create_table("other", {"a": "int64"})
    now = mine(lake, "t")
    lake.expire(keep_last=1)
    result = one(lake)
    assert (result.merged_files, result.rewritten_files, result.deleted_rows) == (5, 0, 54)
    assert files(lake) == 1
    assert catalog_rows(lake.dsn, "ducklake_delete_file") == []
    assert mine(lake, "t") == now
    con = duck(lake.dsn)
    assert theirs(con, "t") == now
    assert con.execute("SELECT count(*), min(a) FROM t").fetchall() == [(350, 50)]
    con.close()
    lake.cleanup(older_than=None)
    assert mine(lake, "t") == now
    (file,) = lake.scan("t").files
    assert 7 not in cast(Any, pq.read_table(file.file.path).column("a").to_pylist())
    assert check_health(lake) == []


def test_all_rows_deleted_leaves_no_file(filled: Lake) -> None:
    lake = filled
    con = duck(lake.dsn)
    con.execute("SET ducklake_default_data_inlining_row_limit = 0")
    con.execute("DELETE FROM t WHERE a < 99 AND b <> 'new'")
    con.execute("DELETE FROM t WHERE a = 99")
    con.close()
    before = everything(lake, "t")
    compact(lake, ["t"], Wishes(delete_ratio=0.0))
    after = everything(lake, "t")
    assert before.items() <= after.items()
    assert after[max(after)] == before[max(before)]


def test_columns_that_were_renamed_added_dropped_and_widened(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int32", "b": "varchar", "s": "struct(x int32, y varchar)"})
        tx.set_option("data_inlining_row_limit", 0)

    def add(count: int, **values: Any) -> None:
        with lake.transaction() as tx:
            tx.append("t", [{"a": i, **values} for i in range(count)])

    add(10, b="one", s={"x": 1, "y": "u"})
    add(11, b="two", s={"x": 2, "y": "v"})
    with lake.transaction() as tx:
        tx.add_column("t", "c", "int16", default=7)
    add(12, b="three", c=1, s=None)
    add(13, b="four", s={"x": 3, "y": "w"})
    with lake.transaction() as tx:
        tx.rename_column("t", "b", "d")
        tx.widen_column("t", "a", "int64")
    add(14, d="five", c=2)
    add(15, d="six", c=None)
    with lake.transaction() as tx:
        tx.drop_column("t", "d")
        tx.rename_column("t", "c", "b")
    add(16, b=3)
    add(17, b=4)
    before = everything(lake, "t")
    result = one(lake)
    assert (result.merged_files, result.files_written) == (8, 4)
    after = everything(lake, "t")
    assert before.items() <= after.items()
    assert check_health(lake) == []


def test_partitions_stay_apart(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"region": "varchar", "a": "int64"}, partition_by=["region", "bucket(2, a)"])
        tx.set_option("data_inlining_row_limit", 0)
    for start in (0, 100):
        with lake.transaction() as tx:
            rows = [{"region": [None, "EU", "a/b"][i % 3], "a": i} for i in range(start, start + 30)]
            tx.append("t", rows)
    with lake.transaction() as tx:
        tx.set_partition_by("t", ["region"])
    with lake.transaction() as tx:
        tx.append("t", [{"region": "EU", "a": i} for i in range(10)])
        tx.append("t", [{"region": "EU", "a": i} for i in range(10)])
    before = everything(lake, "t")
    result = one(lake)
    assert result.files_written == 7
    assert files(lake) == 7
    assert before.items() <= everything(lake, "t").items()
    con = duck(lake.dsn)
    assert con.execute("SELECT count(*) FROM t WHERE region = 'EU' AND a = 4").fetchall() == [(3,)]
    assert con.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall() == []
    con.close()
    assert check_health(lake) == []


def test_the_options_of_tables_have_a_say(filled: Lake) -> None:
    lake = filled
    with lake.transaction() as tx:
        tx.set_option("auto_compact", False, table="t")
        tx.set_option("rewrite_delete_threshold", 0.6, table="t")
    assert compact(lake).tables == ()
    assert one(lake, merge=False).changed is False
    with lake.transaction() as tx:
        tx.set_option("rewrite_delete_threshold", 0.4, table="t")
    assert one(lake, merge=False).rewritten_files == 1


def test_target_size_decides_what_is_small(filled: Lake) -> None:
    lake = filled
    size = max(scan.file.file_size_bytes for scan in lake.scan("t").files)
    assert one(lake, rewrite=False, target_size=size).changed is False
    result = one(lake, rewrite=False, target_size=2 * size + 100, min_files=2)
    assert result.changed is False or result.files_written >= 1
    (told,) = compact(lake, ["t"], Wishes(), dry_run=True).tables
    assert told.merged_files + told.rewritten_files > 0


def test_rows_are_sorted_where_that_is_wanted(filled: Lake) -> None:
    lake = filled
    before = everything(lake, "t")
    lake.expire(keep_last=1)
    result = one(lake, sort_by=("b desc", "a"))
    assert result.files_written == 1
    assert mine(lake, "t") == before[max(before)]
    found = lake.read("t")
    assert found.column("b").to_pylist() == sorted(cast(Any, found.column("b").to_pylist()), reverse=True)


def test_flushing_comes_first_where_it_is_wanted(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int64"})
        tx.create_table("u", {"a": "int64"})
    for i in range(5):
        with lake.transaction() as tx:
            tx.append("t", [{"a": i}])
            tx.append("u", [{"a": j} for j in range(20)])
    with lake.transaction() as tx:
        tx.delete("t", "a = 2")
        tx.delete("u", "a = 3")
    before = everything(lake, "t"), everything(lake, "u")
    result = compact(lake, flush=True)
    assert [(table.table, table.flushed) for table in result.tables] == [("main.t", 5), ("main.u", 5)]
    assert before[0].items() <= everything(lake, "t").items()
    assert before[1].items() <= everything(lake, "u").items()
    assert not lake.scan("t").inlined
    assert check_health(lake) == []


class _Meanwhile(LocalMover):
    """Lets somebody else write after the data work and before the commit."""

    def __init__(self, work: Callable[[], object]):
        super().__init__()
        self._work = work

    def carry_out(self, moves: Sequence[Move], stager: Stager) -> list[Moved | HeadwaterError]:
        found = super().carry_out(moves, stager)
        self._work()
        return found


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize("by_duckdb", [True, False])
def test_what_another_writer_changed_meanwhile_is_left_alone(
    filled: Lake, by_duckdb: bool, inlined: bool
) -> None:
    lake = filled
    with lake.transaction() as tx:
        tx.set_option("data_inlining_row_limit", 10 if inlined else 0)
    stored = {file.location for file in lake.store.list(lake.data_path)}

    def meanwhile() -> None:
        if by_duckdb:
            con = duck(lake.dsn)
            con.execute("DELETE FROM t WHERE a = 350")
            con.close()
        else:
            with lake.transaction() as tx:
                tx.delete("t", "a = 350")

    result = compact(lake, ["t"], Wishes(delete_ratio=0.0), mover=_Meanwhile(meanwhile)).tables[0]
    assert result.skipped > 0
    assert 350 not in cast(Any, lake.read("t").column("a").to_pylist())
    everything(lake, "t")
    assert check_health(lake) == []
    named = {scan.file.path for scan in lake.scan("t").files}
    named |= {d.path for scan in lake.scan("t").files for d in scan.deletes}
    left = {file.location for file in lake.store.list(lake.data_path)} - stored - named
    assert left == set()


def test_a_table_dropped_or_altered_meanwhile_is_no_error(filled: Lake) -> None:
    lake = filled

    def alter() -> None:
        with lake.transaction() as tx:
            tx.add_column("t", "c", "int32", default=1)

    before = mine(lake, "t")
    compact(lake, ["t"], Wishes(delete_ratio=0.0), mover=_Meanwhile(alter))
    assert [row[:3] for row in mine(lake, "t")] == [row[:3] for row in before]
    everything(lake, "t")

    def drop() -> None:
        with lake.transaction() as tx:
            tx.drop_table("t")

    with lake.transaction() as tx:
        tx.append("t", [{"a": i} for i in range(20)])
        tx.append("t", [{"a": i} for i in range(20)])
    result = compact(lake, mover=_Meanwhile(drop))
    assert result.changed == ()


@pytest.mark.parametrize(
    "statement", ["DELETE FROM t WHERE a = 350", "UPDATE t SET b = 'late' WHERE a = 120"]
)
@pytest.mark.parametrize("limit", [0, 10])
def test_a_duckdb_session_that_changes_what_was_compacted_meanwhile_is_told(
    filled: Lake, statement: str, limit: int
) -> None:
    lake = filled
    con = duck(lake.dsn)
    with lake.transaction() as tx:
        tx.set_option("data_inlining_row_limit", limit)
    con.execute("BEGIN")
    con.execute(statement)
    before = mine(lake, "t")
    assert one(lake, delete_ratio=0.0).changed
    with pytest.raises(duckdb.Error, match="conflict"):
        con.execute("COMMIT")
    assert mine(lake, "t") == before
    con.execute(statement)
    con.close()
    assert mine(lake, "t") != before
    everything(lake, "t")


def test_two_compactors_at_once_do_it_once(filled: Lake) -> None:
    lake = filled
    before = everything(lake, "t")
    done: list[TableCompaction] = []
    wishes = Wishes(delete_ratio=0.0)
    second = compact(
        lake, ["t"], wishes, mover=_Meanwhile(lambda: done.extend(compact(lake, ["t"], wishes).tables))
    )
    assert done[0].changed
    assert second.changed == ()
    assert second.tables[0].skipped > 0
    assert before.items() <= everything(lake, "t").items()


def test_limits_stop_a_pass_that_goes_on_next_time(lake: Lake) -> None:
    for name in ("t", "u"):
        with lake.transaction() as tx:
            tx.create_table(name, {"a": "int64"})
        for _ in range(3):
            with lake.transaction() as tx:
                tx.append(name, [{"a": i} for i in range(20)])
    result = compact(lake, limits=Limits(bytes=1))
    assert (len(result.changed), result.complete) == (1, False)
    assert len(compact(lake, limits=Limits(seconds=0)).tables) == 0
    assert compact(lake, limits=Limits(seconds=60)).complete
    assert (files(lake, "t"), files(lake, "u")) == (1, 1)


def test_duckdb_goes_on_where_we_stopped_and_the_other_way_round(filled: Lake) -> None:
    lake = filled
    con = duck(lake.dsn)
    con.execute("SET ducklake_default_data_inlining_row_limit = 0")
    for round_ in range(3):
        with lake.transaction() as tx:
            tx.append("t", [{"a": 2000 + i, "b": "r", "f": 1.5} for i in range(20)])
        con.execute(
            f"INSERT INTO t SELECT i, 'd', i FROM range({3000 + round_ * 20}, {3020 + round_ * 20}) r(i)"
        )
        con.execute(f"DELETE FROM t WHERE a = {100 + round_}")
        before = everything(lake, "t")
        one(lake, delete_ratio=0.4 * round_ / 2)
        assert before.items() <= everything(lake, "t").items()
        con.execute("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)")
        con.execute("CALL ducklake_merge_adjacent_files('lake')")
        assert mine(lake, "t") == before[max(before)]
        con.execute("UPDATE t SET b = 'again' WHERE a = 300")
    assert check_health(lake) == []
    con.close()


def test_a_stream_of_rows_says_of_nan_what_is_true(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.lake.maintenance import moving

    monkeypatch.setattr(moving, "_FEW_BYTES", 0)
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "float64", "b": "float32", "s": "varchar", "l": "double[]"})
        tx.set_option("data_inlining_row_limit", 0)
    long = "z" * 5000
    for i in range(3):
        with lake.transaction() as tx:
            value = float("nan") if i == 1 else i + 0.5
            tx.append("t", [{"a": value, "b": float(i), "s": long + str(i), "l": [1.0, None]}, {"l": []}])
    before = everything(lake, "t")
    assert one(lake).files_written == 1
    assert everything(lake, "t")[max(before)] == before[max(before)]
    con = duck(lake.dsn)
    assert con.execute("SELECT count(*) FROM t WHERE a > 100").fetchall() == [(1,)]
    assert con.execute("SELECT count(*) FROM t WHERE b >= 2").fetchall() == [(1,)]
    assert con.execute("SELECT count(*) FROM t WHERE s = ?", [long + "1"]).fetchall() == [(1,)]
    assert lake.read("t", where="a > 100").num_rows == 1
    assert check_health(lake) == []
    con.close()


def test_files_that_name_their_columns_otherwise_are_merged_too(lake: Lake, tmp_path: Path) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int64", "s": "struct(x int32)"})
        tx.set_option("data_inlining_row_limit", 0)
    table = lake.table("t")
    a, s = table.columns
    names = [NameMapping("alpha", a.id), NameMapping("sigma", s.id, (NameMapping("xi", s.children[0].id),))]
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        rows = {"alpha": [number, 10], "sigma": pa.array([{"xi": 1}, None], pa.struct([("xi", pa.int32())]))}
        pq.write_table(pa.table(rows), path)
        with lake.transaction() as tx:
            staged = stage_stored_file(lake.store, table, str(path), columns=table.columns, mapping=names)
            tx.add_files("t", [staged])
    with lake.transaction() as tx:
        tx.append("t", [{"a": 5, "s": {"x": 7}}])
    before = everything(lake, "t")
    assert one(lake).merged_files == 3
    assert before.items() <= everything(lake, "t").items()
    assert lake.scan("t").files[0].file.mapping_id is None


def test_every_type_moves_as_it_is(lake: Lake) -> None:
    con = duck(lake.dsn)
    con.execute("SET ducklake_default_data_inlining_row_limit = 0")
    con.execute(
        "CREATE TABLE t AS SELECT 1::TINYINT i8, 2::UBIGINT u64, 1.25::DECIMAL(30,4) d, "
        "DATE '2024-02-29' dt, "
        "TIMESTAMP '2024-01-01 12:00:00.5' ts, TIMESTAMPTZ '2024-01-01 12:00:00+02' tz, TIME '10:11:12' tm, "
        "'9ad2f5a2-0000-4000-8000-000000000001'::UUID id, 'ab'::BLOB bl, [1, NULL] li, "
        "MAP {'k': 1} m, {'a': 1, 'b': [DATE '2020-01-01']} st, INTERVAL '2 days' iv, true bo, "
        "'{\"a\":1}'::JSON js"
    )
    con.execute("INSERT INTO t SELECT * FROM t")
    con.execute("INSERT INTO t (i8) VALUES (5)")
    before = theirs(con, "t")
    assert one(lake).files_written == 1
    con.close()
    con = duck(lake.dsn)
    assert theirs(con, "t") == before
    con.close()
    assert isinstance(lake.read("t"), pa.Table)
