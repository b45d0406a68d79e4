"""The loop on a real catalog, with parts that are told how to behave."""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.errors import SourceUnavailableError
from headwater.lake.connection import Database
from headwater.lake.lake import Lake
from headwater.scheduler.backoff import Backoff
from headwater.scheduler.changes import SnapshotWatch, TableChanges
from headwater.scheduler.health import HealthServer
from headwater.scheduler.leases import Leases
from headwater.scheduler.logs import log_report, logging_to
from headwater.scheduler.loop import Loop, LoopOptions
from headwater.scheduler.metrics import Metrics
from headwater.scheduler.parts import OutboxPart, SinkPart, SourcePart
from headwater.scheduler.state import RunSummary
from headwater.scheduler.stream_part import StreamPart
from headwater.scheduler.work import Report
from tests.scheduler.test_graph import Catalog, stream


class Sources:
    """Sources that are captured once each time they are told to have something."""

    def __init__(self, lake: Lake, names: Sequence[str], chain: list[str]):
        self.lake, self._names, self.chain = lake, names, chain
        self.waiting: set[str] = set()
        self.broken: set[str] = set()
        self.hold = threading.Event()
        self.hold.set()

    def names(self) -> Sequence[str]:
        return self._names

    def pending(self, name: str) -> bool:
        return name in self.waiting or name in self.broken

    def capture(self, name: str) -> Sequence[Report]:
        self.hold.wait()
        if name in self.broken:
            raise SourceUnavailableError(f"{name} does not answer.")
        self.waiting.discard(name)
        with self.lake.transaction() as tx:
            tx.append("main.orders", [{"id": 1}])
        self.chain.append(f"captured {name}")
        return [Report("source", name, "captured", fields={"rows": 1})]


class Streams(Catalog):
    """Refreshes that only note that they were asked for."""

    def __init__(self, chain: list[str], *streams: Any):
        super().__init__(*streams)
        self.chain = chain

    def refresh(self, names: Any) -> Any:
        self.chain.append(f"refreshed {', '.join(names)}")
        return super().refresh(names)


class Sinks:
    def __init__(self, chain: list[str]):
        self.chain = chain
        self.behind: set[str] = set()

    def names(self) -> Sequence[str]:
        return ["main.a"]

    def pending(self) -> Sequence[str]:
        return list(self.behind)

    def deliver(self, name: str) -> Sequence[Report]:
        self.behind.discard(name)
        self.chain.append(f"delivered {name}")
        return [Report("sink", f"{name}/shop", "delivered")]


class Outboxes:
    def __init__(self, chain: list[str], table: int):
        self.chain, self.table = chain, table

    def followed(self) -> Mapping[str, tuple[int, int]]:
        return {"hook": (self.table, 0)}

    def relay(self, name: str, still_mine: Callable[[], bool]) -> Sequence[Report]:
        assert still_mine()
        self.chain.append(f"relayed {name}")
        return [Report("outbox", name, "relayed", fields={"events": 2})]


class Scene:
    """A service of such parts."""

    def __init__(self, lake: Lake):
        with lake.transaction() as tx:
            tx.create_table("main.orders", {"id": "int64"})
        table = lake.table("main.orders").id
        self.lake = lake
        self.chain: list[str] = []
        self.sources = Sources(lake, ["shop", "crm"], self.chain)
        seen = lake.snapshot().id
        self.streams = Streams(
            self.chain, stream("a", -1, {table: seen}), stream("b", -2, {table: seen}, "1s")
        )
        self.sinks = Sinks(self.chain)
        self.outboxes = Outboxes(self.chain, table)
        self.db = Database(lake.dsn, patience=2.0)
        self.summaries: list[RunSummary] = []

    def make(self, **options: Any) -> Loop:
        changes = TableChanges()
        leases = Leases(self.db, 3.0, standing=options.pop("standing", True))
        self.metrics = Metrics(lambda: self.loop.state)
        parts = [
            OutboxPart(self.outboxes, changes, leases.holds),
            SinkPart(self.sinks),
            StreamPart(self.streams, self.streams, changes, skipped=self.metrics.skipped),
            SourcePart(self.sources),
        ]
        given = LoopOptions(0.05, **{"stop_seconds": 5.0, "backoff": Backoff(0.3, 2.0), **options})
        observers = [self.metrics.observe, log_report]
        self.loop = Loop(SnapshotWatch(self.db), leases, parts, changes, given, observers=observers)
        return self.loop

    def start(self, **options: Any) -> threading.Thread:
        loop = self.make(**options)
        thread = threading.Thread(target=lambda: self.summaries.append(loop.run()), daemon=True)
        thread.start()
        return thread

    def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.chain
            time.sleep(0.01)

    def stop(self, thread: threading.Thread) -> RunSummary:
        self.loop.stop()
        thread.join(10)
        assert not thread.is_alive()
        return self.summaries[-1]


