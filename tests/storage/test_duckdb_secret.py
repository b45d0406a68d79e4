"""DuckDB reaches the same files with the same credentials, and reads names the same way."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import UnsupportedError
from headwater.storage.duckdb_secret import duckdb_secret
from headwater.storage.options import StorageOptions
from headwater.storage.store import Store
from tests.servers import S3Server
from tests.storage.places import s3_options, s3_place

NAMES = ["plain", "b=a%20b/x", "a b", "quo'te\"s", "ünï 漢字", "a+b&c=d,e;f@g:h!i$j(k)#l"]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    spec = importlib.util.find_spec("duckdb_extension_httpfs")
    assert spec is not None
    assert spec.origin is not None
    (extension,) = Path(spec.origin).parent.glob("extensions/*/httpfs.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        yield connection


def copy_to(connection: duckdb.DuckDBPyConnection, location: str) -> None:
    connection.execute(
        f"COPY (SELECT 42 AS n) TO '{location.replace(chr(39), chr(39) * 2)}' (FORMAT parquet)"
    )


def write_table(store: Store, location: str) -> None:
    with store.open_output(location) as sink:
        pq.write_table(pa.table({"n": [7]}), sink)


def read_both_ways(connection: duckdb.DuckDBPyConnection, store: Store, folder: str) -> None:
    for name in NAMES:
        copy_to(connection, f"{folder}{name}.duckdb")
        write_table(store, f"{folder}{name}.ours")

        with store.open_input(f"{folder}{name}.duckdb") as file:
            assert pq.read_table(file).to_pydict() == {"n": [42]}
        ours = connection.execute("SELECT n FROM read_parquet(?)", [f"{folder}{name}.ours"]).fetchall()
        assert ours == [(7,)]
    assert len(list(store.list(folder))) == 2 * len(NAMES)


@pytest.mark.s3
def test_duckdb_and_we_read_each_other_on_s3(s3: S3Server, connection: duckdb.DuckDBPyConnection) -> None:
    place = s3_place(s3)
    secret = duckdb_secret(place.store.options, place.folder)
    assert secret is not None
    connection.execute(*secret)

    read_both_ways(connection, place.store, place.folder)


@pytest.mark.parametrize("prefix", ["", "file://", "file://localhost", "file:"])
def test_duckdb_and_we_read_each_other_on_disk(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, prefix: str
) -> None:
    folder = f"{prefix}{tmp_path}/per%20cent/"
    (tmp_path / "per%20cent/b=a%20b").mkdir(parents=True)
    assert duckdb_secret(StorageOptions(), folder) is None

    read_both_ways(connection, Store(), folder)

    assert (tmp_path / "per%20cent/a b.duckdb").exists()


@pytest.mark.s3
def test_a_secret_reaches_no_further_than_its_scope(
    s3: S3Server, connection: duckdb.DuckDBPyConnection
) -> None:
    place, elsewhere = s3_place(s3), s3_place(s3)
    secret = duckdb_secret(place.store.options, place.folder, name='odd "name"')
    assert secret is not None
    connection.execute(*secret)
    write_table(place.store, place.folder + "x")
    write_table(elsewhere.store, elsewhere.folder + "x")

    assert connection.execute("SELECT n FROM read_parquet(?)", [place.folder + "x"]).fetchall() == [(7,)]
    with pytest.raises(duckdb.Error):
        connection.execute("SELECT n FROM read_parquet(?)", [elsewhere.folder + "x"])


def test_the_statement_holds_no_value(connection: duckdb.DuckDBPyConnection) -> None:
    options = StorageOptions(
        s3_access_key_id="KEYID",
        s3_secret_access_key="hush'",
        s3_session_token="token",
        s3_region="eu-west-1",
    )
    secret = duckdb_secret(options, "s3://lake/")
    assert secret is not None
    statement, values = secret

    assert "hush" not in statement
    assert "KEYID" not in statement
    assert {"KEYID", "hush'", "token", "eu-west-1", "s3://lake/"} <= set(values)
    connection.execute(statement, values)
    connection.execute(statement, values)  # again: it replaces itself
    (shown,) = connection.execute("SELECT secret_string FROM duckdb_secrets()").fetchall()
    assert "hush" not in str(shown)


def test_anonymous_access_needs_no_keys(connection: duckdb.DuckDBPyConnection) -> None:
    secret = duckdb_secret(StorageOptions(s3_anonymous=True), "s3://lake/")
    assert secret is not None
    connection.execute(*secret)


def test_without_keys_there_is_nothing_to_hand_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SHARED_CREDENTIALS_FILE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(UnsupportedError, match="needs keys"):
        duckdb_secret(StorageOptions(), "s3://lake/")


@pytest.mark.parametrize("scope", ["gs://lake/", "az://lake/"])
def test_stores_that_duckdb_cannot_be_given_are_named(scope: str) -> None:
    with pytest.raises(UnsupportedError, match=scope):
        duckdb_secret(StorageOptions(azure_account_name="a"), scope)


@pytest.mark.s3
def test_the_region_is_handed_over_too(s3: S3Server, connection: duckdb.DuckDBPyConnection) -> None:
    place = s3_place(s3)
    secret = duckdb_secret(s3_options(s3, s3_region="eu-west-1"), place.folder)
    assert secret is not None
    connection.execute(*secret)

    assert "region=eu-west-1" in str(
        connection.execute("SELECT secret_string FROM duckdb_secrets()").fetchall()
    )
