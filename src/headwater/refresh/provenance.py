"""Where a snapshot came from: one row for each stream table that a snapshot changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from headwater.refresh.model import Action, SourcePosition


@dataclass(frozen=True)
class Provenance:
    """What wrote a stream table's rows of one snapshot, and what was read for it.

    Committed with the snapshot itself, so the two cannot disagree.
    """

    stream_id: str
    name: str
    snapshot_id: int
    #: The snapshot of the lake that the result is of.
    data_snapshot_id: int
    refresh_id: str
    wave_id: str
    action: Action
    rows_inserted: int
    rows_deleted: int
    #: The inputs, with the snapshots at which they were read.
    sources: tuple[SourcePosition, ...]
    written_at: datetime

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)
