"""Which files of a plan Spark reads with its own reader, and which need the lake's.

| file | who reads it |
|---|---|
| field ids, types that Spark reads exactly, a store that the JVM reaches | Spark, all of them in one scan |
| name mapping, the same otherwise | Spark, one scan for each mapping |
| encrypted, no field ids, a store without a driver, a type Spark lacks | the lake, in Python workers |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from headwater.lake.format.conform import NameMapping
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.typedefs import SnapshotId

#: How DuckDB and Headwater call the files they write, which always have field ids.
_KNOWN_WRITER = re.compile(r"(^|/)ducklake-[0-9a-f-]{36}(\.parquet$|/)")


class Reason(Enum):
    """Why a file is read by the lake's reader, in Python workers."""

    ENCRYPTED = "encrypted files are decoded by DuckDB"
    STORE = "the JVM has no driver for the store"
    TYPE = "a column has a type or a default that Spark's reader does not know"
    WIDENED = "a column was widened in a way that Spark's reader does not follow"
    NO_FIELD_IDS = "the file has no field ids"
    MAPPED_TYPE = "the file's own types are not the table's"


@dataclass
class Branches:
    """The files of a plan by how they are read; numbers are places in `plan.files`."""

    by_id: list[int] = field(default_factory=list)
    by_name: dict[tuple[NameMapping, ...], list[int]] = field(default_factory=dict)
    in_workers: dict[Reason, list[int]] = field(default_factory=dict)

    @property
    def worker_files(self) -> list[int]:
        """All files for the Python workers."""
        return sorted(number for numbers in self.in_workers.values() for number in numbers)


@dataclass(frozen=True)
class Abilities:
    """What Spark's reader can do for one table."""

    reachable: Callable[[str], bool]
    """Whether the JVM can read a location."""
    types: bool
    """Whether it knows all types and defaults."""
    since: SnapshotId
    """Files from this snapshot on have types that it widens by itself."""
    fits: Callable[[FileScan, Sequence[NameMapping] | None], Reason | None]
    """Looks into a file that an unknown writer made."""


def branches(plan: ScanPlan, abilities: Abilities) -> Branches:
    """Divide the files of a plan."""
    found = Branches()
    for number, scan in enumerate(plan.files):
        file = scan.file
        mapping = None if file.mapping_id is None else tuple(plan.mappings.get(file.mapping_id, ()))
        reason = _reason(scan, mapping, abilities)
        if reason is not None:
            found.in_workers.setdefault(reason, []).append(number)
        elif mapping is None:
            found.by_id.append(number)
        else:
            found.by_name.setdefault(mapping, []).append(number)
    return found


def _reason(scan: FileScan, mapping: Sequence[NameMapping] | None, abilities: Abilities) -> Reason | None:
    file = scan.file
    if file.encryption_key is not None:
        return Reason.ENCRYPTED
    if not abilities.types:
        return Reason.TYPE
    if not abilities.reachable(file.path):
        return Reason.STORE
    if file.begin_snapshot < abilities.since:
        return Reason.WIDENED
    if mapping is None and known_writer(file.path):
        return None
    return abilities.fits(scan, mapping)


def known_writer(path: str) -> bool:
    """Whether a file's name is one that DuckDB or Headwater gives.

    >>> known_writer("s3://b/t/region=EU/ducklake-0199c0de-0000-7000-8000-000000000000.parquet")
    True
    """
    return _KNOWN_WRITER.search(path) is not None
