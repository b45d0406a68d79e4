"""Passwords that are kept encrypted."""

from __future__ import annotations

import stat
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet

from headwater.errors import InvalidInputError, NotFoundError, SettingsError
from headwater.lake.lake import Lake
from headwater.lake.secrets import KEY_VARIABLE, Secrets, key_file, without_password

DSN = "postgresql://me:hunter2@example.invalid/shop"


@pytest.fixture(autouse=True)
def own_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_a_stored_text_comes_back_and_the_database_cannot_read_it(lake: Lake) -> None:
    reference = Secrets(lake).put(DSN)
    assert reference.startswith("secret:")
    assert Secrets(lake).get(reference) == DSN
    with psycopg.connect(lake.dsn) as connection:
        sealed = connection.execute("SELECT sealed FROM headwater.secret").fetchall()
    assert len(sealed) == 1
    assert b"hunter2" not in bytes(sealed[0][0])


def test_the_key_is_for_its_user_alone(lake: Lake) -> None:
    Secrets(lake).put(DSN)
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600


def test_a_deleted_text_is_gone(lake: Lake) -> None:
    secrets = Secrets(lake)
    reference = secrets.put(DSN)
    secrets.delete(reference)
    with pytest.raises(NotFoundError):
        secrets.get(reference)


def test_another_key_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Secrets(lake).put(DSN)
    monkeypatch.setenv(KEY_VARIABLE, Fernet.generate_key().decode())
    with pytest.raises(SettingsError, match="another key") as caught:
        Secrets(lake).get(reference)
    assert "hunter2" not in str(caught.value)


def test_without_a_key_nothing_is_read_and_none_is_made(lake: Lake) -> None:
    reference = Secrets(lake).put(DSN)
    key_file().unlink()
    with pytest.raises(SettingsError, match="no key"):
        Secrets(lake).get(reference)
    assert not key_file().exists()


def test_the_environment_can_hold_a_text(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", DSN)
    assert Secrets(lake).get("env:SHOP_DSN") == DSN
    with pytest.raises(SettingsError, match="NO_SUCH_NAME"):
        Secrets(lake).get("env:NO_SUCH_NAME")


def test_other_texts_stand_for_themselves(lake: Lake) -> None:
    assert Secrets(lake).get("host=/run/pg dbname=shop") == "host=/run/pg dbname=shop"


def test_a_bad_reference_and_a_bad_key_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError):
        Secrets(lake).get("secret:nonsense")
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(SettingsError, match=KEY_VARIABLE):
        Secrets(lake).put(DSN)


@pytest.mark.parametrize("dsn", [DSN, "host=x password=hunter2 dbname=shop", "postgresql://x:hunter2@["])
def test_addresses_are_shown_without_their_password(dsn: str) -> None:
    assert "hunter2" not in without_password(dsn)
