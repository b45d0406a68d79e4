"""Settings come from a file and the environment; a mistake is named with its place and the way out."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import conninfo

from headwater.errors import SettingsError
from headwater.settings import Settings, find_file, load_settings
from headwater.settings.schema import SECRETS, StorageSection
from headwater.settings.yaml_file import interpolated
from headwater.storage.options import StorageOptions


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("HEADWATER_"):
            monkeypatch.delenv(name)


def write(text: str, name: str = "headwater.yaml") -> Path:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def test_without_file_and_variables_there_are_only_defaults() -> None:
    assert load_settings() == Settings()
    assert load_settings().lake.folder == ".headwater"
    assert load_settings().lake.catalog is None


def test_a_file_is_read(tmp_path: Path) -> None:
    write(
        """
        lake:
          catalog: postgresql://app@db/lake
          metadata_schema: meta
          data_path: files
          encrypted: true
        storage:
          s3_region: eu-central-1
          s3_use_ssl: false
          max_attempts: 5
        spark:
          master: local[2]
          conf:
            spark.sql.shuffle.partitions: 8
            spark.ui.enabled: false
        """
    )
    settings = load_settings()
    assert settings.lake.catalog == "postgresql://app@db/lake"
    assert settings.lake.metadata_schema == "meta"
    assert settings.lake.data_path == str(tmp_path / "files")
    assert settings.lake.encrypted
    assert settings.storage == {"s3_region": "eu-central-1", "s3_use_ssl": False, "max_attempts": 5}
    assert settings.spark.master == "local[2]"
    assert settings.spark.conf == {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}
    assert settings.file == Path("headwater.yaml")


@pytest.mark.parametrize("text", ["", "# nothing but a remark\n", "lake:\nstorage:\n", "lake: {}\n"])
def test_a_file_that_says_nothing_leaves_the_defaults(text: str) -> None:
    write(text)
    assert load_settings().lake == Settings().lake


def test_the_file_may_be_named_by_argument_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    write("lake: {metadata_schema: here}")
    write("lake: {metadata_schema: a}", "a.yaml")
    write("lake: {metadata_schema: b}", "b.yaml")
    assert load_settings().lake.metadata_schema == "here"
    monkeypatch.setenv("HEADWATER_CONFIG", "a.yaml")
    assert load_settings().lake.metadata_schema == "a"
    assert load_settings("b.yaml").lake.metadata_schema == "b"
    assert find_file() == Path("a.yaml")


def test_a_file_that_was_asked_for_must_exist() -> None:
    with pytest.raises(SettingsError, match=r"no settings file nowhere\.yaml"):
        load_settings("nowhere.yaml")


def test_local_paths_are_relative_to_the_file_and_addresses_stay(tmp_path: Path) -> None:
    path = write("lake: {data_path: ../data, folder: lake}\nstorage: {s3_ca_file: ca.pem}", "conf/hw.yaml")
    settings = load_settings(path)
    assert settings.lake.data_path == str(tmp_path / "conf" / ".." / "data")
    assert settings.lake.folder == str(tmp_path / "conf" / "lake")
    assert settings.storage["s3_ca_file"] == str(tmp_path / "conf" / "ca.pem")
    path = write("lake: {data_path: s3://bucket/x}", "conf/hw.yaml")
    assert load_settings(path).lake.data_path == "s3://bucket/x"


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("lake:\n  metadata_schema: file\n  encrypted: false\n")
    monkeypatch.setenv("HEADWATER_LAKE__ENCRYPTED", "true")
    monkeypatch.setenv("HEADWATER_STORAGE__S3_REGION", "eu-west-1")
    monkeypatch.setenv("HEADWATER_STORAGE__S3_ENDPOINT", "")  # empty is not set
    settings = load_settings()
    assert settings.lake.encrypted
    assert settings.lake.metadata_schema == "file"
    assert settings.storage == {"s3_region": "eu-west-1"}


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("lake:\n  data_paht: x\n", "2:3", "no `data_paht` in section `lake`", "Did you mean 'data_path'?"),
        ("leak:\n  a: 1\n", "1:1", "no `leak` in the settings", "Did you mean 'lake'?"),
        ("lake:\n  zzz: x\n", "2:3", "no `zzz`", "Known: catalog, "),
        (
            "lake:\n\n  encrypted: maybe\n",
            "3:3",
            "`lake.encrypted` should be a valid boolean, not 'maybe'",
            None,
        ),
        ("storage:\n  s3_url_style: x\n", "2:3", "should be 'path' or 'vhost', not 'x'", None),
        ("lake: 5\n", "1:1", "`lake` must be a section", "Keys: catalog"),
        ("lake:\n  catalog: [a, b]\n", "2:3", "`lake.catalog` should be a valid string", None),
        ("lake:\n  catalog: ''\n", "2:3", "`lake.catalog`", None),
        ("spark:\n  conf:\n    a: [1]\n", "3:5", "`spark.conf.a`", None),
        ("- a\n", "1:1", "must hold sections", None),
        ("lake:\n  catalog: a\n  catalog: b\n", "3:3", "the same key is there twice", None),
        ("lake:\n\tcatalog: x\n", "2:1", "cannot start any token", None),
        ("lake: [1\n", "2:1", "expected", None),
    ],
)
def test_a_mistake_is_named_with_file_line_and_column(
    text: str, place: str, message: str, hint: str | None
) -> None:
    write(text)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert caught.value.message.startswith(f"headwater.yaml:{place}: ")
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"lake:\n  catalog: a\0b\n", b"lake: \xff\xfe\n"])
def test_a_file_that_is_no_text_is_refused(content: bytes) -> None:
    Path("headwater.yaml").write_bytes(content)
    with pytest.raises(SettingsError, match=r"headwater\.yaml"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("HEADWATER_LAKE__CATALOGUE", "x", "no `catalogue` in section `lake`", "Did you mean 'catalog'?"),
        ("HEADWATER_LAEK__CATALOG", "x", "no `laek`", "Did you mean 'lake'?"),
        ("HEADWATER_LAKE__ENCRYPTED", "perhaps", "`lake.encrypted` should be a valid boolean", None),
    ],
)
def test_a_mistake_in_a_variable_is_named_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str, hint: str | None
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert caught.value.message.startswith(f"{name}: ")
    assert message in caught.value.message
    assert hint is None or caught.value.hint == hint


def test_a_section_as_broken_json_in_a_variable_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_LAKE", "{not json")
    with pytest.raises(SettingsError, match="lake"):
        load_settings()


def test_variables_are_put_into_values(monkeypatch: pytest.MonkeyPatch) -> None:
    write("lake:\n  data_path: s3://${BUCKET}/lake\nstorage:\n  s3_secret_access_key: ${KEY}$${x}\n")
    monkeypatch.setenv("BUCKET", "b1")
    monkeypatch.setenv("KEY", "k1")
    settings = load_settings()
    assert settings.lake.data_path == "s3://b1/lake"
    assert settings.storage["s3_secret_access_key"] == "k1${x}"


def test_a_variable_that_is_not_set_is_named() -> None:
    write("lake:\n  catalog: postgresql://app:${NO_SUCH_VARIABLE}@db/lake\n")
    with pytest.raises(SettingsError, match=r"headwater.yaml:2:3: .*NO_SUCH_VARIABLE") as caught:
        load_settings()
    assert caught.value.variable == "NO_SUCH_VARIABLE"


@pytest.mark.parametrize("text", ["a${", "${}", "${1}", "${A-B}"])
def test_a_variable_that_is_not_closed_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"lake\.data_path"):
        interpolated(text, "lake.data_path", "f:1:1", {"A": "x"})


passwords = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs",)), min_size=1
)


@given(passwords)
def test_any_password_fits_into_an_address(password: str) -> None:
    environ = {"PW": password}
    for template in (
        "postgresql://app:${PW}@db:5432/lake",
        "host=db user=app password=${PW} dbname=lake",
        "host=db user=app password='${PW}' dbname=lake",
    ):
        address = interpolated(template, "lake.catalog", "f:1:1", environ)
        assert conninfo.conninfo_to_dict(address)["password"] == password
        assert conninfo.conninfo_to_dict(address)["dbname"] == "lake"


def test_a_whole_address_may_be_a_variable() -> None:
    address = "postgresql://app:p%40ss@db/lake"
    assert interpolated("${URL}", "lake.catalog", "f:1:1", {"URL": address}) == address


@pytest.mark.parametrize(
    "text",
    [
        "lake:\n  catalog: [hush]\n",
        "lake:\n  catalog: hush\n  catalog: hush2\n",
        "lake:\n  catalog: 'hush\n",
        "storage:\n  s3_secret_access_key: [hush]\n",
        "storage:\n  s3_secret_access_key: {hush: 1}\n",
        "lake:\n  catalog: hush\n  bad: 1\n",
    ],
)
def test_secrets_are_not_in_messages(text: str) -> None:
    write(text)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(caught.value.as_dict())


def test_secrets_are_not_in_the_repr() -> None:
    write("lake: {catalog: hush}\nstorage: {s3_secret_access_key: hush}\nspark: {conf: {k: hush}}\n")
    assert "hush" not in repr(load_settings())


def test_every_storage_option_is_a_setting_and_every_secret_is_known() -> None:
    options = {field.name: field for field in dataclasses.fields(StorageOptions)}
    assert set(StorageSection.model_fields) == set(options)
    secret = {f"storage.{name}" for name, field in options.items() if field.metadata.get("secret")}
    assert secret | {"lake.catalog"} == SECRETS


def test_places_tell_where_a_setting_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    write("lake:\n  encrypted: true\n")
    monkeypatch.setenv("HEADWATER_LAKE__METADATA_SCHEMA", "x")
    places = load_settings().places
    assert places["lake.encrypted"] == "headwater.yaml:2:3"
    assert places["lake.metadata_schema"] == "HEADWATER_LAKE__METADATA_SCHEMA"


def test_merge_keys_and_anchors_of_yaml_work() -> None:
    write("storage: &s {s3_region: a}\nlake: {metadata_schema: m}\nspark: {conf: {<<: {a: b}, c: d}}\n")
    assert load_settings().spark.conf == {"a": "b", "c": "d"}
    assert re.match("a", str(load_settings().storage["s3_region"]))
