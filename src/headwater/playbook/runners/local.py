"""Tasks in worker processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from headwater.playbook.runners.dispatch import CHANNEL_ENDED, Channel, dispatch
from headwater.playbook.runners.worker import Opener
from headwater.playbook.task import Outcome, Task

_SECONDS_TO_END = 3.0


class LocalRunner:
    """Runs tasks in up to `workers` processes, which stay until `close`.

    `secrets` opens references (`Credentials.secret`); workers are told only what their tasks refer to.
    """

    def __init__(self, workers: int | None = None, secrets: Opener | None = None):
        self.workers = workers or os.cpu_count() or 1
        self._secrets = secrets
        self._crew = _Processes(self.workers)

    def run(self, tasks: Iterable[Task], in_flight: int) -> Iterator[Outcome]:
        """Outcomes as they come; at most `in_flight` tasks are under way, and no more are drawn than that."""
        return dispatch(tasks, min(in_flight, self.workers), self._crew, self._secrets)

    def close(self) -> None:
        """Stop the workers."""
        self._crew.close()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Process:
    """One worker process and the socket to it."""

    def __init__(self, id: str):
        self.id = id
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater.playbook.runners.process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._channel: Connection[Any, Any] = Connection(ours.detach())
        self._channel.send((id, sys.path))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Any) -> None:
        self._channel.send(message)

    def recv(self) -> Any:
        return self._channel.recv()

    def fileno(self) -> int:
        return self._channel.fileno()

    def hang_up(self) -> None:
        """Tell it to end when it is idle."""
        self._channel.close()

    def ended(self, seconds: float) -> str:
        """Wait for its end, stop it if it does not come; how it ended."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"ended by {signal.Signals(-code).name}." if code < 0 else f"ended with code {code}."


class _Processes:
    """Worker processes, started when they are needed."""

    def __init__(self, most: int):
        self._most = most
        self._idle: list[_Process] = []
        self._all: dict[str, _Process] = {}
        self._number = 0

    def take(self) -> Channel | None:
        if self._idle:
            return self._idle.pop()
        if len(self._all) >= self._most:
            return None
        self._number += 1
        started = _Process(f"w{self._number}")
        self._all[started.id] = started
        return started

    def give_back(self, channel: Channel) -> None:
        self._idle.append(self._all[channel.id])

    def lost(self, channel: Channel) -> str:
        process = self._all.pop(channel.id)
        with contextlib.suppress(*CHANNEL_ENDED):
            process.hang_up()
        return process.ended(0.5)

    def waitable(self) -> list[Any]:
        return []

    def news(self, waitable: Any) -> None:
        """Nothing to wait for: a process is there at once."""

    def close(self) -> None:
        """All idle ones end by themselves; those that do not are stopped."""
        processes = list(self._all.values())
        self._all.clear()
        self._idle.clear()
        for process in processes:
            process.hang_up()
        for process in processes:
            process.ended(_SECONDS_TO_END)
