"""Expiring snapshots: what goes, what stays and why, and that both readers agree on the rest."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, cast

import pytest

from headwater.errors import InvalidInputError, SnapshotError
from headwater.lake.health.check import check_health
from headwater.lake.lake import Lake
from headwater.lake.maintenance.model import Hold
from tests.support import catalog_rows, catalog_tables, duck


def fill(lake: Lake) -> None:
    """Files, deletes, inlined rows, a dropped table, a renamed one, a view that was replaced."""
    with lake.transaction() as tx:  # 1
        tx.create_table("t", {"a": "int64", "b": "varchar"})
        tx.create_table("gone", {"a": "int64"})
        tx.create_view("v", "SELECT 1 AS x")
    with lake.transaction() as tx:  # 2
        tx.append("t", [{"a": i, "b": "x"} for i in range(100)])
        tx.append("gone", [{"a": i} for i in range(50)])
    with lake.transaction() as tx:  # 3
        tx.append("t", [{"a": 1000, "b": "inlined"}])
        tx.append("gone", [{"a": 1}])
    with lake.transaction() as tx:  # 4
        tx.delete("t", "a < 50")
        tx.drop_table("gone")
    with lake.transaction() as tx:  # 5
        tx.delete("t", "a = 1000")
        tx.create_view("v", "SELECT 2 AS x", or_replace=True)
    with lake.transaction() as tx:  # 6
        tx.rename_table("t", "u")
    with lake.transaction() as tx:  # 7
        tx.delete("u", "a < 100")
    with lake.transaction() as tx:  # 8
        tx.append("u", [{"a": i, "b": "y"} for i in range(200, 220)])


def rows(lake: Lake, con: Any, at: int) -> list[int]:
    name = "u" if at >= 6 else "t"
    mine: list[int] = sorted(cast(Any, lake.read(name, at).column("a").to_pylist()))
    theirs = con.execute(f"SELECT a FROM {name} AT (VERSION => {at}) ORDER BY a").fetchall()
    assert mine == [row[0] for row in theirs]
    return mine


def test_what_no_snapshot_sees_goes_and_the_rest_reads_as_before(lake: Lake) -> None:
    fill(lake)
    con = duck(lake.dsn)
    before = {at: rows(lake, con, at) for at in range(4, 9)}
    con.close()
    result = lake.expire(versions=[0, 1, 2, 3])
    assert result.expired == (0, 1, 2, 3)
    assert (result.tables, result.files, result.remaining) == (1, 1, 5)
    assert [s.id for s in lake.snapshots()] == [8, 7, 6, 5, 4]
    assert not [
        name for name in catalog_tables(lake.dsn) if "_2" in name
    ]  # inlined rows of the dropped table
    con = duck(lake.dsn)
    assert {at: rows(lake, con, at) for at in range(4, 9)} == before
    result = lake.expire(keep_last=1)
    assert result.expired == (4, 5, 6, 7)
    assert result.inlined_rows == 1
    con.close()
    con = duck(lake.dsn)
    assert rows(lake, con, 8) == before[8]
    assert con.execute("SELECT x FROM v").fetchall() == [(2,)]
    assert len(catalog_rows(lake.dsn, "ducklake_view")) == 1
    con.execute("ALTER TABLE u ADD COLUMN c INTEGER")
    con.execute("INSERT INTO u VALUES (1, 'z', 2)")
    con.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    assert sorted(cast(Any, lake.read("u").column("a").to_pylist())) == sorted([*before[8], 1])
    assert check_health(lake) == []
    con.close()


def test_age_and_number_narrow_each_other(lake: Lake) -> None:
    fill(lake)
    assert lake.expire(older_than=timedelta(days=1)).expired == ()
    assert lake.expire(older_than=timedelta(0), keep_last=3, dry_run=True).expired == (0, 1, 2, 3, 4, 5)
    moment = lake.snapshot(4).time
    assert lake.expire(older_than=moment).expired == (0, 1, 2, 3)
    assert lake.expire(older_than=timedelta(0)).expired == (4, 5, 6, 7)
    assert lake.expire(older_than=timedelta(0)).expired == ()


def test_a_dry_run_says_what_would_happen_and_does_nothing(lake: Lake) -> None:
    fill(lake)
    told = lake.expire(keep_last=1, dry_run=True)
    assert len(lake.snapshots()) == 9
    done = lake.expire(keep_last=1)
    assert (told.expired, told.files, told.bytes, told.inlined_rows) == (
        done.expired,
        done.files,
        done.bytes,
        done.inlined_rows,
    )


def test_what_somebody_needs_stays_and_the_result_says_who(lake: Lake) -> None:
    fill(lake)
    stream = Hold(5, "stream table sales.revenue")
    with lake.lease(2, holder="a report"):
        result = lake.expire(keep_last=1, holds=[stream, Hold(6, "sink x")])
    assert result.expired == (0, 1, 3, 4)
    assert sorted(map(str, result.kept)) == [
        "kept 1 snapshot: reader a report is at 2",
        "kept 3 snapshots: stream table sales.revenue is at 5",
    ]
    assert lake.expire(keep_last=1, holds=[stream]).expired == (2,)
    assert lake.read("t", 5).num_rows == 50


def test_a_lease_ends_by_itself_when_its_reader_is_gone(lake: Lake) -> None:
    fill(lake)
    abandoned = lake.lease(2, seconds=0.2, holder="killed")
    abandoned._take()
    assert lake.expire(versions=[1, 3], dry_run=True).expired == (1, 3)
    assert [kept.count for kept in lake.expire(versions=[2]).kept] == [1]
    time.sleep(0.3)
    assert lake.expire(versions=[2]).expired == (2,)
    with pytest.raises(SnapshotError), lake.lease(2):
        pass


def test_a_lease_is_renewed_while_its_block_runs(lake: Lake) -> None:
    fill(lake)
    with lake.lease(2, seconds=0.3):
        time.sleep(0.7)
        assert lake.expire(versions=[2]).expired == ()
    assert lake.expire(versions=[2]).expired == (2,)


@pytest.mark.parametrize("given", [{}, {"keep_last": 0}, {"versions": [1], "keep_last": 2}])
def test_unclear_wishes_are_refused(lake: Lake, given: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        lake.expire(**given)  # type: ignore[arg-type]


def test_the_latest_and_the_unknown_are_refused(lake: Lake) -> None:
    for version in (0, 77):
        with pytest.raises(SnapshotError):
            lake.expire(versions=[version])
