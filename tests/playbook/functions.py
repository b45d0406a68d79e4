"""Functions that steps call. What they did is in files, since they run in processes of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def note(folder: str, name: Any) -> Any:
    """Leave a trace of each call."""
    with (Path(folder) / f"{name}.trace").open("a") as file:
        file.write("x")
    return name


def traces(folder: Path) -> dict[str, int]:
    """How often each name was noted."""
    return {path.stem: len(path.read_text()) for path in folder.glob("*.trace")}


def fails_until(folder: str, name: str, times: int) -> int:
    """Fails in a way that may pass, so many times."""
    note(folder, name)
    count = len((Path(folder) / f"{name}.trace").read_text())
    if count <= times:
        raise ConnectionError(f"attempt {count}")
    return count


def fails_for(folder: str, name: Any, bad: list[Any]) -> Any:
    note(folder, name)
    if name in bad:
        raise ValueError(f"{name} is bad")
    return name


def slow(folder: str, name: Any, seconds: float) -> Any:
    note(folder, name)
    time.sleep(seconds)
    return name


def count_rows(spark: Any, table: str) -> dict[str, Any]:
    """Gets the session."""
    return {
        "session": type(spark).__name__,
        "table": table,
        "two": spark.sql("SELECT 1 + 1 AS n").collect()[0].n,
    }


def lake_frame(hw: Any, name: str) -> Any:
    """Gets Headwater; a DataFrame is its rows."""
    return hw.table(name).df().orderBy("region")


def give(value: Any) -> Any:
    return value


def give_object() -> Any:
    return object()
