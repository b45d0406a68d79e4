"""What a reader must do to see a table at one snapshot, as data.

The plan is read in one repeatable-read transaction, so files, deletes and inlined rows fit together even
while DuckDB compacts or flushes the table.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from headwater.algebra.predicates import Predicate
from headwater.errors import CatalogError, SnapshotError
from headwater.lake.catalog import CatalogState
from headwater.lake.connection import Connection, Cursor, Database
from headwater.lake.format.conform import NameMapping, name_mapping
from headwater.lake.model import Column, DataFile, DeleteFile, Snapshot, Table
from headwater.lake.reading.pruning import Pruning, prune
from headwater.typedefs import FileId, SnapshotId

#: PostgreSQL refused to read a statistic as what its column's type says it is.
_MALFORMED_STATISTIC = (psycopg.errors.InvalidTextRepresentation, psycopg.errors.NumericValueOutOfRange)
_ATTEMPTS = 5


class FileScan(NamedTuple):
    """One data file and what is not to be read of it. (A named tuple: plans hold tens of thousands.)"""

    file: DataFile
    deletes: tuple[DeleteFile, ...] = ()
    """Delete files; their positions are united. (More than one is the trace of a race in DuckDB.)"""
    inlined_deletes: tuple[int, ...] = ()
    """Further deleted positions, counted from 0."""
    max_snapshot: SnapshotId | None = None
    """Read only rows whose embedded snapshot id is at most this; None to read all."""
    partition_values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class InlinedScan:
    """Rows kept in a table of the catalog's own database.

    Rows of snapshot S: `begin_snapshot <= S AND (end_snapshot IS NULL OR S < end_snapshot)`.
    """

    table_name: str
    schema_version: int
    columns: tuple[Column, ...]
    """The user's columns as that table has them, with the ids by which they are matched to the reader's."""
    row_count: int
    """Visible rows when the plan was made; fewer later means that they were flushed to a file since."""


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Everything that is to be read, for any reader."""

    table: Table
    snapshot: Snapshot
    files: Sequence[FileScan]
    inlined: tuple[InlinedScan, ...] = ()
    mappings: Mapping[int, tuple[NameMapping, ...]] = field(default_factory=dict)
    """How files without field ids name the columns, by `mapping_id`."""
    where: Predicate | None = None
    """What the files were pruned by; rows that do not match are still among them."""


def plan_scan(
    db: Database,
    state: CatalogState,
    table: Table,
    *,
    where: Predicate | None = None,
    connection: Connection | None = None,
) -> ScanPlan:
    """Plan reading `table` at the snapshot of `state`.

    With `connection` the plan is read inside the transaction that is open there.
    """

    if connection is not None:
        return _Planner(db, connection, table, state.snapshot, where, guarded=True).plan()
    return find_and_plan(db, lambda _: (state, table), where=where)


def find_and_plan(
    db: Database,
    find: Callable[[Connection], tuple[CatalogState, Table]],
    *,
    where: Predicate | None = None,
) -> ScanPlan:
    """Plan reading the table that `find` finds, in the transaction it is found in."""

    def attempt(connection: Connection, guarded: bool = False) -> ScanPlan:
        state, table = find(connection)
        with garbage_left():
            return _Planner(db, connection, table, state.snapshot, where, guarded).plan()

    guarded, missing = False, ""
    for _ in range(_ATTEMPTS):
        try:
            return db.read(partial(attempt, guarded=guarded))
        except _MALFORMED_STATISTIC:
            guarded = True
        except psycopg.errors.UndefinedTable as error:
            # A flush dropped a table of inlined rows that the transaction still saw registered.
            missing = str(error).partition("\n")[0]
    raise CatalogError(
        "The catalog names a table that is not there.", detail=missing, hint="Run `headwater doctor`."
    )


