"""Thirty ways in which stores of deltas lose, revive or miscount rows, and that none of them is open here."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.deltas import driver_folding, verifying
from headwater.deltas.dataset import DeltaDataset
from headwater.deltas.model import CompactionPolicy, bind
from headwater.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    CompactionError,
    ConflictError,
    DeltaError,
    HeadwaterError,
    InvalidInputError,
    SnapshotError,
)
from headwater.lake.format.ids import data_file_name
from headwater.lake.lake import Lake
from headwater.lake.writing.staging import Stager
from headwater.storage.store import Store
from tests.deltas.conftest import Opened

Rows = list[tuple[Any, ...]]


def seen(con: Any, name: str = "crm.people", at: int | None = None) -> Rows:
    """What DuckDB shows of a dataset."""
    then = "" if at is None else f" AT (VERSION => {at})"
    return sorted(con.execute(f"SELECT * FROM {name}{then}").fetchall(), key=repr)


def read(dataset: DeltaDataset, at: int | None = None) -> Rows:
    """What our own reader shows of it."""
    return sorted((tuple(row.values()) for row in dataset.read_arrow(at).to_pylist()), key=repr)


def people(*rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [{"id": key, "name": name} for key, name in rows]


def many(count: int, name: str = "old", first: int = 0) -> pa.Table:
    return pa.table({"id": list(range(first, first + count)), "name": [name] * count})


def compacted(dataset: DeltaDataset, con: Any, name: str = "crm.people") -> Any:
    """Compact, and see that both readers show the same before and after."""
    before = seen(con, name)
    assert read(dataset) == before
    done = dataset.compact()
    assert seen(con, name) == before
    assert read(dataset) == before
    assert done.final_rows == len(before)
    return done


def age(*paths: Path) -> None:
    """Let files look as if they had been there for days."""
    for path in paths:
        os.utime(path, (1_700_000_000, 1_700_000_000))


def during(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do something while a compaction has stored its files and not committed them."""
    verify = verifying.verify

    def meanwhile(*args: Any) -> None:
        verify(*args)
        monkeypatch.setattr(verifying, "verify", verify)
        work()

    monkeypatch.setattr(verifying, "verify", meanwhile)


# -- loss or resurrection of data -------------------------------------------------------------------