@pytest.fixture
def scene(lake: Lake) -> Iterator[Scene]:
    made = Scene(lake)
    yield made
    made.sources.hold.set()
    made.db.close()


def test_a_change_passes_from_the_source_to_the_consumers(scene: Scene) -> None:
    thread = scene.start()
    scene.until(lambda: "refreshed main.a" in scene.chain and "relayed hook" in scene.chain)
    scene.chain.clear()
    scene.sinks.behind.add("main.a")
    scene.sources.waiting.add("shop")
    scene.until(lambda: {"delivered main.a", "relayed hook"} <= set(scene.chain))
    scene.until(lambda: "refreshed main.a" in scene.chain)
    assert scene.chain.index("captured shop") < scene.chain.index("refreshed main.a")
    summary = scene.stop(thread)
    assert summary.actions["source", "captured"] == 1
    assert not summary.failed
    assert not summary.abandoned


def test_what_fails_waits_longer_each_time_and_stops_nobody(scene: Scene) -> None:
    scene.sources.broken = {"crm"}
    scene.streams.failing = {"main.b"}
    thread = scene.start()
    for _ in range(2):
        before = scene.chain.count("captured shop")
        scene.sources.waiting.add("shop")
        scene.until(lambda before=before: scene.chain.count("captured shop") > before)  # type: ignore[misc]
        time.sleep(0.5)
    scene.until(lambda: "source crm" in scene.loop.state.failing and "main.b" in scene.loop.state.failing)
    assert scene.loop.state.failing["source crm"] == "crm does not answer."
    scene.sources.broken, scene.streams.failing = set(), set()
    scene.until(lambda: not scene.loop.state.failing)
    summary = scene.stop(thread)
    assert 2 <= summary.actions["source", "FAILED"] <= 6
    assert summary.failed == {}


