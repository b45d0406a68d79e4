"""What a transaction means to change: the catalog it started from, and the one it wants.

Commits are computed as the difference of the two, so any number of operations on one object become
one row each, and running them again on a newer snapshot needs no replay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import AlreadyExistsError
from headwater.lake.catalog import CatalogState, key
from headwater.lake.model import DataFile, DeleteFile, SchemaInfo, StagedDeletes, StagedFile, Table, View
from headwater.typedefs import FileId, SnapshotId, TableName

Positions = npt.NDArray[np.int64]
NO_POSITIONS: Positions = np.empty(0, np.int64)


@dataclass
class NewFile:
    """A stored file that this transaction adds, and the rows of it that it deleted again."""

    staged: StagedFile
    deleted: Positions = field(default_factory=lambda: NO_POSITIONS)


@dataclass(frozen=True)
class InlinedRows:
    """Rows that go into the catalog, and the ids of those that replace a row and keep its id."""

    table: pa.Table
    row_ids: tuple[int | None, ...]


@dataclass
class FileDeletes:
    """Rows of a committed file that this transaction deletes."""

    file: DataFile
    delete_files: tuple[DeleteFile, ...]
    """Live when the transaction read them; verified again before the commit."""
    inlined: Positions
    """Positions deleted earlier through the catalog."""
    positions: Positions
    """Positions this transaction deletes, ascending."""


@dataclass(frozen=True)
class FlushedFile:
    """Inlined rows as a stored file: their row ids and snapshots are inside."""

    staged: StagedFile
    first_snapshot: SnapshotId
    last_snapshot: SnapshotId
    deletes: StagedDeletes | None
    """Rows that were dead already, with the snapshots that ended them."""


@dataclass
class Flush:
    """Inlined rows and deletes of one table on their way into files."""

    files: list[FlushedFile] = field(default_factory=list)
    rows: dict[str, list[tuple[int, int, int | None]]] = field(default_factory=dict)
    """Row id, begin and end of the rows taken, by inlined-data table."""
    deletes: list[tuple[FileDeletes, StagedDeletes]] = field(default_factory=list)
    """Files whose inlined deletes become a delete file, and that file."""

    @property
    def count(self) -> int:
        """How many rows and deletes move."""
        return sum(map(len, self.rows.values())) + sum(len(d.inlined) for d, _ in self.deletes)

    @property
    def stored(self) -> list[str]:
        """Paths of the delete files, relative to the table's folder."""
        return [d.path for _, d in self.deletes] + [f.deletes.path for f in self.files if f.deletes]


@dataclass(frozen=True)
class FileReplacement:
    """Committed files, and those that hold their rows from now on.

    With `first_snapshot` the new files have the snapshots of their rows inside and take the old ones' place
    in all of history. Without, the old files end and the new ones begin with the commit: history still needs
    rows that the new ones lack.
    """

    sources: tuple[FileDeletes, ...]
    """With the deletes that were left out of the new files."""
    staged: tuple[StagedFile, ...]
    first_snapshot: SnapshotId | None = None
    last_snapshot: SnapshotId | None = None

    @property
    def keeps_history(self) -> bool:
        """Whether older snapshots read the new files too."""
        return self.first_snapshot is not None


@dataclass
class TableData:
    """The rows one transaction adds to and removes from one table."""

    files: list[NewFile] = field(default_factory=list)
    inlined: list[InlinedRows] = field(default_factory=list)
    deletes: dict[FileId, FileDeletes] = field(default_factory=dict)
    inlined_deletes: dict[str, set[int]] = field(default_factory=dict)
    """Row ids to end, by inlined-data table."""
    ended_files: set[FileId] = field(default_factory=set)
    """Files removed whole."""
    truncated: bool = False
    """Every inlined row is ended too."""
    beside_inserts: bool = False
    """What it removes was chosen once and for all, whatever others add meanwhile."""
    flush: Flush | None = None
    replaced: list[FileReplacement] = field(default_factory=list)
    """Files of a compaction. Whoever stored the new ones removes them if there is no commit."""

    @property
    def inserts(self) -> bool:
        """Does it add rows?"""
        return bool(self.files or self.inlined)

    @property
    def changes(self) -> bool:
        """Is there anything to commit?"""
        return self.inserts or self.removes or self.flush is not None or bool(self.replaced)

    @property
    def removes(self) -> bool:
        """Does it take rows away?"""
        return bool(self.deletes or self.inlined_deletes or self.ended_files or self.truncated)

    def copy(self) -> TableData:
        """A copy that further operations do not change."""
        return replace(
            self,
            files=[replace(new) for new in self.files],
            inlined=list(self.inlined),
            deletes=dict(self.deletes),
            inlined_deletes={name: set(row_ids) for name, row_ids in self.inlined_deletes.items()},
            ended_files=set(self.ended_files),
            replaced=list(self.replaced),
        )


