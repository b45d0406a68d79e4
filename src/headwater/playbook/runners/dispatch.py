"""Tasks handed to workers, and their outcomes taken from them, whoever the workers are.

A worker is met through a channel: a task goes in, an outcome comes out, one at a time. A channel that ends
while a task is under way means that the worker is lost.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol

from headwater.playbook.runners.worker import Opener, opened_secrets
from headwater.playbook.task import Outcome, Task, TaskError
from headwater.playbook.tools import repeatable

#: A channel that ends says so with one of these.
CHANNEL_ENDED = (EOFError, OSError, pickle.UnpicklingError)
#: Seconds beyond its timeout that a worker has to stop by itself.
GRACE = 5.0


class Channel(Protocol):
    """A worker as the flow sees it."""

    id: str

    def send(self, message: Any) -> None:
        """Give it a task."""

    def recv(self) -> Any:
        """Its outcome."""

    def fileno(self) -> int:
        """What to wait for."""


class Crew(Protocol):
    """The workers of a run."""

    def take(self) -> Channel | None:
        """A worker without a task; None where one has to be waited for."""

    def give_back(self, channel: Channel) -> None:
        """The worker has no task any more."""

    def lost(self, channel: Channel) -> str:
        """The worker is gone or to be stopped; returns what is known about its end."""

    def waitable(self) -> list[Any]:
        """What else to wait for: signs that a worker has come. Raises if none will."""

    def news(self, waitable: Any) -> None:
        """One of those is ready."""


@dataclass
class _Underway:
    channel: Channel
    task: Task
    began: float

    @property
    def deadline(self) -> float | None:
        return None if self.task.timeout is None else self.began + self.task.timeout + GRACE


def dispatch(tasks: Iterable[Task], in_flight: int, crew: Crew, secret: Opener | None) -> Iterator[Outcome]:
    """Outcomes as they come; never more than `in_flight` tasks under way, nor drawn.

    When the caller stops asking, workers with tasks under way are stopped.
    """
    coming = iter(tasks)
    drawn: Task | None = None
    exhausted = False
    underway: dict[int, _Underway] = {}
    try:
        while True:
            while len(underway) < max(1, in_flight):
                if drawn is None and not exhausted:
                    drawn = next(coming, None)
                    exhausted = drawn is None
                channel = crew.take() if drawn is not None else None
                if drawn is None or channel is None:
                    break
                try:
                    channel.send((drawn, opened_secrets(drawn, secret)))
                except CHANNEL_ENDED:
                    crew.lost(channel)  # before it had anything: another one takes the task
                    continue
                underway[channel.fileno()] = _Underway(channel, drawn, time.monotonic())
                drawn = None
            if drawn is None and not underway:
                return
            yield from _outcomes(underway, crew, waiting=drawn is not None)
    finally:
        for one in underway.values():
            crew.lost(one.channel)


def _outcomes(underway: dict[int, _Underway], crew: Crew, *, waiting: bool) -> Iterator[Outcome]:
    others = crew.waitable() if waiting else []
    deadlines = [one.deadline for one in underway.values() if one.deadline is not None]
    patience = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
    sources: list[Any] = [*(one.channel for one in underway.values()), *others]
    ready: list[Any] = wait(sources, patience)
    for other in others:
        if other in ready:
            crew.news(other)
    now = time.monotonic()
    for number, one in list(underway.items()):
        if one.channel in ready:
            del underway[number]
            yield _outcome(one, crew)
        elif one.deadline is not None and one.deadline <= now:
            del underway[number]
            crew.lost(one.channel)
            yield _ended(one, TaskError("timeout", "timeout", f"Not done within {one.task.timeout:g} s."))


def _outcome(one: _Underway, crew: Crew) -> Outcome:
    try:
        found: Outcome = one.channel.recv()
    except CHANNEL_ENDED:
        how = crew.lost(one.channel)
        again = repeatable(one.task.tool)
        error = TaskError("worker_lost", "worker_lost", f"Worker {one.channel.id} is lost: {how}", again)
        return _ended(one, error)
    crew.give_back(one.channel)
    return found


def _ended(one: _Underway, error: TaskError) -> Outcome:
    return Outcome(one.task, error=error, seconds=time.monotonic() - one.began, worker=one.channel.id)