def test_connections_that_are_cut_are_no_failure(scene: Scene) -> None:
    thread = scene.start()
    scene.until(lambda: bool(scene.loop.state.items))
    for _ in range(5):
        with psycopg.connect(scene.lake.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        before = scene.chain.count("captured shop")
        scene.sources.waiting.add("shop")
        scene.until(lambda before=before: scene.chain.count("captured shop") > before)  # type: ignore[misc]
    summary = scene.stop(thread)
    assert not summary.failed


def test_late_runs_are_skipped(scene: Scene) -> None:
    slow = scene.streams.refresh

    def refresh(names: Any) -> Any:
        if names == ["main.b"]:
            time.sleep(2.3)
        return slow(names)

    scene.streams.refresh = refresh  # type: ignore[method-assign]
    thread = scene.start()
    time.sleep(5.5)
    summary = scene.stop(thread)
    # Due each second, each run takes 2.3: begun at 0, 3 and, at the end, 6.
    assert scene.chain.count("refreshed main.b") == 2
    assert 'headwater_skipped_runs_total{stream_table="main.b"} 4.0' in scene.metrics.text().decode()
    assert not summary.abandoned


def test_a_source_waits_for_a_refresh_but_not_for_long(scene: Scene) -> None:
    begun: list[tuple[str, float]] = []
    pending, refresh = scene.sources.pending, scene.streams.refresh

    def asked(name: str) -> bool:
        begun.append((name, time.monotonic()))
        return pending(name)

    def slow(names: Any) -> Any:
        if names == ["main.b"]:
            begun.append(("refresh", time.monotonic()))
            time.sleep(1.6)
            begun.append(("refreshed", time.monotonic()))
        return refresh(names)

    scene.sources.pending = asked  # type: ignore[method-assign]
    scene.streams.refresh = slow  # type: ignore[method-assign]
    thread = scene.start()
    scene.until(lambda: [name for name, _ in begun].count("refreshed") >= 2)
    scene.stop(thread)
    names = [name for name, _ in begun]
    first = names.index("refresh", names.index("refreshed"))  # the second, when all goes its usual way
    during = begun[first + 1 : names.index("refreshed", first)]
    for source in ("shop", "crm"):
        assert 2 <= sum(name == source for name, _ in during) <= 4  # asked each 0.05 s otherwise


def test_work_that_does_not_end_is_abandoned_in_bounded_time(scene: Scene) -> None:
    thread = scene.start(stop_seconds=0.5)
    scene.sources.hold.clear()
    scene.sources.waiting.add("shop")
    scene.until(lambda: "source shop" in scene.loop.working_on())
    began = time.monotonic()
    summary = scene.stop(thread)
    assert time.monotonic() - began < 6
    assert summary.abandoned == ("source shop",)


def test_once_does_what_is_due_in_order_and_ends(scene: Scene) -> None:
    scene.sources.waiting = {"shop", "crm"}
    scene.sinks.behind.add("main.a")
    summary = scene.make(standing=False).run_once()
    kinds = [line.split()[0] for line in scene.chain]
    assert kinds == sorted(kinds, key=["captured", "refreshed", "delivered", "relayed"].index)
    assert set(kinds) == {"captured", "refreshed", "delivered", "relayed"}
    assert scene.chain.count("refreshed main.a") == 1
    assert summary.elsewhere == ()
    other = scene.start()
    scene.until(lambda: len(scene.loop.state.items) == 6 and all(i.held for i in scene.loop.state.items))
    running = scene.loop
    scene.chain.clear()
    again = scene.make(standing=False).run_once()
    assert sorted(again.elsewhere) == [
        "outbox hook",
        "sink main.a",
        "source crm",
        "source shop",
        "streams main.a",
        "streams main.b",
    ]
    scene.loop = running
    scene.stop(other)


def test_two_processes_share_the_work_and_one_takes_over(scene: Scene) -> None:
    first = scene.start()
    one = scene.loop
    second = scene.start()
    two = scene.loop

    def shared() -> bool:
        held = [{(i.kind, i.names) for i in loop.state.items if i.held} for loop in (one, two)]
        return len(held[0]) + len(held[1]) == 6 and not held[0] & held[1] and bool(held[0] and held[1])

    # Six items: that one process is given none of them has a chance of one in 32.
    scene.until(lambda: one.state.processes == 2 and two.state.processes == 2)
    scene.until(lambda: shared() or _all_with_one(one, two))
    scene.loop = one
    scene.stop(first)
    scene.until(lambda: sum(i.held for i in two.state.items) == 6)
    scene.loop = two
    scene.stop(second)


def _all_with_one(one: Loop, two: Loop) -> bool:
    return sorted(sum(i.held for i in loop.state.items) for loop in (one, two)) == [0, 6]


def test_health_and_metrics_are_told_over_http(scene: Scene) -> None:
    thread = scene.start()
    server = HealthServer("127.0.0.1", 0, lambda: scene.loop.state, scene.metrics, 5.0)
    server.start()
    scene.until(lambda: all(i.held for i in scene.loop.state.items) and bool(scene.loop.state.items))
    code, body = fetch(f"{server.url}/health")
    told = json.loads(body)
    assert (code, told["status"], told["late"], told["failing"]) == (200, "ok", {}, {})
    scene.sources.waiting.add("shop")
    scene.until(lambda: "captured shop" in scene.chain)
    scene.sources.broken = {"crm"}
    scene.until(lambda: bool(scene.loop.state.failing))
    code, body = fetch(f"{server.url}/health")
    assert code == 503
    assert json.loads(body)["failing"] == {"source crm": "crm does not answer."}
    assert fetch(f"{server.url}/else")[0] == 404
    code, text = fetch(f"{server.url}/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["headwater_captures_total", ("ok", "shop")] == 1
    assert samples["headwater_capture_rows_total", ("shop",)] == 1
    assert samples["headwater_lease_held", ("hook", "outbox")] == 1
    assert samples["headwater_lag_seconds", ("main.a",)] >= 0
    assert samples["headwater_refreshes_total", ("INCREMENTAL", "main.a")] >= 1
    assert samples["headwater_processes", ()] == 1
    assert "headwater_refresh_seconds" in families
    server.stop()
    scene.stop(thread)


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_log_has_a_line_of_fields_for_each_thing_done() -> None:
    out = StringIO()
    with logging_to(out, "json"):
        log_report(
            Report("streams", "sales.x", "INCREMENTAL", True, 0.1234, {"rows_in": 3, "reason": "It is so."})
        )
        log_report(Report("streams", "sales.x", "NO_DATA"))
        log_report(Report("source", "shop", "FAILED", False, error={"code": "source", "message": "No."}))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["kind"], line["level"]) for line in lines] == [("refresh", "info"), ("capture", "warning")]
    assert lines[0]["rows_in"] == 3
    assert datetime.fromisoformat(lines[0]["time"]).tzinfo is not None
    assert lines[1]["error"]["code"] == "source"
    text = StringIO()
    with logging_to(text, "text"):
        log_report(Report("streams", "sales.x", "INCREMENTAL", True, 0.1, {"reason": "It is so."}))
    assert text.getvalue().endswith(
        'kind=refresh name=sales.x action=INCREMENTAL seconds=0.1 reason="It is so."\n'
    )
    assert logging.getLogger("headwater").handlers == []
