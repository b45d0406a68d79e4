from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SettingsError, UnsupportedError
from headwater.storage.locations import SCHEMES, as_folder, parse_location


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ("/data/x.parquet", "local", "/data/x.parquet"),
        ("data/x.parquet", "local", "data/x.parquet"),
        ("./~data/x", "local", "./~data/x"),
        ("file:name", "local", "file:name"),
        ("file:///data/a%20b c", "local", "/data/a%20b c"),
        ("file:/data/x", "local", "/data/x"),
        ("file://localhost/data/x", "local", "/data/x"),
        ("s3://lake/b=a%20b/x", "s3", "lake/b=a%20b/x"),
        ("s3a://lake/x", "s3", "lake/x"),
        ("s3://lake", "s3", "lake"),
        ("s3://lake/", "s3", "lake"),
        ("s3://lake/sales/", "s3", "lake/sales"),
        ("gs://lake/x", "gcs", "lake/x"),
        ("gcs://lake/x", "gcs", "lake/x"),
        ("az://lake/x", "azure", "lake/x"),
        ("abfss://lake/x", "azure", "lake/x"),
    ],
)
def test_every_form_of_location_is_understood(text: str, kind: str, path: str) -> None:
    location = parse_location(text)

    assert (location.text, location.kind, location.path) == (text, kind, path)


@pytest.mark.parametrize(
    "text",
    [
        "abfss://lake@account.dfs.core.windows.net/a/x",
        "abfs://lake@account.dfs.core.windows.net/a/x",
        "az://account.blob.core.windows.net/lake/a/x",
        "azure://account.blob.core.windows.net/lake/a/x",
    ],
)
def test_an_azure_location_may_name_its_account(text: str) -> None:
    location = parse_location(text)

    assert (location.account, location.bucket, location.key) == ("account", "lake", "a/x")


def test_bucket_and_key() -> None:
    location = parse_location("s3://lake/a/b")

    assert (location.bucket, location.key) == ("lake", "a/b")


@pytest.mark.parametrize(
    "text", ["hdfs://host/x", "ftp://host/x", "S3://lake/x", "https://host/x", "s4://x/y"]
)
def test_an_unsupported_scheme_lists_the_supported_ones(text: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_location(text)

    assert repr(text.split(":", maxsplit=1)[0] + "://") in str(caught.value)
    for scheme in SCHEMES:
        assert f"{scheme}://" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\0b",
        "~/lake",
        "~other/lake",
        "file://host/lake",
        "file://lake",
        "s3://",
        "s3:///key",
        "s3://lake//x",
        "s3://lake/../x",
        "s3://lake/./x",
        "s3://lake/x?s3_region=eu-west-1",
        "az://account.blob.core.windows.net/",
    ],
)
def test_a_location_that_would_mean_something_else_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_location(text)


@given(st.text(st.characters(exclude_characters="\0/?", exclude_categories=["Cs"]), min_size=1))
def test_nothing_in_a_name_is_decoded(name: str) -> None:
    name = f"x{name}"
    for prefix, path in (("s3://lake/", "lake/"), ("/data/", "/data/"), ("file:///data/", "/data/")):
        assert parse_location(prefix + name).path == path + name


def test_a_folder_ends_in_one_slash() -> None:
    assert [as_folder(text) for text in ("/data", "/data/", "s3://lake")] == [
        "/data/",
        "/data/",
        "s3://lake/",
    ]
