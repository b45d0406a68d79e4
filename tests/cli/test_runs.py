"""`headwater runs`."""

from __future__ import annotations

from pathlib import Path

from headwater.lake.lake import Lake
from tests.cli.running import run


def test_runs_are_listed_and_one_is_shown_with_steps_and_events(project: Lake) -> None:
    assert run("runs").out == "no runs\n"
    assert run("runs", "-o", "json").json == {"runs": []}
    Path("a.yaml").write_text("- {step: one, vars: {x: 1}}")
    Path("b.yaml").write_text("- {step: two, tool: python, code: '1 / 0'}")
    assert [run("play", name).code for name in ("a.yaml", "b.yaml")] == [0, 1]
    lines = run("runs").out.splitlines()
    assert lines[0].split()[:4] == ["run", "playbook", "status", "runner"]
    assert [line.split()[1:4] for line in lines[1:]] == [["b", "failed", "local"], ["a", "done", "local"]]
    assert lines[1].endswith("Step 'two' failed: ZeroDivisionError: division by zero (line 1)")
    listed = run("runs", "--limit", "1", "-o", "json").json["runs"]
    assert [each["name"] for each in listed] == ["b"]
    (first,) = run("runs", "--file", "a.yaml", "-o", "json").json["runs"]
    shown = run("runs", first["id"][:8])
    assert shown.code == 0
    assert shown.out.splitlines()[0] == "a done"
    assert "x = 1" in shown.out
    assert "run.done" in shown.out
    told = run("runs", listed[0]["id"], "-o", "json").json
    assert [event["name"] for event in told["events"]] == [
        "run.started",
        "step.enter",
        "call.done",
        "step.failed",
        "run.failed",
    ]
    assert told["steps"][0]["error"]["code"] == "ZeroDivisionError"
    missing = run("runs", "ffffffff", "-o", "json")
    assert (missing.code, missing.error["code"]) == (1, "playbook_run")
