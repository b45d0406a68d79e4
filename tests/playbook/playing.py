"""Playing the playbooks of tests."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from headwater.engine import Headwater, connect
from headwater.engine.playbook_services import RunOptions
from headwater.playbook.records.events import Event
from headwater.playbook.records.reporting import RunReport


def open_headwater(dsn: str, folder: Path) -> Headwater:
    return connect(dsn, data_path=folder / "data")


def written(folder: Path, text: str, name: str = "book.yaml") -> Path:
    """A playbook in a file."""
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def play(
    hw: Headwater, path: Path, workload: dict[str, Any] | None = None, **options: Any
) -> tuple[RunReport, list[Event]]:
    """Run a playbook in two workers; returns the report, and the events as they were told."""
    told: list[Event] = []
    from_step = options.pop("from_step", None)
    given = RunOptions(**{"workers": 2, "listener": told.append, **options})
    return hw.playbooks.run(path, workload, given, from_step=from_step), told


def resumed(hw: Headwater, path: Path, run_id: str | None = None, **options: Any) -> RunReport:
    return hw.playbooks.resume(path, run_id, RunOptions(**{"workers": 2, **options}))
