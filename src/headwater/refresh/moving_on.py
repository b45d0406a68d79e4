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


def that_can_move(
    streams: Iterable[StreamTable], quiet: QuietTables, until: SnapshotId, far: int = FAR
) -> list[tuple[StreamTable, Frontier]]:
    """The stream tables whose frontier can move on and is so many snapshots old, with the one it moves to."""
    return [
        (stream, frontier)
        for stream in streams
        if (frontier := moved_on(stream, quiet, until)) is not None
        and stream.frontier is not None
        and until - _oldest(stream.frontier) >= far
    ]


def all_that_can_move(lake: Lake, store: StreamStore) -> list[tuple[StreamTable, Frontier]]:
    """The same of all stream tables, however little they are behind: before snapshots are to expire."""
    streams = [stream for stream in store.all() if stream.frontier is not None]
    until = lake.snapshot().id
    oldest = min((_oldest(stream.frontier) for stream in streams if stream.frontier), default=until)
    return that_can_move(streams, lake.quiet_tables(oldest, until), until, far=1)


def _oldest(frontier: Frontier) -> SnapshotId:
    return min((source.snapshot_id for source in frontier.sources), default=frontier.data_snapshot_id)


__all__ = ["FAR", "all_that_can_move", "moved_on", "that_can_move"]
