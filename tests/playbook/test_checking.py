"""Every mistake is found without running anything, at its place, with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.playbook.checking.checks import check_document, check_file
from headwater.playbook.language.document import parse_document
from headwater.playbook.language.fields import TOOLS
from headwater.playbook.language.findings import Finding
from headwater.playbook.templates.sandbox import SANDBOX

EXAMPLES = Path(__file__).parents[2] / "examples" / "playbooks"


def found(text: str, **options: Any) -> tuple[Finding, ...]:
    return check_document(parse_document(text, "p.yaml"), **options)


def codes(text: str, **options: Any) -> list[str]:
    return [one.code for one in found(text, **options)]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_have_no_mistakes(file: Path) -> None:
    assert check_file(file) == ()
    assert check_file(file, credentials=["POSTGRES_CATALOG_AUTH", "my-postgres-credential"]) == ()


SQL = "- step: a\n  tool: duckdb\n  command: {}\n"

#: One mistake each: the text, where it is found, its code, and what the message or the hint says.
MISTAKES = [
    (SQL.format('"SELECT \'{{ 1 }}"'), (3, 20), "sql", "never closed"),
    (SQL.format("SELECT 1 /* what"), (3, 21), "sql", "comment"),
    (SQL.format('"SELECT $$x"'), (3, 20), "sql", "$$"),
    (SQL.format("|\n    SELECT 1,\n      'x"), (5, 7), "sql", "never closed"),
    (SQL.format("' ; '"), (3, 12), "empty_command", "empty"),
    (SQL.format("'SELECT {{ x'"), (3, 20), "template", "unexpected end"),
    (SQL.format("'SELECT {{ x | nope }}'"), (3, 20), "template", "No filter"),
    (SQL.format("'SELECT {{ nope }}'"), (3, 23), "undefined", "`nope` is not defined"),
    (SQL.format("'SELECT {{ env.HOME }}'"), (3, 23), "undefined", "do not see the environment"),
    (SQL.format("'SELECT {{ result.x }}'"), (3, 23), "undefined", "when the step is done"),
    (SQL.format("'SELECT {{ loop.element }}'"), (3, 23), "undefined", "no `loop`"),
    (SQL.format("'SELECT {{ run.name }}'"), (3, 27), "undefined", "`run` has no `name`"),
    (SQL.format("'SELECT {{ a.result }}'"), (3, 23), "undefined", "cannot have run before"),
    (
        "workload: {batch_ids: [1]}\nworkflow:\n- step: a\n  vars: {v: '{{ bach_ids }}'}\n",
        (4, 17),
        "undefined",
        "Did you mean `batch_ids`?",
    ),
    (
        "workload: {deep: {x: {y: 1}}}\nworkflow:\n- step: a\n  vars: {v: '{{ workload.deep.x.z }}'}\n",
        (4, 33),
        "undefined",
        "`workload.deep.x` has no `z`",
    ),
    ("- step: a\n  vars: {v: '{{ vars.w }}'}\n", (2, 22), "undefined", "`vars` has no `w`"),
    (
        "- step: a\n  vars: {x: '{{ vars.late }}'}\n- step: b\n  vars: {late: 1}\n",
        (2, 22),
        "undefined",
        "cannot have run before",
    ),
    (
        "- step: a\n  loop: {collection: [1], element: e}\n  vars: {v: '{{ loop.element }}'}\n",
        (3, 22),
        "undefined",
        "has no `element`",
    ),
    (
        "- step: a\n  loop: {collection: '{{ loop.element }}', element: e}\n",
        (2, 26),
        "undefined",
        "what the loop goes through",
    ),
    (
        "workload: {n: 5}\nworkflow:\n- step: a\n  loop: {collection: '{{ n }}', element: e}\n",
        (4, 22),
        "wrong_type",
        "5",
    ),
    ("- step: a\n  next: b\n", (2, 9), "unknown_step", "no step `b`"),
    ("- step: load\n  next: [{when: 'true', then: [{step: laod}]}]\n", (2, 39), "unknown_step", "`load`"),
    ("- step: a\n- step: a\n", (2, 9), "duplicate_step", "line 1"),
    ("- step: a\n  next: b\n- step: b\n- step: c\n", (4, 9), "unreachable", "begins at `a`"),
    ("- step: a\n  next: b\n- step: b\n  next: a\n", (1, 9), "endless", "never ends"),
    (
        "- step: a\n  next: [{when: \"{{ event.name == 'loop.doen' }}\", then: b}]\n- step: b\n",
        (2, 36),
        "unknown_event",
        "`loop.done`",
    ),
    (
        "- step: a\n  next: [{when: \"event.name == 'loop.done'\", then: b}]\n- step: b\n",
        (2, 17),
        "never",
        "`step.done`",
    ),
    (
        "- step: a\n  next: [{when: error.retryable, then: b}]\n- step: b\n",
        (2, 17),
        "unguarded",
        "step.failed",
    ),
    ("- step: a\n  tool: python\n  code: |\n    x = (\n", (4, 9), "python", "never closed"),
    ("- step: a\n  tool: python\n  callable: nope\n", (3, 13), "form", "module:function"),
    ("- step: a\n  tool: http\n  url: example.org\n", (3, 8), "form", "http://"),
    ("- step: a\n  tool: playbook\n  path: nowhere.yaml\n", (3, 9), "form", "nowhere.yaml"),
    ("workload: {a: 1}\nworkflow: [{step: a}]\n", (1, 12), "hidden_name", "workload.a"),
    (
        "- step: a\n  tool: postgres\n  command: SELECT 1\n  connection: postgresql://me:hush@db/x\n",
        (4, 15),
        "password",
        "credential",
    ),
    ("workload: {v: '{{ 1 }}'}\nworkflow: [{step: a}]\n", (1, 12), "not_rendered", "not evaluated"),
]


@pytest.mark.parametrize(("text", "place", "code", "says"), MISTAKES, ids=lambda value: str(value)[:40])
def test_one_mistake_is_one_finding(text: str, place: tuple[int, int], code: str, says: str) -> None:
    (only,) = found(text)
    assert ((only.line, only.column), only.code) == (place, code)
    assert says in f"{only.message} {only.hint}"
    assert "hush" not in f"{only.message} {only.hint}"


@pytest.mark.parametrize(
    "text",
    [
        SQL.format("\"SELECT '{{ 1 }}' -- isn't\""),
        SQL.format("\"{% if true %}SELECT '{% else %}SELECT '{% endif %}x'\""),
        "- step: a\n  vars: {v: '{{ nope | default(1) }}', w: '{{ nope is defined }}'}\n",
        "- step: a\n  vars: {v: '{% for x in [1] %}{{ x }}{{ loop.index }}{% endfor %}'}\n",
        "- step: a\n  vars: {v: '{{ a.result.data.command_0 }}', w: '{{ run.id }}'}\n",
        "workload: {m: {a: 1}}\nworkflow:\n- step: a\n  vars: {v: '{{ m.items() }}', n: '{{ m[\"a\"] }}'}\n",
        "workload: {later: null}\nworkflow:\n- step: a\n  vars: {v: '{{ later.x.y }}'}\n",
        "- step: a\n  vars: {n: 1}\n- step: b\n  vars: {m: '{{ vars.n }} {{ a.result.x }}'}\n",
        # Two steps that follow the same one: the second sees what the first did.
        "- step: s\n  next: [a, b]\n- step: a\n  vars: {n: 1}\n"
        "- step: b\n  vars: {m: '{{ vars.n }} {{ a.x }}'}\n",
        # A way back with a condition.
        "- step: a\n  next: b\n- step: b\n  next: [{when: '{{ result.more }}', then: a}]\n",
        "- step: a\n  retry: {when: \"error.kind == 'sql'\"}\n",
        "- step: a\n  next: {when: \"event.name == 'step.failed' and error.code\", then: b}\n- step: b\n",
        "- step: a\n  loop: {collection: [1], element: e, mode: async}\n  tool: duckdb\n"
        "  command: SELECT {{ e }}, {{ loop.element }}, {{ loop.index }}\n",
        "- step: a\n  tool: python\n  code: |\n    result = args['x']\n  args: {x: '{{ run.id }}'}\n",
    ],
)
def test_what_is_right_is_not_blamed(text: str) -> None:
    assert found(text) == ()


AUTH = "workload: {c: pg_main}\nworkflow:\n- step: a\n  tool: postgres\n  command: SELECT 1\n  auth: {}\n"


@pytest.mark.parametrize(
    ("auth", "known", "expected"),
    [
        ("pg_main", ["pg_main"], []),
        ("'{{ pg_main }}'", ["PG_MAIN"], []),
        ("'{{ c }}'", ["pg_main"], []),
        ("'{{ c }}'", ["other"], ["unknown_credential"]),
        ("pg_mian", ["pg_main"], ["unknown_credential"]),
        ("'{{ pg_mian }}'", ["pg_main"], ["unknown_credential"]),
        ("'{{ pg_mian }}'", None, []),  # nobody was asked
        ("env:PGSERVICE", [], []),
        ("postgresql://host/db", [], []),
        ("{credential: x}", [], []),
        ("'{{ workload.nope }}'", ["x"], ["undefined"]),
        ("'{{ x'", ["x"], ["template"]),
    ],
)
def test_credentials(auth: str, known: list[str] | None, expected: list[str]) -> None:
    assert codes(AUTH.replace("auth: {}", f"auth: {auth}"), credentials=known) == expected


def test_a_credential_that_is_not_there_has_a_nearest_one() -> None:
    (one,) = found(AUTH.replace("auth: {}", "auth: pg_mian"), credentials=["pg_main"])
    assert (one.line, one.column, one.hint) == (6, 9, "Did you mean `pg_main`?")


def test_values_that_a_run_is_given_count() -> None:
    text = "workload: {m: {a: 1}}\nworkflow:\n- step: a\n  vars: {v: '{{ n }} {{ m.a }} {{ m.b }}'}\n"
    assert codes(text) == ["undefined", "undefined"]
    assert codes(text, workload={"n": 1, "m": {"b": 2}}) == []


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    (missing,) = check_file(file)
    assert (missing.code, missing.line) == ("file", 1)
    file.write_text("- step: a\n  x: [1\n")
    (broken,) = check_file(file)
    assert (broken.code, broken.line, broken.column) == ("yaml", 3, 1)


def test_many_mistakes_are_all_found_in_order() -> None:
    text = (
        "workflow:\n- step: one\n  tool: duckdb\n  comand: x\n  next: tow\n"
        "- step: two\n  tool: duckb\n- step: two\n  timeout: soon\n"
    )
    findings = found(text)
    assert [one.line for one in findings] == sorted(one.line for one in findings)
    assert {one.code for one in findings} == {
        "missing_field",
        "unknown_field",
        "unknown_step",
        "unreachable",
        "unknown_tool",
        "duplicate_step",
        "wrong_type",
    }


GUIDE = Path(__file__).parents[2] / "docs" / "playbooks.md"


def test_the_guide_names_every_field_as_the_table_has_it() -> None:
    text = GUIDE.read_text()
    for tool in TOOLS.values():
        section = text.split(f"### `{tool.kind}`")[1].split("\n##")[0]
        assert tool.about in section
        for field in tool.fields:
            given = "required" if field.required else ""
            default = given if field.default is None else f"`{json.dumps(field.default)}`"
            assert f"| `{field.name}` | {field.type} | {default} | {field.about} |" in section


def test_the_guides_playbook_has_no_mistakes() -> None:
    shown = GUIDE.read_text().split("```yaml\n")[1].split("```")[0]
    assert found(shown) == ()


def test_the_guide_lists_the_filters_there_are() -> None:
    listed = GUIDE.read_text().split("Filters: `")[1].split("`, and for SQL")[0].split()
    known = {name for name in SANDBOX.filters if not name.startswith("_")}
    assert set(listed) | {"identifier", "each", "raw", "d"} == known
