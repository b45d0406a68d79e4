"""Relaying the changes of a stored result, without Spark: the feed, its ids, and webhooks that fail."""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest

from headwater.errors import OutboxError
from headwater.lake.lake import Lake
from headwater.sinks.outbox import Event, Outbox, Position, RelayResult, TargetKind
from headwater.sinks.outbox_feed import Feed
from headwater.sinks.outbox_store import OutboxStore
from headwater.sinks.relay import Relay
from headwater.sinks.relay_targets import TABLE_COLUMNS, RelayTarget, StdoutTarget, TableTarget, WebhookTarget
from headwater.typedefs import TableName
from tests.support import duck

STORAGE = TableName("_headwater", "main__totals")
COLUMNS = {"region": "varchar", "total": "decimal(12,2)", "_hw_rows": "int64", "_hw_shown": "boolean"}
Refreshed = list[tuple[int, str]]


class Hook:
    """A consumer on this machine that takes batches, or does not."""

    def __init__(self, chance: Callable[[], str]):
        self.batches: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fate = chance()
                if fate != "lost":  # taken, whatever the sender is told
                    hook.batches.append((self.headers["Idempotency-Key"], json.loads(body)))
                    hook.headers.append(dict(self.headers))
                if fate == "silent":
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response({"ok": 204, "lost": 503, "unsure": 500}[fate])
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hooks/s3cret"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for _, body in self.batches for event in body["events"]]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Scene:
    """A stored result that changes, and outboxes on it."""

    def __init__(self, lake: Lake):
        self.lake = lake
        self.store = OutboxStore(lake)
        self.store.ensure()
        self.stream_id = str(uuid4())
        self.refreshed: Refreshed = []
        with lake.transaction() as tx:
            tx.create_schema("_headwater")
            tx.create_table(STORAGE, COLUMNS)
        self.table_id = lake.table(STORAGE).id

    def commit(self, work: Callable[[Any], None]) -> int:
        with self.lake.transaction() as tx:
            work(tx)
        assert tx.snapshot_id is not None
        self.refreshed.append((tx.snapshot_id, f"refresh-{tx.snapshot_id}"))
        return tx.snapshot_id

    def feed(self, window: int = 200) -> Feed:
        def refreshes(after: int, count: int) -> Refreshed:
            return [each for each in self.refreshed if each[0] > after][:count]

        return Feed(self.lake, self.stream_id, "main.totals", STORAGE, refreshes, window)

    def events(self, position: Position | None = None, window: int = 200) -> list[Event]:
        found = self.feed(window).events(position or Position(self.table_id, 0))
        return [event for event, _ in found if event is not None]

    def outbox(self, name: str = "out", kind: TargetKind = TargetKind.STDOUT, place: str = "") -> Outbox:
        position = Position(self.table_id, 0)
        made = Outbox(name, self.stream_id, "main.totals", kind, kind.value, place, position)
        self.store.insert(made)
        return made

    def relay(self, name: str, target: RelayTarget, **options: Any) -> RelayResult:
        outbox = self.store.get(name)
        assert outbox is not None
        return Relay(self.store, outbox, self.feed(), target).run(**options)


def row(region: str, total: str, shown: bool = True) -> dict[str, Any]:
    return {"region": region, "total": total, "_hw_rows": 1, "_hw_shown": shown}


def random_changes(scene: Scene, count: int, seed: int) -> None:
    """Snapshots that insert, update, hide and delete."""
    chance = random.Random(seed)
    for number in range(count):

        def work(tx: Any, number: int = number) -> None:
            tx.append(STORAGE, [row(f"r{number}-{i}", f"{i}.50") for i in range(chance.randint(0, 5))])
            if chance.random() < 0.6:
                tx.update(STORAGE, {"total": f"total + {chance.randint(0, 3)}"}, "random() < 0.4")
            if chance.random() < 0.3:
                tx.update(STORAGE, {"_hw_shown": "NOT _hw_shown"}, "random() < 0.2")
            if chance.random() < 0.4:
                tx.delete(STORAGE, "random() < 0.15")

        scene.commit(work)


@pytest.fixture
def scene(lake: Lake) -> Scene:
    return Scene(lake)


@pytest.fixture
def hooks() -> Iterator[list[Hook]]:
    made: list[Hook] = []
    yield made
    for hook in made:
        hook.close()


