"""connect(): which lake is meant, and that it opens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg import conninfo

import headwater
from headwater.engine.connecting import resolve
from headwater.errors import (
    CatalogError,
    EmbeddedServerError,
    HeadwaterError,
    NotFoundError,
    SettingsError,
)
from headwater.settings import LakeSettings, Settings, load_settings
from headwater.storage.options import StorageOptions


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("HEADWATER_"):
            monkeypatch.delenv(name)


# -- which lake ---------------------------------------------------------------------------------------


def test_arguments_win_over_settings() -> None:
    settings = Settings(LakeSettings("postgresql://a/b", "meta", "/data"), {"s3_region": "eu"})
    target = resolve(settings)
    assert (target.dsn, target.metadata_schema, target.data_path) == ("postgresql://a/b", "meta", "/data")
    assert target.storage == StorageOptions(s3_region="eu")
    target = resolve(settings, data_path="/other", metadata_schema="m2", encrypted=True, storage={})
    assert (target.data_path, target.metadata_schema, target.encrypted) == ("/other", "m2", True)
    assert target.storage == StorageOptions()


@pytest.mark.parametrize("another", [{"dsn": "postgresql://c/d"}, {"folder": "elsewhere"}])
def test_a_lake_given_by_argument_takes_nothing_from_the_lake_of_the_settings(
    another: dict[str, str],
) -> None:
    settings = Settings(
        LakeSettings("postgresql://a/b", "meta", "/data", encrypted=True), {"s3_region": "eu"}
    )
    target = resolve(settings, **another)  # type: ignore[arg-type]
    assert (target.dsn, target.data_path) == (another.get("dsn"), None)
    assert (target.metadata_schema, target.encrypted) == ("public", False)
    assert target.storage.s3_region == "eu"


def test_two_places_at_once_are_refused() -> None:
    with pytest.raises(SettingsError, match="not both"):
        resolve(Settings(), dsn="postgresql://a/b", folder="x")


def test_a_bad_storage_section_is_named_with_its_place() -> None:
    Path("headwater.yaml").write_text("storage:\n  s3_region: x\n  max_attempts: 0\n")
    with pytest.raises(SettingsError, match=r"^headwater.yaml:3:3: max_attempts"):
        resolve(load_settings())


# -- an external catalog ------------------------------------------------------------------------------


def test_an_external_lake_opens_and_duckdb_sees_it(new_database: str, tmp_path: Path) -> None:
    with headwater.connect(new_database, data_path=tmp_path / "data", metadata_schema="m") as hw:
        assert not hw.embedded
        with hw.lake.transaction() as tx:
            tx.create_table("t", {"id": "int64"})
            tx.append("t", [{"id": 1}])
        with hw.duckdb(alias="dl") as session:
            assert session.execute("SELECT id FROM dl.main.t").fetchall() == [(1,)]
    with headwater.connect(new_database, metadata_schema="m", create=False) as hw:
        assert hw.lake.read("t").to_pydict() == {"id": [1]}
    with pytest.raises(NotFoundError):
        headwater.connect(new_database, metadata_schema="other", create=False)


def test_the_settings_file_names_the_lake(new_database: str, tmp_path: Path) -> None:
    Path("headwater.yaml").write_text(f"lake:\n  catalog: {new_database!r}\n  data_path: files\n")
    with headwater.connect() as hw:
        assert hw.lake.data_path == f"{tmp_path}/files/"
        assert hw.settings.file == Path("headwater.yaml")
    assert not Path(".headwater").exists()


def test_secrets_are_not_shown(new_database: str, tmp_path: Path) -> None:
    with psycopg.connect(new_database) as connection:
        connection.execute("DROP ROLE IF EXISTS teller")
        connection.execute("CREATE ROLE teller LOGIN SUPERUSER PASSWORD 'hush'")
    dsn = conninfo.make_conninfo(new_database, user="teller", password="hush")
    storage = {"s3_access_key_id": "id", "s3_secret_access_key": "hush"}
    with headwater.connect(dsn, data_path=tmp_path / "d", storage=storage) as hw:
        assert "teller" in repr(hw)
        assert "hush" not in repr(hw) + repr(hw.lake) + repr(hw.settings) + hw.lake.uri


def test_a_catalog_that_does_not_answer_is_an_error_without_the_password() -> None:
    with pytest.raises(CatalogError) as caught:
        headwater.connect("postgresql://app:hush@127.0.0.1:1/lake", data_path="x")
    assert "hush" not in str(caught.value)


# -- the embedded default -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose embedded lake several tests use; its server runs meanwhile."""
    folder = tmp_path_factory.mktemp("home")
    with headwater.connect(folder=folder / ".headwater"):
        yield folder


