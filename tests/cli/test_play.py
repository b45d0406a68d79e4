"""`headwater play`: what is shown, what is returned, and the exit codes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.given_values import read_given
from headwater.lake.lake import Lake
from headwater.playbook.records.store import RunStore
from tests.cli.running import run, start

BOOK = """
metadata: {name: greet}
workload: {names: [ada], bad: nobody, password: hunter2-secret}
workflow:
  - step: start
    desc: says hello
    tool: python
    args: {names: "{{ names }}", bad: "{{ bad }}", password: "{{ password }}"}
    code: |
      if args["bad"] in args["names"]:
          raise ValueError(args["bad"] + " is bad, and " + args["password"] + " is secret")
      result = len(args["names"])
    vars: {count: "{{ result }}"}
    next:
      - when: "{{ result > 1 }}"
        then: [{step: each}]
  - step: each
    loop: {collection: "{{ names }}", element: name, mode: async}
    tool: python
    args: {name: "{{ name }}"}
    code: result = "hello " + args["name"]
"""


@pytest.fixture(autouse=True)
def own_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def book(project: Lake) -> str:
    Path("book.yaml").write_text(BOOK)
    return "book.yaml"


def test_a_run_is_shown_step_by_step_and_summed_up(book: str) -> None:
    ran = run("play", book, "--set", "names=[ada, grace]", "--workers", "2")
    assert ran.code == 0, ran.err
    shown = ran.err.splitlines()
    assert shown[0] == "step start: says hello"
    assert shown[1].startswith("  done start in ")
    assert shown[2] == "step each"
    assert shown[3].endswith(", 2 items")
    lines = ran.out.splitlines()
    assert lines[0].split() == ["step", "status", "attempt", "items", "seconds", "result"]
    assert lines[2].split()[:4] == ["each", "done", "1", "2"]
    assert "count = 2" in lines
    assert lines[-1].startswith("greet: done in ")


def test_as_json_the_run_has_its_steps_and_envelopes(book: str, project: Lake) -> None:
    ran = run("play", book, "--set", "names=[ada, grace]", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    told = ran.json
    assert (told["run"]["status"], told["run"]["name"], told["vars"]) == ("done", "greet", {"count": 2})
    assert told["run"]["workload"] == {"names": ["ada", "grace"], "bad": "nobody", "password": "***"}
    assert [step["step"] for step in told["steps"]] == ["start", "each"]
    assert told["steps"][0]["envelope"] == {"status": "ok", "result": 2}
    assert [item["envelope"]["result"] for item in told["steps"][1]["items"]] == ["hello ada", "hello grace"]
    assert told["run"]["id"] == RunStore(project).runs()[0].id


def test_a_failed_run_ends_with_1_and_says_how_to_go_on(book: str) -> None:
    ran = run("play", book, "--set", "bad=ada")
    assert ran.code == 1
    assert "Step 'start' failed: ValueError: ada is bad, and *** is secret (line 2)" in ran.out
    assert "hunter2-secret" not in ran.out + ran.err
    (hint,) = (line for line in ran.out.splitlines() if "--resume" in line)
    run_id = hint.split()[-1]
    again = run("play", book, "--resume", run_id, "-o", "json")
    assert (again.code, again.json["run"]["id"]) == (1, run_id)
    # It is not in the way of a new one.
    assert run("play", book).code == 0


def test_mistakes_are_found_before_anything_runs_and_end_with_2(book: str, project: Lake) -> None:
    Path(book).write_text(BOOK.replace("result > 1", "reslut > 1").replace("code: result", "cod: result"))
    ran = run("play", book)
    assert ran.code == 2
    line = BOOK.splitlines().index('      - when: "{{ result > 1 }}"') + 1
    assert f"book.yaml:{line}:19: error[undefined]: `reslut` is not defined." in ran.out
    assert "Did you mean `code`?" in ran.out
    as_json = run("play", book, "-o", "json")
    assert (as_json.code, as_json.json["ok"]) == (2, False)
    assert RunStore(project).runs() == []
    assert run("play", "nowhere.yaml").code == 2


def test_a_dry_run_shows_what_would_run_and_runs_nothing(book: str, project: Lake) -> None:
    ran = run("play", book, "--dry-run", "--set", "names=[ada, grace]")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "1. start (python)"
    assert '     args: {"names": ["ada", "grace"], "bad": "nobody", "password": "***"}' in lines
    assert "2. each (python)" in lines
    assert "     after start when {{ result > 1 }}" in lines
    assert "     loop: count: 2, element: name, mode: async" in lines
    assert '     args: {"name": "ada"}' in lines
    assert "hunter2" not in ran.out
    later = run("play", book, "--dry-run", "--from", "each", "-o", "json").json
    assert [step["step"] for step in later["steps"]] == ["each"]
    assert run("play", book, "--dry-run", "--from", "nowhere").code == 2
    assert RunStore(project).runs() == []


def test_a_crash_leaves_a_run_that_is_not_simply_run_again(book: str, project: Lake) -> None:
    code = (
        "import sys, os, headwater; from headwater.engine.playbook_services import RunOptions\n"
        "def listen(e):\n    if e.name == 'step.enter': hw.playbooks.store; os.kill(os.getpid(), 9)\n"
        "hw = headwater.connect(); hw.playbooks.run('book.yaml', None, RunOptions(listener=listen))"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    ran = run("play", book)
    assert (ran.code, ran.out) == (1, "")
    assert "was interrupted, and is not finished" in ran.err
    assert "--resume" in ran.err
    assert run("play", book, "--resume").code == 0
    assert [each.status for each in RunStore(project).runs()] == ["done"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_it_is_cancelled_and_ends_with_130(project: Lake, number: int) -> None:
    Path("slow.yaml").write_text("- {step: slow, tool: python, code: 'import time; time.sleep(60)'}")
    process = start("play", "slow.yaml", cwd=Path.cwd())
    assert process.stderr is not None
    assert process.stderr.readline() == "step slow\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "slow: cancelled in " in out
    assert RunStore(project).runs()[0].status == "cancelled"


def test_on_a_terminal_progress_is_live(book: str) -> None:
    reader, writer = pty.openpty()
    process = start("play", book, cwd=Path.cwd(), stderr=writer, env={"TERM": "xterm"})
    seen = b""
    while b"done start" not in seen:
        seen += os.read(reader, 10_000)
    process.communicate(timeout=60)
    os.close(writer)
    os.close(reader)
    assert process.returncode == 0
    assert b"\x1b[" in seen


def test_options_that_contradict_each_other_are_wrong_usage(book: str) -> None:
    for more in (["--set", "a=1"], ["--from", "each"], ["--new"]):
        assert run("play", book, "--resume", "abc", *more).code == 2
    assert run("play", book, "--set", "nothing").code == 2
    assert run("play", book, "--workers", "0").code == 2
    unknown = run("play", book, "--resume", "abc", "-o", "json")
    assert (unknown.code, unknown.error["code"]) == (1, "playbook_run")


def test_given_values_are_yaml_at_dotted_paths() -> None:
    given = ["a=1", "b.c=[1, x]", "b.d=2025-01-06", "e=", "f={g: null}", "h=a: b: c", "i='1'", "j=1.10"]
    assert read_given(given) == {
        "a": 1,
        "b": {"c": [1, "x"], "d": "2025-01-06"},
        "e": None,
        "f": {"g": None},
        "h": "a: b: c",
        "i": "1",
        "j": 1.1,
    }


def test_a_resumed_run_knows_what_was_given(project: Lake) -> None:
    Path("given.yaml").write_text(
        """
- step: once
  tool: python
  args: {who: "{{ who }}", password: "{{ password }}"}
  code: |
    from pathlib import Path
    if not Path("seen").exists():
        Path("seen").write_text("x")
        raise ValueError("not yet")
    result = args["who"] + str(len(args["password"]))
"""
    )
    assert run("play", "given.yaml").code == 2
    assert run("play", "given.yaml", "--set", "who=ada", "--set", "password=hunter2").code == 1
    ran = run("play", "given.yaml", "--resume", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["steps"][0]["envelope"]["result"] == "ada7"
    assert run("play", "given.yaml", "--resume").code == 1
