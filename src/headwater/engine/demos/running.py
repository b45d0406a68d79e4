"""The service in a thread of this process, while a story goes on beside it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.engine.service import Service
from headwater.scheduler.work import Report

if TYPE_CHECKING:
    from headwater.engine.headwater import Headwater


@contextmanager
def running_service(hw: Headwater) -> Iterator[list[Report]]:
    """What `headwater run` does, until the block ends; yields its reports, as they come."""
    reports: list[Report] = []
    service = Service(hw, observer=reports.append)
    with ThreadPoolExecutor(1, thread_name_prefix="headwater-demo-service") as pool:
        ended = pool.submit(service.run)
        try:
            yield reports
        finally:
            service.stop()
        ended.result()
