"""How to reach the object stores: settings and credentials, from options, environment and profile files."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from headwater.errors import SettingsError

DEFAULT_REGION: Final = "us-east-1"


def _secret() -> Any:
    return field(default=None, metadata={"secret": True})


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Settings of every store; what is not given is looked up when a store is first used.

    For S3 the order is: these options, the profile named here, the `AWS_…` environment, the profile
    that `AWS_PROFILE` names (or `default`), and last the machine's own identity. `repr` hides secrets.
    """

    s3_region: str | None = None
    s3_endpoint: str | None = None
    """`http://host:port`, `https://host` or `host:port`, for stores other than Amazon's."""
    s3_url_style: Literal["path", "vhost"] | None = None
    """`path` when there is an endpoint, otherwise `vhost`."""
    s3_use_ssl: bool | None = None
    s3_access_key_id: str | None = None
    s3_secret_access_key: str | None = _secret()
    s3_session_token: str | None = _secret()
    s3_profile: str | None = None
    s3_anonymous: bool = False
    s3_ca_file: str | None = None
    """A PEM file with the authorities that sign the endpoint's certificate."""
    connect_timeout: float = 5.0
    request_timeout: float = 20.0
    """Seconds without a byte before a request counts as lost; whole seconds, at least one."""
    max_attempts: int = 3
    gcs_endpoint: str | None = None
    gcs_anonymous: bool = False
    gcs_access_token: str | None = _secret()
    gcs_token_expiration: datetime | None = None
    gcs_service_account: str | None = None
    gcs_project_id: str | None = None
    azure_account_name: str | None = None
    azure_account_key: str | None = _secret()
    azure_sas_token: str | None = _secret()
    azure_tenant_id: str | None = None
    azure_client_id: str | None = None
    azure_client_secret: str | None = _secret()
    azure_endpoint: str | None = None
    """`http://host:port` of an emulator or a private cloud, for both the blob and the DFS service."""
    local_fsync: bool = True
    """Wait until local files are on disk before they count as stored."""

    def __post_init__(self) -> None:
        _check(self)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{f.name}={'***' if f.metadata.get('secret') else repr(value)}"
            for f in fields(self)
            if (value := getattr(self, f.name)) != f.default
        )
        return f"StorageOptions({shown})"

    def secrets(self) -> list[str]:
        """The secret values that are set: what no message may contain."""
        values = (getattr(self, f.name) for f in fields(self) if f.metadata.get("secret"))
        return [value for value in values if value]

    def resolved(self, environ: Mapping[str, str] | None = None) -> StorageOptions:
        """The same options with everything about S3 looked up now.

        Keys that stay None mean the machine's own identity (or nothing, when `s3_anonymous`). Use this
        to hand a store to another process, where environment and profile files are different.
        """
        env = os.environ if environ is None else environ
        profile = _profile(self.s3_profile, env)
        keys = _keys(self, env, profile)
        endpoint, use_ssl = _endpoint(
            self.s3_endpoint
            or env.get("AWS_ENDPOINT_URL_S3")
            or env.get("AWS_ENDPOINT_URL")
            or profile.get("endpoint_url")
            or None,
            self.s3_use_ssl,
        )
        return replace(
            self,
            s3_region=self.s3_region
            or (profile.get("region") if self.s3_profile else None)
            or env.get("AWS_REGION")
            or env.get("AWS_DEFAULT_REGION")
            or profile.get("region")
            or DEFAULT_REGION,
            s3_endpoint=endpoint,
            s3_use_ssl=use_ssl,
            s3_url_style=self.s3_url_style or ("path" if endpoint else "vhost"),
            s3_access_key_id=keys[0],
            s3_secret_access_key=keys[1],
            s3_session_token=keys[2],
            s3_profile=None,  # what it held is in the keys now
            s3_ca_file=self.s3_ca_file or env.get("AWS_CA_BUNDLE") or None,
        )


def _check(options: StorageOptions) -> None:
    if bool(options.s3_access_key_id) != bool(options.s3_secret_access_key):
        raise SettingsError(
            "Of the S3 credentials only one half is given",
            hint="give both s3_access_key_id and s3_secret_access_key, or neither",
        )
    if options.s3_url_style not in (None, "path", "vhost"):
        raise SettingsError(
            f"s3_url_style must be 'path' or 'vhost', not {options.s3_url_style!r}",
            setting="s3_url_style",
        )
    # The S3 driver counts whole seconds, and zero would switch its timeout off.
    for name in ("connect_timeout", "request_timeout", "max_attempts"):
        if getattr(options, name) < 1:
            raise SettingsError(f"{name} must be at least 1, not {getattr(options, name)}", setting=name)
    if options.gcs_access_token and options.gcs_token_expiration is None:
        raise SettingsError("gcs_access_token needs gcs_token_expiration", setting="gcs_token_expiration")
    if options.azure_account_key and options.azure_sas_token:
        raise SettingsError("Give azure_account_key or azure_sas_token, not both", setting="azure_sas_token")


