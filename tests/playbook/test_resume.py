"""Runs that were killed, cancelled or failed, and go on: nothing is done twice, nothing is left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.engine import Headwater
from headwater.engine.playbook_services import RunOptions
from headwater.engine.playbooks import RunCancelled
from headwater.errors import PlaybookRunError
from headwater.lake.embedded import open_server
from headwater.playbook.records.events import Event
from tests.playbook.functions import traces
from tests.playbook.playing import open_headwater, play, resumed, written
from tests.support import create_database, duck

FUNCTIONS = "tests.playbook.functions"

LOAD = """
    metadata: {{name: load}}
    workload: {{connection: "{dsn}", count: 150}}
    workflow:
      - step: create
        tool: ducklake
        catalog_connection: "{{{{ connection }}}}"
        catalog_name: analytics
        data_path: "{folder}/files"
        command: CREATE TABLE loaded (id INTEGER, worker VARCHAR)
        next: [{{step: load}}]
      - step: load
        loop: {{collection: "{{{{ range(count) }}}}", element: id, mode: async}}
        tool: ducklake
        catalog_connection: "{{{{ connection }}}}"
        catalog_name: analytics
        data_path: "{folder}/files"
        command: INSERT INTO loaded VALUES ({{{{ id }}}}, current_setting('worker_id'))
        retry: {{attempts: 5, delay: 0.2}}
        next: [{{step: verify}}]
      - step: verify
        tool: ducklake
        catalog_connection: "{{{{ connection }}}}"
        catalog_name: analytics
        data_path: "{folder}/files"
        command: SELECT count(*) AS n, count(DISTINCT id) AS ids FROM loaded
        vars: {{found: "{{{{ result.commands[0].rows[0] }}}}"}}
"""


def started(dsn: str, folder: Path, path: Path, *more: str) -> subprocess.Popen[str]:
    """A run in a process of its own, which tells its events as lines."""
    code = (
        "import sys, headwater; from headwater.engine.playbook_services import RunOptions\n"
        "hw = headwater.connect(sys.argv[1], data_path=sys.argv[2])\n"
        "tell = lambda e: print(e.name, e.step, e.item, flush=True)\n"
        "hw.playbooks.run(sys.argv[3], None, RunOptions(workers=2, listener=tell))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, dsn, str(folder / "data"), str(path), *more],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def wait_for(process: subprocess.Popen[str], text: str, times: int = 1) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        times -= text in line
        if times == 0:
            return
    raise AssertionError(f"the run ended before {text!r}")


@pytest.fixture
def killed() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        if (
            process.stdout is not None
        ):  # its workers still have the other end, for as long as their task takes
            process.stdout.close()


def test_killed_in_the_middle_of_a_loop_each_item_is_there_once(
    hw: Headwater, new_database: str, tmp_path: Path, killed: list[subprocess.Popen[str]]
) -> None:
    path = written(tmp_path, LOAD.format(dsn=new_database, folder=tmp_path))
    process = started(new_database, tmp_path, path)
    killed.append(process)
    wait_for(process, "loop.item load", 12)
    (run,) = hw.playbooks.runs()
    # What happens is written down a moment later.
    while all(event.name != "loop.item" for event in hw.playbooks.store.events(run.id, limit=10_000)):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (run,) = hw.playbooks.runs()
    assert run.status == "interrupted"
    unfinished = hw.playbooks.unfinished(path)
    assert unfinished is not None
    assert unfinished.id == run.id
    told: list[Event] = []
    report = resumed(hw, path, listener=told.append)
    assert (report.id, report.status, report.error) == (run.id, "done", None)
    assert report.vars == {"found": {"n": 150, "ids": 150}}
    again = {event.item for event in told if event.name == "loop.item"}
    assert 0 < len(again) < 150, "items that were done are repeated, or nothing was left"
    assert "create" not in {event.step for event in told}
    names = [event.name for event in hw.playbooks.store.events(run.id, limit=10_000)]
    assert (names.count("run.started"), names.count("run.resumed"), names[-1]) == (1, 1, "run.done")
    assert [item.record.item for item in report.step("load").items] == list(range(150))


def test_a_run_under_way_is_not_resumed_by_another(
    hw: Headwater, new_database: str, tmp_path: Path, killed: list[subprocess.Popen[str]]
) -> None:
    path = written(
        tmp_path,
        f"""
        - step: slow
          tool: python
          callable: {FUNCTIONS}:slow
          args: {{folder: "{tmp_path}", name: slow, seconds: 20}}
        """,
    )
    process = started(new_database, tmp_path, path)
    killed.append(process)
    wait_for(process, "step.enter")
    with pytest.raises(PlaybookRunError, match="still under way"):
        resumed(hw, path)


def test_a_failed_run_goes_on_at_the_failed_item(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        workload: {{bad: [2]}}
        workflow:
          - step: first
            tool: python
            callable: {FUNCTIONS}:note
            args: {{folder: "{tmp_path}", name: first}}
            vars: {{seen: "{{{{ result }}}}"}}
            next: [{{step: each}}]
          - step: each
            loop: {{collection: [0, 1, 2, 3], element: n, mode: sequential}}
            tool: python
            callable: {FUNCTIONS}:fails_until
            args: {{folder: "{tmp_path}", name: "n{{{{ n }}}}", times: "{{{{ 1 if n in bad else 0 }}}}"}}
            next: [{{step: last}}]
          - step: last
            tool: python
            args:
              seen: "{{{{ vars.seen }}}}"
              results: "{{{{ each.result.items | map(attribute='result') | list }}}}"
            code: result = args
        """,
    )
    report, _ = play(hw, path)
    assert report.status == "failed"
    assert traces(tmp_path) == {"first": 1, "n0": 1, "n1": 1, "n2": 1}
    again = resumed(hw, path)
    assert (again.id, again.status) == (report.id, "done")
    assert traces(tmp_path) == {"first": 1, "n0": 1, "n1": 1, "n2": 2, "n3": 1}
    assert again.step("last").envelope == {
        "status": "ok",
        "result": {"seen": "first", "results": [1, 1, 2, 1]},
    }
    with pytest.raises(PlaybookRunError, match="is done"):
        resumed(hw, path, report.id)
    with pytest.raises(PlaybookRunError, match="no unfinished run"):
        resumed(hw, path)


