"""Loops: in order or several at once, with errors, retries and many items."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.engine import Headwater
from tests.playbook.functions import traces
from tests.playbook.playing import play, written

FUNCTIONS = "tests.playbook.functions"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A loop over numbers, some of which are bad."""
    return written(
        tmp_path,
        f"""
        workload: {{ids: [], bad: [], mode: async, seconds: 0, on_error: stop}}
        workflow:
          - step: each
            loop: {{collection: "{{{{ ids }}}}", element: id, mode: async, on_error: stop}}
            tool: python
            callable: {FUNCTIONS}:fails_for
            args: {{folder: "{tmp_path}", name: "{{{{ id }}}}", bad: "{{{{ bad }}}}"}}
            vars: {{n: "{{{{ result.count }}}}", third: "{{{{ result.items[2].result }}}}"}}
            next:
              - when: "{{{{ event.name == 'loop.done' and loop.done and loop.failed == 0 }}}}"
                then: [{{step: after}}]
          - step: after
            vars:
              last: "{{{{ each.result.items[-1].result }}}}"
              all: "{{{{ each.result.items | map(attribute='result') | list }}}}"
        """,
    )


def test_all_items_run_and_their_results_are_reached_by_number(
    hw: Headwater, book: Path, tmp_path: Path
) -> None:
    report, events = play(hw, book, {"ids": list(range(10, 22))})
    assert (report.status, report.error) == ("done", None)
    assert report.vars == {"n": 12, "third": 12, "last": 21, "all": list(range(10, 22))}
    assert traces(tmp_path) == {str(n): 1 for n in range(10, 22)}
    envelope = report.step("each").envelope
    assert envelope == {"status": "ok", "result": {"count": 12, "succeeded": 12, "failed": 0, "errors": []}}
    items = report.step("each").items
    assert [item.envelope for item in items] == [{"status": "ok", "result": n} for n in range(10, 22)]
    assert {item.record.worker for item in items} == {"w1", "w2"}
    assert sorted(e.item for e in events if e.name == "loop.item" and e.item is not None) == list(range(12))


def test_an_empty_collection_is_a_loop_that_is_done(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        - step: each
          loop: {collection: [], element: x}
          tool: python
          code: result = 1 / 0
          next:
            - when: "{{ event.name == 'loop.done' }}"
              then: [{step: after}]
        - step: after
          vars: {count: "{{ each.result.count }}"}
        """,
    )
    report, _ = play(hw, path)
    assert report.vars == {"count": 0}


def test_in_order_each_item_sees_the_one_before_done(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        workload: {{pairs: {{a: 1, b: 2, c: 3}}}}
        workflow:
          - step: each
            loop: {{collection: "{{{{ pairs }}}}", element: pair, mode: sequential}}
            tool: python
            args:
              folder: "{tmp_path}"
              place: "{{{{ loop.index }}}} of {{{{ loop.length }}}}, {{{{ pair.key }}}}={{{{ pair.value }}}}"
              edge: "{{{{ [loop.first, loop.last] }}}}"
            code: |
              from pathlib import Path
              log = Path(args["folder"]) / "log"
              before = log.read_text() if log.exists() else ""
              log.write_text(before + args["place"] + chr(10))
              result = args["edge"]
        """,
    )
    report, _ = play(hw, path)
    assert report.ok
    assert (tmp_path / "log").read_text().splitlines() == ["0 of 3, a=1", "1 of 3, b=2", "2 of 3, c=3"]
    results = [item.envelope["result"] for item in report.step("each").items if item.envelope]
    assert results == [[True, False], [False, False], [False, True]]


