"""YAML that knows where it stands, and playbooks made of it."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import PlaybookError
from headwater.playbook.language.document import MAX_BYTES, Place, Text, parse_document, read_document
from headwater.playbook.language.findings import refuse
from headwater.playbook.language.model import Loop, Next, Playbook, Retry
from headwater.playbook.language.reading import is_playbook, load_playbook, read_playbook

EXAMPLES = Path(__file__).parents[2] / "examples" / "playbooks"


def playbook(text: str) -> Playbook:
    found, findings = read_playbook(parse_document(text, "p.yaml"))
    refuse(findings)
    assert found is not None
    return found


def mistakes(text: str) -> list[tuple[int, int, str]]:
    _, findings = read_playbook(parse_document(text, "p.yaml"))
    return [(one.line, one.column, one.code) for one in findings]


def test_values_are_plain_and_texts_know_their_place() -> None:
    document = parse_document(
        "a: 1\nb: [x, 2.5, true, null, 2025-01-06, 0x1F, 012, yes]\nc: {d: 'it''s'}\n", "f"
    )
    assert document.content == {
        "a": 1,
        "b": ["x", 2.5, True, None, "2025-01-06", 31, 12, "yes"],
        "c": {"d": "it's"},
    }
    assert [type(value) for value in document.content["b"][:4]] == [Text, float, bool, type(None)]
    assert document.content["c"]["d"].place == Place("f", 3, 8)
    assert str(document.key_place(("c", "d"))) == "f:3:5"
    assert document.place(("b", 1)) == Place("f", 2, 8)


@pytest.mark.parametrize(
    ("text", "needle", "line", "column"),
    [
        ("a: plain x", "x", 1, 10),
        ("a: 'quoted x'", "x", 1, 12),
        ('a: "tab\\t x"', "x", 1, 4),  # escaped: only where the whole text begins is certain
        ("a: |\n  one\n   two x\n", "x", 3, 8),
        ("a: |-\n\n  one x\n", "x", 1, 4),
        ("a: >\n  folded\n  x\n", "x", 1, 4),
        ("a:\n  - |2\n       deep x\n", "x", 3, 13),
    ],
)
def test_a_character_of_a_text_has_a_place(text: str, needle: str, line: int, column: int) -> None:
    value = next(iter(parse_document(text, "f").content.values()))
    value = value[0] if isinstance(value, list) else value
    assert value.at(value.index(needle)) == Place("f", line, column)


def test_a_text_travels_to_other_processes_with_its_place() -> None:
    text = parse_document("a: |\n  x\n  y z\n", "f").content["a"]
    copy = pickle.loads(pickle.dumps(text))
    assert copy == text
    assert copy.at(4) == text.at(4) == Place("f", 3, 5)


def test_anchors_and_merges_work() -> None:
    content = parse_document(
        "base: &base {auth: pg, threads: 2}\nmore: &more {threads: 4, x: 1}\n"
        "one: {<<: *base, threads: 3}\ntwo: {<<: [*more, *base]}\nthree: *base\n"
    ).content
    assert content["one"] == {"threads": 3, "auth": "pg"}
    assert content["two"] == {"threads": 4, "x": 1, "auth": "pg"}
    assert content["three"] == {"auth": "pg", "threads": 2}


@pytest.mark.parametrize(
    ("text", "place", "finding"),
    [
        ("a: [1, 2\nb: 3\n", "f:2:2", "yaml"),
        ("a: b: c\n", "f:1:5", "yaml"),
        ("a: {{ x }}: y\n", None, "yaml"),
        ("a: 1\n---\nb: 2\n", "f:2:1", "yaml"),
        ("a: \x07\n", "f:1:1", "yaml"),
        ("a: *nobody\n", "f:1:4", "yaml"),
        ("- " * 5000, "f:1:1", "too_deep"),
        ("x" * (MAX_BYTES + 1), "f:1:1", "too_large"),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_place(text: str, place: str | None, finding: str) -> None:
    with pytest.raises(PlaybookError) as caught:
        refuse(read_playbook(parse_document(text, "f"))[1])
    if place is not None:
        assert caught.value.message.startswith(f"{place}: ")
        assert caught.value.finding == finding


def test_text_that_is_not_utf8_is_refused_at_its_line() -> None:
    with pytest.raises(PlaybookError, match="f:2:1: the file is not UTF-8"):
        parse_document(b"a: 1\nb: \xff\n", "f")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlaybookError, match="cannot be read"):
        read_document(tmp_path / "none.yaml")


def bomb() -> str:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


def merge_bomb() -> str:
    lines = ["m0: &m0 {k: 1}"]
    lines += [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [bomb(), merge_bomb(), "a: &a [*a]", "a: &a {<<: *a}"])
def test_a_bomb_does_not_go_off(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(PlaybookError):
        parse_document(text, "f")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- step: a\n  x: !!python/object/apply:os.system [id]\n", (2, 6, "tag")),
        ("- step: a\n  desc: !custom x\n", (2, 9, "tag")),
        ("- step: a\n  desc: one\n  desc: two\n", (3, 3, "duplicate_key")),
        ("- step: a\n  ? [x]\n  : y\n", (2, 5, "yaml")),
        ("- step: a\n  desc: {{ x }}\n", (2, 10, "yaml")),
    ],
)
def test_what_plain_values_cannot_be_is_found(text: str, expected: tuple[int, int, str]) -> None:
    assert expected in mistakes(text)


# --- playbooks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_example_is_read(file: Path) -> None:
    assert load_playbook(file).steps


def test_fields_stand_on_the_step_or_in_the_tool() -> None:
    on_step, in_tool = (
        playbook(text).steps[0]
        for text in (
            "- step: a\n  tool: duckdb\n  command: SELECT 1\n",
            "- step: a\n  tool: {kind: duckdb, command: SELECT 1}\n",
        )
    )
    assert (
        (on_step.tool, on_step.fields)
        == (in_tool.tool, in_tool.fields)
        == ("duckdb", {"command": "SELECT 1"})
    )


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("{collection: '{{ x }}', element: e, mode: async}", Loop("{{ x }}", "e", "async")),
        (
            "{in: [1, 2], iterator: e, spec: {mode: parallel, max_in_flight: 3}}",
            Loop([1, 2], "e", "async", 3),
        ),
        (
            "{collection: [], element: e, max_in_flight: 2, on_error: continue}",
            Loop([], "e", "sequential", 2, "continue"),
        ),
    ],
)
def test_dialects_of_loops(loop: str, expected: Loop) -> None:
    assert playbook(f"- step: a\n  loop: {loop}\n").steps[0].loop == expected


@pytest.mark.parametrize(
    ("following", "expected"),
    [
        ("b", (Next(then=("b",)),)),
        ("[b, c]", (Next(then=("b", "c")),)),
        ("[{step: b}, {step: c}]", (Next(then=("b", "c")),)),
        ("[{when: '{{ x }}', then: [{step: b}]}]", (Next("{{ x }}", ("b",)),)),
        ("{when: '{{ x }}', then: b, else: c}", (Next("{{ x }}", ("b",), ("c",)),)),
        ("[{when: '{{ x }}', step: b}, {else: c}]", (Next("{{ x }}", ("b",)), Next(otherwise=("c",)))),
    ],
)
def test_dialects_of_what_follows(following: str, expected: tuple[Next, ...]) -> None:
    steps = playbook(f"- step: a\n  next: {following}\n- step: b\n- step: c\n").steps
    assert steps[0].next == expected
    assert (steps[1].next, steps[2].next) == ((), ())


def test_steps_that_say_nothing_of_what_follows_run_in_their_order() -> None:
    steps = playbook("- step: a\n- step: b\n- step: c\n").steps
    assert [[arm.then for arm in step.next] for step in steps] == [[("b",)], [("c",)], []]


def test_a_run_begins_at_start_or_at_the_first_step() -> None:
    assert playbook("- step: a\n- step: b\n").first.name == "a"
    assert playbook("- step: a\n- step: start\n  next: a\n").first.name == "start"


def test_a_whole_document() -> None:
    text = (
        "apiVersion: headwater/v1\nkind: Playbook\nmetadata: {name: nightly}\nworkload: {n: 1}\n"
        "runner: spark\nworkers: 3\nworkflow:\n- step: a\n"
        "  retry: {attempts: 5, backoff: linear, delay: 500ms}\n  timeout: 2m\n- step: b\n  retry: 4\n"
    )
    found = playbook(text)
    assert (found.name, found.workload, found.runner, found.workers) == ("nightly", {"n": 1}, "spark", 3)
    assert found.steps[0].retry == Retry(5, "linear", 0.5)
    assert found.steps[1].retry == Retry(4)
    assert found.steps[0].timeout == 120
    assert found.digest != playbook(text + "# a comment\n").digest
    assert playbook("- step: a\n").name == "p"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", False),
        ("[1, 2]", False),
        ("", False),
        ("- step: a", True),
        ("workflow: []", True),
        ("kind: Playbook", True),
    ],
)
def test_a_playbook_is_recognised_by_its_content(text: str, expected: bool) -> None:
    assert is_playbook(parse_document(text)) is expected


BROKEN: list[tuple[str, tuple[Any, ...]]] = [
    ("", (1, 1, "form")),
    ("just text", (1, 1, "form")),
    ("workload: {}", (1, 1, "missing_field")),
    ("workflow: []", (1, 11, "wrong_type")),
    ("- step: a\n- 7\n", (2, 3, "wrong_type")),
    ("- name: a\n", (1, 3, "missing_field")),
    ("- step: result\n", (1, 9, "reserved_name")),
    ("- step: a\n  tool: duckdbb\n", (2, 9, "unknown_tool")),
    ("- step: a\n  tool: {command: x}\n", (2, 9, "missing_field")),
    ("- step: a\n  tool: {kind: duckdb, command: x}\n  command: y\n", (3, 12, "duplicate_key")),
    ("- step: a\n  tool: duckdb\n  comand: x\n", (3, 3, "unknown_field")),
    ("- step: a\n  tool: duckdb\n", (1, 9, "missing_field")),
    ("- step: a\n  tool: duckdb\n  command: x\n  commands: [y]\n", (1, 9, "too_many")),
    ("- step: a\n  tool: duckdb\n  commands: x\n", (3, 13, "wrong_type")),
    ("- step: a\n  tool: duckdb\n  commands: [1]\n", (3, 14, "wrong_type")),
    ("- step: a\n  tool: duckdb\n  command: 5\n", (3, 12, "wrong_type")),
    ("- step: a\n  command: x\n", (2, 3, "unknown_field")),
    ("- step: a\n  tool: http\n  url: http://x\n  method: FETCH\n", (4, 11, "wrong_type")),
    ("- step: a\n  tool: refresh\n  full: maybe\n", (3, 9, "wrong_type")),
    ("- step: a\n  loop: 5\n", (2, 9, "wrong_type")),
    ("- step: a\n  loop: {element: e}\n", (2, 9, "missing_field")),
    ("- step: a\n  loop: {collection: [], element: loop}\n", (2, 9, "reserved_name")),
    ("- step: a\n  loop: {collection: [], element: e, max_in_flight: 0}\n", (2, 53, "wrong_type")),
    ("- step: a\n  retry: {atempts: 3}\n", (2, 11, "unknown_field")),
    ("- step: a\n  timeout: -1\n", (2, 12, "wrong_type")),
    ("- step: a\n  vars: [x]\n", (2, 9, "wrong_type")),
    ("- step: a\n  next: [{when: 'true'}]\n", (2, 10, "missing_field")),
    ("- step: a\n  next: '{{ x }}'\n", (2, 9, "wrong_type")),
    ("apiVersion: v9\nworkflow: [{step: a}]\n", (1, 13, "wrong_type")),
    ("kind: Pod\nworkflow: [{step: a}]\n", (1, 7, "wrong_type")),
    ("runner: moon\nworkflow: [{step: a}]\n", (1, 9, "wrong_type")),
    ("worklod: {}\nworkflow: [{step: a}]\n", (1, 1, "unknown_field")),
]


@pytest.mark.parametrize(("text", "expected"), BROKEN)
def test_mistakes_of_form_have_their_place(text: str, expected: tuple[int, int, str]) -> None:
    assert expected in mistakes(text)


def test_all_mistakes_are_told_at_once() -> None:
    document = parse_document("- step: a\n  tool: duckdb\n  comand: x\n- step: b\n  timeout: soon\n", "f")
    with pytest.raises(PlaybookError) as caught:
        refuse(read_playbook(document)[1])
    assert [one["line"] for one in caught.value.findings] == [1, 3, 5]
    assert "f:5:12" in str(caught.value)
