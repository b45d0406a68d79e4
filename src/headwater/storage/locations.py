"""Where a file lies, as one string.

A DuckLake catalog stores its data path as the user wrote it and joins paths by plain concatenation, so
a location is a string that is only taken apart at the last moment, here. Nothing is ever decoded:
`%20` in a path is three characters, in `file://` locations too, exactly as DuckDB reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from headwater.errors import SettingsError, UnsupportedError

#: The kinds of store, one filesystem implementation each.
Kind = Literal["local", "s3", "gcs", "azure"]

#: Every scheme and the kind of store behind it.
SCHEMES: Final[dict[str, Kind]] = {
    "file": "local",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "azure": "azure",
    "abfs": "azure",
    "abfss": "azure",
}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_AZURE_HOST = re.compile(r"([^.]+)\.(?:blob|dfs)\.[^/]+")


@dataclass(frozen=True, slots=True)
class Location:
    """A location taken apart.

    `path` is what the store's filesystem understands: a local path, or `bucket/key`.
    """

    text: str
    kind: Kind
    path: str
    account: str | None = None
    """The storage account, where an Azure location names it."""

    @property
    def is_local(self) -> bool:
        """True for a file on this machine."""
        return self.kind == "local"

    @property
    def bucket(self) -> str:
        """Bucket or container; empty for local files."""
        return "" if self.is_local else self.path.split("/", 1)[0]

    @property
    def key(self) -> str:
        """What follows the bucket; for local files the whole path."""
        return self.path if self.is_local else self.path.partition("/")[2]


def parse_location(text: str) -> Location:
    """Take a location apart, or say why it cannot be one.

    >>> parse_location("s3://lake/a%20b/x.parquet").path
    'lake/a%20b/x.parquet'
    >>> parse_location("file:///data/a%20b").path
    '/data/a%20b'
    """
    if not text or "\0" in text:
        raise SettingsError(
            "A storage location must not be empty or contain a NUL character",
            hint=f"give a folder, or one of {supported_schemes()}",
        )
    match = _SCHEME.match(text)
    if match is None or match[1] == "file":
        return Location(text, "local", _local_path(text))
    kind = SCHEMES.get(match[1])
    if kind is None:
        raise unsupported_scheme(match[1], text)
    authority, _, key = text[match.end() :].partition("/")
    account = None
    if kind == "azure":
        authority, key, account = _azure_parts(authority, key)
    if not authority:
        raise SettingsError(f"No bucket in the storage location {text!r}", location=text)
    path = f"{authority}/{key}"
    # A folder ends in one slash; inside a key an empty part, "." or ".." cannot be addressed.
    path = path.removesuffix("/")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise SettingsError(
            f"The storage location {text!r} has an empty part, '.' or '..' in its path",
            hint="write the path with single slashes and without '.' or '..'",
            location=text,
        )
    if "?" in path:
        raise SettingsError(
            f"The storage location {text!r} contains a question mark",
            detail="DuckDB would read what follows it as settings of the store",
            hint="give region, endpoint and credentials as storage options",
            location=text,
        )
    return Location(text, kind, path, account)


def as_folder(location: str) -> str:
    """The location with the trailing slash that a DuckLake data path has.

    >>> as_folder("s3://lake/sales"), as_folder("/data/")
    ('s3://lake/sales/', '/data/')
    """
    return location if location.endswith("/") else location + "/"


def supported_schemes() -> str:
    """The supported forms of a location, for messages."""
    return ", ".join(["a local path", *(f"{scheme}://" for scheme in SCHEMES)])


def unsupported_scheme(scheme: str, text: str, detail: str | None = None) -> UnsupportedError:
    """The error for a scheme that is unknown, or that this build of pyarrow has no driver for."""
    return UnsupportedError(
        f"Storage scheme {scheme + '://'!r} is not supported",
        detail=detail,
        hint=f"supported are {supported_schemes()}",
        location=text,
        scheme=scheme,
        supported=list(SCHEMES),
    )


def _local_path(text: str) -> str:
    path = text
    # The three forms that DuckDB takes as a local file; "file:name" is a plain relative path for it.
    prefix = next(
        (p for p in ("file://localhost/", "file:///", "file://", "file:/") if text.startswith(p)), ""
    )
    if prefix:
        path = "/" + text[len(prefix) :]
    if prefix == "file://":
        raise SettingsError(
            f"The storage location {text!r} names another host or a relative path",
            hint="write file:///absolute/path, or a plain path",
            location=text,
        )
    if path.startswith("~"):
        # DuckDB expands it for whoever runs it, so one catalog would mean a different folder to each user.
        raise SettingsError(
            f"The storage location {text!r} starts with '~', which means another folder to every user",
            hint="write the folder out in full, or start it with './'",
            location=text,
        )
    return path


def _azure_parts(authority: str, key: str) -> tuple[str, str, str | None]:
    """Container, key and account of the three spellings that Azure locations come in."""
    container, at, host = authority.partition("@")
    if at:  # abfss://container@account.dfs.core.windows.net/key
        return container, key, host.split(".", 1)[0]
    if match := _AZURE_HOST.fullmatch(authority):  # az://account.blob.core.windows.net/container/key
        container, _, key = key.partition("/")
        return container, key, match[1]
    return authority, key, None  # az://container/key
