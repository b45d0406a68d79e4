"""`headwater init` makes a lake and a settings file that names it, once."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

import headwater
from headwater.settings import load_settings
from tests.cli.running import run

TEMPLATE_EXAMPLE = re.compile(r"^(\s*)# (\s*[a-z0-9_.]+:(?: \S+)?)$", re.MULTILINE)


def test_without_options_the_lake_is_embedded(empty_folder: Path) -> None:
    first = run("init", "-o", "json").json
    assert (first["lake_created"], first["config_created"], first["embedded"]) == (True, True, True)
    assert first["data_path"] == f"{empty_folder}/.headwater/data/"
    again = run("init")
    assert again.code == 0
    assert "is there already" in again.out
    assert "kept as it is" in again.out
    with headwater.connect() as hw:  # by the settings file
        assert hw.settings.file == Path("headwater.yaml")
        assert hw.lake.data_path == first["data_path"]
    assert run("tables").code == 0


def test_a_new_project_runs(empty_folder: Path) -> None:
    made = run("init", "-o", "json").json
    assert made["example"] == "streams/revenue_by_region.sql"
    planned = run("plan", "-o", "json").json
    assert [step["kind"] for step in planned["steps"]] == ["create"]
    assert run("apply").code == 0
    assert run("sql", "INSERT INTO example.orders VALUES (7, 'east', 10, now())").code == 0
    ran = run("run", "--once", "-o", "json")
    assert ran.code == 0
    with headwater.connect() as hw, hw.duckdb() as session:
        found = dict(session.execute("SELECT region, orders FROM example.revenue_by_region").fetchall())
    assert found == {"north": 2, "south": 2, "east": 2, "west": 1}


def test_an_example_is_only_for_those_who_want_it(new_database: str, empty_folder: Path) -> None:
    options = ["--catalog", new_database, "--data-path", "files"]
    assert run("init", *options, "-o", "json").json["example"] is None
    assert not Path("streams").exists()
    assert (
        run("init", "--no-example", "--folder", "other", "--config", "o.yaml", "-o", "json").json["example"]
        is None
    )


def test_an_external_catalog_is_named_in_the_file(new_database: str, empty_folder: Path) -> None:
    options = ["--catalog", new_database, "--metadata-schema", "meta", "--data-path", "files"]
    made = run("init", *options, "-o", "json").json
    assert (made["lake_created"], made["embedded"], made["metadata_schema"]) == (True, False, "meta")
    settings = load_settings()
    assert settings.lake.metadata_schema == "meta"
    assert settings.lake.data_path == f"{empty_folder}/files"
    assert run("snapshots").code == 0
    assert not Path(".headwater").exists()
    # A lake that is there, and no file yet.
    Path("headwater.yaml").unlink()
    again = run("init", "--catalog", new_database, "--metadata-schema", "meta", "-o", "json").json
    assert (again["lake_created"], again["config_created"]) == (False, True)


def test_a_password_is_not_written_to_the_file(new_database: str) -> None:
    with psycopg.connect(new_database) as connection:
        connection.execute("DROP ROLE IF EXISTS keeper")
        connection.execute("CREATE ROLE keeper LOGIN SUPERUSER PASSWORD 'hush'")
    dsn = conninfo.make_conninfo(new_database, user="keeper", password="hush")
    ran = run("init", "--catalog", dsn, "--data-path", "d")
    assert ran.code == 0
    assert "PGPASSWORD" in ran.out
    assert "hush" not in ran.out + ran.err + Path("headwater.yaml").read_text()
    assert "keeper" in (load_settings().lake.catalog or "")


def test_a_new_lake_elsewhere_needs_a_data_path(new_database: str) -> None:
    ran = run("init", "--catalog", new_database)
    assert ran.code == 1
    assert "--data-path" in ran.err
    assert not Path("headwater.yaml").exists()


def test_nothing_is_written_when_the_catalog_does_not_answer() -> None:
    ran = run("init", "--catalog", "postgresql://app:hush@127.0.0.1:1/x", "--data-path", "d", "-o", "json")
    assert (ran.code, ran.error["code"], ran.error["retryable"]) == (1, "catalog_unavailable", True)
    assert "hush" not in ran.err
    assert not Path("headwater.yaml").exists()


def test_an_encrypted_lake(new_database: str) -> None:
    made = run("init", "--catalog", new_database, "--data-path", "d", "--encrypted", "-o", "json").json
    assert made["encrypted"] is True
    assert load_settings().lake.encrypted


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        (["--catalog", "postgresql://app:hush@other/db"], "lake.catalog"),
        (["--data-path", "elsewhere"], "lake.data_path"),
        (["--metadata-schema", "other"], "lake.metadata_schema"),
        (["--encrypted"], "lake.encrypted"),
    ],
)
def test_options_that_contradict_the_file_are_refused(
    new_database: str, options: list[str], setting: str
) -> None:
    given = ["--catalog", new_database, "--data-path", "d"]
    assert run("init", *given).code == 0
    assert run("init", "--data-path", "d").code == 0  # says the same
    ran = run("init", *options, "-o", "json")
    assert (ran.code, ran.error["code"], ran.error["setting"]) == (1, "settings", setting)
    assert "hush" not in ran.err


def test_a_file_elsewhere_gets_paths_that_work_from_there(new_database: str, empty_folder: Path) -> None:
    made = run(
        "init", "--config", "conf/hw.yaml", "--catalog", new_database, "--data-path", "d", "-ojson"
    ).json
    assert made["config"] == "conf/hw.yaml"
    assert load_settings("conf/hw.yaml").lake.data_path == str(empty_folder / "d")
    assert run("tables", "--config", "conf/hw.yaml").code == 0


def test_a_folder_where_no_file_can_be_written_is_named(new_database: str) -> None:
    Path("conf").write_text("a file")
    ran = run("init", "--config", "conf/hw.yaml", "--catalog", new_database, "--data-path", "d")
    assert ran.code == 1
    assert "conf/hw.yaml" in ran.err


def test_every_example_in_the_file_is_a_setting(new_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init", "--catalog", new_database, "--data-path", "d")
    text = Path("headwater.yaml").read_text()
    filled, examples = TEMPLATE_EXAMPLE.subn(r"\1\2", text)
    assert examples >= 8
    for name in ("PGPASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    Path("headwater.yaml").write_text(filled)
    settings = load_settings()
    assert settings.spark.master == "local[*]"
    assert settings.storage["s3_region"] == "us-east-1"
    assert settings.maintenance.keep_last == 100


def test_it_never_asks(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run("init", "--catalog", "nonsense", "--data-path", "d").code == 1
