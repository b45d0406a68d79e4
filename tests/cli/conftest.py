"""A project folder with a lake, for commands to run in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.lake.lake import Lake


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in an empty folder, and no variable of the machine has a say."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in os.environ:
        if name.startswith("HEADWATER_"):
            monkeypatch.delenv(name)
    return folder


@pytest.fixture
def project(new_database: str, empty_folder: Path) -> Iterator[Lake]:
    """A lake with a few snapshots that `headwater.yaml` names."""
    Path("headwater.yaml").write_text(f"lake:\n  catalog: {new_database!r}\n  data_path: data\n")
    lake = Lake.open(new_database, data_path=empty_folder / "data")
    with lake.transaction(author="ada", message="begin [bold]here[/bold]") as tx:
        tx.create_schema("sales")
        tx.create_table("sales.orders", {"id": "int64", "Odd Name": "varchar"}, comment="Orders")
        tx.append("sales.orders", [{"id": i} for i in range(100)])
    with lake.transaction(author="bob") as tx:
        tx.delete("sales.orders", "id < 30")
        tx.append("sales.orders", [{"id": 1000}])
        tx.create_view("sales.v", "SELECT id FROM sales.orders")
    yield lake
    lake.close()
