"""The kinds of steps, each in a module of its own that holds it as `TOOL`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from headwater.errors import NotFoundError
from headwater.playbook.task import Tool

#: Where each kind is. They are imported when first used: a step of SQL needs no HTTP client.
MODULES: Mapping[str, str] = {
    "ducklake": "ducklake",
    "duckdb": "duckdb_file",
    "postgres": "postgres",
    "spark": "spark_sql",
    "python": "python_call",
    "http": "http",
    "refresh": "refresh",
    "playbook": "playbook_call",
}


def tool(kind: str) -> Tool:
    """The tool of that kind."""
    if kind not in MODULES:
        raise NotFoundError(f"There is no tool {kind!r}.", hint="Known: " + ", ".join(MODULES) + ".")
    return cast(Tool, import_module(f"{__name__}.{MODULES[kind]}").TOOL)


def repeatable(kind: str) -> bool:
    """Whether a task of that kind may be done again when nobody knows what became of the first time."""
    return bool(getattr(tool(kind), "repeatable", False))