def split_address(text: str, setting: str) -> tuple[str | None, str]:
    """The scheme, if one is given, and host[:port] of an address.

    >>> split_address("http://127.0.0.1:8333/", "s3_endpoint")
    ('http', '127.0.0.1:8333')
    """
    scheme, found, rest = text.partition("://")
    host = (rest if found else text).rstrip("/")
    if (found and scheme not in ("http", "https")) or not host or set(host) & set("/@? "):
        raise SettingsError(
            f"{setting} is not an address",
            hint="write http://host:port, https://host or host:port, without user and path",
            setting=setting,
        )
    return scheme if found else None, host


def amazon_host(region: str) -> str:
    """Amazon's own S3 endpoint of a region."""
    return f"s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def _endpoint(text: str | None, use_ssl: bool | None) -> tuple[str | None, bool]:
    """host[:port] and whether TLS is used."""
    if text is None:
        return None, use_ssl is not False
    scheme, host = split_address(text, "s3_endpoint")
    if scheme is None:
        return host, use_ssl is not False
    if use_ssl is not None and use_ssl != (scheme == "https"):
        raise SettingsError(
            f"The S3 endpoint starts with {scheme}:// but s3_use_ssl is {str(use_ssl).lower()}",
            setting="s3_use_ssl",
        )
    return host, scheme == "https"


Keys = tuple[str | None, str | None, str | None]


def _keys(options: StorageOptions, env: Mapping[str, str], profile: Mapping[str, str]) -> Keys:
    """Access key, secret and session token; always all three from the same place."""
    if options.s3_anonymous:
        return None, None, None
    if options.s3_access_key_id:
        return options.s3_access_key_id, options.s3_secret_access_key, options.s3_session_token
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    stored = tuple(profile.get(name) or None for name in names)
    given = tuple(env.get(name.upper()) or None for name in names)
    if options.s3_profile:
        if not (stored[0] and stored[1]):
            raise SettingsError(
                f"The profile {options.s3_profile!r} holds no access key",
                detail="only profiles with aws_access_key_id and aws_secret_access_key can be named",
                hint="name another, or export AWS_PROFILE, which serves roles and single sign-on too",
                setting="s3_profile",
            )
        return stored[0], stored[1], stored[2]
    if given[0] or given[1]:
        if not (given[0] and given[1]):
            raise SettingsError(
                "Only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
                hint="set both, or neither",
            )
        return given[0], given[1], given[2]
    if stored[0] and stored[1]:
        return stored[0], stored[1], stored[2]
    return None, None, None


def _profile(name: str | None, env: Mapping[str, str]) -> dict[str, str]:
    """What the AWS credentials and config files say about a profile (credentials win)."""
    wanted = name or env.get("AWS_PROFILE") or "default"
    home = Path(env.get("HOME") or "~").expanduser() / ".aws"
    found: dict[str, str] = {}
    known = False
    for variable, default, section in (
        ("AWS_CONFIG_FILE", home / "config", wanted if wanted == "default" else f"profile {wanted}"),
        ("AWS_SHARED_CREDENTIALS_FILE", home / "credentials", wanted),
    ):
        path = Path(env.get(variable) or default).expanduser()
        # Secrets may contain "%", and people do leave sections in these files twice.
        parser = configparser.RawConfigParser(strict=False, default_section="\0none")
        try:
            with path.open(encoding="utf-8") as file:
                parser.read_file(file)
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, configparser.Error) as error:
            if name is None and isinstance(error, PermissionError):
                continue
            raise SettingsError(
                f"The AWS settings in {str(path)!r} cannot be read",
                # The parser's own message quotes the offending line, which may hold a key.
                detail=type(error).__name__,
                hint="correct the file, or point AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE elsewhere",
            ) from None
        if parser.has_section(section):
            known = True
            found.update(parser.items(section))
    if name is not None and not known:
        raise SettingsError(
            f"There is no AWS profile {name!r}",
            detail=f"looked in {env.get('AWS_SHARED_CREDENTIALS_FILE') or home / 'credentials'} "
            f"and {env.get('AWS_CONFIG_FILE') or home / 'config'}",
            setting="s3_profile",
        )
    return found
