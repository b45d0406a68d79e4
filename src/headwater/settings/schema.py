"""The settings that exist, with their types: what a file or the environment may say.

Checked by pydantic at this edge only; everything behind it gets the plain data of `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headwater.settings.model import (
    DEFAULT_FOLDER,
    LakeSettings,
    MaintenanceSettings,
    ServiceSettings,
    SparkSettings,
)

ENV_PREFIX = "HEADWATER_"
ENV_DELIMITER = "__"

#: Settings whose values no message may show.
SECRETS = frozenset(
    {
        "lake.catalog",
        "storage.s3_secret_access_key",
        "storage.s3_session_token",
        "storage.gcs_access_token",
        "storage.azure_account_key",
        "storage.azure_sas_token",
        "storage.azure_client_secret",
    }
)
#: Settings that name a place on this machine; in a file they are relative to that file.
LOCAL_PATHS = frozenset({"lake.data_path", "lake.folder", "storage.s3_ca_file"})


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class LakeSection(_Section):
    """`lake:` where the lake is."""

    catalog: str | None = Field(default=None, min_length=1)
    metadata_schema: str = Field(default="public", min_length=1)
    data_path: str | None = Field(default=None, min_length=1)
    encrypted: bool = False
    folder: str = Field(default=DEFAULT_FOLDER, min_length=1)
    keep_mb: int | None = Field(default=None, ge=0)

    def plain(self) -> LakeSettings:
        """The section as plain data."""
        return LakeSettings(**self.model_dump())


class StorageSection(_Section):
    """`storage:` how object stores are reached; the fields of `headwater.storage.options.StorageOptions`."""

    s3_region: str | None = None
    s3_endpoint: str | None = None
    s3_url_style: Literal["path", "vhost"] | None = None
    s3_use_ssl: bool | None = None
    s3_access_key_id: str | None = None
    s3_secret_access_key: str | None = None
    s3_session_token: str | None = None
    s3_profile: str | None = None
    s3_anonymous: bool | None = None
    s3_ca_file: str | None = None
    connect_timeout: float | None = None
    request_timeout: float | None = None
    max_attempts: int | None = None
    gcs_endpoint: str | None = None
    gcs_anonymous: bool | None = None
    gcs_access_token: str | None = None
    gcs_token_expiration: datetime | None = None
    gcs_service_account: str | None = None
    gcs_project_id: str | None = None
    azure_account_name: str | None = None
    azure_account_key: str | None = None
    azure_sas_token: str | None = None
    azure_tenant_id: str | None = None
    azure_client_id: str | None = None
    azure_client_secret: str | None = None
    azure_endpoint: str | None = None
    local_fsync: bool | None = None

    def plain(self) -> dict[str, Any]:
        """What is said, and nothing about the rest."""
        return self.model_dump(exclude_none=True)


def _as_conf_text(value: Any) -> Any:
    """Spark's configuration is text; YAML reads `8` and `true` as something else."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class SparkSection(_Section):
    """`spark:` where Spark runs and how it is configured."""

    master: str | None = Field(default=None, min_length=1)
    conf: Mapping[str, Annotated[str, BeforeValidator(_as_conf_text)]] = Field(default_factory=dict)

    def plain(self) -> SparkSettings:
        """The section as plain data."""
        return SparkSettings(self.master, dict(self.conf))


class ServiceSection(_Section):
    """`service:` how `headwater run` runs."""

    poll_ms: int = Field(default=100, ge=10, le=60_000)
    lease_seconds: float = Field(default=10.0, ge=1.0, le=3600.0)
    timezone: str = Field(default="UTC", min_length=1)
    workers: int = Field(default=2, ge=1, le=64)
    stop_seconds: float = Field(default=20.0, ge=0.0, le=3600.0)
    retry_seconds: float = Field(default=300.0, ge=1.0)
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=0, ge=0, le=65_535)
    log_format: Literal["text", "json"] = "text"

    def plain(self) -> ServiceSettings:
        """The section as plain data."""
        return ServiceSettings(**self.model_dump())


class MaintenanceSection(_Section):
    """`maintenance:` what `headwater run` does to keep the lake healthy."""

    enabled: bool = False
    every_seconds: float = Field(default=600.0, ge=1.0)
    small_file_count: int = Field(default=20, ge=2)
    small_file_share: float = Field(default=0.5, ge=0.0, le=1.0)
    delete_ratio: float = Field(default=0.3, ge=0.0, le=1.0)
    inlined_rows: int = Field(default=10_000, ge=1)
    target_size: str | None = Field(default=None, min_length=1)
    expire_after: str | None = Field(default=None, min_length=1)
    keep_last: int | None = Field(default=None, ge=1)
    cleanup_after: str | None = Field(default="1d", min_length=1)
    orphans_after: str | None = Field(default=None, min_length=1)
    quiet_hours: str | None = Field(default=None, min_length=1)
    max_seconds: float = Field(default=300.0, gt=0.0)
    max_bytes: str = Field(default="10GB", min_length=1)

    def plain(self) -> MaintenanceSettings:
        """The section as plain data."""
        return MaintenanceSettings(**self.model_dump())


class Root(BaseSettings):
    """The whole file. The environment (`HEADWATER_LAKE__CATALOG`) wins over it."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    lake: LakeSection = LakeSection()
    storage: StorageSection = StorageSection()
    spark: SparkSection = SparkSection()
    service: ServiceSection = ServiceSection()
    maintenance: MaintenanceSection = MaintenanceSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """First the environment, then the file, which is handed in as arguments."""
        return env_settings, init_settings


SECTIONS: dict[str, type[_Section]] = {
    "lake": LakeSection,
    "storage": StorageSection,
    "spark": SparkSection,
    "service": ServiceSection,
    "maintenance": MaintenanceSection,
}


def names_in(path: str) -> list[str]:
    """The keys that may stand under a path: the sections under the empty one."""
    if not path:
        return list(SECTIONS)
    return list(SECTIONS[path].model_fields) if path in SECTIONS else []
