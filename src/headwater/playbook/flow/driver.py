"""Tasks in the process of the flow itself: tools that need the Spark session, stream tables or other runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from headwater.playbook.runners.worker import Opener, TaskWorker, opened_secrets
from headwater.playbook.task import Outcome, Task, TaskError, TaskFailed, Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Services(Protocol):
    """What the process of the flow offers to its tools. An open `Headwater` has the first three."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session; it is started when first asked for."""

    def fetch(self, text: str, limit: int) -> Any:
        """The result of a statement of Spark's SQL."""

    def refresh(self, names: Sequence[str] | None, *, full: bool) -> Sequence[Any]:
        """Bring stream tables up to date."""

    @property
    def headwater(self) -> Any:
        """The open Headwater, for functions that ask for it."""

    def call_playbook(self, path: str, workload: Mapping[str, Any], caller: Task) -> Mapping[str, Any]:
        """Run another playbook to its end; what its run gave."""

    def limited(self, seconds: float | None) -> AbstractContextManager[None]:
        """Stops what this thread has Spark do after a time, and says that this was why it failed."""

    def stop(self) -> None:
        """Stop that, and the runs that this one called."""


class DriverWorker(TaskWorker):
    """Does tasks in this process."""

    def __init__(self, id: str, secret: Opener, services: Services):
        super().__init__(id, secret)
        self.services = services


def services_of(worker: Worker) -> Services:
    """What the process of the flow offers; a worker elsewhere offers nothing."""
    if not isinstance(worker, DriverWorker):
        raise TaskFailed(
            TaskError("tool", "driver_only", "The tool runs in the process of the flow, and not in a worker.")
        )
    return worker.services


class DriverRunner:
    """Runs tasks in threads of this process; a single one in the thread that asks."""

    def __init__(self, secret: Opener, services: Services):
        self._secret = secret
        self._services = services

    def run(self, tasks: Iterable[Task], in_flight: int) -> Iterator[Outcome]:
        """Outcomes as they come; at most `in_flight` tasks are under way, and no more are drawn than that."""
        if in_flight <= 1:
            worker = DriverWorker("driver", self._secret, self._services)
            for task in tasks:
                yield worker.work(task, opened_secrets(task, self._secret))
            return
        coming = iter(tasks)
        underway: set[Future[Outcome]] = set()
        pool = ThreadPoolExecutor(in_flight, thread_name_prefix="headwater-driver")
        try:
            while True:
                underway |= {
                    pool.submit(self._work, one) for one in islice(coming, in_flight - len(underway))
                }
                if not underway:
                    return
                done, underway = wait(underway, return_when=FIRST_COMPLETED)
                for one in done:
                    yield one.result()
        finally:
            if underway:
                self._services.stop()
            pool.shutdown(wait=not underway, cancel_futures=True)

    def _work(self, task: Task) -> Outcome:
        worker = DriverWorker("driver", self._secret, self._services)
        return worker.work(task, opened_secrets(task, self._secret))

    def close(self) -> None:
        """Stop what is under way."""
        self._services.stop()
