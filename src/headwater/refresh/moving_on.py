"""Stream tables whose inputs nothing happened to for long: their frontier moves on all the same.

Nothing of them has to be read as it was, so they hold back no snapshots from expiry, and what became of their
inputs is told from fewer snapshots the next time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headwater.lake.lake import Lake
from headwater.lake.reading.quiet_tables import QuietTables
from headwater.refresh.model import Frontier, StreamTable
from headwater.refresh.store import StreamStore
from headwater.typedefs import SnapshotId

#: A frontier is written again once it is so many snapshots old.
FAR = 64


def moved_on(stream: StreamTable, quiet: QuietTables, until: SnapshotId) -> Frontier | None:
    """The frontier of a stream table at another snapshot; None if something happened to what it reads."""
    frontier = stream.frontier
    if frontier is None or frontier.data_snapshot_id >= until:
        return None
    if not quiet.same_views(frontier.data_snapshot_id):  # which the query may read
        return None
    for source in frontier.sources:
        if source.snapshot_id < until and not quiet.untouched(source.table_id, source.snapshot_id, until):
            return None
    sources = (replace(each, snapshot_id=max(each.snapshot_id, until)) for each in frontier.sources)
    return replace(frontier, data_snapshot_id=until, sources=tuple(sources))


def move_on(
    store: StreamStore, streams: Iterable[StreamTable], quiet: QuietTables, until: SnapshotId, far: int = FAR
) -> None:
    """Let those frontiers move on that can, and that are so many snapshots old."""
    moved = []
    for stream in streams:
        frontier = moved_on(stream, quiet, until)
        if frontier is not None and stream.frontier and until - _oldest(stream.frontier) >= far:
            moved.append((stream, frontier))
    store.move_on(moved)


def move_all_on(lake: Lake, store: StreamStore) -> None:
    """The same for all stream tables, however little they are behind: before snapshots are to expire."""
    streams = [stream for stream in store.all() if stream.frontier is not None]
    until = lake.snapshot().id
    oldest = min((_oldest(stream.frontier) for stream in streams if stream.frontier), default=until)
    move_on(store, streams, lake.quiet_tables(oldest, until), until, far=1)


def _oldest(frontier: Frontier) -> SnapshotId:
    return min((source.snapshot_id for source in frontier.sources), default=frontier.data_snapshot_id)


__all__ = ["FAR", "move_all_on", "move_on", "moved_on"]
