"""Removing files that left the catalog: not too early, not twice, and nobody else's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import StorageUnavailableError
from headwater.lake.lake import Lake
from headwater.lake.maintenance import cleaning
from headwater.lake.writing.stored_files import stage_stored_file
from tests.support import catalog_rows


def scheduled(lake: Lake) -> int:
    return len(catalog_rows(lake.dsn, "ducklake_files_scheduled_for_deletion"))


def stored(lake: Lake) -> set[str]:
    return {file.location for file in lake.store.list(lake.data_path)}


@pytest.fixture
def old_files(lake: Lake) -> Lake:
    """A lake of which two files are scheduled."""
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int64"})
    for _ in range(3):
        with lake.transaction() as tx:
            tx.append("t", [{"a": i} for i in range(50)])
    with lake.transaction() as tx:
        tx.truncate("t")
        tx.append("t", [{"a": i} for i in range(20)])
    lake.expire(keep_last=1)
    return lake


def test_files_go_after_the_grace_period(old_files: Lake) -> None:
    lake = old_files
    assert (len(stored(lake)), scheduled(lake)) == (4, 3)
    result = lake.cleanup()
    assert (result.files, result.waiting) == (0, 3)
    told = lake.cleanup(older_than=None, dry_run=True)
    assert (told.files, len(stored(lake))) == (3, 4)
    assert told.bytes > 0
    done = lake.cleanup(older_than=timedelta(0))
    assert (done.files, len(stored(lake)), scheduled(lake)) == (3, 1, 0)
    assert lake.read("t").num_rows == 20
    assert lake.cleanup(older_than=None).files == 0


def test_files_that_a_reader_may_need_wait_for_it(old_files: Lake) -> None:
    lake = old_files
    with lake.transaction() as tx:
        tx.append("t", [{"a": i} for i in range(30)])
    with lake.lease(holder="slow"):
        with lake.transaction() as tx:
            tx.truncate("t")
        lake.expire(keep_last=1)  # the snapshot of the lease stays
        before = scheduled(lake)
        result = lake.cleanup(older_than=None)
        assert (result.files, result.waiting) == (3, before - 3)
    assert lake.expire(keep_last=1).files == 2
    assert lake.cleanup(older_than=None).files == 2
    assert stored(lake) == set()


def test_what_cannot_be_removed_is_told_and_tried_again(
    old_files: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = old_files
    victim = sorted(Path(lake.data_path).rglob("*.parquet"))[0]
    real = type(lake.store).delete_many

    def broken(store: object, locations: list[str]) -> None:
        if str(victim) in locations:
            raise StorageUnavailableError("The store does not answer.")
        real(lake.store, locations)

    monkeypatch.setattr(type(lake.store), "delete_many", broken)
    result = lake.cleanup(older_than=None)
    assert (result.files, result.failed) == (2, (str(victim),))
    assert scheduled(lake) == 1
    monkeypatch.undo()
    assert lake.cleanup(older_than=None).files == 1


def test_registered_files_of_somebody_else_stay(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "theirs.parquet"
    with lake.transaction() as tx:
        table = tx.create_table("t", {"a": "int64"})
    table = lake.table("t")
    field = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": str(table.columns[0].id)})
    pq.write_table(pa.table([pa.array([1, 2, 3])], schema=pa.schema([field])), path)
    with lake.transaction() as tx:
        tx.add_files("t", [stage_stored_file(lake.store, table, str(path), columns=table.columns)])
    with lake.transaction() as tx:
        tx.truncate("t")
    assert lake.expire(older_than=datetime.now(UTC) + timedelta(hours=1)).files == 1
    result = lake.cleanup(older_than=None)
    assert (result.files, result.left) == (0, (str(path),))
    assert path.exists()
    assert scheduled(lake) == 0


def test_a_cleanup_killed_between_a_file_and_its_row_is_done_again(
    old_files: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = old_files

    def killed(_: object, files: list[object]) -> None:
        if files:
            raise KeyboardInterrupt

    monkeypatch.setattr(cleaning, "_forget", killed)
    with pytest.raises(KeyboardInterrupt):
        lake.cleanup(older_than=None)
    monkeypatch.undo()
    assert (len(stored(lake)), scheduled(lake)) == (1, 3)
    assert lake.cleanup(older_than=None).failed == ()
    assert scheduled(lake) == 0
    assert lake.read("t").num_rows == 20
