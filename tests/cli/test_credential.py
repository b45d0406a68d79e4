"""`headwater credential`: secrets come by standard input, environment or file, and never go out again."""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path

import pytest

from headwater.lake.lake import Lake
from headwater.playbook.credentials.registry import Credentials
from tests.cli.running import Ran, run, start


@pytest.fixture(autouse=True)
def own_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def add(monkeypatch: pytest.MonkeyPatch, typed: str, *arguments: str) -> Ran:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return run("credential", "add", *arguments)


def test_a_whole_credential_from_standard_input_environment_or_file(
    project: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = add(monkeypatch, "postgresql://ada:hunter2@db/shop\n", "shop")
    assert (ran.code, ran.out, ran.err) == (0, "added credential shop\n", "")
    assert Credentials(project).get("shop").fields["password"] == "hunter2"
    monkeypatch.setenv("PG", '{"host": "db2", "password": "hunter3"}')
    ran = run("credential", "add", "shop", "--from-env", "PG", "-o", "json")
    assert ran.json == {"name": "shop", "action": "replaced"}
    Path("key.txt").write_text("hunter4\n")
    assert run("credential", "add", "api", "--type", "generic", "--from-file", "key.txt").code == 0
    assert Credentials(project).get("api").fields == {"value": "hunter4"}
    ran = run("credential", "list")
    assert ran.out.splitlines()[1].split()[:4] == ["api", "generic", "lake", "value=***"]
    assert "host=db2 password=***" in ran.out
    for text in (ran.out, run("credential", "list", "-o", "json").out):
        assert "hunter" not in text
    assert run("credential", "remove", "api").out == "removed credential api\n"
    gone = run("credential", "remove", "api", "-o", "json")
    assert (gone.code, gone.error["code"], gone.error["credential"]) == (1, "credential", "api")


def test_field_by_field_with_the_secret_parts_on_standard_input(
    project: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = add(monkeypatch, "p w'\n", "shop", "--field", "host=db", "--field", "user=ada")
    assert ran.code == 0
    assert Credentials(project).get("shop").fields == {"host": "db", "user": "ada", "password": "p w'"}
    ran = add(
        monkeypatch,
        "SK\nTOKEN\n",
        *("lake", "--type", "s3", "--field", "access_key_id=AK"),
        *("--secret", "secret_access_key", "--secret", "session_token"),
    )
    assert ran.code == 0
    assert Credentials(project).get("lake").secrets() == ["SK", "TOKEN"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "--field", "password=hunter2"], "password is secret"),
        (["x", "--field", "uri=postgresql://a:hunter2@b/c"], "uri is secret"),
        (["x", "--type", "generic", "--field", "token=hunter2"], "token is secret"),
        (["x", "--field", "host"], "'host' is not NAME=VALUE"),
        (["x"], "Nothing on standard input"),
        (["x", "--from-env", "NOWHERE"], "no variable NOWHERE"),
        (["x", "--from-env", "HOME", "--secret", "password"], "alone"),
        (["x", "--type", "mysql"], "mysql"),
    ],
)
def test_wrong_usage_says_what_and_shows_no_secret(
    project: Lake, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    ran = add(monkeypatch, "", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "hunter2" not in ran.err
    assert Credentials(project).names() == []


def test_a_name_that_cannot_be_one_is_refused(project: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = add(monkeypatch, "x", "two words")
    assert (ran.code, "cannot be the name of a credential" in ran.err) == (1, True)


def test_on_a_terminal_it_is_asked_for_and_not_shown(project: Lake) -> None:
    reader, writer = pty.openpty()
    process = start(
        "credential", "add", "shop", "--field", "host=db", cwd=Path.cwd(), stdin=writer, stderr=writer
    )
    seen = b""
    while b"password" not in seen:
        seen += os.read(reader, 1000)
    os.write(reader, b"hunter2\n")
    out, _ = process.communicate(timeout=60)
    os.close(writer)
    try:
        seen += os.read(reader, 1000)
    except OSError:
        pass  # nothing more was written
    os.close(reader)
    assert (process.returncode, out) == (0, "added credential shop\n")
    assert b"hunter2" not in seen
    assert Credentials(project).get("shop").secrets() == ["hunter2"]
