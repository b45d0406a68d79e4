"""Logs of sinks that accumulate: compacted while refreshes go on, and never shown otherwise than before."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.deltas import verifying
from headwater.deltas.accumulated import AccumulatedLog
from headwater.engine.deltas import Deltas
from headwater.errors import DeltaError, InvalidInputError
from headwater.refresh.store import StreamStore
from tests.refresh.conftest import World, world

__all__ = ["world"]

_LOG = "_headwater.main__doubled__sink_ducklake"


@pytest.fixture
def log(world: World) -> AccumulatedLog:
    """A stream table without a key that accumulates, and its log."""
    world.run("CREATE TABLE t (a INTEGER, s VARCHAR, u UUID)")
    _insert(world, [1, 1, 2, None])
    world.make("doubled", "SELECT a * 2 AS a, s, u FROM t", ducklake_sink_mode="accumulate")
    found = Deltas(world.lake, lambda: world.session, StreamStore(world.lake)).open("doubled")
    assert isinstance(found, AccumulatedLog)
    return found


def _insert(world: World, values: list[int | None]) -> None:
    listed = ", ".join(f"({'NULL' if v is None else v}, 'x', '{v or 0:032d}'::UUID)" for v in values)
    world.run(f"INSERT INTO t VALUES {listed}")


def _change(world: World) -> None:
    for statement in ("DELETE FROM t WHERE a = 2", "UPDATE t SET s = 'y' WHERE a = 1"):
        world.run(statement)
        world.refresh()
    _insert(world, [2, 2])
    world.refresh()


def _logged(world: World) -> list[tuple[Any, ...]]:
    return list(world.con.execute(f"SELECT _op, count(*) FROM {_LOG} GROUP BY ALL ORDER BY ALL").fetchall())


@pytest.mark.parametrize("engine", ["driver", "spark"])
def test_pairs_that_cancel_go_and_the_result_stays(world: World, log: AccumulatedLog, engine: Any) -> None:
    _change(world)
    before = world.rows("FROM doubled")
    assert dict(_logged(world))["delete"] == 3
    done = log.compact(engine=engine)
    assert (done.delta_rows, done.final_rows, done.rows_dropped_by_tombstones) == (8, 5, 3)
    assert _logged(world) == [("insert", 5)]
    assert world.rows("FROM doubled") == before
    assert sorted(map(str, log.read().collect())) == sorted(
        map(str, log.read(done.read_snapshot_id).collect())
    )
    world.check()
    again = log.compact(engine=engine)
    assert (again.outcome, again.snapshot_id) == ("nothing", None)
    _change(world)
    world.check()
    assert log.compactions()[0].snapshot_id == done.snapshot_id


def test_what_stood_before_a_rebuild_goes_with_the_row_that_says_so(
    world: World, log: AccumulatedLog
) -> None:
    _change(world)
    world.refresh("doubled", full=True)
    stream = StreamStore(world.lake).all()[0]
    columns = "a, s, u, _op, _sequence, _refresh_id, _committed_at"
    world.run(
        f"INSERT INTO {_LOG} SELECT NULL, NULL, NULL, 'truncate', 1000000, 'r', now()",
        f"INSERT INTO {_LOG} SELECT a, s, u, 'insert', 1000001, 'r', now() FROM doubled LIMIT 0",
        f"INSERT INTO {_LOG} ({columns}) VALUES (7, 'z', NULL, 'insert', 1000002, 'r', now())",
    )
    assert stream.name.name == "doubled"
    done = log.compact()
    assert (done.final_rows, done.rows_dropped_by_tombstones) == (1, 0)
    assert _logged(world) == [("insert", 1)]
    assert world.con.execute("FROM doubled").fetchall() == [(7, "z", None)]


def test_a_refresh_that_commits_during_compaction_is_kept(
    world: World, log: AccumulatedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _change(world)
    verified = verifying.StoredFiles.check_files

    def meanwhile(*args: Any) -> None:
        verified(*args)
        monkeypatch.undo()
        _insert(world, [9])
        world.refresh()

    monkeypatch.setattr(verifying.StoredFiles, "check_files", meanwhile)
    done = log.compact()
    assert done.snapshot_id is not None
    assert done.read_snapshot_id is not None
    assert done.snapshot_id > done.read_snapshot_id + 1
    assert (18,) in [row[:1] for row in world.con.execute("FROM doubled").fetchall()]
    world.check()


def test_a_log_is_not_written_by_hand(world: World, log: AccumulatedLog) -> None:
    with pytest.raises(DeltaError, match="cannot be written to"):
        log.write_delta([{"a": 1}])
    with pytest.raises(DeltaError, match="cannot be erased from"):
        log.tombstone(1, actor="a", reason="r")
    deltas = Deltas(world.lake, lambda: world.session, StreamStore(world.lake))
    with pytest.raises(InvalidInputError, match="neither a key"):
        deltas.open("doubled", key=["a"])
    world.make("plain", "SELECT a FROM t")
    with pytest.raises(DeltaError, match="keeps no log"):
        deltas.open("plain")
