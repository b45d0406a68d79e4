"""Places to store files in, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow.fs import FileSelector, FileType

from headwater.storage.options import StorageOptions
from headwater.storage.store import Store
from tests.servers import S3Server


@dataclass
class Place:
    """A store and an empty folder in it (ending in a slash)."""

    store: Store
    folder: str
    names: Callable[[], list[str]]
    """Everything below the folder, as the store itself sees it, past the code under test."""


def local_place(folder: Path, prefix: str = "") -> Place:
    def names() -> list[str]:
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())

    return Place(Store(), f"{prefix}{folder}/", names)


def s3_options(server: S3Server, **changes: Any) -> StorageOptions:
    given: dict[str, Any] = {
        "s3_endpoint": server.endpoint,
        "s3_access_key_id": server.access_key,
        "s3_secret_access_key": server.secret_key,
        "connect_timeout": 1,
        "request_timeout": 5,
        "max_attempts": 2,
    }
    return StorageOptions(**{**given, **changes})


def s3_place(server: S3Server) -> Place:
    prefix = f"{server.bucket}/{uuid4().hex}"

    def names() -> list[str]:
        infos = server.filesystem().get_file_info(FileSelector(prefix, recursive=True, allow_not_found=True))
        return sorted(info.path[len(prefix) + 1 :] for info in infos if info.type is FileType.File)

    return Place(Store(s3_options(server)), f"s3://{prefix}/", names)
