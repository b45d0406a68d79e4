"""`tool: playbook`: another playbook, run to its end. Its run is one of its own, and can be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from headwater.playbook.flow.driver import services_of
from headwater.playbook.task import Task, Worker


class PlaybookTool:
    """Calls another playbook."""

    kind = "playbook"
    where: Literal["worker", "driver"] = "driver"
    #: A call that is made again goes on with the run that it began.
    repeatable = True

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """The envelope's result has the run's id, its status, its variables, and the steps' results."""
        workload = task.fields.get("workload") or {}
        found = services_of(worker).call_playbook(str(task.fields["path"]), workload, task)
        return {"status": "ok", "result": found}


TOOL = PlaybookTool()