def test_d1_deltas_of_one_moment_are_all_kept(dataset: Opened, con: Any) -> None:
    people_ = dataset(key=["id"], schema={"id": "int64", "name": "varchar"})
    threads = [threading.Thread(target=lambda n=n: people_.write_delta(people((n, "x")))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen(con) == [(n, "x") for n in range(4)]
    assert len({delta.id for delta in people_.list_deltas()}) == 4


def test_d2_a_delta_written_during_compaction_is_kept(
    dataset: Opened, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    during(monkeypatch, lambda: one.write_delta(people((1, "new"), (99, "new"))))
    done = one.compact()
    assert (done.outcome, done.delta_rows) == ("compacted", 20)
    assert [row for row in seen(con) if row[1] == "new"] == [(1, "new"), (99, "new")]
    assert [delta.rows for delta in one.list_deltas()] == [2]
    assert compacted(one, con).delta_rows == 2


def test_d3_a_tombstone_written_during_compaction_is_kept(
    dataset: Opened, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    during(monkeypatch, lambda: one.tombstone(7, actor="a", reason="r"))
    assert one.compact().tombstones_applied == 0
    assert (7, "old") not in seen(con)
    assert compacted(one, con).tombstones_applied == 1
    assert (7, "old") not in seen(con)


def _moments(*texts: str) -> list[dt.datetime]:
    return [dt.datetime.fromisoformat(text) for text in texts]


KEYS: dict[str, tuple[list[Any], Any]] = {
    "int8": ([-128, 0, 127], 127),
    "int16": ([-32768, 7], 7),
    "int32": ([1, 2**31 - 1], "1"),
    "int64": ([1, 2**63 - 1], 2**63 - 1),
    "int128": ([Decimal(10**37), Decimal(1)], 10**37),
    "uint8": ([0, 255], 255),
    "uint16": ([0, 65535], 65535),
    "uint32": ([0, 2**32 - 1], 2**32 - 1),
    "uint64": ([0, 2**64 - 1], 2**64 - 1),
    "decimal(10,2)": ([Decimal("1.50"), Decimal("2.00")], "1.5"),
    "boolean": ([True, False], True),
    "varchar": (["", "a'b", "ü"], "a'b"),
    "blob": ([b"", b"\x00\xff"], b"\x00\xff"),
    "uuid": ([str(UUID(int=1)), str(UUID(int=2))], UUID(int=2)),
    "date": ([dt.date(1500, 1, 1), dt.date(2026, 2, 3)], dt.date(2026, 2, 3)),
    "time": ([dt.time(0), dt.time(23, 59, 59, 999999)], dt.time(23, 59, 59, 999999)),
    "timestamp": (_moments("2026-01-01", "1900-01-01"), _moments("1900-01-01")[0]),
    "timestamp_s": (_moments("2026-01-01", "2026-01-02"), _moments("2026-01-02")[0]),
    "timestamp_ms": (_moments("2026-01-01T00:00:00.001"), _moments("2026-01-01T00:00:00.001")[0]),
    "timestamp_ns": (_moments("2026-01-01", "2026-01-02"), "2026-01-02 00:00:00"),
    "timestamptz": ([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], "2026-01-01 02:00:00+02"),
    "float32": ([0.5, float("nan")], float("nan")),
    "float64": ([0.1, 0.0, float("inf")], -0.0),
}


@pytest.mark.parametrize("kind", KEYS)
def test_d4_a_tombstone_erases_keys_of_every_type(dataset: Opened, con: Any, kind: str) -> None:
    values, gone = KEYS[kind]
    one = dataset(key=["k"], schema={"k": kind, "v": "int64"})
    given = [*values, None]
    rows = [{"k": value, "v": number} for number, value in enumerate(given)]
    one.write_delta(rows)
    one.compact()
    one.tombstone([gone, None], actor="a", reason="r")
    hidden = sorted(con.execute("SELECT v FROM crm.people").fetchall())
    assert len(hidden) == len(given) - 2
    done = one.compact()
    assert (done.tombstones_applied, done.tombstones_unmatched) == (2, 0)
    assert sorted(con.execute("SELECT v FROM crm.people").fetchall()) == hidden
    assert sorted(one.read_arrow().column("v").to_numpy().tolist()) == [row[0] for row in hidden]


@pytest.mark.parametrize("kind", ["interval", "json", pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_d4_a_key_that_engines_compare_differently_is_refused(dataset: Opened, lake: Lake, kind: Any) -> None:
    before = lake.snapshot().id
    with pytest.raises(DeltaError, match="cannot be a key"):
        dataset(key=["k"], schema={"k": kind, "v": "int64"})
    assert lake.snapshot().id == before


def test_d5_a_renamed_key_still_matches_and_a_missing_one_is_an_error(
    dataset: Opened, lake: Lake, con: Any
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    one.tombstone(3, actor="a", reason="r")
    one.rename_column("id", "number")
    one.tombstone({"number": 4}, actor="a", reason="r")
    assert compacted(one, con).tombstones_applied == 2
    one.tombstone(5, actor="a", reason="r")
    bound = bind(one.definition, lake.state())
    con.execute(f"ALTER TABLE {bound.log.name} DROP COLUMN number")
    before = lake.snapshot().id
    with pytest.raises(DeltaError, match="is missing"):
        one.compact()
    assert lake.snapshot().id == before


def test_d6_an_update_replaces_the_row_of_its_key(dataset: Opened, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    one.write_delta(people((1, "a"), (1, "b"), (2, "a")))
    one.write_delta(people((2, "c")))
    assert [row for row in seen(con) if row[0] in (1, 2)] == [(1, "b"), (2, "c")]
    done = compacted(one, con)
    assert (done.final_rows, done.rows_updated, done.rows_inserted) == (20, 2, 0)


def test_d7_a_key_written_after_its_tombstone_is_there_again(dataset: Opened, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    for name in ("second", "third"):
        one.tombstone(1, actor="a", reason="r")
        assert (1, "old") not in seen(con)
        one.write_delta(people((1, name)))
    one.write_delta(people((50, "x")))
    one.tombstone(50, actor="a", reason="r")
    assert [row for row in seen(con) if row[0] in (1, 50)] == [(1, "third")]
    done = compacted(one, con)
    assert (done.tombstones_applied, done.rows_dropped_by_tombstones) == (3, 3)
    assert [row for row in seen(con) if row[0] in (1, 50)] == [(1, "third")]


def test_d8_no_snapshot_has_a_row_twice_or_not_at_all(dataset: Opened, lake: Lake, con: Any) -> None:
    one = dataset(key=["id"])
    expected = {}
    for n in range(4):
        one.write_delta(many(10, str(n), first=5 * n))
        expected[lake.snapshot().id] = read(one)
        one.compact()
        expected[lake.snapshot().id] = read(one)
    for at, rows in expected.items():
        assert seen(con, at=at) == rows
        assert read(one, at) == rows
        assert len({row[0] for row in rows}) == len(rows)


def test_d9_visibility_does_not_depend_on_deleting_files(
    dataset: Opened, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    one.write_delta(people((1, "new")))

    def refuse(*_: object) -> None:
        raise AssertionError("compaction deletes nothing")

    monkeypatch.setattr(Store, "delete", refuse)
    monkeypatch.setattr(Store, "delete_many", refuse)
    assert compacted(one, con).final_rows == 20


def test_d10_of_two_compactions_one_wins(dataset: Opened, con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    one.write_delta(many(30, "new"))
    winner: list[Any] = []
    during(monkeypatch, lambda: winner.append(one.compact()))
    loser = one.compact()
    assert (winner[0].outcome, loser.outcome) == ("compacted", "nothing")
    assert seen(con) == sorted(((n, "new") for n in range(30)), key=repr)
    assert len(one.compactions()) == 2


def test_d10_a_compaction_beside_ingestion_loses_no_update(dataset: Opened, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(50))
    stop = threading.Event()
    written: list[int] = []
    problems: list[BaseException] = []

    def ingest() -> None:
        try:
            while not stop.is_set():
                number = len(written)
                one.write_delta(people((number % 50, f"w{number}")))
                written.append(number)
        except HeadwaterError as error:
            problems.append(error)

    thread = threading.Thread(target=ingest)
    thread.start()
    done = [one.compact() for _ in range(4)]
    stop.set()
    thread.join()
    assert not problems
    assert all(result.outcome == "compacted" for result in done)
    expected = dict.fromkeys(range(50), "old") | {n % 50: f"w{n}" for n in written}
    assert dict(seen(con)) == expected == dict(read(one))


def test_d11_a_reader_that_began_before_sees_what_there_was(dataset: Opened, lake: Lake, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    one.tombstone(1, actor="a", reason="r")
    bound = bind(one.definition, lake.state())
    at = lake.snapshot().id
    batches = lake.iter_batches(bound.base.name)
    one.compact()
    assert sum(batch.num_rows for batch in batches) == 20
    assert len(read(one, at)) == len(seen(con, at=at)) == 19
    with pytest.raises(SnapshotError, match="does not exist at snapshot 0"):
        one.read_arrow(0)


def test_d12_what_is_not_in_the_store_as_written_is_not_committed(
    dataset: Opened, lake: Lake, con: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    before = lake.snapshot().id
    stage = Stager.stage

    def torn(self: Stager, table: Any, *args: Any) -> Any:
        staged = stage(self, table, *args)
        location = Path(table.path) / staged[0].path
        location.write_bytes(location.read_bytes()[:-40])
        return staged

    there = set(tmp_path.rglob("*"))
    monkeypatch.setattr(Stager, "stage", torn)
    with pytest.raises(CompactionError, match="something else"):
        one.compact()
    assert lake.snapshot().id == before
    assert set(tmp_path.rglob("*.parquet")) <= there
    assert not list(tmp_path.rglob("*.tmp"))
    monkeypatch.undo()
    assert compacted(one, con).outcome == "compacted"


def _lose_a_row(data: pa.Table) -> pa.Table:
    return data.slice(1)


def _repeat_a_row(data: pa.Table) -> pa.Table:
    return pa.concat_tables([data.slice(1), data.slice(1, 1)])


def _lose_a_value(data: pa.Table) -> pa.Table:
    values = data.column("name").to_pylist()
    place = data.schema.get_field_index("name")
    return data.set_column(place, data.schema.field("name"), pa.array([None, *values[1:]], pa.string()))


@pytest.mark.parametrize("harm", [_lose_a_row, _repeat_a_row, _lose_a_value])
def test_d13_wrong_rows_keys_and_values_are_noticed(
    dataset: Opened, lake: Lake, con: Any, monkeypatch: pytest.MonkeyPatch, harm: Any
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    before = lake.snapshot().id
    stage = Stager.stage
    monkeypatch.setattr(Stager, "stage", lambda self, table, data, *ids: stage(self, table, harm(data), *ids))
    with pytest.raises(CompactionError) as caught:
        one.compact()
    assert caught.value.retryable
    assert lake.snapshot().id == before
    monkeypatch.undo()
    compacted(one, con)


# -- wrong numbers and semantics --------------------------------------------------------------------


def test_d14_d15_every_counter_counts_what_it_says(dataset: Opened, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(100))
    one.compact()
    one.write_delta(many(30, "new", first=90))
    one.write_delta(people((1, "a"), (1, "b"), (500, "c")))
    one.tombstone([2, 3, 500, 777], actor="a", reason="r")
    done = compacted(one, con)
    assert (done.base_rows, done.delta_rows, done.deltas_merged) == (100, 33, 2)
    assert done.final_rows == 100 + 20 - 2
    assert (done.tombstones_applied, done.rows_dropped_by_tombstones) == (3, 3)
    assert (done.tombstones_matched, done.tombstones_unmatched) == (3, 1)
    assert (done.keys, done.rows_updated, done.rows_inserted) == (30 + 2 + 3, 11, 20)
    assert (done.base_files_rewritten, done.log_files, done.files_out) == (1, 1, 2)
    assert done.bytes_in > 0 < done.bytes_out
    assert one.compactions()[0] == done


def test_d16_each_tombstone_tells_whether_it_met_a_row(dataset: Opened, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    one.tombstone([1, 777], actor="a", reason="r")
    one.tombstone([1, 2], actor="a", reason="again")
    assert [record.matched for record in one.audit()] == [None] * 4
    compacted(one, con)
    found = [(record.key["id"], record.reason, record.matched) for record in one.audit()]
    assert found == [
        ("1::BIGINT", "r", True),
        ("777::BIGINT", "r", False),
        ("1::BIGINT", "again", False),
        ("2::BIGINT", "again", True),
    ]


def test_d17_rows_without_a_key_are_alike_before_and_after_compaction(dataset: Opened, con: Any) -> None:
    one = dataset(key=["a", "b"], schema={"a": "int64", "b": "varchar", "v": "int64"})
    keys = [(None, None), (None, "x"), (1, None), (1, "x")]
    rows = [{"a": a, "b": b, "v": n} for n, (a, b) in enumerate(keys)]
    one.write_delta(rows)
    compacted(one, con)
    one.tombstone((None, "x"), actor="a", reason="r")
    one.write_delta([{"a": None, "b": None, "v": 9}])
    assert [row[2] for row in seen(con)] == [2, 3, 9] or {row[2] for row in seen(con)} == {2, 3, 9}
    assert compacted(one, con).final_rows == 3


@pytest.mark.parametrize("text", ["007", "+7", " 7", "7 ", "7.0", "0x7", "", "seven", 7.0, True, b"7", "1e1"])
def test_d18_a_value_that_is_not_written_as_the_key_is_is_refused(
    dataset: Opened, lake: Lake, text: Any
) -> None:
    one = dataset(key=["id"], schema={"id": "int32", "name": "varchar"})
    before = lake.snapshot().id
    with pytest.raises(InvalidInputError, match="is no INTEGER"):
        one.tombstone([1, text], actor="a", reason="r")
    assert lake.snapshot().id == before
    assert one.audit() == []


def test_d18_values_outside_the_type_and_other_shapes_are_refused(dataset: Opened) -> None:
    one = dataset(key=["id"], schema={"id": "int32", "name": "varchar"})
    for wrong in (2**31, {"name": "x"}, (1, 2), pa.table({"id": ["007"]}), pa.table({"x": [7]})):
        with pytest.raises(InvalidInputError):
            one.tombstone(wrong, actor="a", reason="r")
    for actor, reason in (("", "r"), ("a", " ")):
        with pytest.raises(InvalidInputError, match="A tombstone needs"):
            one.tombstone(1, actor=actor, reason=reason)
    assert one.tombstone(["7", 7, 8], actor="a", reason="r").rows == 2
    assert one.tombstone(pa.table({"ID": ["7", "9"]}), actor="a", reason="r").rows == 2


def test_d19_the_last_commit_wins_whatever_clocks_and_names_say(
    dataset: Opened, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.deltas import writing

    names = iter(UUID(int=2**100 - n) for n in range(10))
    monkeypatch.setattr(writing, "new_uuid", lambda: next(names))
    one = dataset(key=["id"])
    one.write_delta(many(20))
    for n in range(4):
        one.write_delta(people((1, f"w{n}")))
    con.execute("CALL ducklake_flush_inlined_data('lake')")
    con.execute("CALL ducklake_merge_adjacent_files('lake')")
    assert (1, "w3") in seen(con)
    compacted(one, con)
    assert (1, "w3") in seen(con)


def test_d20_rows_of_other_columns_fit_or_are_refused_at_once(dataset: Opened, lake: Lake, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta(pa.table({"id": pa.array([1, 2], pa.int32()), "n": pa.array([1, 2], pa.int16())}))
    one.compact()
    one.write_delta(pa.table({"extra": ["e"], "n": pa.array([70000], pa.int32()), "id": [2**40]}))
    one.write_delta(people_without_columns())
    assert seen(con) == sorted([(1, None, None), (2, 2, None), (2**40, 70000, "e")], key=repr)
    before = lake.snapshot().id
    for wrong in (
        pa.table({"id": [5], "n": ["many"]}),
        pa.table({"id": [dt.date(2026, 1, 1)]}),
        pa.table({"n": [5]}),
        pa.table({"id": [5], "_hw_op": ["delete"]}),
        pa.table({"id": [5], "rowid": [1]}),
    ):
        with pytest.raises(InvalidInputError):
            one.write_delta(wrong)
    assert lake.snapshot().id == before
    compacted(one, con)


def people_without_columns() -> list[dict[str, Any]]:
    """A whole row of which only the key is given."""
    return [{"id": 1}]


def test_d21_a_base_without_rows_can_be_compacted(dataset: Opened, con: Any) -> None:
    one = dataset(key=["id"], schema={"id": "int64", "name": "varchar"})
    assert one.compact().outcome == "nothing"
    one.tombstone([1, 2], actor="a", reason="r")
    done = compacted(one, con)
    assert (done.base_rows, done.final_rows, done.tombstones_unmatched) == (0, 0, 2)
    one.write_delta(many(30))
    compacted(one, con)
    one.tombstone(list(range(30)), actor="a", reason="r")
    done = compacted(one, con)
    assert (done.base_rows, done.final_rows, done.files_out) == (30, 0, 0)
    assert one.compact().outcome == "nothing"
    one.write_delta(many(3))
    assert compacted(one, con).final_rows == 3


def test_d22_no_name_reaches_into_another_dataset(dataset: Opened, lake: Lake, con: Any) -> None:
    names = ['"a"', '"a/b"', '"../a"', '"a__b"."c"', '"a"."b__c"', '"A b"."x;y"', 'main."it\'s ""q"""']
    made = [dataset(name, key=["id"]) for name in names]
    for number, one in enumerate(made):
        one.write_delta(many(20, str(number)))
    made[0].tombstone(1, actor="a", reason="r")
    made[0].compact()
    for number, (name, one) in enumerate(zip(names, made, strict=True)):
        assert {row[1] for row in seen(con, name)} == {str(number)}
        assert len(read(one)) == (19 if number == 0 else 20)
    root = Path(lake.data_path)
    assert all(root in path.parents for path in root.parent.rglob("*.parquet"))


def test_d23_a_base_of_many_files_is_compacted_and_its_statistics_hold(
    dataset: Opened, lake: Lake, con: Any
) -> None:
    one = dataset(key=["id"])
    for n in range(4):
        one.write_delta(many(50, str(n), first=50 * n))
        one.compact()
    one.tombstone([10, 60], actor="a", reason="r")
    one.write_delta(people((170, "new"), (900, "new")))
    done = compacted(one, con)
    assert (done.base_files_rewritten, done.base_files_kept, done.final_rows) == (3, 1, 199)
    assert con.execute("SELECT count(*), min(id), max(id) FROM crm.people").fetchall() == [(199, 0, 900)]
    bound = bind(one.definition, lake.state())
    assert con.execute(f"SELECT count(*), max(id) FROM {bound.base.name}").fetchall() == [(199, 900)]


def test_d24_keys_of_several_columns_and_types(dataset: Opened, con: Any) -> None:
    one = dataset(key=["region", "day"], schema={"region": "varchar", "day": "date", "v": "int64"})
    days = [dt.date(2026, 1, n) for n in range(1, 5)]
    rows = [{"region": r, "day": d, "v": 0} for r in ("eu", "us", None) for d in days]
    one.write_delta(rows)
    compacted(one, con)
    gone = [
        ("eu", days[0]),
        {"day": "2026-01-02", "REGION": "us"},
        (None, days[2]),
    ]
    assert one.tombstone(gone, actor="a", reason="r").rows == 3
    one.tombstone(pa.table({"day": [days[3]], "region": ["eu"]}), actor="a", reason="r")
    assert compacted(one, con).tombstones_applied == 4
    left = {(row[0], row[1]) for row in seen(con)}
    assert len(left) == 8
    assert ("eu", days[1]) in left


# -- compliance -------------------------------------------------------------------------------------


def test_d25_who_erased_what_and_why_stays_on_record(dataset: Opened, lake: Lake, con: Any) -> None:
    one = dataset(key=["id"])
    one.write_delta([{"id": n, "name": "secret name"} for n in range(20)])
    one.compact()
    one.tombstone([3, 777], actor="dpo@example.org", reason="asked for it", operation_id="case-1")
    done = compacted(one, con)
    definition, records = one.definition, one.audit()
    assert [(r.actor, r.reason, r.folded_snapshot) for r in records] == [
        ("dpo@example.org", "asked for it", done.snapshot_id)
    ] * 2
    one.drop()
    assert one.store.audit(definition) == records
    held = lake.db.read(
        lambda connection: connection.execute("SELECT a::text FROM headwater.delta_audit a").fetchall()
    )
    assert "secret name" not in str(held)
    assert not one.exists
    dataset(key=["id"]).write_delta(many(3))
    assert len(seen(con)) == 3


def test_d26_a_report_finds_every_store_until_nothing_is_left(
    dataset: Opened, lake: Lake, con: Any, tmp_path: Path
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.write_delta(people((3, "small")))
    found = {finding.store for finding in one.erasure_report(3).findings if finding.found}
    assert found == {"log", "inlined"}
    one.compact()
    one.tombstone(3, actor="dpo", reason="asked for it")
    report = one.erasure_report(3)
    assert not report.erased
    assert {finding.store for finding in report.findings if finding.found} == {
        "base",
        "older snapshot",
        "inlined",
    }
    bound = bind(one.definition, lake.state())
    current = lake.scan(bound.base.name).files[0].file.path
    orphan = Path(bound.base.path) / data_file_name()
    orphan.write_bytes(Path(current).read_bytes())
    one.compact()
    left = {finding.store: finding for finding in one.erasure_report(3).findings if finding.found}
    assert set(left) == {"older snapshot", "inlined", "orphan"}
    assert "expire" in left["older snapshot"].next_step
    lake.expire(keep_last=1)
    left = {finding.store: finding for finding in one.erasure_report(3).findings if finding.found}
    assert set(left) == {"scheduled", "orphan"}
    lake.cleanup(older_than=None)
    age(orphan)
    lake.remove_orphans(dry_run=False)
    report = one.erasure_report("3")
    assert report.erased
    assert report.next_steps == ()
    assert [(record.actor, record.matched) for record in report.audit] == [("dpo", True)]
    assert report.audit[0].verified_at is not None
    for path in tmp_path.rglob("*.parquet"):
        table = pq.ParquetFile(path).read()
        assert 3 not in table.column("id").to_pylist()
    assert len(seen(con)) == 19


# -- scale and operation ----------------------------------------------------------------------------


def test_d27_only_a_group_of_files_is_in_memory_at_once(
    dataset: Opened, con: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dataset(key=["id"])
    for n in range(5):
        one.write_delta(many(50, str(n), first=50 * n))
        one.compact()
    one.write_delta([{"id": 50 * n, "name": "new"} for n in range(5)])
    largest: list[int] = []
    stage = Stager.stage

    def watched(self: Stager, table: Any, data: pa.Table, *ids: Any) -> Any:
        largest.append(data.num_rows)
        return stage(self, table, data, *ids)

    monkeypatch.setattr(driver_folding, "_GROUP_BYTES", 1)
    monkeypatch.setattr(Stager, "stage", watched)
    assert compacted(one, con).rows_updated == 5
    assert largest == [50] * 5


def test_d28_only_files_with_affected_keys_are_written_in_order_and_size(
    dataset: Opened, lake: Lake, con: Any
) -> None:
    one = dataset(key=["id"])
    for n in range(3):
        one.write_delta(many(200, str(n), first=200 * n))
        one.compact()
    bound = bind(one.definition, lake.state())
    files = {scan.file.id: scan.file for scan in lake.scan(bound.base.name).files}
    with lake.transaction() as tx:
        tx.set_option("target_file_size", "1000B", table=bound.base.name)
    one.tombstone(250, actor="a", reason="r")
    done = compacted(one, con)
    now = lake.scan(bound.base.name).files
    kept = [scan.file for scan in now if scan.file.id in files]
    assert (done.base_files_rewritten, len(kept)) == (1, 2)
    written = [scan.file for scan in now if scan.file.id not in files]
    assert len(written) > 1
    assert sum(file.record_count for file in written) == 199
    for file in written:
        ids = pq.read_table(file.path).column("id").to_numpy().tolist()
        assert ids == sorted(ids)
    changes = lake.changes(bound.base.name, done.snapshot_id, done.snapshot_id, net=True)
    assert changes.column("_change_type").to_pylist() == ["delete"]


def test_d29_a_backlog_is_measured_and_folded_when_it_is_due(dataset: Opened) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(2000))
    assert CompactionPolicy().reason(one.pending()) is not None
    one.compact(policy=CompactionPolicy())
    one.write_delta(many(50, "new"))
    one.tombstone([1, 2], actor="a", reason="r")
    backlog = one.pending()
    assert (backlog.deltas, backlog.tombstones, backlog.rows, backlog.files) == (1, 2, 52, 1)
    assert (backlog.inlined_rows, backlog.base_rows, backlog.base_files) == (2, 2000, 1)
    assert backlog.bytes > 0
    assert backlog.oldest_at is not None
    assert CompactionPolicy().reason(backlog) is None
    assert one.compact(policy=CompactionPolicy()).outcome == "nothing"
    for policy in (
        CompactionPolicy(files=1),
        CompactionPolicy(rows=52),
        CompactionPolicy(share=0.01),
        CompactionPolicy(seconds=0),
    ):
        assert policy.reason(backlog)
    assert one.compact(policy=CompactionPolicy(rows=52)).outcome == "compacted"
    assert one.pending().rows == 0


def test_d30_operations_never_apply_twice_and_errors_say_whether_to_retry(
    dataset: Opened, lake: Lake, con: Any
) -> None:
    one = dataset(key=["id"])
    first = one.write_delta(many(20), operation_id="load-1", actor="etl")
    again = one.write_delta(many(20, "other"), operation_id="load-1")
    assert (again.already_applied, again.id, again.snapshot_id) == (True, first.id, first.snapshot_id)
    gone = one.tombstone(1, actor="a", reason="r", operation_id="case-1")
    one.write_delta(people((1, "back")))
    assert one.tombstone(1, actor="a", reason="r", operation_id="case-1").id == gone.id
    assert (1, "back") in seen(con)
    done = one.compact(operation_id="c-1")
    one.write_delta(people((1, "newer")))
    repeated = one.compact(operation_id="c-1")
    assert (repeated.outcome, repeated.snapshot_id) == ("already_applied", done.snapshot_id)
    assert one.pending().rows == 1
    assert ConflictError("x").retryable
    assert CompactionError("x").retryable
    assert CommitOutcomeUnknownError("x").retryable
    assert not DeltaError("x").retryable
    assert {snapshot.author for snapshot in lake.snapshots()} >= {"etl", "a"}


# -- opening ----------------------------------------------------------------------------------------


def test_a_dataset_is_opened_again_by_its_name_and_its_key_is_checked(dataset: Opened) -> None:
    dataset(key=["id"]).write_delta(many(3))
    assert read(dataset()) == [(0, "old"), (1, "old"), (2, "old")]
    with pytest.raises(DeltaError, match="has the key"):
        dataset(key=["name"])
    with pytest.raises(HeadwaterError, match="There is no dataset"):
        dataset("crm.others")
    with pytest.raises(InvalidInputError, match="not among the columns"):
        dataset("crm.others", key=["id"]).write_delta([{"x": 1}])


def test_a_table_is_adopted_with_its_rows_and_history(dataset: Opened, lake: Lake, con: Any) -> None:
    con.execute("CREATE SCHEMA crm; CREATE TABLE crm.people (id BIGINT NOT NULL, name VARCHAR NOT NULL)")
    con.execute("INSERT INTO crm.people SELECT range, 'old' FROM range(30)")
    con.execute("INSERT INTO crm.people VALUES (30, 'inlined')")
    at = lake.snapshot().id
    with pytest.raises(AlreadyExistsError, match="already a table"):
        dataset(key=["id"], schema={"id": "int64"})
    one = dataset(key=["id"], adopt=True)
    assert len(seen(con)) == 31
    one.write_delta(people((1, "new"), (30, "new"), (31, "new")))
    with pytest.raises(InvalidInputError):
        one.write_delta([{"id": 1, "name": None}])
    one.tombstone(2, actor="a", reason="r")
    done = compacted(one, con)
    assert (done.base_rows, done.final_rows, done.rows_updated) == (31, 31, 2)
    assert con.execute(f"SELECT count(*) FROM crm.people AT (VERSION => {at})").fetchall() == [(31,)]
    con.execute("CREATE TABLE crm.twins AS SELECT 1 AS id FROM range(2)")
    with pytest.raises(DeltaError, match="several rows of one key"):
        dataset("crm.twins", key=["id"], adopt=True)
