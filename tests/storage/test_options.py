from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import SettingsError, StorageError, StorageUnavailableError
from headwater.storage.options import StorageOptions
from headwater.storage.store import Store
from tests.servers import S3Server
from tests.storage.places import s3_place

CREDENTIALS = """
[default]
aws_access_key_id = DEFAULTKEY
aws_secret_access_key = default%secret

[work]
aws_access_key_id = WORKKEY
aws_secret_access_key = work/sec=ret+
aws_session_token = worktoken
"""
CONFIG = """
[default]
region = eu-central-1

[profile work]
region = eu-west-3
endpoint_url = https://s3.work.example:9000
s3 =
    addressing_style = path

[profile sso]
sso_session = corporate
region = eu-north-1
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home holds AWS files."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(CREDENTIALS)
    (folder / "config").write_text(CONFIG)
    return {"HOME": str(tmp_path)}


EMPTY = {"HOME": "/nonexistent"}


def keys(options: StorageOptions) -> tuple[str | None, str | None, str | None]:
    return options.s3_access_key_id, options.s3_secret_access_key, options.s3_session_token


def test_with_nothing_given_the_machine_is_asked() -> None:
    found = StorageOptions().resolved(EMPTY)

    assert keys(found) == (None, None, None)
    assert (found.s3_region, found.s3_endpoint, found.s3_use_ssl, found.s3_url_style) == (
        "us-east-1",
        None,
        True,
        "vhost",
    )


def test_options_come_before_the_environment_and_the_environment_before_files(home: dict[str, str]) -> None:
    env = {**home, "AWS_ACCESS_KEY_ID": "ENVKEY", "AWS_SECRET_ACCESS_KEY": "envsecret", "AWS_REGION": "ap-1"}
    given = StorageOptions(s3_access_key_id="K", s3_secret_access_key="S", s3_region="r")

    assert keys(given.resolved(env)) == ("K", "S", None)
    assert given.resolved(env).s3_region == "r"
    assert keys(StorageOptions().resolved(env)) == ("ENVKEY", "envsecret", None)
    assert StorageOptions().resolved(env).s3_region == "ap-1"
    assert keys(StorageOptions().resolved(home)) == ("DEFAULTKEY", "default%secret", None)
    assert StorageOptions().resolved(home).s3_region == "eu-central-1"


def test_a_session_token_is_never_mixed_with_other_keys(home: dict[str, str]) -> None:
    env = {**home, "AWS_SESSION_TOKEN": "stray"}

    assert keys(StorageOptions(s3_access_key_id="K", s3_secret_access_key="S").resolved(env)) == (
        "K",
        "S",
        None,
    )
    assert keys(StorageOptions().resolved(env))[2] is None


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_profile_gives_keys_region_and_endpoint(home: dict[str, str], how: str) -> None:
    env = home if how == "option" else {**home, "AWS_PROFILE": "work"}
    found = StorageOptions(s3_profile="work" if how == "option" else None).resolved(env)

    assert keys(found) == ("WORKKEY", "work/sec=ret+", "worktoken")
    assert (found.s3_region, found.s3_endpoint, found.s3_use_ssl, found.s3_url_style) == (
        "eu-west-3",
        "s3.work.example:9000",
        True,
        "path",
    )


def test_a_named_profile_comes_before_keys_in_the_environment(home: dict[str, str]) -> None:
    env = {**home, "AWS_ACCESS_KEY_ID": "ENVKEY", "AWS_SECRET_ACCESS_KEY": "envsecret", "AWS_REGION": "ap-1"}
    found = StorageOptions(s3_profile="work").resolved(env)

    assert found.s3_access_key_id == "WORKKEY"
    assert found.s3_region == "eu-west-3"


def test_the_files_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "c").write_text(CREDENTIALS)
    (tmp_path / "d").write_text(CONFIG)
    env = {
        **EMPTY,
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "c"),
        "AWS_CONFIG_FILE": str(tmp_path / "d"),
    }

    assert StorageOptions(s3_profile="work").resolved(env).s3_access_key_id == "WORKKEY"


def test_a_profile_without_keys_leaves_the_rest_to_the_driver(home: dict[str, str]) -> None:
    found = StorageOptions().resolved({**home, "AWS_PROFILE": "sso"})

    assert keys(found) == (None, None, None)
    assert found.s3_region == "eu-north-1"


@pytest.mark.parametrize("name", ["sso", "missing"])
def test_a_named_profile_that_cannot_be_used_is_explained(home: dict[str, str], name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        StorageOptions(s3_profile=name).resolved(home)


def test_a_broken_file_is_named_and_its_content_is_not(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".aws/credentials").write_text("aws_secret_access_key = hush\n")

    with pytest.raises(SettingsError) as caught:
        StorageOptions().resolved(home)

    assert str(tmp_path / ".aws/credentials") in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("endpoint", "use_ssl", "host", "tls"),
    [
        ("http://127.0.0.1:8333", None, "127.0.0.1:8333", False),
        ("https://s3.example/", None, "s3.example", True),
        ("s3.example:9000", None, "s3.example:9000", True),
        ("s3.example:9000", False, "s3.example:9000", False),
        ("http://s3.example", False, "s3.example", False),
    ],
)
def test_an_endpoint_may_carry_its_scheme(endpoint: str, use_ssl: bool | None, host: str, tls: bool) -> None:
    found = StorageOptions(s3_endpoint=endpoint, s3_use_ssl=use_ssl).resolved(EMPTY)

    assert (found.s3_endpoint, found.s3_use_ssl, found.s3_url_style) == (host, tls, "path")
    assert found.resolved(EMPTY) == found


def test_the_environment_may_name_the_endpoint() -> None:
    general = {**EMPTY, "AWS_ENDPOINT_URL": "http://general:1"}

    assert StorageOptions().resolved(general).s3_endpoint == "general:1"
    special = {**general, "AWS_ENDPOINT_URL_S3": "http://special:2", "AWS_DEFAULT_REGION": "eu-1"}
    assert StorageOptions().resolved(special).s3_endpoint == "special:2"
    assert StorageOptions().resolved(special).s3_region == "eu-1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"s3_access_key_id": "only"},
        {"s3_secret_access_key": "only"},
        {"s3_url_style": "host"},
        {"request_timeout": 0.5},
        {"connect_timeout": 0},
        {"max_attempts": 0},
        {"gcs_access_token": "token"},
        {"azure_account_key": "key", "azure_sas_token": "token"},
    ],
)
def test_settings_that_contradict_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        StorageOptions(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"s3_endpoint": "ftp://host"},
        {"s3_endpoint": "http://user:hush@host"},
        {"s3_endpoint": "http://host/path"},
        {"s3_endpoint": "http://"},
        {"s3_endpoint": "http://host", "s3_use_ssl": True},
    ],
)
def test_an_endpoint_that_is_none_is_refused_without_quoting_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        StorageOptions(**wrong).resolved(EMPTY)

    assert "hush" not in str(caught.value)


def test_half_a_key_in_the_environment_is_refused() -> None:
    with pytest.raises(SettingsError, match="AWS_SECRET_ACCESS_KEY"):
        StorageOptions().resolved({**EMPTY, "AWS_ACCESS_KEY_ID": "only"})


def test_anonymous_means_no_keys_at_all(home: dict[str, str]) -> None:
    assert keys(StorageOptions(s3_anonymous=True).resolved(home)) == (None, None, None)


def test_no_secret_is_shown() -> None:
    options = StorageOptions(
        s3_access_key_id="KEYID",
        s3_secret_access_key="hush1",
        s3_session_token="hush2",
        gcs_access_token="hush3",
        gcs_token_expiration=datetime(2030, 1, 1, tzinfo=UTC),
        azure_account_key="hush4",
        azure_client_secret="hush5",
    )

    for shown in (repr(options), str(options), repr(Store(options)), f"{options}"):
        assert "KEYID" in shown
        assert "hush" not in shown
        assert "***" in shown
    assert sorted(options.secrets()) == ["hush1", "hush2", "hush3", "hush4", "hush5"]
    assert pickle.loads(pickle.dumps(options)) == options


def test_default_options_show_nothing() -> None:
    assert repr(StorageOptions()) == "StorageOptions()"


@pytest.mark.s3
@pytest.mark.parametrize("how", ["environment", "profile"])
def test_credentials_found_around_the_process_really_open_the_store(
    s3: S3Server, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = s3_place(s3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    if how == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
        store = Store()
    else:
        file = tmp_path / "credentials"
        file.write_text(f"[lake]\naws_access_key_id={s3.access_key}\naws_secret_access_key={s3.secret_key}\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        store = Store(StorageOptions(s3_profile="lake"))

    store.write(place.folder + "x", bytes(20 << 20))

    assert place.names() == ["x"]
    store.delete(place.folder + "x")


@pytest.mark.s3
def test_resolved_options_work_where_the_environment_is_gone(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = s3_place(s3)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
        options = StorageOptions().resolved()

    Store(options).write(place.folder + "x", b"1")

    assert place.names() == ["x"]


@pytest.mark.s3
def test_anonymous_access_is_refused_by_a_store_that_wants_keys(s3: S3Server) -> None:
    store = Store(StorageOptions(s3_endpoint=s3.endpoint, s3_anonymous=True))

    with pytest.raises(StorageError, match="refuses the credentials"):
        store.exists(f"s3://{s3.bucket}/x")


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("gs://lake/x", {"gcs_endpoint": "http://127.0.0.1:1", "gcs_anonymous": True}),
        pytest.param(
            "az://lake/x",
            {"azure_endpoint": "http://127.0.0.1:1", "azure_account_name": "a", "azure_account_key": "aGk="},
            marks=pytest.mark.slow,  # its driver cannot be told to give up sooner
        ),
    ],
)
def test_the_other_stores_are_reached_through_their_own_options(
    location: str, options: dict[str, Any]
) -> None:
    store = Store(StorageOptions(request_timeout=1, **options))

    with pytest.raises(StorageUnavailableError, match="does not answer"):
        store.exists(location)


def test_an_azure_location_needs_an_account() -> None:
    with pytest.raises(SettingsError, match="azure_account_name"):
        Store().exists("az://lake/x")
