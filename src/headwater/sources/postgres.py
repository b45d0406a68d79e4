"""PostgreSQL sources: what programs, commands and the service call."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import uuid4

from psycopg import conninfo
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from headwater.errors import AlreadyExistsError, ConflictError, HeadwaterError, NotFoundError, SourceError
from headwater.lake.connection import Connection
from headwater.lake.lake import Lake
from headwater.lake.secrets import Secrets
from headwater.sources.capturing import Capturer
from headwater.sources.choosing import (
    Columns,
    Where,
    check_condition,
    check_source_name,
    check_triggers,
    choose_capture,
    source_tables,
)
from headwater.sources.connecting import SourceDatabase
from headwater.sources.describing import describe
from headwater.sources.first_copy import missing
from headwater.sources.model import (
    Captured,
    CaptureKind,
    Source,
    SourceStatus,
    SourceTable,
    TableStatus,
)
from headwater.sources.replication import Replication, cannot_publish, cannot_replicate
from headwater.sources.store import CaptureRecord, SourceStore
from headwater.sources.triggers import Triggers

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

log = logging.getLogger("headwater.sources")


class PostgresSources:
    """The PostgreSQL sources of a lake. Spark starts only for first copies of large tables."""

    def __init__(self, lake: Lake, connector: Callable[[], LakeSpark]):
        self._lake = lake
        self._connector = connector
        self._databases: dict[str, SourceDatabase] = {}

    @cached_property
    def store(self) -> SourceStore:
        """Sources and captures in the catalog."""
        return SourceStore(self._lake)

    @cached_property
    def _secrets(self) -> Secrets:
        return Secrets(self._lake)

    def _capturer(self, source: Source) -> Capturer:
        method = Triggers() if source.capture is CaptureKind.TRIGGERS else Replication()
        return Capturer(self._lake, self.store, self._connector, method)

    # -- looking --------------------------------------------------------------------------------------

    def all(self) -> list[Source]:
        """All sources, by name."""
        return self.store.all()

    def get(self, name: str) -> Source:
        """The source of that name."""
        found = self.store.get(name)
        if found is None:
            names = [source.name for source in self.store.all()]
            close = difflib.get_close_matches(name, names, n=1)
            known = f"There are: {', '.join(names)}." if names else "There are none."
            raise NotFoundError(
                f"There is no source {name!r}.",
                hint=f"Did you mean {close[0]!r}?" if close else known,
                source=name,
            )
        return found

    def captures(
        self, name: str | None = None, limit: int = 100, *, first: int | None = None, last: int | None = None
    ) -> list[CaptureRecord]:
        """What was committed by captures, newest first: snapshots, positions, PostgreSQL's transactions.

        `first` and `last` leave out snapshots before and after them.
        """
        return self.store.captures(name, limit, first=first, last=last)

    # -- adding and removing ---------------------------------------------------------------------------

    def add(
        self,
        dsn: str,
        tables: Sequence[str],
        *,
        name: str | None = None,
        schema: str | None = None,
        columns: Columns = None,
        where: Where = None,
        capture: str = "auto",
    ) -> Source:
        """Mirror tables of a PostgreSQL database; returns when their first copies are in the lake.

        `columns` and `where` (what PostgreSQL takes for a partial index) choose parts of a table; for
        several tables they are mappings by table. `schema` is the lake's. `dsn` may be `env:NAME`.
        """
        wanted = choose_capture(capture)
        listed = source_tables(tables, schema, columns, where)
        address = self._secrets.get(dsn)
        db = SourceDatabase(address)
        try:
            parameters = conninfo.conninfo_to_dict(address)
            chosen = check_source_name(name or str(parameters.get("dbname") or "postgres"))
            if self.store.get(chosen) is not None:
                raise AlreadyExistsError(
                    f"There is already a source {chosen!r}.", hint="Give this one a name.", source=chosen
                )
            self._refuse_taken(listed)
            kind, reason = self._check(db, listed, wanted)
            reference = self._secrets.put(dsn) if dsn == address and "password" in parameters else dsn
            source = Source(
                id=str(uuid4()),
                name=chosen,
                dsn=reference,
                shown=db.shown,
                capture=kind,
                reason=reason,
                status=SourceStatus.ACTIVE,
                tables=listed,
            )
            try:
                self.store.insert(source)
            except HeadwaterError:
                self._secrets.delete(reference if reference != dsn else "")
                raise
        except BaseException:
            db.close()
            raise
        self._databases[source.id] = db
        try:
            self._capturer(source).capture(source, db)
            found = self.get(chosen)
            for table in found.tables:
                if table.status is TableStatus.STOPPED:
                    raise _as_error(table)
        except HeadwaterError:
            # Nothing is left of a source that could not be added.
            self.remove(chosen, drop_tables=True, force=True)
            raise
        return found

    def _refuse_taken(self, tables: Sequence[SourceTable]) -> None:
        state = self._lake.state()
        for table in tables:
            if state.find_table(table.lake_table) is not None or (
                (table.lake_table.schema.lower(), table.lake_table.name.lower()) in state.views
            ):
                raise AlreadyExistsError(
                    f"The lake already has {table.lake_table}.",
                    hint="Choose another schema (`schema=…`), or drop it first.",
                    table=str(table.lake_table),
                )

    def _check(
        self, db: SourceDatabase, tables: Sequence[SourceTable], wanted: CaptureKind | None
    ) -> tuple[CaptureKind, str]:
        """Whether the tables can be mirrored, how, and why so."""
        db.version()
        found = db.read(lambda connection, _: describe(connection, tables))
        for table in tables:
            if table.number not in found:
                raise missing(table)

        def check(connection: Connection) -> str | None:
            problems = (cannot_replicate(table, found[table.number]) for table in tables)
            problem = next((text for text in problems if text is not None), None)
            problem = problem or cannot_publish(connection, found)
            if wanted is CaptureKind.TRIGGERS or (wanted is None and problem is not None):
                check_triggers(connection, tables)
            for table in tables:
                check_condition(connection, table)
            return problem

        problem = db.ask(check)
        if wanted is None:
            if problem is None:
                return CaptureKind.REPLICATION, "chosen: costs writers nothing, and this source allows it"
            return CaptureKind.TRIGGERS, f"chosen: logical replication is not possible, since {problem}"
        if wanted is CaptureKind.REPLICATION and problem is not None:
            raise SourceError(
                "These tables cannot be captured by logical replication.",
                detail=problem[0].upper() + problem[1:] + ".",
                hint="Use capture='triggers'.",
            )
        return wanted, "asked for"

    def remove(self, name: str, *, drop_tables: bool = False, force: bool = False) -> None:
        """Forget a source and remove all that was installed in it. The lake keeps the rows, unless told.

        With `force` also one whose database does not answer any more; what is installed there stays.
        """
        source = self.get(name)
        try:
            self._capturer(source).method.remove(self._database(source), source)
        except SourceError as error:
            if not force:
                raise
            log.warning("source %s: what was installed could not be removed: %s", name, error.message)
        if drop_tables:
            state = self._lake.state()
            mirrors = [
                table.lake_table
                for table in source.tables
                if table.layout is not None and state.find_table(table.lake_table) is not None
            ]
            if mirrors:
                with self._lake.transaction(message=f"source {source.name} removed") as tx:
                    for mirror in mirrors:
                        tx.drop_table(mirror)
        self.store.delete(source)
        self._secrets.delete(source.dsn)
        db = self._databases.pop(source.id, None)
        if db is not None:
            db.close()

    # -- capturing -------------------------------------------------------------------------------------

    def capture(self, names: str | Sequence[str] | None = None) -> list[Captured]:
        """Bring mirrors up to date: one pass over the named sources, or over all that are not paused.

        A source that fails is one of the results, with the error, and does not stop the others.
        """
        if names is None:
            chosen = [source for source in self.all() if source.status is SourceStatus.ACTIVE]
        else:
            chosen = [self.get(name) for name in ([names] if isinstance(names, str) else names)]
            for source in chosen:
                if source.status is SourceStatus.PAUSED:
                    raise SourceError(
                        f"Source {source.name} is paused.", hint="Resume it first.", source=source.name
                    )
        return [self._captured(source) for source in chosen]

    def _captured(self, source: Source) -> Captured:
        try:
            return self._capturer(source).capture(source, self._database(source))
        except HeadwaterError as error:
            log.warning("source %s: %s", source.name, error.message)
            self.store.failed(source, error.as_dict())
            return Captured(source.name, error=error.as_dict())

    def pending(self, name: str) -> bool:
        """Whether a capture would find anything: one short query. True also if the source does not answer."""
        source = self.get(name)
        if source.status is SourceStatus.PAUSED:
            return False
        try:
            return self._capturer(source).pending(source, self._database(source))
        except SourceError:
            return True  # the capture says what is wrong

    def pause(self, name: str) -> Source:
        """Capture nothing until `resume`; changes wait in the source, none is lost."""
        self.store.set_status(self.get(name), SourceStatus.PAUSED)
        return self.get(name)

    def resume(self, name: str) -> Source:
        """Capture again."""
        self.store.set_status(self.get(name), SourceStatus.ACTIVE)
        return self.get(name)

    def resync(self, name: str, tables: Sequence[str] | None = None) -> Captured:
        """Copy tables again, all or the named ones, and replace in the lake what differs.

        Tables that stopped start again, with the columns that they have now.
        """

        def attempt() -> None:
            source = self.get(name)
            chosen = self._chosen(source, tables)
            fresh = [replace(table, status=TableStatus.NEW, position=None, error=None) for table in chosen]
            self.store.move(source, fresh)

        # A capture that goes on meanwhile may be faster now and then.
        Retrying(retry=retry_if_exception_type(ConflictError), stop=stop_after_attempt(8), reraise=True)(
            attempt
        )
        return self._captured(self.get(name))

    def _chosen(self, source: Source, names: Sequence[str] | None) -> Sequence[SourceTable]:
        if names is None:
            return source.tables
        known = {table.source_name: table for table in source.tables}
        wanted = [table.source_name for table in source_tables(names, None, None, None)]
        for name in wanted:
            if name not in known:
                raise NotFoundError(
                    f"Source {source.name} has no table {name}.",
                    hint=f"It has: {', '.join(known)}.",
                    source=source.name,
                    table=name,
                )
        return [known[name] for name in wanted]

    # -- helpers ---------------------------------------------------------------------------------------

    def _database(self, source: Source) -> SourceDatabase:
        found = self._databases.get(source.id)
        if found is None:
            found = self._databases[source.id] = SourceDatabase(self._secrets.get(source.dsn))
        return found

    def close(self) -> None:
        """Close this process's connections to sources."""
        while self._databases:
            self._databases.popitem()[1].close()


def _as_error(table: SourceTable) -> SourceError:
    """Why a table stopped, as an error again."""
    given = dict(table.error or {})
    return SourceError(
        str(given.get("message")),
        detail=given.get("detail"),
        hint=given.get("hint"),
        table=table.source_name,
        column=given.get("column"),
    )
