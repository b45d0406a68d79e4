"""Maintenance of an open lake: who needs which snapshots is known here, and what is left is put to work."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from headwater.errors import InvalidInputError
from headwater.lake.lake import Lake
from headwater.lake.maintenance.choosing import Wishes
from headwater.lake.maintenance.cleaning import GRACE as CLEANUP_GRACE
from headwater.lake.maintenance.compacting import compact
from headwater.lake.maintenance.model import (
    Age,
    CompactionResult,
    ExpireResult,
    Hold,
    Limits,
    RemovalResult,
)
from headwater.lake.maintenance.moving import Mover
from headwater.lake.maintenance.orphans import GRACE as ORPHAN_GRACE
from headwater.lake.options import parse_size
from headwater.refresh.moving_on import all_that_can_move

if TYPE_CHECKING:
    from headwater.engine.outbox import Outboxes
    from headwater.refresh.model import Frontier
    from headwater.refresh.store import StreamStore
    from headwater.spark.connector import LakeSpark

Tell = Callable[[str], None]
Tables = str | Sequence[str] | None
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """What all of it did."""

    compaction: CompactionResult
    expired: ExpireResult | None = None
    removed: RemovalResult | None = None
    seconds: float = 0.0


def parse_age(text: str | Age) -> Age:
    """`7d`, `36h`, `90m`, or a moment (`2026-11-01`, with a time zone if it is not UTC).

    >>> parse_age("1.5h")
    datetime.timedelta(seconds=5400)
    """
    if not isinstance(text, str):
        return text
    parts = _AGE.fullmatch(text.strip())
    if parts is not None:
        return timedelta(**{_UNITS[parts[2].lower()]: float(parts[1])})
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            f"{text!r} is neither an age nor a time.", hint="Write 7d, 36h, 90m or 2026-11-01T12:00:00Z."
        ) from None


class Maintenance:
    """What `hw.compact()` and the others are made of."""

    def __init__(
        self,
        lake: Lake,
        connector: Callable[[], LakeSpark],
        streams: StreamStore,
        outboxes: Callable[[], Outboxes],
    ):
        self._lake = lake
        self._connector = connector
        self._streams = streams
        self._outboxes = outboxes

    def holds(self, moved: Mapping[str, Frontier] = MappingProxyType({})) -> list[Hold]:
        """Who needs which snapshots: all that follow changes, from where they are on, or would have moved."""
        found = []
        for stream in self._streams.all():
            at = []
            frontier = moved.get(stream.id, stream.frontier)
            if frontier is not None:  # `verify` reads names as they were then
                at = [frontier.data_snapshot_id, *(each.snapshot_id for each in frontier.sources)]
            for sink in stream.sinks:
                at_sink = stream.sink_state(sink.name).snapshot_id
                if sink.remote and at_sink is not None:
                    found.append(Hold(at_sink, f"sink {sink.name} of {stream.name}"))
            if frontier is not None and not all(sink.in_storage for sink in stream.sinks):
                at.append(frontier.snapshot_id)  # that of the result that they are given
            if at:
                found.append(Hold(min(at), f"stream table {stream.name}"))
        found += [Hold(each.position.snapshot_id, f"outbox {each.name}") for each in self._outboxes().all()]
        return found

    def compact(
        self,
        table: Tables = None,
        *,
        target_size: int | str | None = None,
        delete_ratio: float | None = None,
        sort_by: Sequence[str] | None = None,
        merge: bool = True,
        rewrite: bool = True,
        flush: bool = False,
        min_files: int = 2,
        limits: Limits | None = None,
        dry_run: bool = False,
        tell: Tell | None = None,
    ) -> CompactionResult:
        """Merge small files and write files with many deletes again; see `Headwater.compact`."""
        wishes = Wishes(
            merge=merge,
            rewrite=rewrite,
            target_size=None if target_size is None else file_size(target_size),
            delete_ratio=delete_ratio,
            sort_by=None if sort_by is None else tuple(sort_by),
            min_files=min_files,
        )
        names = [table] if isinstance(table, str) else table
        return compact(
            self._lake,
            names,
            wishes,
            flush=flush,
            mover=self._mover(),
            limits=limits,
            dry_run=dry_run,
            tell=tell,
        )

    def flush(self, table: Tables = None, *, dry_run: bool = False) -> CompactionResult:
        """Write rows and deletes that are kept in the catalog to files."""
        return self.compact(table, merge=False, rewrite=False, flush=True, dry_run=dry_run)

    def expire(
        self,
        *,
        older_than: Age | str | None = None,
        keep_last: int | None = None,
        versions: Collection[int] | None = None,
        dry_run: bool = False,
    ) -> ExpireResult:
        """Expire snapshots, never one that somebody needs; see `Headwater.expire`."""
        moved = all_that_can_move(self._lake, self._streams)
        if not dry_run:
            self._streams.move_on(moved)
        return self._lake.expire(
            older_than=None if older_than is None else parse_age(older_than),
            keep_last=keep_last,
            versions=versions,
            holds=self.holds({stream.id: frontier for stream, frontier in moved} if dry_run else {}),
            dry_run=dry_run,
        )

    def cleanup(
        self, *, older_than: Age | str | None = CLEANUP_GRACE, dry_run: bool = False
    ) -> RemovalResult:
        """Remove files that no snapshot names; see `Headwater.cleanup`."""
        age = None if older_than is None else parse_age(older_than)
        return self._lake.cleanup(older_than=age, dry_run=dry_run)

    def remove_orphans(
        self, *, older_than: Age | str | None = ORPHAN_GRACE, dry_run: bool = True
    ) -> RemovalResult:
        """Remove files that no catalog knows; see `Headwater.remove_orphans`."""
        age = None if older_than is None else parse_age(older_than)
        return self._lake.remove_orphans(older_than=age, dry_run=dry_run)

    def optimize(
        self,
        table: Tables = None,
        *,
        target_size: int | str | None = None,
        delete_ratio: float | None = None,
        sort_by: Sequence[str] | None = None,
        expire_older_than: Age | str | None = None,
        keep_last: int | None = None,
        cleanup_older_than: Age | str | None = None,
        limits: Limits | None = None,
        dry_run: bool = False,
        tell: Tell | None = None,
    ) -> OptimizeResult:
        """Everything, in the order in which each step helps the next; see `Headwater.optimize`."""
        began = time.monotonic()
        expired = removed = None
        if expire_older_than is not None or keep_last is not None:
            # Before compaction: deletes that no snapshot tells any more vanish with a merge.
            expired = self.expire(older_than=expire_older_than, keep_last=keep_last, dry_run=dry_run)
        done = self.compact(
            table,
            target_size=target_size,
            delete_ratio=delete_ratio,
            sort_by=sort_by,
            flush=True,
            limits=limits,
            dry_run=dry_run,
            tell=tell,
        )
        if cleanup_older_than is not None:
            removed = self.cleanup(older_than=cleanup_older_than, dry_run=dry_run)
        return OptimizeResult(done, expired, removed, time.monotonic() - began)

    def _mover(self) -> Mover:
        from headwater.spark.maintenance import SparkMover

        return SparkMover(lambda: self._connector().spark)


def file_size(value: int | str) -> int:
    """Bytes, from a number or a text such as `128MB`."""
    try:
        return int(parse_size(value))
    except ValueError as error:
        raise InvalidInputError(f"{value!r} is not {error}.") from None


__all__ = ["Maintenance", "OptimizeResult", "parse_age"]
