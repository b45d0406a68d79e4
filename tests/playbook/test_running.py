"""Steps, arms, variables, retries: what a run does, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.engine import Headwater
from headwater.errors import PlaybookError
from headwater.playbook.flow.arms import Flow
from headwater.playbook.flow.retrying import tried_again, wait_before
from headwater.playbook.language.model import Retry
from headwater.playbook.task import TaskError
from tests.playbook.functions import traces
from tests.playbook.playing import play, resumed, written

FUNCTIONS = "tests.playbook.functions"


def test_steps_follow_their_arms_and_see_each_others_results(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        metadata: {name: tour}
        workload: {limit: 2, who: {name: Ada}}
        workflow:
          - step: start
            tool: python
            code: |
              result = {"numbers": [1, 2, 3], "text": "{{ not a template }}"}
            vars:
              count: "{{ result.numbers | length }}"
              twice: "{{ vars.count * 2 }}"
            next:
              - when: "{{ vars.count > limit }}"
                then: [{step: many}]
                else: [{step: few}]
              - when: "{{ event.name == 'step.done' }}"
                then: [{step: after}, {step: many}]
          - step: few
            tool: python
            code: result = 1 / 0
          - step: many
            tool: python
            args: {from: "{{ start.result.numbers }}", name: "{{ workload.who.name }}", run: "{{ run.id }}"}
            code: result = args
            next: [{step: after}]
          - step: after
            vars: {seen: "{{ many.result.name }} {{ start.result.text }}"}
        """,
    )
    report, events = play(hw, path, {"who": {"name": "Grace"}})
    assert (report.status, report.error) == ("done", None)
    # `many` was named twice and waits once; `after` is where the ways meet.
    assert [step.record.step for step in report.steps] == ["start", "many", "after"]
    assert report.vars == {"count": 3, "twice": 6, "seen": "Grace {{ not a template }}"}
    assert report.step("many").envelope == {
        "status": "ok",
        "result": {"from": [1, 2, 3], "name": "Grace", "run": report.id},
    }
    assert [event.name for event in events] == [
        "run.started",
        *["step.enter", "call.done", "step.exit"] * 2,
        "step.enter",
        "step.exit",
        "run.done",
    ]
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event.as_dict() for event in hw.playbooks.store.events(report.id)] == [
        event.as_dict() for event in events
    ]


def test_a_failing_step_fails_the_run_at_once_with_a_typed_error(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        - step: first
          tool: python
          code: |
            x = 1
            result = {}["missing"]
          next: [{step: second}]
        - step: second
          tool: python
          code: result = 1
        """,
    )
    report, events = play(hw, path)
    assert report.status == "failed"
    assert [step.record.status for step in report.steps] == ["failed"]
    assert report.step("first").envelope == {
        "status": "error",
        "error": {
            "kind": "python",
            "code": "KeyError",
            "message": "KeyError: 'missing' (line 2)",
            "retryable": False,
            "command_index": None,
            "position": None,
        },
    }
    assert report.error is not None
    assert report.error["message"] == "Step 'first' failed: KeyError: 'missing' (line 2)"
    assert [event.name for event in events][-2:] == ["step.failed", "run.failed"]


def test_an_arm_for_the_failure_takes_it_and_others_are_not_looked_at(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        workload: {always: true}
        workflow:
          - step: start
            tool: python
            code: raise ValueError("no luck")
            next:
              - then: [{step: wrong}]
              - when: "{{ always }}"
                then: [{step: wrong}]
              - when: "{{ event.name == 'step.failed' and error.kind == 'python' }}"
                then: [{step: repair}]
          - step: wrong
            tool: python
            code: raise SystemExit(3)
          - step: repair
            vars: {why: "{{ start.error.code }}: {{ start.error.message }}"}
        """,
    )
    report, _ = play(hw, path)
    assert report.status == "done"
    assert [(step.record.step, step.record.status) for step in report.steps] == [
        ("start", "handled"),
        ("repair", "done"),
    ]
    assert report.vars == {"why": "ValueError: ValueError: no luck (line 1)"}


def test_what_may_pass_is_tried_again_and_other_errors_are_not(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        - step: patient
          tool: python
          callable: {FUNCTIONS}:fails_until
          args: {{folder: "{tmp_path}", name: patient, times: 2}}
          retry: {{attempts: 3, delay: 0.01, backoff: none}}
          next: [{{step: chosen}}]
        - step: chosen
          tool: python
          callable: {FUNCTIONS}:fails_for
          args: {{folder: "{tmp_path}", name: chosen, bad: [chosen]}}
          retry: {{attempts: 2, delay: 0.01, when: "{{{{ 'bad' in error.message and attempt < 5 }}}}"}}
          next:
            - when: "{{{{ event.name == 'step.failed' }}}}"
              then: [{{step: hopeless}}]
        - step: hopeless
          tool: python
          callable: {FUNCTIONS}:fails_for
          args: {{folder: "{tmp_path}", name: hopeless, bad: [hopeless]}}
          retry: {{attempts: 5, delay: 0.01}}
        """,
    )
    report, events = play(hw, path)
    assert report.step("patient").envelope == {"status": "ok", "result": 3}
    assert report.step("patient").record.attempt == 3
    assert report.step("hopeless").record.status == "failed"
    assert traces(tmp_path) == {"patient": 3, "chosen": 2, "hopeless": 1}
    assert [event.step for event in events if event.name == "retry"] == ["patient", "patient", "chosen"]


def test_a_step_that_takes_too_long_is_stopped(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        - step: endless
          tool: python
          code: |
            while True:
                try:
                    sum(range(1000))
                except Exception:
                    pass
          timeout: 0.3
        """,
    )
    report, _ = play(hw, path)
    envelope = report.step("endless").envelope
    assert envelope is not None
    assert (envelope["error"]["kind"], envelope["error"]["message"]) == ("timeout", "Not done within 0.3 s.")


