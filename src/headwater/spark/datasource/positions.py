"""How far a stream has read: an offset that means the same rows whatever happens to the files.

Every row is known by the snapshot that inserted it and by its row id. Both stay when DuckDB merges files or
flushes rows from the catalog to a file. So a position is "everything up to that snapshot", or, where a limit
cuts a snapshot in two, "and of the next one the row ids below that number". The rows between two positions
are the same after a restart as before, in whichever files they are by then.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headwater.typedefs import SnapshotId, TableId


@dataclass(frozen=True, slots=True)
class Position:
    """Everything before it was read."""

    table: TableId
    snapshot: SnapshotId
    row: int | None
    """Of this snapshot only rows with smaller ids were read; None: all of it."""
    initial: bool
    """The table as a whole at `snapshot` is being read; else what snapshots inserted."""
    origin: SnapshotId
    """Where the stream began. Spark forgets where until its first batch is complete."""

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Position:
        """From the JSON that Spark keeps."""
        return cls(**offset)

    def offset(self) -> dict[str, Any]:
        """As the JSON that Spark keeps."""
        return asdict(self)

    @property
    def is_beginning(self) -> bool:
        """Nothing was read."""
        return self.row == 0 if self.initial else self.row is None and self.snapshot == self.origin

    def as_before(self, end: Position) -> Position:
        """Where a batch that ends at `end` began: a beginning is what the end remembers of it."""
        if not self.is_beginning:
            return self
        if end.initial:
            return Position(self.table, end.snapshot, 0, True, end.origin)
        return Position(self.table, end.origin, None, False, end.origin)

    @property
    def next_snapshot(self) -> SnapshotId:
        """The first snapshot of which something may be left."""
        return self.snapshot + 1 if self.row is None else self.snapshot


def between(start: Position, end: Position, snapshot: str, row: str) -> str | None:
    """A condition on the rows of the snapshots between two positions; None if it is all of them.

    `snapshot` and `row` are the names of the columns that hold the two numbers.
    """
    parts = []
    if start.row is not None:
        parts.append(f"({snapshot} > {start.snapshot} OR {row} >= {start.row})")
    if end.row is not None:
        parts.append(f"({snapshot} < {end.snapshot} OR {row} < {end.row})")
    return " AND ".join(parts) or None
