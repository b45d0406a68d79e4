"""Tasks in Spark's executors.

One Spark job holds as many workers as tasks may be under way. Each worker calls back to the flow's process,
as executors do for Spark itself, takes tasks and returns outcomes one by one, so results never pile up and a
slow task holds up nobody. The job ends with the run: its places are free for the next step's work in Spark.

What passes between them is sealed with a key that travels with the job.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Iterable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, Pipe
from typing import Any
from uuid import uuid4

from cryptography.fernet import Fernet, InvalidToken
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.errors import PlaybookError
from headwater.playbook.runners.dispatch import CHANNEL_ENDED, Channel, dispatch
from headwater.playbook.runners.worker import Opener, TaskWorker
from headwater.playbook.task import Outcome, Task

#: How often the job is begun again when it ends before the tasks do: on one machine Spark gives up at once.
_RESTARTS = 5


class SparkRunner:
    """Runs tasks in Spark's executors; their sessions stay with Spark's Python workers."""

    def __init__(self, spark: SparkSession, secrets: Opener | None = None):
        self._spark = spark
        self._secrets = secrets
        self._number = 0

    def run(self, tasks: Iterable[Task], in_flight: int) -> Iterator[Outcome]:
        """Outcomes as they come; at most `in_flight` tasks are under way, and no more are drawn than that."""
        crew = _Executors(self._spark, max(1, in_flight), self._number)
        try:
            yield from dispatch(tasks, in_flight, crew, self._secrets)
        finally:
            self._number = crew.close()

    def close(self) -> None:
        """Nothing is left between runs."""

    def __enter__(self) -> SparkRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Sealed:
    """A connection whose messages nobody else can read or write."""

    def __init__(self, connection: Connection[Any, Any], key: bytes, id: str = ""):
        self.id = id
        self._connection = connection
        self._fernet = Fernet(key)

    def send(self, message: Any) -> None:
        self._connection.send_bytes(self._fernet.encrypt(pickle.dumps(message)))

    def recv(self) -> Any:
        try:
            content = self._fernet.decrypt(self._connection.recv_bytes())
        except InvalidToken:
            raise EOFError from None
        return pickle.loads(content)  # noqa: S301  (sealed by our own key)

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()


class _Executors:
    """The workers of one run: those that Spark has started, as they call."""

    def __init__(self, spark: SparkSession, most: int, number: int):
        self._spark = spark
        self._most = most
        self._group = f"headwater-{uuid4()}"
        self._key = Fernet.generate_key()
        host = spark.sparkContext.getConf().get("spark.driver.host") or "127.0.0.1"
        bound = spark.sparkContext.getConf().get("spark.driver.bindAddress") or host
        self._listener = Listener((bound, 0), "AF_INET", backlog=most, authkey=self._key)
        self._number = number
        self._idle: list[_Sealed] = []
        self._all: dict[str, _Sealed] = {}
        self._come: list[_Sealed] = []
        self._bell, self._button = Pipe(duplex=False)
        self._guard = threading.Lock()
        self._failure: str | None = None
        self._ended = False
        self._abandoned = False
        self._restarts = 0
        self._address = (host, self._listener.address[1])
        self._door = threading.Thread(target=self._welcome, name="headwater-workers", daemon=True)
        self._door.start()
        self._job = self._start()

    def take(self) -> Channel | None:
        return self._idle.pop() if self._idle else None

    def give_back(self, channel: Channel) -> None:
        self._idle.append(self._all[channel.id])

    def lost(self, channel: Channel) -> str:
        self._all.pop(channel.id).close()
        self._abandoned = True
        return "its connection from Spark's executor ended."

    def waitable(self) -> list[Any]:
        if self._failure is not None and not self._all:
            self._job.join()
            if self._restarts == _RESTARTS:
                raise PlaybookError("Spark does not run the workers.", detail=self._failure)
            self._restarts += 1
            self._failure = None
            self._job = self._start()
        return [self._bell]

    def news(self, waitable: Any) -> None:
        self._bell.recv_bytes()
        with self._guard:
            come, self._come = self._come, []
        for channel in come:
            self._number += 1
            channel.id = f"s{self._number}"
            try:
                channel.send(channel.id)
            except CHANNEL_ENDED:
                continue
            self._all[channel.id] = channel
            self._idle.append(channel)

    def close(self) -> int:
        """Tell workers that there is nothing more to do, and wait for the job; returns the last number."""
        self._ended = True
        for channel in self._all.values():
            channel.close()
        # The door waits for a caller; the last one is us. Workers that Spark starts later find nobody.
        with contextlib.suppress(OSError, EOFError):
            Client(self._listener.address, authkey=self._key).close()
        self._door.join()
        self._listener.close()
        for channel in self._come:
            channel.close()
        if self._abandoned:
            with contextlib.suppress(PySparkException, Py4JError):
                self._spark.sparkContext.cancelJobGroup(self._group)
        self._job.join()
        self._bell.close()
        self._button.close()
        return self._number

    def _welcome(self) -> None:
        while not self._ended:
            try:
                caller = self._listener.accept()
            except (*CHANNEL_ENDED, AuthenticationError):
                continue  # somebody who is no worker of ours
            channel = _Sealed(caller, self._key)
            with self._guard:
                self._come.append(channel)
            self._ring()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run_job, name="headwater-job", daemon=True)
        thread.start()
        return thread

    def _run_job(self) -> None:
        address, key = self._address, self._key

        def work(_: Iterable[int]) -> None:
            serve(address, key)

        try:
            context = self._spark.sparkContext
            context.setJobGroup(self._group, "headwater playbook workers", interruptOnCancel=True)
            context.parallelize(range(self._most), self._most).foreachPartition(work)
        except (PySparkException, Py4JError) as error:
            self._failure = str(error).splitlines()[0]
        else:
            self._failure = "The job ended."
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._button.send_bytes(b".")


_worker: tuple[int, TaskWorker] | None = None


def serve(address: tuple[str, int], key: bytes) -> None:
    """Do tasks until the flow hangs up. What is opened stays with this process, which Spark uses again."""
    global _worker
    if _worker is None or _worker[0] != os.getpid():
        _worker = os.getpid(), TaskWorker()
    worker = _worker[1]
    try:
        channel = _Sealed(Client(address, authkey=key), key)
    except (OSError, EOFError):
        return  # the run is over
    with contextlib.suppress(*CHANNEL_ENDED):
        worker.id = channel.recv()
        while True:
            task, opened = channel.recv()
            channel.send(worker.work(task, opened))
    channel.close()
