"""Tombstones that met no row: of a large log they may be too many for this process's memory."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

#: Tombstones that are told to the database at once.
_BATCH = 10_000


class Unmatched:
    """A list of tombstones, by delta and place, that is kept in a file of this machine while it is needed."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, found: Iterable[tuple[str, int]]) -> None:
        """Take in some more; they are read one after the other."""
        left = iter(found)
        while batch := list(islice(left, _BATCH)):
            with self._file().open("a") as lines:
                lines.write(json.dumps(batch) + "\n")
            self._count += len(batch)

    def batches(self) -> Iterator[str]:
        """All of them in a few lists, as JSON; again from the start each time."""
        if self._path is None:
            return
        with self._path.open() as lines:
            for line in lines:
                yield line.rstrip("\n")

    def _file(self) -> Path:
        if self._path is None:
            handle, name = tempfile.mkstemp(prefix="headwater-unmatched-")
            os.close(handle)
            self._path = Path(name)
            weakref.finalize(self, self._path.unlink, missing_ok=True)
        return self._path