@dataclass(frozen=True)
class SavePoint:
    """What a draft was before an operation."""

    schemas: dict[str, SchemaInfo]
    tables: dict[tuple[str, str], Table]
    views: dict[tuple[str, str], View]
    data: dict[int, TableData]
    options: list[OptionChange]
    null_checked: set[int]


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option to set (or, with None, to remove) for the lake, a schema or a table."""

    name: str
    value: str | None
    scope: str | None
    scope_id: int | None


class Draft:
    """The catalog a transaction wants. New objects have negative ids until the commit draws real ones."""

    def __init__(self, base: CatalogState):
        self.base = base
        self.schemas: dict[str, SchemaInfo] = dict(base.schemas)
        self.tables: dict[tuple[str, str], Table] = dict(base.tables)
        self.views: dict[tuple[str, str], View] = dict(base.views)
        self.data: dict[int, TableData] = {}
        self.options: list[OptionChange] = []
        self.null_checked: set[int] = set()
        """Tables whose rows were checked for a new NOT NULL: nobody may insert meanwhile."""
        self.known_by_row_id: set[int] = set()
        """Tables whose row ids were relied on: nobody may merge files meanwhile and forget them."""
        self._last_id = 0
        self._began = time.monotonic()

    @property
    def age(self) -> timedelta:
        """How long ago this began."""
        return timedelta(seconds=time.monotonic() - self._began)

    @property
    def state(self) -> CatalogState:
        """The wanted catalog, to look things up in."""
        return CatalogState(self.base.snapshot, self.base.data_path, self.schemas, self.tables, self.views)

    def new_id(self) -> int:
        """An id for something the catalog does not know yet."""
        self._last_id -= 1
        return self._last_id

    def rows(self, table: Table) -> TableData:
        """The row changes of that table, to add to."""
        return self.data.setdefault(table.id, TableData())

    def save(self) -> SavePoint:
        """Remember everything as it is now."""
        return SavePoint(
            dict(self.schemas),
            dict(self.tables),
            dict(self.views),
            {table_id: data.copy() for table_id, data in self.data.items()},
            list(self.options),
            set(self.null_checked),
        )

    def restore(self, saved: SavePoint) -> list[tuple[Table | None, StagedFile]]:
        """Be as at the save point again; returns the files that were stored since, in vain."""
        now = list(self.staged_files())
        self.schemas, self.tables, self.views = saved.schemas, saved.tables, saved.views
        self.data, self.options, self.null_checked = saved.data, saved.options, saved.null_checked
        known = {id(file) for _, file in self.staged_files()}
        return [(table, file) for table, file in now if id(file) not in known]

    def put_table(self, table: Table) -> Table:
        """Add a table, or replace the one of that name."""
        self.tables[key(table.name)] = table
        return table

    def remove_table(self, table: Table) -> list[NewFile]:
        """Take a table away; returns files that were stored for it in vain."""
        del self.tables[key(table.name)]
        gone = self.data.pop(table.id, None)
        return gone.files if gone else []

    def put_view(self, view: View) -> View:
        """Add a view, or replace the one of that name."""
        self.views[key(view.name)] = view
        return view

    def refuse_taken(self, name: TableName) -> None:
        """Raise if a table or view of that name is there: they share one namespace."""
        for kind, found in (("table", self.tables.get(key(name))), ("view", self.views.get(key(name)))):
            if found is not None:
                raise AlreadyExistsError(
                    f"There is already a {kind} {found.name}.",
                    hint="Choose another name, or replace it (or_replace=True).",
                    table=str(found.name),
                )

    def staged_files(self) -> Iterator[tuple[Table | None, StagedFile]]:
        """Every file stored for this transaction, with its table."""
        by_id = {table.id: table for table in self.tables.values()}
        for table_id, data in self.data.items():
            for new in data.files:
                yield by_id.get(table_id), new.staged
            for flushed in data.flush.files if data.flush else ():
                yield by_id.get(table_id), flushed.staged
