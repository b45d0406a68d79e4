"""`headwater check`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.lake.lake import Lake
from tests.cli.running import run

GOOD = "- step: a\n  tool: duckdb\n  command: SELECT 1\n"
BAD = "- step: a\n  tool: duckdb\n  comand: SELECT 1\n"
WITH_AUTH = "- step: a\n  tool: postgres\n  auth: '{{ warehouse }}'\n  command: SELECT 1\n"


def test_a_good_playbook_is_praised() -> None:
    Path("p.yaml").write_text(GOOD)
    ran = run("check", "p.yaml")
    assert (ran.code, ran.out, ran.err) == (0, "1 playbook: 0 errors, 0 warnings\n", "")


def test_mistakes_are_shown_where_they_are() -> None:
    Path("p.yaml").write_text(BAD)
    ran = run("check", "p.yaml")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        "p.yaml:1:9: error[missing_field]: step `a` of duckdb needs `command` or `commands`.",
        "  - step: a",
        "          ^",
        "p.yaml:3:3: error[unknown_field]: a step of duckdb has no `comand`.",
        "    comand: SELECT 1",
        "    ^",
        "  do:  Did you mean `command`?",
        "1 playbook: 2 errors, 0 warnings",
    ]


def test_mistakes_as_json() -> None:
    Path("p.yaml").write_text(BAD)
    ran = run("check", "p.yaml", "-o", "json")
    assert ran.code == 1
    assert (ran.json["ok"], ran.json["files"]) == (False, ["p.yaml"])
    assert ran.json["findings"][1] == {
        "file": "p.yaml",
        "line": 3,
        "column": 3,
        "code": "unknown_field",
        "message": "a step of duckdb has no `comand`.",
        "hint": "Did you mean `command`?",
        "severity": "error",
    }


def test_values_from_the_command_line_count() -> None:
    Path("p.yaml").write_text("- step: a\n  tool: duckdb\n  command: SELECT {{ number }}, {{ db.name }}\n")
    ran = run("check", "p.yaml")
    assert (ran.code, ran.out.count("error[")) == (1, 2)
    assert run("check", "p.yaml", "--set", "number=7", "--set", "db.name=x").code == 0
    assert run("check", "p.yaml", "--set", "number").code == 2


def test_a_folder_is_searched_for_playbooks() -> None:
    Path("books/deep").mkdir(parents=True)
    Path("books/a.yaml").write_text(GOOD)
    Path("books/deep/b.yml").write_text(BAD)
    Path("books/other.yaml").write_text("replicas: 3\n")
    found = run("check", "books", "-ojson").json
    assert found["files"] == ["books/a.yaml", "books/deep/b.yml"]


def test_warnings_alone_are_no_failure() -> None:
    Path("p.yaml").write_text("workload: {v: '{{ 1 }}'}\nworkflow: [{step: a}]\n")
    ran = run("check", "p.yaml")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "1 playbook: 0 errors, 1 warning")


def test_credentials_are_known_from_environment_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("p.yaml").write_text(WITH_AUTH)
    assert run("check", "p.yaml", "-ojson").json["findings"][0]["code"] == "unknown_credential"
    assert run("check", "p.yaml", "--offline").code == 0
    monkeypatch.setenv("HEADWATER_CREDENTIAL_WAREHOUSE", "postgresql://app@db/lake")
    assert run("check", "p.yaml").code == 0
    monkeypatch.delenv("HEADWATER_CREDENTIAL_WAREHOUSE")
    file = Path("credentials.yaml")
    file.write_text("warehouse: {type: postgres, uri: 'postgresql://app@db/lake'}\n")
    file.chmod(0o600)
    assert run("check", "p.yaml", "--credentials", "credentials.yaml").code == 0


def test_credentials_are_known_from_the_projects_lake(project: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("p.yaml").write_text(WITH_AUTH)
    assert run("check", "p.yaml").code == 1
    monkeypatch.setenv("ADDRESS", "postgresql://app@db/lake")
    assert run("credential", "add", "warehouse", "--type", "postgres", "--from-env", "ADDRESS").code == 0
    assert run("check", "p.yaml").code == 0


def test_a_file_is_needed() -> None:
    assert run("check").code == 2


def test_checking_imports_neither_spark_nor_a_database() -> None:
    Path("p.yaml").write_text(GOOD)
    code = (
        "import sys, atexit\n"
        "heavy = ('pyspark', 'pyarrow', 'duckdb', 'psycopg', 'sqlglot')\n"
        "atexit.register(lambda: print([m for m in heavy if m in sys.modules], file=sys.stderr))\n"
        "from headwater.cli import main; main(['check', 'p.yaml', '--offline'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"