@pytest.mark.parametrize("endless", ["while True: sum(range(1000))", "result = 1"])
def test_a_called_playbook_that_takes_too_long_is_stopped(
    hw: Headwater, tmp_path: Path, endless: str
) -> None:
    """Also one that has no end although each of its steps is soon done."""
    written(
        tmp_path,
        f"""
        - step: again
          tool: python
          code: "{endless}"
          next: [{{step: again}}]
        """,
        "called.yaml",
    )
    path = written(
        tmp_path,
        """
        - step: calls
          tool: playbook
          path: called.yaml
          timeout: 1
          next:
            - when: "{{ event.name == 'step.failed' }}"
              then: [{step: after}]
        - step: after
          tool: python
          code: result = 7
        """,
    )
    report, _ = play(hw, path)
    envelope = report.step("calls").envelope
    assert envelope is not None
    assert (envelope["error"]["kind"], envelope["error"]["message"]) == ("timeout", "Not done within 1 s.")
    assert report.step("after").envelope == {"status": "ok", "result": 7}
    called = hw.playbooks.store.called(report.id, "calls/1/")
    assert called is not None
    assert called.status in ("failed", "cancelled")


def test_a_loop_of_steps_visits_again_and_ends(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        workload: {most: 3}
        workflow:
          - step: start
            vars: {n: 0}
            next: [{step: count}]
          - step: count
            tool: python
            args: {n: "{{ vars.n }}"}
            code: result = args["n"] + 1
            vars: {n: "{{ result }}"}
            next:
              - when: "{{ vars.n < most }}"
                then: [{step: count}]
        """,
    )
    report, _ = play(hw, path)
    assert report.vars == {"n": 3}
    assert [(step.record.step, step.record.visit) for step in report.steps] == [
        ("start", 1),
        ("count", 1),
        ("count", 2),
        ("count", 3),
    ]


def test_a_template_that_fails_after_the_tool_does_not_repeat_the_tool(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        workload: {{key: missing}}
        workflow:
          - step: once
            tool: python
            callable: {FUNCTIONS}:note
            args: {{folder: "{tmp_path}", name: once}}
            vars: {{x: "{{{{ {{'there': 1}}[key] }}}}"}}
        """,
    )
    report, _ = play(hw, path)
    assert report.status == "failed"
    assert report.error is not None
    assert report.error["code"] == "template"
    assert report.step("once").record.status == "done"
    # Another document and other values: only with force, and the tool is still not run again.
    path.write_text(path.read_text().replace("key: missing", "key: there"))
    assert resumed(hw, path, force=True).vars == {"x": 1}
    assert traces(tmp_path) == {"once": 1}


def test_a_wrong_credential_or_field_is_an_error_of_the_step(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        workload: {auth: werehouse}
        workflow:
          - step: start
            tool: postgres
            auth: "{{ workload.auth }}"
            command: SELECT 1
        """,
    )
    report, _ = play(hw, path)
    envelope = report.step("start").envelope
    assert envelope is not None
    assert envelope["error"]["kind"] == "credential"
    assert "There is no credential 'werehouse'." in envelope["error"]["message"]


def test_a_playbook_that_goes_round_in_circles_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.playbook.flow.arms.MOST_VISITS", 3)
    flow = Flow("a")
    with pytest.raises(PlaybookError, match="more than 3 times"):
        while flow.next():
            flow.enter(["a"])


@pytest.mark.parametrize(
    ("backoff", "waits"), [("none", [2, 2, 2]), ("linear", [2, 4, 6]), ("exponential", [2, 4, 7])]
)
def test_waits_grow_as_they_are_told(backoff: str, waits: list[float]) -> None:
    retry = Retry(attempts=9, backoff=backoff, delay=2, max_delay=7)  # type: ignore[arg-type]
    for attempt, most in enumerate(waits, 2):
        assert 0.75 * most <= wait_before(retry, attempt) <= most


def test_only_what_can_pass_is_tried_again_unless_told() -> None:
    lost, wrong = TaskError("connection", "", "", retryable=True), TaskError("sql", "", "")
    assert tried_again(Retry(3), lost, 2, lambda _: False)
    assert not tried_again(Retry(3), lost, 3, lambda _: True)
    assert not tried_again(Retry(3), wrong, 1, lambda _: True)
    assert tried_again(Retry(3, when="x"), wrong, 1, lambda error: error["kind"] == "sql")
    assert not tried_again(None, lost, 1, lambda _: True)