def test_a_changed_document_or_collection_is_refused_unless_forced(hw: Headwater, tmp_path: Path) -> None:
    text = f"""
        workload: {{ids: [1, 2, 3]}}
        workflow:
          - step: each
            loop: {{collection: "{{{{ ids }}}}", element: n}}
            tool: python
            callable: {FUNCTIONS}:fails_until
            args: {{folder: "{tmp_path}", name: "n{{{{ n }}}}", times: "{{{{ 1 if n == 2 else 0 }}}}"}}
        """
    path = written(tmp_path, text)
    report, _ = play(hw, path)
    assert report.status == "failed"
    written(tmp_path, text.replace("[1, 2, 3]", "[1, 2, 4]"))
    with pytest.raises(PlaybookRunError, match="has changed since run"):
        resumed(hw, path)
    with pytest.raises(PlaybookRunError, match="another playbook"):
        resumed(hw, written(tmp_path, text, "other.yaml"), report.id)
    again = resumed(hw, path, force=True)
    assert again.ok
    assert traces(tmp_path) == {"n1": 1, "n2": 2, "n4": 1}


def test_cancelled_by_ctrl_c_the_workers_stop_and_the_run_can_go_on(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        workload: {{seconds: 60}}
        workflow:
          - step: each
            loop: {{collection: [0, 60, 60], element: seconds, mode: async}}
            tool: python
            callable: {FUNCTIONS}:slow
            args: {{folder: "{tmp_path}", name: "{{{{ loop.index }}}}", seconds: "{{{{ seconds }}}}"}}
        """,
    )
    told: list[Event] = []

    def listen(event: Event) -> None:
        told.append(event)
        if event.name == "loop.item":  # the others have been started by then
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    began = time.monotonic()
    with pytest.raises(RunCancelled) as raised:
        hw.playbooks.run(path, None, RunOptions(workers=2, listener=listen))
    assert time.monotonic() - began < 30
    report = hw.playbooks.report(raised.value.run_id)
    assert (report.status, told[-1].name) == ("cancelled", "run.cancelled")
    assert [(item.record.item, item.record.status) for item in report.step("each").items] == [(0, "done")]
    path.write_text(path.read_text().replace("[0, 60, 60]", "[0, 0, 0]"))
    assert resumed(hw, path, force=True).ok
    assert traces(tmp_path)["0"] == 1


def test_from_a_step_on_the_last_run_s_results_are_used(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        - step: find
          tool: python
          callable: {FUNCTIONS}:note
          args: {{folder: "{tmp_path}", name: find}}
          vars: {{found: "{{{{ result }}}}!"}}
          next: [{{step: each}}]
        - step: each
          loop: {{collection: [1, 2], element: n}}
          tool: python
          args: {{n: "{{{{ n }}}}"}}
          code: result = args["n"] * 10
          next: [{{step: show}}]
        - step: show
          vars: {{shown: "{{{{ vars.found }}}} {{{{ find.result }}}} {{{{ each.result.items[1].result }}}}"}}
        """,
    )
    first, _ = play(hw, path)
    second, _ = play(hw, path, from_step="show")
    assert second.vars == {"shown": "find! find 20"} == {"shown": first.vars["shown"]}
    assert (second.run.based_on, second.run.from_step) == (first.id, "show")
    assert [step.record.step for step in second.steps] == ["show"]
    assert traces(tmp_path) == {"find": 1}


