"""Files that killed writers left, and those that only look as if."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError, InvalidInputError
from headwater.lake.lake import Lake
from headwater.lake.writing import draft as drafts
from headwater.lake.writing.stored_files import stage_stored_file

ROWS = [{"a": i} for i in range(50)]


def age(path: Path, **ago: float) -> None:
    then = time.time() - timedelta(**ago).total_seconds()
    os.utime(path, (then, then))


def files(lake: Lake) -> set[Path]:
    return {path for path in Path(lake.data_path).rglob("*") if path.is_file()}


@pytest.fixture
def left_behind(lake: Lake) -> tuple[Lake, Path]:
    """A lake with a committed file and one that a killed writer left; both are old."""
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int64"})
        tx.append("t", ROWS)
    known = files(lake)
    killed = lake.transaction()
    killed.append("t", ROWS)
    (orphan,) = files(lake) - known
    for path in files(lake):
        age(path, days=2)
    return lake, orphan


def test_what_a_killed_writer_left_goes(left_behind: tuple[Lake, Path]) -> None:
    lake, orphan = left_behind
    known = files(lake) - {orphan}
    told = lake.remove_orphans()
    assert (told.files, told.locations, told.dry_run) == (1, (str(orphan),), True)
    assert orphan.exists()
    done = lake.remove_orphans(dry_run=False)
    assert (done.files, done.failed) == (1, ())
    assert files(lake) == known
    assert lake.read("t").num_rows == 50


def test_young_files_wait_and_nobody_may_be_too_hasty(left_behind: tuple[Lake, Path]) -> None:
    lake, orphan = left_behind
    age(orphan, hours=3)
    result = lake.remove_orphans(dry_run=False)
    assert (result.files, result.waiting) == (0, 1)
    with pytest.raises(InvalidInputError, match="under way"):
        lake.remove_orphans(older_than=timedelta(minutes=5), dry_run=False)
    assert lake.remove_orphans(older_than=timedelta(hours=2), dry_run=False).files == 1


def test_files_of_others_stay(left_behind: tuple[Lake, Path]) -> None:
    lake, orphan = left_behind
    theirs = Path(lake.data_path) / "main" / "t" / "report.parquet"
    theirs.write_bytes(b"x")
    note = Path(lake.data_path) / "README"
    note.write_bytes(b"x")
    other = Lake.open(lake.dsn, data_path=lake.data_path, metadata_schema="second")
    with other.transaction() as tx:
        tx.create_table("t", {"a": "int64"})
        tx.append("t", ROWS)
    for path in files(lake):
        age(path, days=2)
    assert lake.remove_orphans(dry_run=False).locations == (str(orphan),)
    assert theirs.exists()
    assert note.exists()
    assert other.read("t").num_rows == 50
    other.close()


def test_a_slow_transaction_never_commits_a_file_that_was_removed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"a": "int64"})
    slow = lake.transaction()
    slow.append("t", ROWS)
    for path in files(lake):
        age(path, days=2)
    assert lake.remove_orphans(dry_run=False).files == 1
    monkeypatch.setattr(drafts.Draft, "age", timedelta(days=2))
    with pytest.raises(HeadwaterError):
        slow.commit()
    assert lake.read("t").num_rows == 0


def test_a_file_that_the_catalog_spells_otherwise_stays(left_behind: tuple[Lake, Path]) -> None:
    lake, orphan = left_behind
    table = lake.table("t")
    with lake.transaction() as tx:
        staged = stage_stored_file(lake.store, table, str(orphan), columns=table.columns)
        tx.add_files("t", [replace(staged, path=f"file://{orphan}", path_is_relative=False)])
    assert lake.remove_orphans(dry_run=False).files == 0
    assert lake.read("t").num_rows == 100
