"""Hostile input from end to end: data that looks like code, templates that reach out, secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo, sql

from headwater.engine import Headwater
from headwater.errors import PlaybookError
from headwater.playbook.credentials.types import make_credential
from headwater.playbook.records.reporting import RunReport
from tests.playbook.playing import open_headwater, play, resumed, written

PASSWORD = "hunter2'\"@:/%?# ü{{7*7}}"

EVIL = [
    "x'); DROP TABLE t; --",
    "'; SELECT 1 --",
    '"; DROP TABLE t; --',
    "$$; DROP TABLE t; $$",
    "\\'; DROP TABLE t; --",
    "{{ 7 * 7 }}{% raw %}",
    "/* */ ; --",
    "credential:shop",
    "env:PATH",
    "\u202e\u2028 ü \U0001f9a0",
]


def test_data_is_never_sql_nor_a_template_nor_a_reference(
    hw: Headwater, new_database: str, tmp_path: Path
) -> None:
    path = written(
        tmp_path,
        f"""
        workload: {{texts: [], connection: "{new_database}"}}
        workflow:
          - step: create
            tool: postgres
            connection: "{{{{ connection }}}}"
            command: CREATE TABLE t (place int, said text)
            next: [{{step: each}}]
          - step: each
            loop: {{collection: "{{{{ texts }}}}", element: text, mode: async}}
            tool: postgres
            connection: "{{{{ connection }}}}"
            command: |
              INSERT INTO t VALUES ({{{{ loop.index }}}}, {{{{ loop.element }}}})
              RETURNING said, '{{{{ text }}}}' AS again
            next: [{{step: look}}]
          - step: look
            tool: postgres
            connection: "{{{{ connection }}}}"
            command: SELECT said FROM t ORDER BY place
            vars: {{said: "{{{{ result.commands[0].rows | map(attribute='said') | list }}}}"}}
        """,
    )
    report, _ = play(hw, path, {"texts": EVIL})
    assert (report.status, report.error) == ("done", None)
    assert report.vars == {"said": EVIL}
    for text, item in zip(EVIL, report.step("each").items, strict=True):
        assert item.envelope is not None
        assert item.envelope["result"]["commands"][0]["rows"] == [{"said": text, "again": text}]


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ workload.__class__ }}",
        "{{ start.keys.__globals__ }}",
        "{{ run['__class__'] }}",
        "{{ cycler.__init__.__globals__.os.environ }}",
        "{{ env }}",
        "{{ 'x' * 10_000_000_000 }}",
        "{{ range(10_000_000_000) | list }}",
        "{% include '/etc/passwd' %}",
        "{{ '%s' | format(workload) }}",
        "{{ '{0.__class__}'.format(workload) }}",
        "{{ start._load }}",
    ],
)
def test_templates_reach_nothing_but_values(hw: Headwater, tmp_path: Path, template: str) -> None:
    path = tmp_path / "book.yaml"
    steps = [
        {"step": "start", "tool": "python", "code": "result = {'a': 1}", "next": ["bad"]},
        {"step": "bad", "vars": {"out": template}},
    ]
    path.write_text(json.dumps({"workload": {"a": 1}, "workflow": steps}))
    report, _ = play(hw, path)
    assert report.status == "failed"
    assert report.error is not None
    assert report.error["code"] == "template"
    assert "book.yaml:1:" in report.error["message"]


def test_a_yaml_bomb_is_refused_quickly(hw: Headwater, tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(PlaybookError, match="values once its aliases are followed"):
        play(hw, path)
    path.write_text("- step: !!python/object/apply:os.system ['true']\n  tool: python\n")
    with pytest.raises(PlaybookError, match="tag"):
        play(hw, path)


# -- secrets ------------------------------------------------------------------------------------------


def everything_kept(dsn: str) -> str:
    """All rows of our own schema, as text."""
    with psycopg.connect(dsn) as connection:
        names = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'headwater' ORDER BY 1"
        ).fetchall()
        assert ("playbook_event",) in names
        rows = [
            connection.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier("headwater", name)))
            for (name,) in names
        ]
        return "\n".join(str(row[0]) for found in rows for row in found.fetchall())


def assert_hidden(text: str, *secrets: str) -> None:
    for secret in secrets:
        for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            assert form not in text


def process_lists() -> str:
    """The arguments and nothing else of all processes that we may see."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


@pytest.fixture
def secret_database(new_database: str) -> str:
    """An address with a password; this server asks for none, so that it can be anything."""
    return conninfo.make_conninfo(new_database, password=PASSWORD)


