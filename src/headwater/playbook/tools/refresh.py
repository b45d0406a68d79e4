"""`tool: refresh`: stream tables brought up to date, with what they read, as one snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from headwater.playbook.flow.driver import services_of
from headwater.playbook.task import Task, TaskError, TaskFailed, Worker


class RefreshTool:
    """Refreshes stream tables."""

    kind = "refresh"
    where: Literal["worker", "driver"] = "driver"
    #: A refresh that was done has nothing left to do.
    repeatable = True

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """The envelope's result lists what became of each stream table, under `refreshes`."""
        names = task.fields.get("stream_tables")
        listed = None if not names else [str(name) for name in names]
        services = services_of(worker)
        with services.limited(task.timeout):
            results = services.refresh(listed, full=bool(task.fields.get("full")))
            told = json.loads(json.dumps([result.as_dict() for result in results], default=str))
            _must_have_worked(told)
        return {"status": "ok", "result": {"refreshes": told}}


def _must_have_worked(results: Sequence[Mapping[str, Any]]) -> None:
    for result in results:
        if result["action"] == "FAILED":
            error = result.get("error") or {}
            raise TaskFailed(
                TaskError(
                    "refresh",
                    str(error.get("code", "refresh")),
                    f"Stream table {result['name']} failed: {error.get('message', result.get('reason'))}",
                    retryable=bool(error.get("retryable")),
                )
            )


TOOL = RefreshTool()
