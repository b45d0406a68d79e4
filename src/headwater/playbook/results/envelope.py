"""Envelopes: what a step gives back, in exactly the fields that playbooks know.

    {"status": "ok",
     "result": {"command_count": 2, "commands": [
         {"command_index": 0, "row_count": 1, "columns": ["id"], "rows": [{"id": 1}]},
         {"command_index": 1, "affected_rows": 10, "status": "executed"}]},
     "catalog_info": {"catalog_name": …, "snapshot_count": …, "latest_snapshot": {…},
                      "table_count": …, "tables": […]}}

`row_count` is the number of all rows; where there are fewer in `rows`, the rest was left out (`max_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.playbook.task import TaskError

MAX_ROWS = 10_000


def rows_entry(
    index: int, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], row_count: int
) -> dict[str, Any]:
    """A command that gave rows."""
    return {"command_index": index, "row_count": row_count, "columns": list(columns), "rows": list(rows)}


def count_entry(index: int, affected_rows: int) -> dict[str, Any]:
    """A command that changed rows, or something else."""
    return {"command_index": index, "affected_rows": affected_rows, "status": "executed"}


def ok_envelope(
    commands: Sequence[Mapping[str, Any]], catalog_info: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The envelope of a step that is done."""
    made: dict[str, Any] = {
        "status": "ok",
        "result": {"command_count": len(commands), "commands": list(commands)},
    }
    return made if catalog_info is None else {**made, "catalog_info": dict(catalog_info)}


def error_envelope(error: TaskError) -> dict[str, Any]:
    """The envelope of a step that failed."""
    return {"status": "error", "error": error.as_dict()}
