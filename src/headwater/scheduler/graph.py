"""Stream tables as a graph: who shares waves with whom, and whom a change reaches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from headwater.refresh.model import Status, StreamTable
from headwater.refresh.options import parse_schedule

#: A change passes through these to what reads them: they are refreshed in the same wave.
_PASSED_THROUGH = ("change", "downstream")


def schedule_kind(stream: StreamTable) -> str | None:
    """`every`, `cron`, `change`, `downstream`, or None."""
    return None if stream.definition.schedule is None else parse_schedule(stream.definition.schedule).kind


def groups(streams: Sequence[StreamTable]) -> dict[str, list[StreamTable]]:
    """Stream tables that read each other, however far round, by the smallest id of each group."""
    leader = {stream.id: stream.id for stream in streams}

    def find(identity: str) -> str:
        while leader[identity] != identity:
            leader[identity] = identity = leader[leader[identity]]
        return identity

    for stream in streams:
        for above in stream.upstream:
            if above in leader:
                low, high = sorted((find(stream.id), find(above)))
                leader[high] = low
    found: dict[str, list[StreamTable]] = {}
    for stream in streams:
        found.setdefault(find(stream.id), []).append(stream)
    return found


def upstream(streams: Mapping[str, StreamTable], identity: str) -> set[str]:
    """Everything that a stream table reads among the stream tables, itself included."""
    found, waiting = set[str](), [identity]
    while waiting:
        each = waiting.pop()
        if each in streams and each not in found:
            found.add(each)
            waiting += streams[each].upstream
    return found


def positions(streams: Mapping[str, StreamTable], identity: str) -> dict[int, int]:
    """The tables a stream table follows, with the snapshot up to which it has seen each.

    Of a stream table above it, that one's own inputs count too if it is refreshed in the same wave; one with
    a rhythm of its own (`5s`, cron, on request) counts when it has been refreshed.
    """
    storage = {stream.storage.table_id: stream for stream in streams.values() if stream.stages}
    found: dict[int, int] = {}
    waiting, known = [identity], set[str]()
    while waiting:
        stream = streams[waiting.pop()]
        if stream.id in known or stream.frontier is None:
            continue
        known.add(stream.id)
        for source in stream.frontier.sources:
            found[source.table_id] = min(source.snapshot_id, found.get(source.table_id, source.snapshot_id))
            above = storage.get(source.table_id)
            if (
                above is not None
                and above.id in stream.upstream
                and above.status is Status.ACTIVE
                and schedule_kind(above) in _PASSED_THROUGH
            ):
                waiting.append(above.id)
    return found


def oldest_position(streams: Iterable[StreamTable]) -> int | None:
    """The oldest snapshot up to which any of them has seen an input."""
    return min(
        (source.snapshot_id for s in streams if s.frontier is not None for source in s.frontier.sources),
        default=None,
    )


def without_waiting(
    streams: Mapping[str, StreamTable], wanted: Collection[str], waiting: Collection[str]
) -> set[str]:
    """Those that do not read, however far up, one that has to wait after a failure."""
    return {each for each in wanted if not upstream(streams, each) & set(waiting)}
