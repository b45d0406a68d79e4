"""Who shares waves with whom, and whom a change reaches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from headwater.refresh.model import (
    Action,
    Definition,
    Frontier,
    RefreshResult,
    SourcePosition,
    Status,
    StoredStage,
    StreamTable,
)
from headwater.scheduler.changes import SnapshotChange, TableChanges, changed_tables
from headwater.scheduler.graph import groups, positions
from headwater.scheduler.stream_part import StreamPart
from headwater.scheduler.work import Seen, Task
from headwater.typedefs import TableName

NOW = datetime.now(UTC)


def stream(
    name: str,
    storage: int,
    sources: dict[int, int],
    schedule: str | None = "on change",
    above: tuple[str, ...] = (),
    status: Status = Status.ACTIVE,
) -> StreamTable:
    """A stream table whose id is its name; `sources` are table ids with the snapshots seen."""
    return StreamTable(
        name,
        Definition(TableName("main", name), "SELECT 1", schedule=schedule),
        status,
        (StoredStage("@", storage, TableName("_headwater", name)),),
        (("a", "int"),),
        above,
        Frontier(1, 1, NOW, tuple(SourcePosition(each, f"t{each}", at) for each, at in sources.items())),
    )


class Catalog:
    """Stream tables that are only told of, and refreshes that are only counted."""

    def __init__(self, *streams: StreamTable):
        self.streams = list(streams)
        self.asked: list[list[str]] = []
        self.failing: set[str] = set()

    def all(self) -> list[StreamTable]:
        return self.streams

    def history(self, name: TableName | None = None, limit: int = 100) -> list[Any]:
        return []

    def refresh(self, names: Any) -> list[RefreshResult]:
        self.asked.append(list(names))
        return [self._result(name) for name in names]

    def _result(self, name: str) -> RefreshResult:
        if name in self.failing:
            return RefreshResult(
                name, Action.FAILED, "", "broken", "It broke.", error={"message": "It broke."}
            )
        return RefreshResult(name, Action.INCREMENTAL, "rows", "", "")


def part_of(catalog: Catalog, changes: TableChanges | None = None) -> StreamPart:
    part = StreamPart(catalog, catalog, changes or TableChanges())
    part.load()
    return part


def due(part: StreamPart, now: datetime | None = None) -> list[Task]:
    items = part.items()
    found = (part.due(item, now or datetime.now(UTC)) for item in items)
    return [task for task in found if task is not None]


def failing(part: StreamPart) -> dict[str, tuple[int, str]]:
    return {name: why for item in part.items() for name, why in part.failing(item).items()}


def work(part: StreamPart, now: datetime | None = None) -> None:
    for task in due(part, now):
        task.done(task.run())


def test_stream_tables_that_read_each_other_are_one_group() -> None:
    found = groups(
        [
            stream("b", 2, {}, above=("a",)),
            stream("a", 1, {}),
            stream("c", 3, {}, above=("b", "x")),
            stream("d", 4, {}),
        ]
    )
    assert {leader: sorted(s.id for s in members) for leader, members in found.items()} == {
        "a": ["a", "b", "c"],
        "d": ["d"],
    }


def test_a_change_passes_through_what_is_refreshed_in_the_same_wave() -> None:
    streams = {
        s.id: s
        for s in (
            stream("low", 11, {1: 5}, "downstream"),
            stream("slow", 12, {2: 4}, "1h"),
            stream("top", 13, {11: 6, 12: 7, 3: 8}, above=("low", "slow")),
        )
    }
    assert positions(streams, "top") == {11: 6, 12: 7, 3: 8, 1: 5}


def test_on_change_refreshes_what_a_change_reaches_and_nothing_twice() -> None:
    catalog = Catalog(stream("a", 11, {1: 5}), stream("b", 12, {2: 5}))
    changes = TableChanges()
    part = part_of(catalog, changes)
    part.see(Seen(NOW, 5))
    work(part)  # when the service starts, each is looked at once
    assert sorted(catalog.asked) == [["main.a"], ["main.b"]]
    work(part)
    assert len(catalog.asked) == 2
    new = [SnapshotChange(6, NOW, frozenset({1}))]
    changes.note(new)
    part.see(Seen(NOW, 6, new))
    assert part.lags(NOW + timedelta(seconds=3)) == {"main.a": 3.0, "main.b": 0.0}
    work(part)
    work(part)
    assert catalog.asked[2:] == [["main.a"]]


def test_downstream_is_never_due_by_itself() -> None:
    catalog = Catalog(stream("alone", 11, {1: 5}, "downstream"))
    part = part_of(catalog)
    assert part.items() == []
    catalog.streams.append(stream("reader", 12, {11: 5}, "5s", above=("alone",)))
    work(part)
    assert catalog.asked == [["main.reader"]]


def test_what_failed_waits_with_what_reads_it_and_the_others_go_on() -> None:
    catalog = Catalog(
        stream("a", 11, {1: 5}, "5s"),
        stream("b", 12, {11: 5, 2: 5}, "5s", above=("a",)),
        stream("c", 13, {2: 5}, "5s", above=("other",)),
        stream("other", 14, {2: 5}, None),
    )
    catalog.failing = {"main.a"}
    part = part_of(catalog)
    work(part)
    assert sorted(map(sorted, catalog.asked)) == [["main.a", "main.b"], ["main.c"]]
    assert failing(part) == {"main.a": (1, "It broke.")}
    catalog.asked.clear()
    later = datetime.now(UTC) + timedelta(seconds=0.2)
    assert due(part, later) == []
    catalog.failing = set()
    work(part, datetime.now(UTC) + timedelta(seconds=2))  # after the wait, before the next beat
    assert catalog.asked == [["main.a"]]
    assert failing(part) == {}


def test_suspended_stream_tables_are_left_alone() -> None:
    catalog = Catalog(stream("a", 11, {1: 5}, "5s", status=Status.SUSPENDED))
    assert part_of(catalog).items() == []


def test_compactions_are_no_changes() -> None:
    assert changed_tables("inlined_insert:3,merge_adjacent:4,inserted_into_table:5,deleted_from_table:5") == {
        3,
        5,
    }
    assert changed_tables(None) == frozenset()