def test_without_arguments_the_lake_is_in_the_folder_one_is_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    with headwater.connect() as hw:
        assert hw.embedded
        assert hw.lake.data_path == f"{home}/.headwater/data/"
        with hw.lake.transaction() as tx:
            tx.create_table("t", {"id": "int64"}, or_replace=True)
            tx.append("t", pa.table({"id": range(100)}))
    with headwater.connect(create=False) as hw:
        assert hw.lake.read("t").num_rows == 100
    assert (home / ".headwater" / ".gitignore").read_text() == "*\n"


def test_reading_a_lake_that_is_not_there_creates_nothing() -> None:
    with pytest.raises(NotFoundError, match=r"no lake in \.headwater"):
        headwater.connect(create=False)
    assert not Path(".headwater").exists()


@pytest.mark.parametrize("folder", [".headwater", "file/inside"])
def test_a_file_in_the_way_is_named(folder: str) -> None:
    Path(folder.split("/")[0]).write_text("")
    with pytest.raises(SettingsError) as caught:
        headwater.connect(folder=folder)
    assert "file" in f"{caught.value.message} {caught.value.hint}"


def test_a_data_path_that_is_a_file_is_refused_and_the_server_stops(tmp_path: Path) -> None:
    Path("plain").write_text("")
    with pytest.raises(SettingsError, match="is a file"):
        headwater.connect(folder="lake", data_path="plain")
    log = (tmp_path / "lake" / "postgres" / "postgres.log").read_text()
    assert "database system is shut down" in log


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SettingsError, match="cannot be made"):
        headwater.connect()
    tmp_path.chmod(0o700)


def test_a_broken_folder_of_the_server_is_named() -> None:
    Path(".headwater").mkdir()
    Path(".headwater/postgres").write_text("")
    with pytest.raises(EmbeddedServerError, match="postgres"):
        headwater.connect()


def test_a_folder_that_was_moved_or_copied_uses_its_own_data(tmp_path: Path) -> None:
    with headwater.connect(folder="one/.headwater") as hw, hw.lake.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
        tx.append("t", pa.table({"id": range(50)}))
    shutil.copytree("one", "two", symlinks=True)
    with headwater.connect(folder="two/.headwater") as hw:
        assert hw.lake.data_path == f"{tmp_path}/two/.headwater/data/"
        assert hw.lake.read("t").num_rows == 50
        shutil.rmtree("one")
        with hw.lake.transaction() as tx:
            tx.append("t", pa.table({"id": range(50)}))
        with hw.duckdb() as session:
            assert session.execute("SELECT count(*) FROM t").fetchall() == [(100,)]


WRITER = """
import os, sys, headwater
number = int(sys.argv[1])
with headwater.connect() as hw:
    def work(tx):
        tx.create_table("t", {"writer": "int64", "n": "int64"}, if_not_exists=True)
        tx.append("t", [{"writer": number, "n": 0}])
    hw.lake.run(work, attempts=50)
    print("ready", flush=True)
    sys.stdin.readline()
    hw.lake.run(lambda tx: tx.append("t", [{"writer": number, "n": 1}]), attempts=50)
"""


def test_several_processes_share_it_and_one_that_is_killed_leaves_it_usable(tmp_path: Path) -> None:
    """All begin at once in an empty folder; one is killed in the middle, the others go on."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for number in range(3)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait(30)
        for writer in writers[1:]:
            writer.communicate("\n", timeout=120)
            assert writer.returncode == 0
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    with headwater.connect() as hw:
        rows = hw.lake.read("t").to_pylist()
    assert sorted((row["writer"], row["n"]) for row in rows) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]


# -- the package --------------------------------------------------------------------------------------


def test_the_package_offers_what_it_says() -> None:
    assert set(headwater.__all__) <= set(dir(headwater))
    for name in headwater.__all__:
        assert getattr(headwater, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headwater.nothing
    assert issubclass(SettingsError, HeadwaterError)
