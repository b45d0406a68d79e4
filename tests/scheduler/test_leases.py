"""Leases on a real PostgreSQL, with clocks that the tests turn where that is possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from headwater.lake.connection import Database
from headwater.lake.lake import Lake
from headwater.lake.own import ensure_own_tables
from headwater.scheduler.leases import Leases, Process, preferred, running_services


@pytest.fixture
def start(lake: Lake) -> Iterator[Callable[..., Leases]]:
    """Starts processes' leases, without the thread that renews them: the test does."""
    begun: list[Leases] = []

    def make(seconds: float = 30.0, **options: object) -> Leases:
        leases = Leases(Database(lake.dsn), seconds, attended=False, **options)  # type: ignore[arg-type]
        leases.start()
        begun.append(leases)
        return leases

    yield make
    for leases in begun:
        leases.stop()
        leases.db.close()


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_process_holds_an_item_until_it_gives_it_back(start: Callable[..., Leases]) -> None:
    first, second = start(), start()
    first.want(["a", "b"])
    until(lambda: first.held() == {"a", "b"})
    second.want(["a", "b", "c"])
    until(lambda: second.held() == {"c"})
    first.give_back(["a"])
    first.want(["b"])
    assert not first.holds("a")
    until(lambda: second.held() == {"a", "c"})
    assert first.holds("b")


def test_a_process_that_ends_leaves_everything_at_once(start: Callable[..., Leases], lake: Lake) -> None:
    first, second = start(), start()
    first.want(["a"])
    until(lambda: first.holds("a"))
    second.want(["a"])
    first.stop()
    until(lambda: second.holds("a"))
    alive = running_services(lake.db, ensure_own_tables(lake.db))
    assert [process.id for process in alive] == [second.id]


def test_what_was_paused_beyond_its_lease_holds_nothing(start: Callable[..., Leases]) -> None:
    paused = Leases(start().db, 1.0)
    paused._lake = start()._lake
    paused.want(["a"])
    paused.round()
    assert paused.holds("a")
    other = start(1.0)
    other.want(["a"])
    time.sleep(0.3)
    assert not other.holds("a")
    until(lambda: other.holds("a"), 3.0)
    assert not paused.holds("a")  # by its own clock, before it asks anybody
    paused.round()
    assert not paused.holds("a")
    assert other.holds("a")


def test_a_hung_process_is_not_renewed(start: Callable[..., Leases]) -> None:
    moved = 0.0
    hung = Leases(start().db, 1.0, clock=lambda: time.monotonic() + moved)
    hung.want(["a"])
    hung.start()
    until(lambda: hung.holds("a"))
    moved = 100.0  # its loop was last seen long ago
    other = start(1.0)
    other.want(["a"])
    until(lambda: other.holds("a"))
    hung.stop()


def test_items_are_spread_evenly_and_few_move_when_a_process_comes() -> None:
    names = [f"streams:{number}" for number in range(300)]
    two = [Process("a"), Process("b")]
    three = [*two, Process("c")]
    before = {name: preferred(name, [name], two) for name in names}
    after = {name: preferred(name, [name], three) for name in names}
    counts = [list(after.values()).count(process.id) for process in three]
    assert min(counts) > 60
    assert all(after[name] in (before[name], "c") for name in names)


def test_a_limited_process_is_only_given_what_it_does() -> None:
    processes = [Process("a"), Process("b", frozenset({"sales.x"}))]
    assert {preferred(f"streams:{n}", ["sales.y"], processes) for n in range(50)} == {"a"}
    assert {preferred(f"streams:{n}", ["z", "sales.x"], processes) for n in range(50)} == {"a", "b"}
    assert preferred("streams:1", ["sales.y"], [processes[1]]) is None
