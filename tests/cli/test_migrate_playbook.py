"""`headwater migrate-playbook`."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from headwater.lake.lake import Lake
from tests.cli.running import run
from tests.support import duck

PLAYBOOK = """\
- step: process_data  # every night
  tool: duckdb
  database_path: "data/mydb.duckdb"
  command: |
    CREATE TABLE IF NOT EXISTS results (id INTEGER, value VARCHAR);
    INSERT INTO results VALUES (1, 'test');
"""


@pytest.fixture
def old(empty_folder: Path) -> Path:
    Path("data").mkdir()
    with duckdb.connect("data/mydb.duckdb") as connection:
        connection.execute("CREATE TABLE results (id INTEGER PRIMARY KEY, value VARCHAR)")
        connection.execute("INSERT INTO results VALUES (7, 'old')")
    Path("p.yaml").write_text(PLAYBOOK)
    return empty_folder


def test_a_playbook_moves_with_its_tables_and_only_once(
    old: Path, new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CREDENTIAL_WAREHOUSE", new_database)
    shown = run("migrate-playbook", "p.yaml", "--auth", "warehouse", "--dry-run")
    assert shown.code == 0
    assert '+  catalog_name: "mydb"' in shown.out.splitlines()
    assert Path("p.yaml").read_text() == PLAYBOOK
    assert not Path("data/ducklake").exists()

    for times in range(2):
        ran = run("migrate-playbook", "p.yaml", "--auth", "warehouse", "--out", "new.yaml", "-o", "json")
        assert ran.code == 0, ran.err
        assert ran.json["databases"] == [
            {
                "catalog_name": "mydb",
                "copied": [
                    {
                        "name": "main.results",
                        "kind": "table",
                        "rows": 1,
                        "action": "there" if times else "copied",
                    }
                ],
            }
        ]
    lake = Lake.open(new_database, metadata_schema="mydb", create=False)
    assert Path(lake.data_path).is_relative_to(old / "data" / "ducklake")
    lake.close()
    with duck(new_database, metadata_schema="mydb") as session:
        assert session.execute("SELECT * FROM results").fetchall() == [(7, "old")]

    assert run("migrate-playbook", "p.yaml", "--auth", "warehouse").code == 0
    assert Path("p.yaml").read_text() == Path("new.yaml").read_text()
    assert Path("p.yaml.orig").read_text() == PLAYBOOK
    again = run("migrate-playbook", "p.yaml", "--auth", "warehouse")
    assert again.out.splitlines() == ["nothing to do: no step works on a database file"]
    assert run("check", "p.yaml").code == 0


def test_without_copying_no_database_is_needed(old: Path) -> None:
    ran = run("migrate-playbook", "p.yaml", "--catalog-connection", "postgresql://app@db/lake", "--no-copy")
    assert ran.code == 0
    assert '  catalog_connection: "postgresql://app@db/lake"\n' in Path("p.yaml").read_text()


@pytest.mark.parametrize(
    "options",
    [[], ["--auth", "x", "--catalog-connection", "y"], ["--catalog-connection", "postgresql://a:b@c/d"]],
)
def test_where_to_must_be_said_once_and_without_a_password(old: Path, options: list[str]) -> None:
    ran = run("migrate-playbook", "p.yaml", *options)
    assert (ran.code, Path("p.yaml").read_text()) == (2, PLAYBOOK)
    assert "a:b" not in ran.err


def test_nothing_changes_when_copying_fails(old: Path) -> None:
    Path("data/mydb.duckdb").write_text("broken")
    ran = run("migrate-playbook", "p.yaml", "--auth", "warehouse", "-o", "json")
    assert (ran.code, ran.error["code"]) == (1, "playbook")
    assert Path("p.yaml").read_text() == PLAYBOOK
