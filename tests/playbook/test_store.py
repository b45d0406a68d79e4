"""What is kept of runs: batches, leases, secrets that are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from headwater.errors import PlaybookRunError
from headwater.lake.lake import Lake
from headwater.playbook.records.events import Event, nobody
from headwater.playbook.records.liveness import known_to_be_gone, this_process
from headwater.playbook.records.masking import Masking
from headwater.playbook.records.recording import Recorder
from headwater.playbook.records.reporting import report
from headwater.playbook.records.store import RunStore, StepRecord


def begun(store: RunStore, file: str = "/books/a.yaml", **more: str | None) -> str:
    return store.begin(
        name="a", file=file, digest="d", workload={"n": 1}, given={}, sealed=None, runner="local", **more
    )


def test_nothing_is_made_before_something_is_written(lake: Lake) -> None:
    store = RunStore(lake)
    assert store.runs() == []
    with pytest.raises(PlaybookRunError, match="There is no run abc"):
        store.get("abc")
    with psycopg.connect(lake.dsn) as connection:
        found = connection.execute("SELECT to_regclass('headwater.playbook_run')").fetchone()
    assert found == (None,)


def test_runs_are_listed_newest_first_and_found_by_a_beginning(lake: Lake) -> None:
    store = RunStore(lake)
    first, second = begun(store), begun(store, "/books/b.yaml")
    child = begun(store, parent=first, caller="call/1/")
    assert [run.id for run in store.runs()] == [second, first]
    assert [run.id for run in store.runs(called=True)] == [child, second, first]
    assert [run.id for run in store.runs(file="/books/b.yaml")] == [second]
    assert store.get(first[:13].upper()).id == first
    found = store.called(first, "call/1/")
    assert found is not None
    assert found.id == child
    with pytest.raises(PlaybookRunError, match="Several runs"):
        store.get("")


def test_steps_items_and_events_come_back_as_they_were(lake: Lake) -> None:
    store = RunStore(lake)
    run = begun(store)
    odd = {"text": "\0 \ud800 'quoted' ü", "big": 10**40, "nested": [{"a": None}]}
    whole = StepRecord("load", 1, None, 1, status="done", vars=odd, next=["x"], loop={"count": 250})
    whole.envelope = '{"status": "ok"}'
    items = [
        StepRecord("load", 1, n, 1, status="done" if n % 7 else "failed", envelope=f'{{"n": {n}}}')
        for n in range(250)
    ]
    event = Event(1, "step.enter", step="load", visit=1, data=odd)
    store.record(run, [whole, *items], [event])
    store.record(run, [whole, *items], [event])  # a commit whose answer was lost is made again
    assert store.steps(run)[0].as_dict() == {**whole.as_dict(), "next": ["x"]}
    assert store.envelope(run, "load", 1) == {"status": "ok"}
    assert store.envelopes(run, "load", 1, 10, 12) == {n: {"n": n} for n in (10, 11, 12)}
    assert store.done_items(run, "load", 1) == {n for n in range(250) if n % 7}
    assert [item.item for item in store.items(run, "load", status="failed", after=100, limit=2)] == [105, 112]
    assert [each.as_dict() for each in store.events(run)] == [event.as_dict()]
    assert store.last_event(run) == 1
    # Once more without its envelope: that stays.
    store.record(run, [StepRecord("load", 1, None, 1, status="done", next=[])], [])
    assert store.envelope(run, "load", 1) == {"status": "ok"}


def test_a_living_run_is_its_process_s_alone(lake: Lake) -> None:
    mine, other = RunStore(lake), RunStore(lake)
    run = begun(mine)
    assert mine.get(run).status == "running"
    with pytest.raises(PlaybookRunError, match="still under way") as raised:
        other.take(other.get(run), "d")
    assert "counts as gone in 15 seconds" in (raised.value.detail or "")
    assert mine.renew(run)
    with psycopg.connect(lake.dsn) as connection:
        connection.execute("UPDATE headwater.playbook_run SET lease_until = now() - interval '1 s'")
    assert mine.get(run).status == "interrupted"
    other.take(other.get(run), "d")
    assert not mine.renew(run)
    for write in (lambda: mine.record(run, [], [Event(1, "run.done")]), lambda: mine.finish(run, "done")):
        with pytest.raises(PlaybookRunError, match="taken over"):
            write()
    other.finish(run, "failed", {"message": "x"})
    assert (other.get(run).status, other.get(run).error) == ("failed", {"message": "x"})
    mine.take(mine.get(run), "d2")
    mine.finish(run, "done")
    assert (mine.get(run).digest, mine.get(run).unfinished) == ("d2", False)


def test_a_process_of_this_machine_that_is_gone_holds_nothing(lake: Lake) -> None:
    code = (
        "import sys, os; from headwater.lake.lake import Lake\n"
        "from headwater.playbook.records.store import RunStore\n"
        "print(RunStore(Lake.open(sys.argv[1])).begin(name='a', file='f', digest='d', workload={},"
        " given={}, sealed=None, runner='local'), flush=True); os.kill(os.getpid(), 9)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, lake.dsn], capture_output=True, text=True, env=os.environ
    ).stdout.strip()
    store = RunStore(lake)
    assert store.get(run).status == "interrupted"
    assert store.get(run).lease_left > 5
    store.take(store.get(run), "d")
    assert store.get(run).status == "running"


def test_the_recorder_writes_by_itself_and_stops_when_the_run_is_taken(lake: Lake) -> None:
    store = RunStore(lake)
    run = begun(store)
    masking = Masking()
    masking.learn(["hunter2x!"])
    with Recorder(store, run, masking, nobody) as recorder:
        recorder.event("step.enter", "load", 1, note="the word is hunter2x!")
        recorder.step(StepRecord("load", 1, None, 1, envelope='{"said": "hunter2x!"}'))
        deadline = time.monotonic() + 20
        while not store.events(run) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert store.events(run)[0].data == {"note": "the word is ***"}
        assert store.envelope(run, "load", 1) == {"said": "***"}
        with psycopg.connect(lake.dsn) as connection:
            connection.execute("UPDATE headwater.playbook_run SET lease_until = '-infinity'")
        thief = RunStore(lake)
        thief.take(thief.get(run), "d")
        with pytest.raises(PlaybookRunError, match="taken over"):
            while time.monotonic() < deadline:
                recorder.event("call.done", "load", 1)
                time.sleep(0.05)


def test_secrets_are_found_in_what_is_given_and_nothing_else_is_touched() -> None:
    masking = Masking()
    given = {
        "connection": "postgresql://me:hunter%32@db/x",
        "nested": [{"api_token": "abcd"}, {"password": "pw"}],
        "template": {"password": "{{ x }}"},
        "reference": {"password": "env:PASSWORD"},
        "key": "primary",
        "count": 3,
    }
    masking.learn_from(given)
    assert masking.value(given) == {
        **given,
        "connection": "postgresql://me:***@db/x",
        "nested": [{"api_token": "***"}, {"password": "***"}],
        "template": {"password": "***"},
        "reference": {"password": "***"},
    }
    assert masking.text("hunter2 and abcd, but not pw") == "*** and ***, but not pw"
    # In data only what is long enough to be nothing else.
    assert masking.json('{"a": "abcd hunter2"}') == '{"a": "abcd hunter2"}'
    masking.learn(["it's a long\\one"])
    for form in ("it's a long\\one", "it\\'s a long\\\\one", "it%27s%20a%20long%5Cone", "it''s a long\\one"):
        assert masking.text(f"<{form}>") == "<***>"
        assert masking.json(f"<{json.dumps(form)}>") == '<"***">'
    masking.learn(['long "one" ü'])
    assert masking.json('{"a": "long \\"one\\" \\u00fc"}') == '{"a": "***"}'


def test_a_run_keeps_no_file_of_its_own(lake: Lake, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    begun(RunStore(lake))
    assert set(tmp_path.rglob("*")) == before


def test_a_report_holds_no_more_than_fits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(lake)
    run = begun(store)
    steps = [StepRecord("load", 1, None, 1, status="done", loop={"count": 5}, envelope='{"a": 1}')]
    steps += [
        StepRecord("load", 1, n, 1, status="done", envelope=f'{{"n": {n}}}') for n in range(5) if n != 1
    ]
    steps += [StepRecord("load", 1, 1, 1, status="failed")]
    store.record(run, steps, [])
    monkeypatch.setattr("headwater.playbook.records.reporting.MOST_BYTES", 8 + 2 * len('{"n": 0}'))
    (step,) = report(store, run).steps
    assert (step.envelope, step.left_out) == ({"a": 1}, False)
    assert [(item.envelope, item.left_out) for item in step.items] == [
        ({"n": 0}, False),
        (None, False),
        ({"n": 2}, False),
        (None, True),
        (None, True),
    ]
    assert step.as_dict()["items"][4]["envelope_left_out"] is True
    assert [item.record.item for item in report(store, run, items=2).steps[0].items] == [0, 1]


def test_a_process_is_gone_only_if_it_could_be_seen_from_here() -> None:
    me = this_process()
    where, pid, began = me.split(" ")
    assert not known_to_be_gone(me)
    assert known_to_be_gone(f"{where} {pid} {int(began) - 1}"), "the id was given to another process"
    assert not known_to_be_gone(f"another/container {pid} {int(began) - 1}")
    assert not known_to_be_gone("")
    with subprocess.Popen(["sleep", "60"]) as other:
        started = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        assert not known_to_be_gone(f"{where} {other.pid} {started}")
        other.kill()
        deadline = time.monotonic() + 20
        while not known_to_be_gone(f"{where} {other.pid} {started}"):  # before anybody asked how it ended
            assert time.monotonic() < deadline