def test_postgresql_restarts_during_a_run(tmp_path: Path) -> None:
    server = open_server(tmp_path / "postgres")
    dsn = create_database(server.dsn, "restarted")
    path = written(tmp_path, LOAD.format(dsn=dsn, folder=tmp_path))
    seen: list[Event] = []
    restarted = threading.Event()

    def restart() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            (pid,) = connection.execute(
                "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int"
            ).fetchone() or (0,)
        os.kill(pid, signal.SIGINT)  # fast shutdown: every connection is cut
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.05)
        open_server(tmp_path / "postgres")
        restarted.set()

    def listen(event: Event) -> None:
        seen.append(event)
        if event.name == "loop.item" and event.item == 5:
            threading.Thread(target=restart).start()

    with open_headwater(dsn, tmp_path) as hw:
        report = hw.playbooks.run(path, {"count": 30}, RunOptions(workers=2, listener=listen))
        assert restarted.wait(60)
        if not report.ok:  # every attempt of an item met the restart
            report = resumed(hw, path)
        assert (report.status, report.error) == ("done", None)
        assert report.vars == {"found": {"n": 30, "ids": 30}}
        with duck(dsn, metadata_schema="analytics") as judge:
            assert judge.execute("SELECT count(*), count(DISTINCT id) FROM loaded").fetchone() == (30, 30)
    server.stop_if_unused()


def test_runs_that_a_cancelled_run_called_are_cancelled_and_go_on_with_it(
    hw: Headwater, tmp_path: Path
) -> None:
    written(
        tmp_path,
        f"""
        workload: {{who: nobody, seconds: 0.2}}
        workflow:
          - step: each
            loop: {{collection: "{{{{ range(300) if seconds else range(3) }}}}", element: n}}
            tool: python
            callable: {FUNCTIONS}:slow
            args: {{folder: "{tmp_path}", name: "{{{{ who }}}}-{{{{ n }}}}", seconds: "{{{{ seconds }}}}"}}
        """,
        "inner.yaml",
    )
    path = written(
        tmp_path,
        """
        - step: call
          loop: {collection: [a, b], element: who, mode: async}
          tool: playbook
          path: inner.yaml
          workload: {who: "{{ who }}"}
        """,
    )

    def interrupt() -> None:
        while len(traces(tmp_path)) < 4:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(RunCancelled):
        hw.playbooks.run(path, None, RunOptions(workers=2))
    deadline = time.monotonic() + 30
    while any(run.status == "running" for run in hw.playbooks.store.runs(called=True)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [run.status for run in hw.playbooks.store.runs(called=True)] == ["cancelled"] * 3
