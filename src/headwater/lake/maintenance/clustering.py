"""Which files of one partition are put together so that new files hold ranges of the sort keys.

Files that overlap are spread over new ones, each of which gets a range of its own. Files that do not overlap
are left where they are, or put together with their neighbours if they are small: no row has to go far. So
what is in order stays, and a second run finds nothing to do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from headwater.lake.maintenance.ordering import Span
from headwater.lake.reading.scan import FileScan

#: Files of less than this part of the target size are small.
SMALL = 0.5
#: One file may be larger than the target by this factor before it becomes two.
_LARGE = 1.25


class Candidate(NamedTuple):
    """A file that may be moved."""

    scan: FileScan
    size: int
    """Bytes of the rows that are left of it."""
    spans: tuple[Span, ...] = ()
    wanted: bool = False
    """Whether it is worth a move by itself."""


Group = list[Candidate]


def outputs(group: Sequence[Candidate], target_size: int) -> int:
    """In how many files the rows of a group go.

    Rather too few than too many, up to half more than the target in each: rows in order take less room than
    before, and files that come out small would be moved once more.
    """
    files = _size(group) / target_size
    return 1 if files <= _LARGE else max(2, int(files))


def filled(files: Iterable[Candidate], target_size: int) -> list[Group]:
    """Files put together, in their order, up to a size."""
    found: list[Group] = []
    room = 0
    for one in files:
        if not found or one.size > room:
            found.append([])
            room = target_size
        found[-1].append(one)
        room -= one.size
    return found


def apart(files: Sequence[Candidate], level: int = 0) -> list[Group]:
    """Files that overlap together, others apart, in the order of the keys from the given one on."""
    if not files or level == len(files[0].spans):
        return [[one] for one in files]
    groups: list[Group] = []
    reach: tuple[Any, ...] = ()
    for one in sorted(files, key=lambda one: one.spans[level]):
        span = one.spans[level]
        if groups and span.low < reach:
            groups[-1].append(one)
        else:
            groups.append([one])
        reach = max(reach, span.high)

    def value(group: Group) -> tuple[Any, ...] | None:
        span = group[0].spans[level]
        return span.low if len(group) == 1 and span.low == span.high else None

    found: list[Group] = []
    for same, run in itertools.groupby(groups, value):
        # Of one value only: the next key tells them apart.
        listed = list(run)
        found += listed if same is None else apart([group[0] for group in listed], level + 1)
    return found


def together(groups: Sequence[Group], target_size: int) -> list[Group]:
    """Groups that do not overlap, each small one with neighbours that are small or are moved anyway."""

    def small(group: Group) -> bool:
        return _size(group) < SMALL * target_size

    def moved(group: Group) -> bool:
        return len(group) > 1 or group[0].wanted

    found: list[Group] = []
    for group in _neighbours(groups, target_size):
        if found and ((small(group) and moved(found[-1])) or (small(found[-1]) and moved(group))):
            found[-1] += group
        else:
            found.append(group)
    return found


def _neighbours(groups: Sequence[Group], target_size: int) -> Iterator[Group]:
    """Small neighbours up to the target size."""
    filling: Group = []
    room = 0
    for group in groups:
        size = _size(group)
        small = size < SMALL * target_size
        if filling and (not small or size > room):
            yield filling
            filling = []
        if not small:
            yield list(group)
            continue
        room = target_size - size if not filling else room - size
        filling += group
    if filling:
        yield filling


def _size(group: Sequence[Candidate]) -> int:
    return sum(one.size for one in group)
