"""Plans of tables that statements named before, while the lake is still as it was."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from headwater.typedefs import SnapshotId

#: More tables than this are not kept: a plan holds the list of the files, and inlined rows.
_MOST = 32


class KeptRelations:
    """The plans of tables at the newest snapshot, until there is a newer one.

    What moves rows of the newest snapshot to other files (a flush, a compaction) is a snapshot of its own, so
    that nobody reads files that are gone. Nothing like that tells a reader of an older one, whose rows move
    too: its plans are not kept.
    """

    def __init__(self) -> None:
        self._at: SnapshotId | None = None
        self._plans: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, at: SnapshotId, place: Hashable, make: Callable[[], Any]) -> Any:
        """The plan of a table at the newest snapshot, made if it is not known."""
        with self._lock:
            if self._at == at and place in self._plans:
                self._plans.move_to_end(place)
                return self._plans[place]
        made = make()
        with self._lock:
            if self._at is None or self._at < at:
                self._at = at
                self._plans.clear()
            if self._at == at:
                self._plans[place] = made
                if len(self._plans) > _MOST:
                    self._plans.popitem(last=False)
        return made