@contextmanager
def garbage_left() -> Iterator[None]:
    """Keep Python from looking for garbage meanwhile.

    It looks after every few hundred new objects, and passes over all of the process every now and then. The
    tuples of a long plan would have it look dozens of times, in vain: that doubles the time of planning.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def replan(db: Database, plan: ScanPlan) -> ScanPlan:
    """The same plan from the catalog as it is now: the same rows, perhaps in other files."""
    state = CatalogState(plan.snapshot, "", {}, {}, {})
    return plan_scan(db, state, plan.table, where=plan.where)


#: The fields of a `DataFile` and of a `DeleteFile`, in their order; `%(folder)s` is the table's.
FILE_COLUMNS = (
    "f.data_file_id, CASE WHEN f.path_is_relative THEN %(folder)s::text || f.path ELSE f.path END, "
    "f.record_count, f.file_size_bytes, f.footer_size, f.row_id_start, f.begin_snapshot, f.end_snapshot, "
    "f.partition_id, f.encryption_key, f.mapping_id, f.partial_max"
)
DELETE_COLUMNS = (
    "d.delete_file_id, d.data_file_id, "
    "CASE WHEN d.path_is_relative THEN %(folder)s::text || d.path ELSE d.path END, d.format, "
    "d.delete_count, d.file_size_bytes, d.footer_size, d.encryption_key, d.begin_snapshot, d.partial_max"
)
_LIVE_FILE = (
    "f.table_id = %(table)s AND f.begin_snapshot <= %(at)s "
    "AND (f.end_snapshot IS NULL OR %(at)s < f.end_snapshot)"
)
#: Which files are left is found out from indexes alone; what else is to be known of them is fetched after.
_PRUNED = (
    "WITH a AS (SELECT array_agg(f.data_file_id) AS ids "
    f"FROM {{files}} f {{joins}} WHERE {_LIVE_FILE} AND {{condition}}) "
    f"SELECT {FILE_COLUMNS} FROM a JOIN {{files}} f ON f.data_file_id = ANY(a.ids)"
)
MAPPINGS = (
    "SELECT mapping_id, column_id, source_name, target_field_id, parent_column, is_partition "
    "FROM {ducklake_name_mapping} WHERE mapping_id = ANY(%(ids)s) ORDER BY mapping_id, column_id"
)
_QUERIES = {
    "files": f"SELECT {FILE_COLUMNS} FROM {{ducklake_data_file}} f WHERE {_LIVE_FILE}",
    "facts": (
        "SELECT EXISTS (SELECT FROM {ducklake_snapshot} WHERE snapshot_id = %(at)s), "
        "to_regclass(%(deletes)s)::text"
    ),
    "inlined": (
        "SELECT table_name, schema_version FROM {ducklake_inlined_data_tables} "
        "WHERE table_id = %(table)s AND schema_version <= %(version)s ORDER BY schema_version"
    ),
    "deletes": (
        f"SELECT {DELETE_COLUMNS} "
        "FROM {ducklake_delete_file} d WHERE d.table_id = %(table)s AND d.begin_snapshot <= %(at)s "
        "AND (d.end_snapshot IS NULL OR %(at)s < d.end_snapshot)"
    ),
    "partition_values": (
        "SELECT data_file_id, partition_key_index, partition_value FROM {ducklake_file_partition_value} "
        "WHERE table_id = %(table)s"
    ),
    "mappings": MAPPINGS,
    "columns": (
        "SELECT column_id, column_name, column_type, parent_column, begin_snapshot, end_snapshot "
        "FROM {ducklake_column} WHERE table_id = %(table)s ORDER BY column_order"
    ),
    "versions": (
        "SELECT schema_version, begin_snapshot FROM {ducklake_schema_versions} WHERE table_id = %(table)s"
    ),
}
#: Of more files than this everything is asked for: a longer list costs more than it saves.
_FEW = 500
_OF_FILES = " AND data_file_id = ANY(%(ids)s)"


@lru_cache(maxsize=256)
def _count_query(schema: str, name: str) -> bytes:
    query = sql.SQL(
        "SELECT count(*) FROM {} WHERE begin_snapshot <= %(at)s "
        "AND (end_snapshot IS NULL OR %(at)s < end_snapshot)"
    )
    return query.format(sql.Identifier(schema, name)).as_bytes(None)


@dataclass
class _Details:
    """Queries about the files of a plan that were sent, but not read yet."""

    deletes: Cursor | None = None
    inlined_deletes: Cursor | None = None
    partition_values: Cursor | None = None
    mappings: Cursor | None = None
    row_counts: list[Cursor] = field(default_factory=list)


@dataclass
class _Planner:
    db: Database
    connection: Connection
    table: Table
    snapshot: Snapshot
    where: Predicate | None
    guarded: bool

    def plan(self) -> ScanPlan:
        pruning = None if self.where is None else prune(self.db, self.table, self.where, guarded=self.guarded)
        details = _Details()
        with self.connection.pipeline():
            files_cursor = self._ask("files") if pruning is None else self._ask_for_pruned(pruning)
            facts_cursor = self._ask("facts", deletes=self._deletes_table.as_string(None))
            inlined_cursor = self._ask("inlined", version=self.snapshot.schema_version)
            if pruning is None:
                # After pruning, few files are left to ask about.
                details.deletes = self._ask("deletes")
        exists, deletes_table = facts_cursor.fetchall()[0]
        if not exists:
            raise _expired(self.snapshot.id, self.table)
        files = data_files(files_cursor.fetchall())
        registered = inlined_cursor.fetchall()

        ids = None if pruning is None or len(files) > _FEW else [file.id for file in files]
        only = "" if ids is None else _OF_FILES
        mapping_ids = _distinct(files, "mapping_id")
        with self.connection.pipeline():
            if details.deletes is None and files:
                details.deletes = self._ask("deletes", only, ids=ids)
            if _distinct(files, "partition_id"):
                details.partition_values = self._ask("partition_values", only, ids=ids)
            if deletes_table is not None and files:
                details.inlined_deletes = self._ask_for_inlined_deletes(ids)
            if mapping_ids:
                details.mappings = self._ask("mappings", ids=list(mapping_ids))
            details.row_counts = [self._ask_for_row_count(name) for name, _ in registered]
        return ScanPlan(
            table=self.table,
            snapshot=self.snapshot,
            files=self._scans(files, details),
            inlined=self._inlined(registered, details),
            mappings=name_mappings(details.mappings.fetchall() if details.mappings else ()),
            where=self.where,
        )

    @property
    def _parameters(self) -> dict[str, Any]:
        return {"table": self.table.id, "at": self.snapshot.id, "folder": self.table.path}

    def _ask(self, what: str, condition: str = "", **more: Any) -> Cursor:
        # Numbers in binary: the C library reads 10,000 rows of them a tenth faster.
        query = self.db.text(_QUERIES[what] + condition)
        return self.connection.execute(query, {**self._parameters, **more}, binary=True)

    def _ask_for_pruned(self, pruning: Pruning) -> Cursor:
        query = sql.SQL(_PRUNED).format(
            files=self.db.name("ducklake_data_file"), joins=pruning.joins, condition=pruning.condition
        )
        return self.connection.execute(query, {**pruning.parameters, **self._parameters}, binary=True)

    @property
    def _deletes_table(self) -> sql.Identifier:
        """Registered nowhere; it is there or it is not."""
        return self.db.name(f"ducklake_inlined_delete_{self.table.id}")

    def _ask_for_inlined_deletes(self, ids: list[FileId] | None) -> Cursor:
        query = sql.SQL("SELECT file_id, row_id FROM {} WHERE begin_snapshot <= %(at)s{}").format(
            self._deletes_table, sql.SQL("" if ids is None else " AND file_id = ANY(%(ids)s)")
        )
        return self.connection.execute(query, {**self._parameters, "ids": ids}, binary=True)

    def _ask_for_row_count(self, name: str) -> Cursor:
        return self.connection.execute(_count_query(self.db.schema, name), self._parameters)

    def _scans(self, files: list[DataFile], details: _Details) -> list[FileScan]:
        deletes: dict[FileId, tuple[DeleteFile, ...]] = {}
        for row in details.deletes.fetchall() if details.deletes else ():
            deletes[row[1]] = (*deletes.get(row[1], ()), DeleteFile._make(row))
        positions: dict[FileId, list[int]] = {}
        for file_id, position in details.inlined_deletes.fetchall() if details.inlined_deletes else ():
            positions.setdefault(file_id, []).append(position)
        sorted_positions = {file_id: tuple(sorted(found)) for file_id, found in positions.items()}
        values = _partition_values(details.partition_values.fetchall() if details.partition_values else [])
        limits: Iterable[SnapshotId | None] = repeat(None)
        if _distinct(files, "partial_max"):
            at = self.snapshot.id
            limits = [at if f.partial_max is not None and f.partial_max > at else None for f in files]
        # Plans are long, and a loop in C takes a third of the time of one in Python.
        ids = list(map(itemgetter(0), files))
        nothing: Iterable[tuple[()]] = repeat(())
        parts = zip(  # noqa: B905 - what is repeated has no end
            files,
            map(deletes.get, ids, nothing) if deletes else nothing,
            map(sorted_positions.get, ids, nothing) if sorted_positions else nothing,
            limits,
            map(values.get, ids, nothing) if values else nothing,
        )
        return list(map(partial(tuple.__new__, FileScan), parts))

    def _inlined(self, registered: list[tuple[Any, ...]], details: _Details) -> tuple[InlinedScan, ...]:
        counts = [cursor.fetchall()[0][0] for cursor in details.row_counts]
        if not any(counts):
            return ()
        with self.connection.pipeline():
            columns_cursor, versions_cursor = self._ask("columns"), self._ask("versions")
        columns = columns_cursor.fetchall()
        begins: dict[int, SnapshotId] = dict(versions_cursor.fetchall())
        return tuple(
            InlinedScan(name, version, _layout(columns, _layout_begin(self.table, begins, version)), rows)
            for (name, version), rows in zip(registered, counts, strict=True)
            if rows
        )


def data_files(rows: list[tuple[Any, ...]]) -> list[DataFile]:
    """The files of rows of `FILE_COLUMNS`, in the order of their ids."""
    rows.sort(key=itemgetter(0))
    # `_make`, without a Python call per file.
    return list(map(partial(tuple.__new__, DataFile), rows))


def _distinct(files: list[DataFile], name: str) -> set[int]:
    """What a column of the files holds besides NULL. (A generator over 10,000 files would be felt.)"""
    return set(map(itemgetter(DataFile._fields.index(name)), files)) - {None}


def _partition_values(rows: list[tuple[Any, ...]]) -> dict[FileId, tuple[str | None, ...]]:
    rows.sort(key=itemgetter(1))
    values: dict[FileId, tuple[str | None, ...]] = {}
    for file_id, _, value in rows:
        values[file_id] = (*values.get(file_id, ()), value)
    return values


def name_mappings(rows: Iterable[tuple[Any, ...]]) -> dict[int, tuple[NameMapping, ...]]:
    """The mappings of rows of `MAPPINGS`, by their ids."""
    found: dict[int, list[Any]] = {}
    for mapping_id, *row in rows:
        found.setdefault(mapping_id, []).append(tuple(row))
    return {mapping_id: name_mapping(names) for mapping_id, names in found.items()}


def inlined_layouts(
    db: Database, connection: Connection, table: Table, snapshot: Snapshot
) -> list[tuple[str, int, tuple[Column, ...]]]:
    """Name, schema version and columns of the tables that can hold inlined rows of a snapshot."""
    parameters = {"table": table.id, "version": snapshot.schema_version}
    with connection.pipeline():
        registered, columns, versions = (
            connection.execute(db.text(_QUERIES[what]), parameters)
            for what in ("inlined", "columns", "versions")
        )
    return _layouts(table, registered.fetchall(), columns, versions)


def _layouts(
    table: Table, registered: Iterable[tuple[Any, ...]], columns: Cursor, versions: Cursor
) -> list[tuple[str, int, tuple[Column, ...]]]:
    rows = columns.fetchall()
    begins: dict[int, SnapshotId] = dict(versions.fetchall())
    return [
        (name, version, _layout(rows, _layout_begin(table, begins, version))) for name, version in registered
    ]


def _layout_begin(table: Table, begins: dict[int, SnapshotId], version: int) -> SnapshotId:
    """The snapshot that gave the table the columns it had at a schema version.

    A table for inlined rows that was made later than the columns has a version that nobody wrote down.
    """
    known = max((at for at in begins if at <= version), default=None)
    return table.begin_snapshot if known is None else begins[known]


def _layout(rows: Collection[tuple[Any, ...]], at: SnapshotId) -> tuple[Column, ...]:
    """The columns as they were when the snapshot `at` was current."""
    children: dict[int | None, list[tuple[Any, ...]]] = {}
    for column_id, name, type_, parent, begin, end in rows:
        if begin <= at and (end is None or at < end):
            children.setdefault(parent, []).append((column_id, name, type_))

    def build(parent: int | None) -> tuple[Column, ...]:
        return tuple(
            Column(column_id, name, type_, children=build(column_id))
            for column_id, name, type_ in children.get(parent, ())
        )

    return build(None)


def _expired(snapshot_id: SnapshotId, table: Table) -> SnapshotError:
    return SnapshotError(
        f"Snapshot {snapshot_id} expired while {table.name} was read.",
        hint="Read a newer snapshot.",
        snapshot_id=snapshot_id,
        table=str(table.name),
    )