def applied(events: list[dict[str, Any]]) -> list[str]:
    """What a consumer has that applies events to an empty table."""
    rows: list[str] = []
    for event in events:
        if event["before"] is not None:
            rows.remove(json.dumps(event["before"]))
        if event["after"] is not None:
            rows.append(json.dumps(event["after"]))
    return sorted(rows)


def shown_now(scene: Scene) -> list[str]:
    rows = scene.lake.read(STORAGE, columns=["region", "total"], where="_hw_shown").to_pylist()
    return sorted(json.dumps({"region": r["region"], "total": str(r["total"])}) for r in rows)


def test_events_tell_what_users_see(scene: Scene) -> None:
    first = scene.commit(lambda tx: tx.append(STORAGE, [row("north", "1.5"), row("hidden", "0", False)]))
    second = scene.commit(lambda tx: tx.update(STORAGE, {"_hw_rows": "7"}))
    third = scene.commit(lambda tx: tx.update(STORAGE, {"_hw_shown": "NOT _hw_shown"}))
    fourth = scene.commit(lambda tx: tx.update(STORAGE, {"total": "total + 1"}))
    told = [(e.snapshot_id, e.number, e.type, e.before, e.after) for e in scene.events()]
    north, hidden = {"region": "north", "total": "1.50"}, {"region": "hidden", "total": "0.00"}
    assert told == [
        (first, 1, "insert", None, north),
        (third, 1, "delete", north, None),
        (third, 2, "insert", None, hidden),
        (fourth, 1, "update", hidden, {"region": "hidden", "total": "1.00"}),
    ]
    assert second not in {each[0] for each in told}
    assert scene.events()[0].id == f"{scene.stream_id}-{first}-1"
    assert scene.events()[0].refresh_id == f"refresh-{first}"


def test_ids_stay_whatever_becomes_of_the_files(scene: Scene) -> None:
    random_changes(scene, 12, seed=1)
    before = [json.dumps(event.as_dict()) for event in scene.events()]
    con = duck(scene.lake.dsn)
    con.execute("CALL ducklake_flush_inlined_data('lake')")
    con.execute("CALL ducklake_merge_adjacent_files('lake')")
    con.execute("CALL ducklake_rewrite_data_files('lake')")
    con.close()
    assert [json.dumps(event.as_dict()) for event in scene.events()] == before
    assert [json.dumps(event.as_dict()) for event in scene.events(window=3)] == before
    assert applied([event.as_dict() for event in scene.events()]) == shown_now(scene)


def test_every_position_is_where_the_rest_begins(scene: Scene) -> None:
    random_changes(scene, 6, seed=2)
    whole = list(scene.feed().events(Position(scene.table_id, 0)))
    for place, (_, position) in enumerate(whole):
        rest = [event.id for event, _ in whole[place + 1 :] if event is not None]
        assert [event.id for event in scene.events(position)] == rest


def test_a_result_that_was_built_anew_is_told_by_what_differs(scene: Scene) -> None:
    scene.commit(lambda tx: tx.append(STORAGE, [row("a", "1"), row("b", "2"), row("b", "2"), row("c", "3")]))

    def replaced(tx: Any) -> None:
        tx.drop_table(STORAGE)
        tx.create_table(STORAGE, {"region": "varchar", "total": "decimal(12,2)"})
        tx.append(STORAGE, [{"region": r, "total": t} for r, t in (("b", "2"), ("c", "4"), ("a", "1"))])

    at = scene.commit(replaced)
    after = scene.commit(lambda tx: tx.delete(STORAGE, "region = 'a'"))
    events = [event for event in scene.events() if event.snapshot_id >= at]
    assert [(e.number, e.type, (e.before or e.after or {})["region"]) for e in events] == [
        (1, "delete", "b"),
        (2, "delete", "c"),
        (3, "insert", "c"),
        (1, "delete", "a"),
    ]
    assert events[-1].snapshot_id == after
    whole = list(scene.feed().events(Position(scene.table_id, 0)))
    for place, (_, position) in enumerate(whole):
        rest = [event.id for event, _ in whole[place + 1 :] if event is not None]
        assert [event.id for event in scene.events(position)] == rest


def test_expired_changes_are_an_error_that_says_so(scene: Scene) -> None:
    random_changes(scene, 4, seed=3)
    con = duck(scene.lake.dsn)
    gone = scene.refreshed[1][0]
    con.execute(f"CALL ducklake_expire_snapshots('lake', versions => [{gone - 1}, {gone}])")
    con.close()
    with pytest.raises(OutboxError, match="can no longer be told"):
        scene.events()


