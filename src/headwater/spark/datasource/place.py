"""Which lake is meant, and the open lake that travels from Spark's driver to its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.lake.embedded import open_server
from headwater.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class Place:
    """What options say about where the lake is; all None: what the settings say."""

    dsn: str | None = field(default=None, repr=False)  # may hold a password
    data_path: str | None = None
    metadata_schema: str | None = None
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold keys


@dataclass(frozen=True, slots=True)
class OpenLake:
    """A lake that was found, in a form that other processes can go on using."""

    lake: Lake
    server_folder: Path | None = None
    """The folder of the embedded server, which every process holds open for itself."""

    def open(self) -> Lake:
        """The lake, ready in this process."""
        if self.server_folder is not None and self.server_folder not in _joined:
            open_server(self.server_folder)  # held until the process ends
            _joined.add(self.server_folder)
        return self.lake


_joined: set[Path] = set()
