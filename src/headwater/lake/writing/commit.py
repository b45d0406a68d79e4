"""The commit: one PostgreSQL transaction that makes a draft the next snapshot.

1. Files are stored first (`prepared`).
2. `LOCK TABLE ducklake_snapshot` orders this commit among all writers: ours queue up, and DuckDB, which
   begins its commit by inserting into that table, waits and then retries by its own rules. Under the lock
   the newest snapshot cannot move, so a commit is checked once and never collides halfway.
3. What others committed since the draft began is compared with the draft (`conflicts`).
4. All rows go out in one round trip; COMMIT travels with them where no row count has to be checked first.

If the connection breaks during COMMIT, PostgreSQL is asked what became of the transaction id.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import psycopg
from psycopg import sql
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from headwater.errors import (
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    InvalidInputError,
)
from headwater.lake.catalog import CatalogReader
from headwater.lake.connection import CONNECTION_LOST, Connection, Cursor, Database
from headwater.lake.format.changes import Change, read_changes, write_changes
from headwater.lake.model import Snapshot
from headwater.lake.options import LakeOptions, store_option
from headwater.lake.writing.conflicts import Committed, check_rows, check_schema
from headwater.lake.writing.data_rows import data_rows
from headwater.lake.writing.draft import Draft
from headwater.lake.writing.facts import FactsQuery, TableFacts
from headwater.lake.writing.prepared import Prepared, check_live, inlining_limit, prepare
from headwater.lake.writing.schema_rows import Numbers, schema_rows
from headwater.lake.writing.staging import Stager
from headwater.lake.writing.statements import Statement, insert, send, statement
from headwater.typedefs import SnapshotId

#: Somebody else was faster or a lock could not be had; nothing happened, try again.
_TRY_AGAIN = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '20s'"
# Any number, the same in every process.
_TURN = 0x68770001
#: After so many moved snapshots, files that name the snapshot number are stored under the lock.
_PATIENCE_FOR_NUMBERS = 3
#: Nobody removes files younger than this that no snapshot names; an older transaction looks whether its own
#: are still there, under the lock under which they would be removed.
SHORTEST_GRACE = timedelta(hours=1)
_OLD = SHORTEST_GRACE / 2

Join = Callable[[Cursor, SnapshotId], None]


def turn_key(schema: str) -> tuple[int, int]:
    """An advisory lock for transactions that DuckDB's extension commits on our behalf.

    Those hold it alone from their first statement on, since any other commit makes them fail; commits of our
    own share it, so they wait for such a transaction but not for each other.
    """
    return _TURN, zlib.crc32(schema.encode()) - (1 << 31)


@dataclass(frozen=True)
class CommitInfo:
    """What a snapshot says about itself, and the id under which it may be applied only once."""

    author: str | None = None
    message: str | None = None
    extra_info: str | None = None
    operation_id: str | None = None


@dataclass(frozen=True)
class CommitResult:
    """The outcome of a commit."""

    snapshot_id: SnapshotId
    already_applied: bool = False
    attempts: int = 1


class _SnapshotMoved(Exception):  # noqa: N818  (a signal, not an error)
    def __init__(self, latest: SnapshotId):
        self.latest = latest


class _OutcomeUnknown(Exception):  # noqa: N818
    def __init__(self, xid: str, snapshot_id: SnapshotId):
        self.xid = xid
        self.snapshot_id = snapshot_id


class Commit:
    """One transaction on its way to becoming a snapshot."""

    def __init__(
        self,
        db: Database,
        reader: CatalogReader,
        draft: Draft,
        info: CommitInfo,
        options: LakeOptions,
        stager: Stager,
        joins: Sequence[Join] = (),
        lake_id: str | None = None,
    ):
        """`lake_id` is that under which the operation is remembered, if it has an id."""
        self.db = db
        self.reader = reader
        self.draft = draft
        self.info = info
        self.options = options
        self.stager = stager
        self.joins = joins
        self.lake_id = lake_id
        self.attempts = 0
        self.moves = 0
        self.prepared: Prepared | None = None
        self.numbers: Numbers | None = None

    def run(self) -> CommitResult:
        """Commit; retried while that can help, without storing data again."""
        if self.options.flag("require_commit_message", False) and not self.info.message:
            raise InvalidInputError(
                "This lake requires a commit message.",
                hint="Pass message=… to the transaction, or set the option require_commit_message to false.",
            )
        retry = Retrying(
            retry=retry_if_exception_type((*_TRY_AGAIN, *CONNECTION_LOST, CatalogUnavailableError)),
            wait=wait_random_exponential(multiplier=0.02, max=1.5),
            stop=stop_after_delay(self.db.patience),
            reraise=True,
        )
        try:
            return retry(self._attempt)
        except _TRY_AGAIN as error:
            raise ConflictError(
                f"The commit did not get its turn in {self.attempts} attempts.",
                detail=str(error).splitlines()[0],
                hint="Other writers commit all the time; run the transaction again.",
            ) from None
        except CONNECTION_LOST as error:
            raise self.db.explain(error) from None

    def _attempt(self) -> CommitResult:
        self.attempts += 1
        while True:
            number = self.draft.base.snapshot.id + 1 if self.prepared is None else self.prepared.snapshot_id
            if self.prepared is None:
                self.prepared = prepare(self.draft, self.options, self.stager, number)
            try:
                return self._once(self.prepared)
            except _SnapshotMoved as moved:
                self.moves += 1
                self._store_again(moved.latest + 1)
            except _OutcomeUnknown as unknown:
                outcome = self._resolve(unknown)
                if outcome:
                    return CommitResult(unknown.snapshot_id, attempts=self.attempts)

    def _store_again(self, number: SnapshotId) -> None:
        """Store files that name the snapshot number again, for another number. Data files stay."""
        old = self.prepared
        self.prepared = prepare(self.draft, self.options, self.stager, number)
        for location in old.stored if old else ():
            self.stager.remove(location)

    def _once(self, prepared: Prepared) -> CommitResult:
        with self.db.connection() as connection:
            try:
                return self._transaction(connection, prepared)
            except BaseException:
                if not connection.closed and not connection.broken:
                    try:
                        connection.rollback()
                    except CONNECTION_LOST:
                        connection.close()
                raise

    def _transaction(self, connection: Connection, prepared: Prepared) -> CommitResult:
        latest, since, applied, facts, xid = self._begin(connection, prepared)
        if applied is not None:
            connection.rollback()
            return CommitResult(applied, already_applied=True, attempts=self.attempts)
        if latest.schema_version != self.draft.base.snapshot.schema_version:
            check_schema(self.draft, self.reader.state(connection, latest), since)
        check_rows(self.draft, since)
        check_live(prepared.tables, facts)
        if self.draft.age > _OLD:
            self._check_files()
        if prepared.bound and latest.id + 1 != prepared.snapshot_id:
            if self.moves < _PATIENCE_FOR_NUMBERS:
                raise _SnapshotMoved(latest.id)
            self._store_again(latest.id + 1)
            prepared = self.prepared or prepared
        statements = self._statements(latest, prepared, facts)
        if statements is None:
            # Nothing for the lake itself; rows of our own may still be waiting.
            self._join(connection, latest.id)
            connection.execute("COMMIT")
            return CommitResult(latest.id, attempts=self.attempts)
        return self._finish(connection, statements, latest.id + 1, xid)

    def _check_files(self) -> None:
        """Raise if a file of this transaction was taken for one that a killed writer left."""
        for table, staged in self.draft.staged_files():
            if table is not None and staged.path_is_relative:
                self.stager.store.verify(table.path + staged.path, staged.file_size_bytes)

    def _begin(
        self, connection: Connection, prepared: Prepared
    ) -> tuple[Snapshot, list[Committed], SnapshotId | None, dict[int, TableFacts], str]:
        """Take the lock and read, in one round trip, everything the commit depends on."""
        db = self.db
        table_ids = sorted({t.id for t in self.draft.tables.values() if t.id >= 0 and self._touches(t.id)})
        file_ids = sorted({file_id for t in prepared.tables for file_id in t.touched_files})
        mapped = [t.table.id for t in prepared.tables if t.table.id >= 0 and t.has_mappings]
        with connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute(_LOCK_TIMEOUT)
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", turn_key(db.schema))
            connection.execute(db.text("LOCK TABLE {ducklake_snapshot} IN SHARE ROW EXCLUSIVE MODE"))
            xid = connection.execute("SELECT pg_current_xact_id()::text")
            newest = connection.execute(
                db.text(
                    "SELECT snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id "
                    "FROM {ducklake_snapshot} ORDER BY snapshot_id DESC LIMIT 1"
                )
            )
            changes = connection.execute(
                db.text(
                    "SELECT snapshot_id, changes_made FROM {ducklake_snapshot_changes} "
                    "WHERE snapshot_id > %s ORDER BY snapshot_id"
                ),
                (self.draft.base.snapshot.id,),
            )
            applied = None
            if self.lake_id is not None:
                applied = connection.execute(
                    "SELECT snapshot_id FROM headwater.operation WHERE lake_id = %s AND operation_id = %s",
                    (self.lake_id, self.info.operation_id),
                )
            facts = FactsQuery(db, connection, table_ids, file_ids, mapped) if table_ids else None
        since = [
            Committed(snapshot_id, change)
            for snapshot_id, text in changes.fetchall()
            for change in read_changes(text)
        ]
        found = applied.fetchone() if applied is not None else None
        return (
            Snapshot(*newest.fetchall()[0]),
            since,
            None if found is None else found[0],
            facts.result() if facts else {},
            xid.fetchall()[0][0],
        )

    def _touches(self, table_id: int) -> bool:
        if table_id in self.draft.data:
            return True
        base = self.draft.base.table_by_id(table_id)
        wanted = next((t for t in self.draft.tables.values() if t.id == table_id), None)
        return base is not wanted

    def _statements(
        self, latest: Snapshot, prepared: Prepared, facts: dict[int, TableFacts]
    ) -> list[Statement] | None:
        numbers = Numbers(latest.id + 1, latest.schema_version, latest.next_catalog_id, latest.next_file_id)
        limits = {t.id: inlining_limit(self.options, t.schema_id, t.id) for t in self.draft.tables.values()}
        schema = schema_rows(self.db, self.draft, numbers)
        data = data_rows(self.db, self.draft, prepared.tables, facts, schema.reshaped, limits, numbers)
        self.numbers = numbers
        changes = [*schema.changes, *data.changes]
        if not changes:
            return None
        if numbers.next_file_id == latest.next_file_id and (schema.retyped or _signals(data.changes)):
            # DuckDB sessions notice by this counter that statistics changed. They keep them in the columns'
            # types, and die of an internal error when a column has another type than the kept ones.
            numbers.next_file_id += 1
        return [
            *statement(
                sql.SQL(
                    "INSERT INTO {} "
                    "(snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) "
                    "VALUES (%s, GREATEST(clock_timestamp(), %s + interval '1 microsecond'), %s, %s, %s)"
                ).format(self.db.name("ducklake_snapshot")),
                (
                    numbers.snapshot_id,
                    latest.time,
                    numbers.schema_version,
                    numbers.next_catalog_id,
                    numbers.next_file_id,
                ),
            ),
            *schema.statements,
            *data.statements,
            *insert(
                self.db,
                "ducklake_snapshot_changes",
                ("snapshot_id", "changes_made", "author", "commit_message", "commit_extra_info"),
                [
                    (
                        numbers.snapshot_id,
                        write_changes(changes),
                        self.info.author,
                        self.info.message,
                        self.info.extra_info,
                    )
                ],
            ),
            *self._operation(numbers.snapshot_id),
        ]

    def _operation(self, snapshot_id: SnapshotId) -> list[Statement]:
        if self.lake_id is None:
            return []
        return statement(
            sql.SQL(
                "INSERT INTO headwater.operation (lake_id, operation_id, snapshot_id) VALUES (%s, %s, %s)"
            ).format(),
            (self.lake_id, self.info.operation_id, snapshot_id),
        )

    def _finish(
        self, connection: Connection, statements: list[Statement], snapshot_id: SnapshotId, xid: str
    ) -> CommitResult:
        simple = not self.joins and not self.draft.options and all(s.expected is None for s in statements)
        commit = Statement(b"COMMIT", [])
        try:
            checked = send(connection, [*statements, commit] if simple else statements)
        except CONNECTION_LOST:
            if simple:
                raise _OutcomeUnknown(xid, snapshot_id) from None
            raise
        if not simple:
            for one, changed in checked:
                if changed != one.expected:
                    raise ConflictError(
                        "Rows this transaction changes were changed by another writer.",
                        detail=f"A statement met {changed} rows instead of {one.expected}.",
                        hint="Run the transaction again; nothing of it was applied.",
                    )
            self._join(connection, snapshot_id)
            try:
                connection.execute("COMMIT")
            except CONNECTION_LOST:
                raise _OutcomeUnknown(xid, snapshot_id) from None
        return CommitResult(snapshot_id, attempts=self.attempts)

    def _join(self, connection: Connection, snapshot_id: SnapshotId) -> None:
        for option in self.draft.options:
            scope_id = option.scope_id
            if scope_id is not None and self.numbers is not None:
                scope_id = self.numbers.real(scope_id)
            store_option(self.db, connection, option.name, option.value, option.scope, scope_id)
        for join in self.joins:
            with connection.cursor() as cursor:
                join(cursor, snapshot_id)

    def _resolve(self, unknown: _OutcomeUnknown) -> bool:
        """Ask PostgreSQL whether a transaction whose COMMIT was not answered was committed."""
        deadline = time.monotonic() + self.db.patience
        while time.monotonic() < deadline:
            try:
                with self.db.connection() as connection:
                    row = connection.execute("SELECT pg_xact_status(%s::xid8)", (unknown.xid,)).fetchone()
            except (*CONNECTION_LOST, CatalogUnavailableError):
                time.sleep(0.2)
                continue
            status = row[0] if row else None
            if status in ("committed", "aborted"):
                return bool(status == "committed")
            time.sleep(0.05)
        raise CommitOutcomeUnknownError(
            "The connection to PostgreSQL broke during COMMIT and the server has not answered since.",
            detail=f"The transaction may or may not have become snapshot {unknown.snapshot_id}.",
            hint="Run it again with the same operation_id: it never applies twice."
            if self.info.operation_id
            else "Look at the newest snapshots before running it again; an operation_id makes that safe.",
            snapshot_id=unknown.snapshot_id,
            operation_id=self.info.operation_id,
        )


def _signals(changes: Sequence[Change]) -> bool:
    return any(change.token == "inlined_insert" for change in changes)  # noqa: S105
