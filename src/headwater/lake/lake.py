"""A DuckLake: its catalog in PostgreSQL, its files in a folder or an object store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from psycopg import conninfo
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headwater.algebra.predicates import Predicate, parse_predicate
from headwater.errors import (
    CatalogError,
    ConflictError,
    NotFoundError,
    SettingsError,
    SnapshotError,
)
from headwater.lake import duckdb_session
from headwater.lake.bootstrap import catalog_exists, check_version, create_catalog
from headwater.lake.catalog import (
    CatalogReader,
    CatalogState,
    find_snapshot,
    key,
    list_snapshots,
    table_history,
    table_name,
)
from headwater.lake.connection import Connection, Database
from headwater.lake.maintenance.cleaning import GRACE as CLEANUP_GRACE
from headwater.lake.maintenance.cleaning import clean_up
from headwater.lake.maintenance.expiring import expire_snapshots
from headwater.lake.maintenance.leases import ReaderLease
from headwater.lake.maintenance.model import Age, ExpireResult, Hold, RemovalResult
from headwater.lake.maintenance.orphans import GRACE as ORPHAN_GRACE
from headwater.lake.maintenance.orphans import remove_orphans
from headwater.lake.model import Snapshot, Table
from headwater.lake.options import LakeOptions, load_options
from headwater.lake.reading.change_plan import ChangePlan, plan_changes
from headwater.lake.reading.change_range import Since
from headwater.lake.reading.change_reader import read_changes
from headwater.lake.reading.column_history import ColumnVersion, column_history
from headwater.lake.reading.kept_columns import KeptColumns
from headwater.lake.reading.quiet_tables import QuietTables
from headwater.lake.reading.read import iter_plan, read_plan
from headwater.lake.reading.scan import ScanPlan, find_and_plan, plan_scan
from headwater.lake.writing.commit import CommitInfo
from headwater.lake.writing.transaction import LakeContext, Transaction
from headwater.storage.locations import parse_location
from headwater.storage.options import StorageOptions
from headwater.storage.store import Store
from headwater.typedefs import FileId, SnapshotId, TableName

#: A snapshot by number, or the newest one not after a time; None is the latest.
At = SnapshotId | datetime | str | None
Result = TypeVar("Result")


class Lake:
    """An open lake. Handles are cheap to pickle and may be used by several threads and processes."""

    def __init__(self, db: Database, store: Store, data_path: str):
        self._context = LakeContext(db, store, CatalogReader(db, data_path))
        self.data_path = data_path
        """Where the files are; ends in `/`."""
        self.kept_columns = KeptColumns()
        """Columns of files that this process looks things up in again and again."""

    @classmethod
    def open(
        cls,
        dsn: str,
        *,
        data_path: str | Path | None = None,
        metadata_schema: str = "public",
        storage: StorageOptions | None = None,
        create: bool = True,
        encrypted: bool = False,
        override_data_path: bool = False,
    ) -> Lake:
        """Open the lake in a PostgreSQL database, or create it there.

        A new lake needs `data_path`; for one that exists it must be the one the catalog states, unless
        `override_data_path` says that the files have moved.
        """
        db = Database(dsn, metadata_schema)
        try:
            wanted = None if data_path is None else normal_data_path(str(data_path))
            return cls._open(db, Store(storage), wanted, create, encrypted, override_data_path)
        except BaseException:
            db.close()  # an embedded server stops only when nobody is connected
            raise

    @classmethod
    def _open(
        cls,
        db: Database,
        store: Store,
        wanted: str | None,
        create: bool,
        encrypted: bool,
        override_data_path: bool,
    ) -> Lake:
        db.check()
        with db.connection() as connection:
            exists = catalog_exists(db, connection)
        if not exists:
            if not create:
                raise NotFoundError(
                    f"There is no DuckLake catalog in schema {db.schema!r} ({db.shown}).",
                    hint="Check database and metadata_schema, or create one (headwater init).",
                )
            if wanted is None:
                raise SettingsError(
                    "A new lake needs a data path.",
                    hint="Pass data_path=…: a folder, or s3://bucket/prefix.",
                )
            refuse_file(wanted)
            create_catalog(db, wanted, encrypted=encrypted)
        options = db.read(lambda connection: load_options(db, connection))
        check_version(options.get("version"), f"schema {db.schema!r} ({db.shown})")
        stated = options.get("data_path")
        if stated is None:
            raise CatalogError(f"The catalog in {db.shown} states no data path.")
        if wanted is not None and wanted != normal_data_path(stated):
            if not override_data_path:
                raise SettingsError(
                    f"The lake's files are in {stated}, not in {wanted}.",
                    hint="Leave data_path out, or pass override_data_path=True if the files were moved.",
                    data_path=stated,
                )
            stated = wanted
        if encrypted and not options.encrypted:
            raise SettingsError(
                "The lake exists and is not encrypted; encryption is decided when a lake is created."
            )
        refuse_file(stated)
        return cls(db, store, stated if stated.endswith("/") else stated + "/")

    def __getstate__(self) -> dict[str, Any]:
        return {"db": self._context.db, "store": self._context.store, "data_path": self.data_path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Lake({self._context.db.shown!r}, data_path={self.data_path!r})"

    def close(self) -> None:
        """Close this process's connections."""
        self._context.db.close()

    # -- where it is --------------------------------------------------------------------------------

    @property
    def dsn(self) -> str:
        """PostgreSQL address in libpq's keyword form; holds the password if there is one."""
        return self._context.db.dsn

    @property
    def uri(self) -> str:
        """PostgreSQL address as a URI, without any password."""
        parameters = conninfo.conninfo_to_dict(self.dsn)
        parameters.pop("password", None)
        return _uri(parameters)

    @property
    def metadata_schema(self) -> str:
        """The PostgreSQL schema that holds the catalog."""
        return self._context.db.schema

    @property
    def store(self) -> Store:
        """The object store of the lake's files."""
        return self._context.store

    @property
    def db(self) -> Database:
        """The database that holds the catalog."""
        return self._context.db

    def duckdb(self, alias: str = "lake") -> duckdb.DuckDBPyConnection:
        """A DuckDB session with this lake attached as `alias` and in use."""
        elsewhere = {table.path for table in self.state().tables.values() if not table.path_is_relative}
        return duckdb_session.attach(
            self.db,
            self.store.options,
            self.data_path,
            alias=alias,
            encrypted=self.options().encrypted,
            folders=sorted(elsewhere),
        )

    # -- what is in it ------------------------------------------------------------------------------

    def snapshots(self, limit: int | None = None) -> list[Snapshot]:
        """Live snapshots, newest first."""
        return self.db.read(lambda connection: list_snapshots(self.db, connection, limit))

    def snapshot(self, at: At = None) -> Snapshot:
        """One snapshot: the latest, one by number, or the newest not after a time."""
        return self.db.read(lambda connection: self._snapshot(connection, at))

    def state(self, at: At = None) -> CatalogState:
        """Schemas, tables and views of one snapshot."""

        def work(connection: Connection) -> CatalogState:
            return self._context.reader.state(connection, self._snapshot(connection, at))

        return self.db.read(work)

    def table(self, name: TableName | str, at: At = None) -> Table:
        """A table as it is at one snapshot."""
        return self._find(name, at)[1]

    def options(self) -> LakeOptions:
        """The options stored in the lake."""
        return self.db.read(lambda connection: load_options(self.db, connection))

    # -- reading ------------------------------------------------------------------------------------

    def scan(
        self, table: TableName | str, snapshot: At = None, where: str | Predicate | None = None
    ) -> ScanPlan:
        """What a reader must do: files left after pruning, their deletes and filters, inlined rows."""
        predicate = parse_predicate(where) if isinstance(where, str) else where
        return find_and_plan(
            self.db, lambda connection: self._look_up(connection, table, snapshot), where=predicate
        )

    def files_left(self, plan: ScanPlan, where: Predicate) -> list[FileId]:
        """Which files of a plan may hold rows that meet a condition."""
        state = CatalogState(plan.snapshot, "", {}, {}, {})
        return [scan.file.id for scan in plan_scan(self.db, state, plan.table, where=where).files]

    def column_history(self, table: Table) -> list[ColumnVersion]:
        """The names and types that the columns of a table have had."""
        return column_history(self.db, table)

    def read(
        self,
        table: TableName | str,
        snapshot: At = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        hidden: Collection[str] = (),
    ) -> pa.Table:
        """The rows of a table at one snapshot.

        `where` is a condition in DuckDB's SQL; `hidden` may ask for `rowid`, `snapshot_id`, `filename`,
        `file_row_number`.
        """
        plan = self.scan(table, snapshot, where)
        return read_plan(plan, self.store, self.db, columns=columns, where=where, hidden=hidden, replan=True)

    def iter_batches(
        self,
        table: TableName | str,
        snapshot: At = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        hidden: Collection[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The same as `read`, piece by piece, for tables that do not fit into memory."""
        plan = self.scan(table, snapshot, where)
        return iter_plan(plan, self.store, self.db, columns=columns, where=where, hidden=hidden, replan=True)

    def plan_changes(self, table: TableName | str, start: Since, end: At = None) -> ChangePlan:
        """What a reader must do to see the changes of the snapshots from `start` to `end`, both included."""
        return plan_changes(self.db, lambda connection, at: self._look_up(connection, table, at), start, end)

    def quiet_tables(self, since: SnapshotId, until: SnapshotId) -> QuietTables:
        """Which tables nothing happened to after one snapshot and up to another."""
        return QuietTables.between(self.db, since, until)

    def changes(
        self,
        table: TableName | str,
        start: Since,
        end: At = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        net: bool = False,
    ) -> pa.Table:
        """How the rows of a table changed from snapshot `start` to `end`, both included; see `read_changes`.

        A time as `start` means the first snapshot not before it, as `end` the last one not after it.
        """
        plan = self.plan_changes(table, start, end)
        return read_changes(plan, self.store, self.db, columns=columns, where=where, net=net, replan=True)

    # -- changing -----------------------------------------------------------------------------------

    def transaction(
        self,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | None = None,
        operation_id: str | None = None,
        compression: str | None = None,
    ) -> Transaction:
        """Begin a transaction; see `Transaction`.

        The same `operation_id` never applies twice. `compression` overrides the lake's codec for files
        of this transaction.
        """
        info = CommitInfo(author, message, extra_info, operation_id)
        return Transaction(self._context, info, compression=compression)

    def run(
        self,
        work: Callable[[Transaction], Result],
        *,
        attempts: int = 8,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | None = None,
        operation_id: str | None = None,
    ) -> Result:
        """Run `work(tx)` in a transaction, again from the start on the new state if it met a conflict."""

        def attempt() -> Result:
            with self.transaction(
                author=author, message=message, extra_info=extra_info, operation_id=operation_id
            ) as tx:
                return work(tx)

        return Retrying(
            retry=retry_if_exception_type(ConflictError),
            wait=wait_random_exponential(multiplier=0.02, max=2),
            stop=stop_after_attempt(attempts),
            reraise=True,
        )(attempt)

    # -- keeping it healthy -------------------------------------------------------------------------

    def expire(
        self,
        *,
        older_than: Age | None = None,
        keep_last: int | None = None,
        versions: Collection[SnapshotId] | None = None,
        holds: Iterable[Hold] = (),
        dry_run: bool = False,
    ) -> ExpireResult:
        """Expire snapshots; see `expire_snapshots`. The latest stays, and what holds and leases need."""
        return expire_snapshots(
            self.db,
            older_than=older_than,
            keep_last=keep_last,
            versions=versions,
            holds=holds,
            dry_run=dry_run,
        )

    def cleanup(self, *, older_than: Age | None = CLEANUP_GRACE, dry_run: bool = False) -> RemovalResult:
        """Remove files that no snapshot names since a time (by default a day ago); None is now."""
        return clean_up(self.db, self.store, self.data_path, older_than=older_than, dry_run=dry_run)

    def remove_orphans(self, *, older_than: Age | None = ORPHAN_GRACE, dry_run: bool = True) -> RemovalResult:
        """Remove files that writers left which were killed; see `remove_orphans`. A dry run by default."""
        return remove_orphans(self.db, self.store, self.data_path, older_than=older_than, dry_run=dry_run)

    def lease(self, at: At = None, *, seconds: float = 300, holder: str = "without a name") -> ReaderLease:
        """Keep a snapshot and its files while a `with` block runs; the lease is renewed meanwhile."""
        return ReaderLease(self.db, self.snapshot(at).id, seconds, holder)

    # -- helpers ------------------------------------------------------------------------------------

    def _snapshot(self, connection: Connection, at: At) -> Snapshot:
        if isinstance(at, datetime | str):
            return find_snapshot(self.db, connection, timestamp=at)
        return find_snapshot(self.db, connection, version=at)

    def _find(self, name: TableName | str, at: At) -> tuple[CatalogState, Table]:
        return self.db.read(lambda connection: self._look_up(connection, name, at))

    def _look_up(self, connection: Connection, name: TableName | str, at: At) -> tuple[CatalogState, Table]:
        state = self._context.reader.state(connection, self._snapshot(connection, at))
        if at is not None and key(name) not in state.tables:
            life = table_history(self.db, connection, table_name(name))
            if life is not None:
                raise SnapshotError(
                    f"Table {table_name(name)} does not exist at snapshot {state.snapshot.id}; {life}.",
                    table=str(table_name(name)),
                    snapshot_id=state.snapshot.id,
                )
        return state, state.table(name)


def normal_data_path(path: str) -> str:
    """A data path as the catalog holds it: absolute where it is a local folder, ending in `/`."""
    place = parse_location(path)
    if place.is_local and "://" not in path:
        path = str(Path(path).absolute())
    return path if path.endswith("/") else path + "/"


def refuse_file(data_path: str) -> None:
    """A data path is a folder; say so before anything is written."""
    place = parse_location(data_path)
    if place.is_local and Path(place.path.rstrip("/") or "/").is_file():
        raise SettingsError(
            f"The data path {data_path} is a file.", hint="Choose a folder.", data_path=data_path
        )


def _uri(parameters: dict[str, Any]) -> str:
    from urllib.parse import quote, urlencode

    host = str(parameters.pop("host", "") or "")
    port = parameters.pop("port", None)
    user = parameters.pop("user", None)
    database = parameters.pop("dbname", None) or ""
    authority = (f"{quote(str(user), safe='')}@" if user else "") + (
        "" if host.startswith("/") else quote(host, safe="")
    )
    if port and not host.startswith("/"):
        authority += f":{port}"
        port = None
    query = {
        **({"host": host} if host.startswith("/") else {}),
        **({"port": port} if port else {}),
        **parameters,
    }
    return f"postgresql://{authority}/{quote(str(database), safe='')}" + (
        f"?{urlencode(query)}" if query else ""
    )
