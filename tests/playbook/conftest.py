"""A lake whose playbooks are run, and keys of this test alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.engine import Headwater
from tests.playbook.playing import open_headwater


@pytest.fixture(autouse=True)
def own_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("HEADWATER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def hw(new_database: str, tmp_path: Path) -> Iterator[Headwater]:
    with open_headwater(new_database, tmp_path) as opened:
        yield opened