@pytest.mark.parametrize("seed", range(4))
def test_a_webhook_that_fails_at_random_loses_and_reorders_nothing(
    scene: Scene, hooks: list[Hook], seed: int
) -> None:
    chance = random.Random(seed)
    fates = ["ok", "lost", "unsure", "silent"]
    hook = Hook(lambda: chance.choices(fates, (6, 2, 1, 1))[0])
    hooks.append(hook)
    scene.outbox("hook", TargetKind.WEBHOOK)
    for _ in range(4):
        random_changes(scene, 4, seed=chance.randint(0, 99))
        for _ in range(chance.randint(1, 3)):
            target = WebhookTarget(
                scene.store,
                hook.url,
                {"Authorization": "Bearer x"},
                batch=chance.randint(1, 9),
                timeout=5,
                tries=1,
            )
            done = scene.relay("hook", target, limit=chance.choice([None, 5, 20]))
            target.close()
            assert done.error is None or done.error["code"] == "delivery"
            assert "s3cret" not in json.dumps(done.error)
    target = WebhookTarget(scene.store, hook.url, {}, batch=7, timeout=5, tries=60)
    chance = random.Random(0)
    assert scene.relay("hook", target).error is None
    target.close()
    expected = [event.as_dict() for event in scene.events()]
    unique = {event["id"]: event for event in hook.events}
    # In the order of their first arrival, each once, all the same at every arrival.
    assert list(unique.values()) == json.loads(json.dumps(expected))
    assert all(event == unique[event["id"]] for event in hook.events)
    assert applied(list(unique.values())) == shown_now(scene)
    by_key: dict[str, Any] = {}
    for key, body in hook.batches:
        assert by_key.setdefault(key, body) == body
    found = scene.store.get("hook")
    assert found is not None
    assert (found.failures, found.last_error) == (0, None)
    assert found.delivered == len(expected)


def test_a_webhook_that_is_down_is_told_and_the_position_stays(scene: Scene) -> None:
    random_changes(scene, 3, seed=5)
    scene.outbox("hook", TargetKind.WEBHOOK)
    target = WebhookTarget(scene.store, "http://127.0.0.1:9/hooks/s3cret", {}, batch=10, timeout=1, tries=1)
    done = scene.relay("hook", target)
    target.close()
    assert done.events == 0
    assert done.error is not None
    assert "s3cret" not in json.dumps(done.error)
    kept = scene.store.get("hook")
    assert kept is not None
    assert (kept.failures, kept.position.snapshot_id) == (1, 0)


def test_a_table_gets_each_event_once_and_with_its_position(scene: Scene) -> None:
    with scene.lake.transaction() as tx:
        tx.create_schema("audit")
        tx.create_table("audit.totals", dict(TABLE_COLUMNS))
    scene.outbox("audit", TargetKind.TABLE, "audit.totals")
    random_changes(scene, 5, seed=6)
    target = TableTarget(scene.lake, scene.store)
    target.batch = 4
    first = scene.relay("audit", target, limit=6)
    assert (first.events, first.batches) == (6, 2)
    stale = scene.store.get("audit")
    assert stale is not None
    scene.relay("audit", target)
    # Somebody who was paused since before that delivers nothing twice.
    late = Relay(
        scene.store, replace(stale, position=Position(scene.table_id, 0)), scene.feed(), target
    ).run()
    assert late.error is not None
    assert "another process" in late.error["message"]
    con = duck(scene.lake.dsn)
    rows = con.execute("SELECT event_id, type, after->>'total' FROM audit.totals").fetchall()
    con.close()
    expected = [(e.id, e.type, (e.after or {}).get("total")) for e in scene.events()]
    assert sorted(rows, key=str) == sorted(expected, key=str)


def test_standard_output_gets_a_line_for_each_event(scene: Scene) -> None:
    random_changes(scene, 3, seed=7)
    scene.outbox()
    out = io.StringIO()
    done = scene.relay("out", StdoutTarget(scene.store, out))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["id"] for line in lines] == [event.id for event in scene.events()]
    assert done.events == len(lines)
    assert scene.relay("out", StdoutTarget(scene.store, out)).events == 0
