"""Credentials: where they are found, how they are kept, and that nobody sees them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import conninfo

from headwater.errors import CredentialError
from headwater.lake.lake import Lake
from headwater.playbook.credentials.registry import Credentials, read_credentials
from headwater.playbook.credentials.types import (
    Credential,
    credential_for,
    dsn_for,
    dsn_secrets,
    make_credential,
    parse_credential,
)
from headwater.playbook.runners.worker import TaskWorker
from headwater.playbook.task import TaskFailed

PASSWORD = "p'ss w\"rd@:/%?#ü"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ada:s%20ecret@db:5433/shop?sslmode=require",
        "host=db port=5433 user=ada password='s ecret' dbname=shop sslmode=require",
        '{"type": "postgres", "host": "db", "port": 5433, "user": "ada", "password": "s ecret", '
        '"dbname": "shop", "sslmode": "require"}',
        '{"name": "x", "type": "postgres", "data": {"db_host": "db", "db_port": "5433", "db_user": "ada", '
        '"db_password": "s ecret", "db_name": "shop", "sslmode": "require"}}',
        '{"fields": {"uri": "postgresql://ada@db:1/shop", "port": 5433, "password": "s ecret", '
        '"sslmode": "require"}}',
    ],
)
def test_a_postgres_credential_is_understood_in_every_form(text: str) -> None:
    found = parse_credential("shop", text)
    assert conninfo.conninfo_to_dict(found.dsn) == {
        "host": "db",
        "port": "5433",
        "user": "ada",
        "password": "s ecret",
        "dbname": "shop",
        "sslmode": "require",
    }
    assert found.secrets() == ["s ecret"]
    assert "s ecret" not in repr(found) + str(found.shown())


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1))
@settings(max_examples=200, deadline=None)
def test_any_password_comes_through(password: str) -> None:
    found = make_credential("x", "postgres", {"host": "db", "user": "ada", "password": password})
    assert conninfo.conninfo_to_dict(found.dsn)["password"] == password
    again = parse_credential("x", found.text())
    assert again == found
    assert dsn_secrets(found.dsn) == [password]


def test_other_types_and_what_they_hide() -> None:
    s3 = make_credential("lake", "s3", {"key_id": "AK", "secret": "SK", "region": "eu", "use_ssl": True})
    assert s3.shown() == {
        "access_key_id": "AK",
        "secret_access_key": "***",
        "region": "eu",
        "use_ssl": "true",
    }
    generic = parse_credential("api", "just-a-token")
    assert (generic.type, generic.fields, generic.shown()) == (
        "generic",
        {"value": "just-a-token"},
        {"value": "***"},
    )


@pytest.mark.parametrize(
    ("kind", "fields", "message", "hint"),
    [
        ("postgres", {"hots": "db"}, "has a field 'hots'", "Did you mean 'host'?"),
        ("postgres", {"uri": "postgresql://a:hunter2@[/x"}, "cannot be understood", "postgresql://"),
        ("postgres", {}, "has no fields", "host, dbname"),
        ("s3", {"access_key_id": "x"}, "lacks secret_access_key", ""),
        ("postgers", {"a": 1}, "There is no type of credential 'postgers'.", "Did you mean 'postgres'?"),
        ("generic", {}, "has no fields", ""),
    ],
)
def test_mistakes_are_named_without_the_secret(
    kind: str, fields: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(CredentialError, match=message) as raised:
        make_credential("x", kind, fields)
    assert hint in (raised.value.hint or "")
    assert "hunter2" not in str(raised.value)


def test_kept_credentials_are_encrypted_and_can_be_replaced_and_removed(lake: Lake) -> None:
    credentials = Credentials(lake)
    assert credentials.names() == []
    first = make_credential("shop", "postgres", {"host": "db", "user": "ada", "password": PASSWORD})
    assert credentials.add(first) is False
    assert credentials.get("shop") == first
    assert pickle.loads(pickle.dumps(credentials)).secret("credential:shop") == first.text()
    second = make_credential("shop", "postgres", {"host": "db2", "password": "other"})
    assert credentials.add(second) is True
    assert credentials.get("shop") == second
    (listed,) = credentials.listed()
    assert (listed.name, listed.type, listed.where, listed.shown) == (
        "shop",
        "postgres",
        "lake",
        "host=db2 password=***",
    )
    with psycopg.connect(lake.dsn) as connection:
        (count,) = connection.execute("SELECT count(*) FROM headwater.secret").fetchone() or ()
        assert count == 1, "the replaced one is still there"
        rows = connection.execute("SELECT t::text FROM headwater.credential t").fetchall()
    assert "other" not in str(rows)
    credentials.remove("shop")
    with pytest.raises(CredentialError, match="There is no credential 'shop'"):
        credentials.remove("shop")


def test_files_come_before_the_environment_and_that_before_the_lake(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Credentials(lake).add(make_credential("my-shop", "postgres", {"host": "of the lake"}))
    assert Credentials(lake).get("my-shop").fields["host"] == "of the lake"
    monkeypatch.setenv("HEADWATER_CREDENTIAL_MY_SHOP", "postgresql://env/shop")
    assert Credentials(lake).get("my-shop").fields["host"] == "env"
    file = tmp_path / "credentials.yaml"
    file.write_text("my-shop: {type: postgres, host: file, password: x}\nother: plain text\n")
    file.chmod(0o600)
    monkeypatch.setenv("HEADWATER_CREDENTIALS", str(file))
    assert Credentials(lake).get("my-shop").fields["host"] == "file"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "my-shop.json").write_text('{"uri": "postgresql://folder/shop"}')
    (folder / "my-shop.json").chmod(0o400)
    first = Credentials(lake, [folder])
    assert first.get("my-shop").fields["host"] == "folder"
    assert first.names() == ["my-shop", "my_shop", "other"]


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("a: hunter2")
    file.chmod(0o640)
    with pytest.raises(CredentialError, match="Others than its owner") as raised:
        read_credentials(file)
    assert (raised.value.hint, raised.value.detail) == (f"chmod 600 {file}", "Its mode is -rw-r-----.")
    file.chmod(0o600)
    file.write_text("hunter2: [")
    with pytest.raises(CredentialError, match="cannot be read as YAML") as raised:
        read_credentials(file)
    assert "hunter2" not in str(raised.value)
    with pytest.raises(CredentialError, match="No such file"):
        read_credentials(tmp_path / "nowhere")


def test_a_missing_credential_is_its_own_error_with_the_nearest_name(lake: Lake) -> None:
    Credentials(lake).add(make_credential("warehouse", "generic", {"token": "t"}))
    with pytest.raises(CredentialError) as raised:
        Credentials(lake).get("werehouse")
    assert raised.value.hint == "Did you mean 'warehouse'?"
    with pytest.raises(CredentialError) as raised:
        Credentials(None).get("shop")
    assert "headwater credential add shop" in (raised.value.hint or "")


def test_tools_get_addresses_from_a_name_a_mapping_or_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = make_credential("shop", "postgres", {"host": "db", "password": PASSWORD})
    worker = TaskWorker("w", {"credential:shop": shop.text(), "env:PW": "from env"}.__getitem__)
    assert dsn_for({"auth": "credential:shop"}, worker) == shop.dsn
    assert dsn_for({"auth": "credential:shop", "catalog_connection": "host=mine"}, worker) == "host=mine"
    mapped = dsn_for({"auth": {"host": "db", "password": "env:PW"}}, worker)
    assert conninfo.conninfo_to_dict(mapped) == {"host": "db", "password": "from env"}
    with pytest.raises(TaskFailed) as raised:
        dsn_for({}, worker)
    assert raised.value.error.kind == "field"
    api = Credential("api", "generic", {"token": "hunter2"})
    worker = TaskWorker("w", {"credential:api": api.text()}.__getitem__)
    with pytest.raises(TaskFailed, match="of type generic") as raised:
        dsn_for({"auth": "credential:api"}, worker)
    assert raised.value.error.kind == "credential"
    assert "hunter2" not in str(raised.value)
    assert credential_for("credential:api", worker) == api
    assert json.loads(api.text())["type"] == "generic"
