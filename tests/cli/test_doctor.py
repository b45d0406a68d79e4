"""`headwater doctor` looks at everything, changes nothing, and says what to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql

from headwater.engine import doctor
from headwater.lake.lake import Lake
from tests.cli.running import run


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in report["checks"]}


def test_a_sound_project(project: Lake) -> None:
    before = sorted(Path("data").rglob("*"))
    ran = run("doctor", "--output", "json")
    report = ran.json
    assert (ran.code, report["ok"], report["findings"]) == (0, True, [])
    assert list(by_name(report)) == [
        "python", "java", "duckdb", "spark", "settings", "postgresql", "own schema", "storage", "attach",
        "health",
    ]  # fmt: skip
    assert {check["status"] for check in report["checks"]} == {"ok"}
    assert sorted(Path("data").rglob("*")) == before
    with psycopg.connect(project.dsn) as connection:
        left = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'headwater' AND tablename LIKE 'probe%'"
        ).fetchone()
    assert left == (0,)


def test_a_fault_of_the_lake_fails_and_is_explained(project: Lake) -> None:
    with psycopg.connect(project.dsn) as connection:
        connection.execute("UPDATE ducklake_snapshot_changes SET changes_made = '' WHERE snapshot_id = 1")
        connection.execute("UPDATE ducklake_data_file SET file_size_bytes = 1")
    ran = run("doctor", "--output", "json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    assert by_name(ran.json)["health"]["status"] == "fail"
    assert [f["code"] for f in ran.json["findings"]] == ["snapshot_changes", "file_size"]
    assert ran.json["findings"][1]["table"] == "sales.orders"
    text = run("doctor", "--deep")
    assert text.code == 1
    assert "fail file_size in sales.orders: 1 file(s)" in text.out
    assert "     do:  Restore the file" in text.out
    assert text.err == ""


def test_orphaned_files_are_a_warning_and_no_failure(project: Lake) -> None:
    left = Path("data/left.parquet")
    left.write_bytes(b"x")
    os.utime(left, (0, 0))
    ran = run("doctor")
    assert ran.code == 0
    assert "warn file_orphaned: 1 file(s)" in ran.out


def test_without_a_lake_it_checks_the_machine_and_creates_nothing() -> None:
    ran = run("doctor", "-o", "json")
    assert ran.code == 0
    assert by_name(ran.json)["catalog"]["status"] == "warn"
    assert os.listdir() == []


def test_bad_settings_fail_without_a_traceback() -> None:
    Path("headwater.yaml").write_text("lake: 3\n")
    ran = run("doctor", "-o", "json")
    assert ran.code == 1
    assert by_name(ran.json)["settings"]["status"] == "fail"


def test_a_catalog_that_does_not_answer_fails_and_hides_the_password() -> None:
    Path("headwater.yaml").write_text("lake: {catalog: 'postgresql://app:hush@127.0.0.1:1/x'}\n")
    ran = run("doctor")
    assert ran.code == 1
    assert "fail catalog" in ran.out
    assert "hush" not in ran.out + ran.err


def test_a_storage_that_does_not_answer_fails_and_skips_the_files(new_database: str) -> None:
    Lake.open(new_database, data_path="s3://bucket/lake").close()
    Path("headwater.yaml").write_text(
        f"lake: {{catalog: {new_database!r}}}\n"
        "storage: {s3_endpoint: 'http://127.0.0.1:1', s3_access_key_id: id, s3_secret_access_key: hush, "
        "max_attempts: 1, connect_timeout: 1, request_timeout: 1}\n"
    )
    ran = run("doctor", "-o", "json")
    checks = by_name(ran.json)
    assert ran.code == 1
    assert (checks["storage"]["status"], checks["health"]["status"]) == ("fail", "skip")
    assert checks["postgresql"]["status"] == "ok"
    assert "hush" not in ran.out + ran.err


def test_a_user_who_may_not_write_our_schema_is_told_how(project: Lake) -> None:
    with psycopg.connect(project.dsn, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
        name = sql.Identifier(str(conninfo.conninfo_to_dict(project.dsn)["dbname"]))
        connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM guest").format(name))
    dsn = conninfo.make_conninfo(project.dsn, user="guest")
    Path("headwater.yaml").write_text(f"lake: {{catalog: {dsn!r}}}\n")
    ran = run("doctor", "-o", "json")
    check = by_name(ran.json)["own schema"]
    assert (ran.code, check["status"]) == (1, "fail")
    assert "GRANT" in check["hint"]


def test_a_catalog_that_duckdb_cannot_read_fails(project: Lake) -> None:
    with psycopg.connect(project.dsn) as connection:
        connection.execute("UPDATE ducklake_view SET column_aliases = NULL")
    ran = run("doctor", "-o", "json")
    assert ran.code == 1
    assert by_name(ran.json)["attach"]["status"] == "fail"
    assert [f["code"] for f in ran.json["findings"]] == ["view_aliases"]


# -- the machine --------------------------------------------------------------------------------------


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "status"), [("21.0.2", "ok"), ("17", "ok"), ("11.0.1", "fail"), ("1.8.0_392", "fail")]
)
def test_java_home_comes_first_and_must_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str
) -> None:
    java = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    check = doctor.check_java()
    assert (check.status, version in check.message, str(java) in check.message) == (status, True, True)
    assert (check.hint is None) == (status == "ok")


def test_no_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_java()
    assert check.status == "fail"
    assert "apt-get install openjdk-17-jre-headless" in (check.hint or "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert doctor.check_java().status == "fail"
    fake_java(tmp_path / "odd", '"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "odd"))
    assert doctor.check_java().status == "fail"


def test_packages_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"pyspark": "4.1.0", "duckdb-extension-httpfs": "1.4.0"}
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda package: found.get(package) or real(package))
    duckdb_check, spark_check = doctor.check_versions()
    assert (duckdb_check.status, spark_check.status) == ("fail", "fail")
    assert "duckdb-extension-httpfs==1.5.5" in (duckdb_check.hint or "")
    assert "pyspark~=4.3" in (spark_check.hint or "")
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    assert [check.status for check in doctor.check_versions()] == ["fail", "fail"]


def test_an_old_server_is_refused(project: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "server_version", lambda db: (13, "13.9"))
    check = by_name(run("doctor", "-o", "json").json)["postgresql"]
    assert (check["status"], check["hint"]) == ("fail", "Use PostgreSQL 14 or newer.")