def test_a_failing_item_keeps_later_ones_from_starting(hw: Headwater, book: Path, tmp_path: Path) -> None:
    report, _ = play(hw, book, {"ids": list(range(100)), "bad": [3]})
    assert report.status == "failed"
    record = report.step("each").record
    assert record.error is not None
    assert record.error["message"] == "Item 3: ValueError: 3 is bad"
    assert [error["item"] for error in record.error["errors"]] == [3]
    done = traces(tmp_path)
    assert done["3"] == 1
    assert len(done) < 20, "items were started after one had failed"
    statuses = {item.record.item: item.record.status for item in report.step("each").items}
    assert statuses == {int(name): "failed" if name == "3" else "done" for name in done}


def test_told_to_go_on_a_loop_lists_what_failed(hw: Headwater, book: Path) -> None:
    book.write_text(book.read_text().replace("on_error: stop}\n    tool", "on_error: continue}\n    tool"))
    report, _ = play(hw, book, {"ids": list(range(8)), "bad": [1, 6]})
    assert report.status == "done"
    assert report.step("each").envelope is not None
    result = report.step("each").envelope["result"]  # type: ignore[index]
    assert (result["count"], result["succeeded"], result["failed"]) == (8, 6, 2)
    assert [(error["item"], error["message"]) for error in result["errors"]] == [
        (1, "ValueError: 1 is bad"),
        (6, "ValueError: 6 is bad"),
    ]
    assert "after" not in [step.record.step for step in report.steps]


def test_items_that_may_pass_are_tried_again(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        - step: each
          loop: {{collection: [0, 1, 2], element: times, mode: async}}
          tool: python
          callable: {FUNCTIONS}:fails_until
          args: {{folder: "{tmp_path}", name: "n{{{{ times }}}}", times: "{{{{ times }}}}"}}
          retry: {{attempts: 3, delay: 0.01}}
        """,
    )
    report, events = play(hw, path)
    assert report.ok
    assert traces(tmp_path) == {"n0": 1, "n1": 2, "n2": 3}
    assert [item.record.attempt for item in report.step("each").items] == [1, 2, 3]
    assert sorted(e.item for e in events if e.name == "retry" and e.item is not None) == [1, 2, 2]


@pytest.mark.parametrize(
    ("collection", "message"),
    [("some text", "`loop.collection` is a text, not a list."), (7, "is of type int, not a list")],
)
def test_what_is_no_list_is_an_error(hw: Headwater, tmp_path: Path, collection: object, message: str) -> None:
    path = written(
        tmp_path,
        """
        workload: {ids: []}
        workflow:
          - step: each
            loop: {collection: "{{ ids }}", element: x}
            tool: python
            code: result = 1
        """,
    )
    report, _ = play(hw, path, {"ids": collection})
    assert report.error is not None
    assert message in report.error["message"]


def test_an_item_whose_template_fails_is_named(hw: Headwater, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        - step: each
          loop: {collection: [{a: 1}, {b: 2}], element: x, mode: async, on_error: continue}
          tool: python
          args: {a: "{{ x.a }}"}
          code: result = args["a"]
        """,
    )
    report, _ = play(hw, path)
    envelope = report.step("each").envelope
    assert envelope is not None
    assert [(error["item"], error["kind"]) for error in envelope["result"]["errors"]] == [(1, "template")]
    assert "`a` is not defined" in envelope["result"]["errors"][0]["message"]


def test_thousands_of_items_are_few_round_trips(
    hw: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.playbook.records.store import RunStore

    batches = []
    record = RunStore.record

    def counted(self: RunStore, run_id: str, steps: list, events: list) -> None:  # type: ignore[type-arg]
        batches.append(len(steps) + len(events))
        record(self, run_id, steps, events)

    monkeypatch.setattr(RunStore, "record", counted)
    path = written(
        tmp_path,
        """
        - step: each
          loop: {collection: "{{ range(3000) }}", element: n, mode: async}
          tool: python
          args: {n: "{{ n }}"}
          code: result = args["n"]
          vars: {last: "{{ result.items[2999].result }}"}
        """,
    )
    report, _ = play(hw, path)
    assert report.vars == {"last": 2999}
    assert sum(batches) >= 6000
    assert len(batches) < 300