def test_secrets_are_in_no_row_no_event_no_error_no_list_of_processes(
    new_database: str, secret_database: str, tmp_path: Path
) -> None:
    path = written(
        tmp_path,
        f"""
        workload: {{connection: nothing, api_token: none}}
        workflow:
          - step: direct
            tool: ducklake
            catalog_connection: "{{{{ connection }}}}"
            catalog_name: analytics
            data_path: "{tmp_path}/files"
            command: CREATE TABLE IF NOT EXISTS t (id INTEGER)
            next: [{{step: named}}]
          - step: named
            loop: {{collection: [1, 2], element: n, mode: async}}
            tool: ducklake
            auth: "{{{{ shop }}}}"
            catalog_name: analytics
            data_path: "{tmp_path}/files"
            command: INSERT INTO t VALUES ({{{{ n }}}})
            next: [{{step: told}}]
          - step: told
            tool: postgres
            auth: shop
            command: SELECT 'a token of ' || {{{{ workload.api_token }}}} AS said
            next: [{{step: listed}}]
          - step: listed
            tool: python
            code: |
              from tests.playbook.test_hostile import process_lists
              result = "hunter2" in process_lists()
            vars: {{listed: "{{{{ result }}}}"}}
            next: [{{step: broken}}]
          - step: broken
            tool: python
            args: {{text: "{{{{ connection }}}}"}}
            code: raise ValueError(args["text"])
        """,
    )
    given = {"connection": secret_database, "api_token": "tok-123456789"}
    with open_headwater(new_database, tmp_path) as hw:
        fields = conninfo.conninfo_to_dict(secret_database)
        hw.playbooks.credentials().add(make_credential("shop", "postgres", fields))
        report, events = play(hw, path, given)
        assert report.status == "failed", report.error
        assert report.vars == {"listed": False}
        assert [step.record.step for step in report.steps][-1] == "broken"
        _hidden(report, [event.as_dict() for event in events], new_database)
        assert report.run.workload["api_token"] == "***"
        # What was given is kept, sealed, for as long as the run can go on.
        path.write_text(path.read_text().replace("raise ValueError", "result = len"))
        again = resumed(hw, path, force=True)
        assert again.step("broken").envelope == {"status": "ok", "result": len(secret_database)}
        _hidden(again, hw.playbooks.store.events(report.id), new_database)
        with psycopg.connect(new_database) as connection:
            left = connection.execute("SELECT count(*) FROM headwater.secret").fetchone()
        assert left == (1,), "the credential's is there, the run's is not"


def _hidden(report: RunReport, events: object, dsn: str) -> None:
    shown = json.dumps(report.as_dict(), default=str) + repr(report) + str(events) + everything_kept(dsn)
    assert_hidden(shown, PASSWORD, "tok-123456789", "hunter2")
    assert "***" in shown


def test_a_server_that_repeats_a_secret_is_not_repeated(
    hw: Headwater, tmp_path: Path, new_database: str
) -> None:
    hw.playbooks.credentials().add(make_credential("api", "generic", {"token": "tok-abcdefgh"}))
    path = written(
        tmp_path,
        """
        - step: call
          tool: http
          url: http://127.0.0.1:9/tok-abcdefgh
          auth: api
          retry: {attempts: 2, delay: 0.01}
          next:
            - when: "{{ event.name == 'step.failed' }}"
              then: [{step: echo}]
        - step: echo
          tool: python
          code: |
            result = {"echo": "tok-" + "abcdefgh"}
          vars: {echo: "{{ result.echo }}"}
        """,
    )
    report, events = play(hw, path)
    assert report.ok
    assert report.step("echo").envelope == {"status": "ok", "result": {"echo": "***"}}
    shown = str([event.as_dict() for event in events]) + everything_kept(new_database)
    assert_hidden(shown, "tok-abcdefgh")


def test_the_environment_is_not_seen_by_steps_data(
    hw: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN", "env-secret-value")
    path = written(
        tmp_path,
        """
        workload: {text: "env:HIDDEN"}
        workflow:
          - step: start
            tool: python
            args: {text: "{{ text }}", headers: {a: "{{ text }}"}}
            code: result = args
        """,
    )
    report, _ = play(hw, path)
    assert report.step("start").envelope == {
        "status": "ok",
        "result": {"text": "env:HIDDEN", "headers": {"a": "env:HIDDEN"}},
    }
    assert os.environ["HIDDEN"]
