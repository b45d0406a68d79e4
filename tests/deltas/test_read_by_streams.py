"""Stream tables that read datasets: they follow deltas and tombstones, and compactions change nothing."""

from __future__ import annotations

from headwater.deltas.dataset import DeltaDataset
from headwater.engine.deltas import Deltas
from headwater.refresh.model import Action
from headwater.refresh.store import StreamStore
from tests.deltas.test_faults import many, people
from tests.refresh.conftest import World, world

__all__ = ["world"]


def test_a_stream_table_follows_a_dataset_incrementally(world: World) -> None:
    deltas = Deltas(world.lake, lambda: world.session, StreamStore(world.lake))
    one = deltas.open("main.people", key=["id"])
    assert isinstance(one, DeltaDataset)
    one.write_delta(many(20))
    one.compact()
    world.make("names", "SELECT name, count(*) AS n FROM people GROUP BY name")
    one.write_delta(people((1, "new"), (2, "new"), (99, "new")))
    one.tombstone([2, 3], actor="a", reason="r")
    assert world.refresh()["names"].action is Action.INCREMENTAL
    world.check()
    one.compact()
    done = world.refresh()["names"]
    assert (done.rows_inserted, done.rows_deleted) == (0, 0)
    world.check()
    readers = [found for found in one.erasure_report(3).findings if found.store == "reader"]
    assert [found.place for found in readers] == ["stream table main.names"]
