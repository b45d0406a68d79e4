"""Settings as the rest of Headwater sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = ".headwater"
"""Where the embedded lake is, seen from the folder one works in."""


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Where the lake is. Without `catalog` it is the embedded one in `folder`."""

    catalog: str | None = field(default=None, repr=False)  # may hold a password
    metadata_schema: str = "public"
    data_path: str | None = None
    encrypted: bool = False
    folder: str = DEFAULT_FOLDER
    #: Megabytes of memory for columns of files that refreshes look things up in again and again; by default
    #: an eighth of the machine's.
    keep_mb: int | None = None


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs and how it is configured."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold keys of object stores


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How `headwater run` runs."""

    #: Milliseconds between looks for changes.
    poll_ms: int = 100
    #: Seconds after which a process that died is replaced.
    lease_seconds: float = 10.0
    #: The time zone of cron expressions.
    timezone: str = "UTC"
    #: How many groups of stream tables are refreshed at once.
    workers: int = 2
    #: Seconds that work under way is given to end when the service is stopped.
    stop_seconds: float = 20.0
    #: The longest wait before something that failed is tried again, in seconds.
    retry_seconds: float = 300.0
    #: Where health and metrics are; port 0 is any that is free.
    host: str = "127.0.0.1"
    port: int = 0
    log_format: str = "text"


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """What `headwater run` does to keep the lake healthy."""

    enabled: bool = False
    #: Seconds from the beginning of one pass to the next.
    every_seconds: float = 600.0
    #: Compact a table with so many small files, if they are such a part of its files.
    small_file_count: int = 20
    small_file_share: float = 0.5
    #: … or with such a part of its rows deleted, or so many rows in the catalog.
    delete_ratio: float = 0.3
    inlined_rows: int = 10_000
    target_size: str | None = None
    #: Expire snapshots of that age (`30d`), but never the newest so many.
    expire_after: str | None = None
    keep_last: int | None = None
    #: Remove files that left the catalog, and files that no catalog knows, after that time.
    cleanup_after: str | None = "1d"
    orphans_after: str | None = None
    #: Only then: `22:00-06:00`, in the service's time zone.
    quiet_hours: str | None = None
    #: How much one pass may do.
    max_seconds: float = 300.0
    max_bytes: str = "10GB"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a project."""

    lake: LakeSettings = field(default_factory=LakeSettings)
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What is said about object stores, by the names of `StorageOptions`; holds secrets."""
    spark: SparkSettings = field(default_factory=SparkSettings)
    service: ServiceSettings = field(default_factory=ServiceSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    file: Path | None = None
    """The file that was read, if there is one."""
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Where each setting was made: `lake.data_path` → `headwater.yaml:3:14`, or the variable's name."""
