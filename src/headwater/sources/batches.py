"""What committed at a source between two positions, as either way of capturing finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Transactions whose ids are kept with a capture; of larger ones only the number.
MOST_XIDS = 1000


class Unchanged:
    """Stands for a value that an update left alone, and that was not sent for its size."""


UNCHANGED = Unchanged()
#: Texts by column; see `images`.
Row = Mapping[str, str | Unchanged | None]


@dataclass
class Net:
    """What the changes of a table come to, as a sum of row images."""

    changes: int = 0
    truncated: bool = False
    storage: str | None = None
    """Which file the table had after the last TRUNCATE."""
    images: list[tuple[str, int]] = field(default_factory=list)
    """JSON, and how many of each there are more (or fewer) than before."""


@dataclass
class NetRows:
    """The same of a table without a key, of which rows were sent column by column."""

    changes: int = 0
    truncated: bool = False
    rows: list[tuple[Row, int]] = field(default_factory=list)


@dataclass
class Latest:
    """The last that was said of each key, in the order of commits."""

    changes: int = 0
    truncated: bool = False
    only_came: bool = False
    """Whether all that was said is that rows came, whose keys were not there before."""
    rows: dict[tuple[str, ...], Row | None] = field(default_factory=dict)
    """None for keys that are gone."""
    bases: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """Under which key the lake has the values that were left alone, where it is another one."""


Changes = Net | NetRows | Latest


@dataclass
class Batch:
    """All that committed between two positions."""

    position: str
    """Where tables are when it is applied."""
    lsn: str | None = None
    tables: dict[int, Any] = field(default_factory=dict)
    """Changes by the number of their table."""
    transactions: int = 0
    xids: tuple[int, ...] = ()
    idle: bool = True
    """Whether moving the position on is worth nothing by itself."""

    more: bool = False
    """Whether there is more at the source that was left for the next batch."""

    positions: dict[int, str] = field(default_factory=dict)
    """Positions of tables that are elsewhere."""

    def after(self, number: int) -> str:
        """Where a table is when the batch is applied."""
        return self.positions.get(number, self.position)

    @property
    def changes(self) -> int:
        """Row changes that were read."""
        return sum(changes.changes for changes in self.tables.values())
