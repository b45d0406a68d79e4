"""`tool: ducklake`: SQL of DuckDB on a DuckLake catalog, from any number of workers at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from headwater.errors import HeadwaterError
from headwater.playbook.ducklake.executing import Execution
from headwater.playbook.ducklake.sessions import lake_place, session_for
from headwater.playbook.ducklake.statements import read_commands
from headwater.playbook.results.envelope import MAX_ROWS, ok_envelope
from headwater.playbook.results.failures import lake_error
from headwater.playbook.task import Task, TaskFailed, Worker


class DuckLakeTool:
    """Runs the commands of a step on its lake."""

    kind = "ducklake"
    where: Literal["worker"] = "worker"
    repeatable = True
    """Commits name their task, so a task that was committed is not applied again."""

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """Do what the task's fields say; the envelope, or `TaskFailed`."""
        fields = task.fields
        place = lake_place(fields, worker)
        use = fields.get("use_catalog") is not False
        commands = read_commands(fields, place.catalog, use_catalog=use)
        try:
            session = session_for(place, worker)
            work = Execution(session, task, commands, use, int(fields.get("max_rows") or MAX_ROWS))
            entries = work.run(transaction=fields.get("transaction") is not False)
            return ok_envelope(entries, session.lock.catalog_info(place.catalog))
        except TaskFailed:
            raise
        except HeadwaterError as error:
            raise lake_error(error, place.secrets) from None


TOOL = DuckLakeTool()
