"""Maintenance that happens by itself: what the settings want, one pass at a time, bounded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwater.engine.maintenance import Maintenance, file_size, parse_age
from headwater.errors import HeadwaterError
from headwater.lake.maintenance.model import CompactionResult, Limits
from headwater.lake.maintenance.needs import TableShape, table_shapes
from headwater.scheduler.work import Report

if TYPE_CHECKING:
    from headwater.engine.deltas import Deltas
    from headwater.lake.lake import Lake
    from headwater.settings import MaintenanceSettings

log = logging.getLogger("headwater.maintenance")
#: Listing a whole store is much work for little; more often is not worth it.
_ORPHANS_EVERY = timedelta(days=1)


class MaintenancePolicy:
    """One pass after another, as the service calls for them."""

    def __init__(
        self,
        lake: Lake,
        maintenance: Callable[[], Maintenance],
        deltas: Callable[[], Deltas],
        settings: MaintenanceSettings,
    ):
        self._lake = lake
        self._deltas = deltas
        self._maintenance = maintenance
        self._settings = settings
        self._target = None if settings.target_size is None else file_size(settings.target_size)
        self._cancelled = threading.Event()
        self._orphans_at: float | None = None

    def cancel(self) -> None:
        """End the pass under way as soon as it can."""
        self._cancelled.set()

    def wants(self, shape: TableShape) -> bool:
        """Whether a table is worth compacting."""
        wanted = self._settings
        many_small = (
            shape.small_files >= wanted.small_file_count and shape.small_share >= wanted.small_file_share
        )
        many_deleted = bool(shape.deleted_rows) and shape.deleted_share >= wanted.delete_ratio
        return many_small or many_deleted or shape.inlined_rows >= wanted.inlined_rows

    def run(self) -> Sequence[Report]:
        """Expire, fold deltas, compact what needs it, clean up; what fails does not stop the rest."""
        began = time.monotonic()
        reports: list[Report] = []
        if self._settings.expire_after is not None or self._settings.keep_last is not None:
            reports += self._step("expire", self._expire)
        reports += self._step("deltas", self._fold)
        reports += self._step("compact", lambda: self._compact(began))
        if self._settings.cleanup_after is not None:
            reports += self._step("cleanup", self._cleanup)
        if self._settings.orphans_after is not None and self._orphans_are_due():
            reports += self._step("orphans", self._orphans)
        return reports

    def _step(self, name: str, work: Callable[[], Mapping[str, Any]]) -> list[Report]:
        if self._cancelled.is_set():
            return []
        began = time.monotonic()
        try:
            done = work()
        except HeadwaterError as error:
            seconds = time.monotonic() - began
            return [Report("maintenance", name, "FAILED", False, seconds, error=error.as_dict())]
        if not any(done.values()):
            return []
        return [Report("maintenance", name, "done", True, time.monotonic() - began, done)]

    def _expire(self) -> dict[str, Any]:
        wanted = self._settings
        done = self._maintenance().expire(older_than=wanted.expire_after, keep_last=wanted.keep_last)
        if not done.expired:
            return {}
        return {
            "snapshots": len(done.expired),
            "files": done.files,
            "kept": "; ".join(map(str, done.kept)),
        }

    def _fold(self) -> dict[str, Any]:
        done = self._deltas().compact_due()
        return {
            "datasets": len(done),
            "files": sum(result.deltas_merged for result in done),
            "rows": sum(result.delta_rows for result in done),
        }

    def _compact(self, began: float) -> dict[str, Any]:
        wanted = self._settings
        shapes = [shape for shape in table_shapes(self._lake, self._target) if self.wants(shape)]
        if not shapes:
            return {}
        left = wanted.max_seconds - (time.monotonic() - began)
        done: CompactionResult = self._maintenance().compact(
            [str(shape.name) for shape in shapes],
            target_size=self._target,
            delete_ratio=wanted.delete_ratio,
            flush=True,
            limits=Limits(max(0.0, left), file_size(wanted.max_bytes), self._cancelled.is_set),
        )
        return {
            "tables": len(done.changed),
            "files": done.total("merged_files") + done.total("rewritten_files"),
            "files_written": done.total("files_written"),
            "rows": done.total("rows_moved"),
            "flushed": done.total("flushed"),
            "skipped": done.total("skipped"),
        }

    def _cleanup(self) -> dict[str, Any]:
        done = self._maintenance().cleanup(older_than=self._settings.cleanup_after)
        return {"files": done.files, "failed": len(done.failed)}

    def _orphans_are_due(self) -> bool:
        last = self._orphans_at
        return last is None or time.monotonic() - last >= _ORPHANS_EVERY.total_seconds()

    def _orphans(self) -> dict[str, Any]:
        self._orphans_at = time.monotonic()
        done = self._maintenance().remove_orphans(older_than=self._settings.orphans_after, dry_run=False)
        return {"files": done.files, "failed": len(done.failed), "uploads": done.uploads}


def check_settings(settings: MaintenanceSettings) -> None:
    """Raise for values that would only be found wrong in the middle of the night."""
    for age in (settings.expire_after, settings.cleanup_after, settings.orphans_after):
        if age is not None:
            parse_age(age)
    for size in (settings.target_size, settings.max_bytes):
        if size is not None:
            file_size(size)


__all__ = ["MaintenancePolicy", "check_settings"]
