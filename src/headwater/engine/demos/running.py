"""The service in a thread of this process, while a story goes on beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
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
    thread = threading.Thread(target=service.run, name="headwater-demo-service", daemon=True)
    thread.start()
    try:
        yield reports
    finally:
        service.stop()
        thread.join()
