"""Tasks of the ducklake tool on a lake of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.playbook.runners.worker import TaskWorker
from headwater.playbook.task import Outcome, Task, TaskError


class Desk:
    """A worker in this process, and the lake `analytics` that its tasks are about."""

    def __init__(self, dsn: str, folder: Path):
        self.dsn = dsn
        self.folder = folder
        self.worker = TaskWorker("w1")
        self._number = 0

    def task(self, *commands: str, step: str | None = None, **fields: Any) -> Task:
        """A task of a step of its own."""
        self._number += 1
        timeout = fields.pop("timeout", None)
        given = {"commands": list(commands)} if len(commands) > 1 else {"command": commands[0]}
        return Task(
            "run",
            step or f"step {self._number}",
            "ducklake",
            {
                "catalog_connection": self.dsn,
                "catalog_name": "analytics",
                "data_path": str(self.folder / "files"),
                **given,
                **fields,
            },
            timeout=timeout,
        )

    def run(self, *commands: str, **fields: Any) -> list[dict[str, Any]]:
        """The entries of the envelope; the task may not fail."""
        outcome = self.outcome(*commands, **fields)
        assert outcome.envelope is not None, outcome.error
        entries: list[dict[str, Any]] = outcome.envelope["result"]["commands"]
        return entries

    def rows(self, *commands: str, **fields: Any) -> list[tuple[Any, ...]]:
        """The rows of the last command."""
        return [tuple(row.values()) for row in self.run(*commands, **fields)[-1]["rows"]]

    def error(self, *commands: str, **fields: Any) -> TaskError:
        """The error of a task that must fail."""
        outcome = self.outcome(*commands, **fields)
        assert outcome.error is not None, outcome.envelope
        return outcome.error

    def outcome(self, *commands: str, **fields: Any) -> Outcome:
        """What becomes of a task."""
        return self.worker.work(self.task(*commands, **fields))

    def close(self) -> None:
        """Close its sessions."""
        self.worker.close()
