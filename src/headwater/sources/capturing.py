"""One pass over a source: copy what is new, read what committed since, and commit it to the lake.

Result, positions and the record of the capture are one transaction of the lake. Who committed in between
wins: the generation of the source is compared at the commit, so nothing is ever applied twice.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from headwater._version import __version__
from headwater.errors import ConflictError, HeadwaterError
from headwater.lake.lake import Lake
from headwater.lake.reading.scan import garbage_left
from headwater.lake.writing.transaction import Transaction
from headwater.sources.altering import Action, Verdict, judge, reshape
from headwater.sources.batches import Batch, Net
from headwater.sources.connecting import Moment, SourceDatabase
from headwater.sources.describing import Described, describe
from headwater.sources.first_copy import Copy, stopped
from headwater.sources.mirroring import apply
from headwater.sources.model import Captured, Counts, Source, SourceTable, TableStatus
from headwater.sources.store import CaptureRecord, SourceStore

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

log = logging.getLogger("headwater.sources")

#: How often a pass begins again because something changed under it.
_ATTEMPTS = 8


@dataclass
class Progress:
    """What a pass has done so far."""

    snapshot_id: int | None = None
    transactions: int = 0
    changes: int = 0
    copied: list[str] = field(default_factory=list)
    rows_copied: int = 0
    counts: Counts = field(default_factory=Counts)
    stopped: list[str] = field(default_factory=list)
    more: bool = False
    """Whether the last batch left something for another."""

    def result(self, source: str, seconds: float) -> Captured:
        """The same as what users see."""
        return Captured(
            source,
            snapshot_id=self.snapshot_id,
            transactions=self.transactions,
            changes=self.changes,
            rows_inserted=self.counts.inserted,
            rows_updated=self.counts.updated,
            rows_deleted=self.counts.deleted,
            rows_copied=self.rows_copied,
            copied=tuple(self.copied),
            stopped=tuple(self.stopped),
            seconds=seconds,
        )


class Method(Protocol):
    """A way of capturing changes."""

    @property
    def parts(self) -> int:
        """How many parts capture a table, without one of which changes are missed."""

    def trigger_names(self, source: Source) -> tuple[str, ...]:
        """Those of them that are triggers."""

    def install(self, db: SourceDatabase, source: Source, tables: Mapping[int, Described]) -> None:
        """Install what captures these tables; what is there already is brought up to date."""

    def copied_at(self, moment: Moment) -> str:
        """The position of what was copied at a moment."""

    def read(
        self,
        db: SourceDatabase,
        source: Source,
        tables: Sequence[SourceTable],
        problems: dict[int, HeadwaterError],
    ) -> tuple[dict[int, Described], Batch]:
        """The tables as they are, and what committed since their positions."""

    def pending(self, db: SourceDatabase, source: Source, tables: Sequence[SourceTable]) -> bool:
        """Whether anything committed since the positions of the tables."""

    def consumed(self, db: SourceDatabase, source: Source, tables: Sequence[SourceTable]) -> None:
        """Forget what is in the lake."""

    def remove(self, db: SourceDatabase, source: Source) -> None:
        """Remove all that was installed."""


@dataclass(frozen=True)
class Capturer:
    """Captures sources, in one way or another."""

    lake: Lake
    store: SourceStore
    connector: Callable[[], LakeSpark]
    method: Method

    def capture(self, source: Source, db: SourceDatabase) -> Captured:
        """One pass. What a conflict undid is done again, from what the other left."""
        start, progress = time.monotonic(), Progress()
        left = _ATTEMPTS
        while left:
            left -= 1
            try:
                if self._pass(source, db, progress):
                    break
                if progress.more:
                    left = _ATTEMPTS
            except ConflictError:
                if not left:
                    raise
            found = self.store.get(source.name)
            if found is None or found.id != source.id or found.status != source.status:
                break  # removed or paused meanwhile
            source = found
        return progress.result(source.name, time.monotonic() - start)

    def pending(self, source: Source, db: SourceDatabase) -> bool:
        """Whether a capture would find anything."""
        if any(table.status is TableStatus.NEW for table in source.tables):
            return True
        tables = _of(source, TableStatus.ACTIVE)
        return bool(tables) and self.method.pending(db, source, tables)

    def _pass(self, source: Source, db: SourceDatabase, progress: Progress) -> bool:
        """Whether everything is done; else the source is to be read again."""
        if _of(source, TableStatus.NEW):
            self._copy(source, db, progress)
            return not _of(source, TableStatus.ACTIVE)
        tables = _of(source, TableStatus.ACTIVE)
        if not tables:
            return True
        problems: dict[int, HeadwaterError] = {}
        with garbage_left():  # a batch is many small objects, all of which are needed
            now, batch = self.method.read(db, source, tables, problems)
        verdicts = {table.number: self._judge(table, now, batch) for table in tables}
        for number, error in problems.items():
            verdicts[number] = Verdict(Action.STOP, error.message, error)
        if any(verdict.action is not Action.GO_ON for verdict in verdicts.values()):
            self._follow(source, tables, now, verdicts, progress)
            return False
        if batch.changes or not batch.idle:
            moved = self._apply(source, tables, batch, progress)
            self._consumed(source, db, moved, batch)
        progress.more = batch.more
        return not batch.more

    def _judge(self, table: SourceTable, now: dict[int, Described], batch: Batch) -> Verdict:
        changes, described = batch.tables.get(table.number), now.get(table.number)
        emptied = None
        if isinstance(changes, Net):
            emptied = changes.storage
        elif changes is not None and changes.truncated and described is not None:
            emptied = described.layout.storage  # the log does not say which
        return judge(table, described, emptied, self.method.parts)

    # -- copies -------------------------------------------------------------------------------------

    def _copy(self, source: Source, db: SourceDatabase, progress: Progress) -> None:
        names = self.method.trigger_names(source)
        problems: dict[int, HeadwaterError] = {}
        source = self._without_lost_mirrors(source)
        tables = _of(source, TableStatus.NEW)
        now = db.read(lambda connection, _: describe(connection, tables, names, problems))
        self.method.install(db, source, now)
        source = self._reshape(source, tables, now)
        tables = _of(source, TableStatus.NEW)
        with db.shared_moment() as (connection, moment, exported):
            counts, batch_id = Counts(), str(uuid4())
            with self.lake.transaction() as tx:
                copy = Copy(self.lake, tx, source, connection, db.dsn, exported, self.connector)
                done = copy.run(tables, self.method.copied_at(moment), counts)
                new = any(table.layout is None for table in tables)
                record = CaptureRecord(
                    source=source.name,
                    batch_id=batch_id,
                    kind="copy" if new else "resync",
                    position_before=None,
                    position_after=self.method.copied_at(moment),
                    lsn=moment.lsn,
                    transactions=0,
                    xids=(),
                    changes=0,
                    rows_inserted=counts.inserted,
                    rows_updated=counts.updated,
                    rows_deleted=counts.deleted,
                    tables=counts.tables,
                )
                self._commit(tx, source, done, record, new or counts.total > 0)
        progress.snapshot_id = tx.snapshot_id or progress.snapshot_id
        progress.rows_copied += counts.total
        progress.copied += [table.source_name for table in done if table.status is TableStatus.ACTIVE]
        progress.stopped += [table.source_name for table in done if table.status is TableStatus.STOPPED]

    def _without_lost_mirrors(self, source: Source) -> Source:
        """Mirrors that somebody dropped are made anew."""
        state = self.lake.state()
        tables = tuple(
            replace(table, layout=None)
            if table.status is TableStatus.NEW and state.find_table(table.lake_table) is None
            else table
            for table in source.tables
        )
        return replace(source, tables=tables)

    def _reshape(self, source: Source, tables: Sequence[SourceTable], now: dict[int, Described]) -> Source:
        """Give mirrors that exist the columns of their tables: a commit of its own, since it moves rows."""
        changed = {
            table.number: replace(table, layout=replace(now[table.number].layout, storage=""))
            for table in tables
            if table.layout is not None
            and table.number in now
            and now[table.number].layout.columns != table.layout.columns
        }
        if not changed:
            return source
        with self.lake.transaction() as tx:
            for table in tables:
                moved = changed.get(table.number)
                if moved is not None and table.layout is not None and moved.layout is not None:
                    reshape(tx, str(table.lake_table), table.layout, moved.layout)
            self._describe(tx, source, str(uuid4()), "columns")
            tx.join(self.store.advance(source, list(changed.values())))
        return replace(
            source,
            generation=source.generation + 1,
            tables=tuple(changed.get(table.number, table) for table in source.tables),
        )

    # -- changes ------------------------------------------------------------------------------------

    def _follow(
        self,
        source: Source,
        tables: Sequence[SourceTable],
        now: dict[int, Described],
        verdicts: dict[int, Verdict],
        progress: Progress,
    ) -> None:
        """Move on tables that are not what they were; their changes wait for the next pass."""
        moved = []
        with self.lake.transaction() as tx:
            altered = False
            for table in tables:
                verdict = verdicts[table.number]
                if verdict.error is not None:
                    moved.append(stopped(table, verdict.error))
                    progress.stopped.append(table.source_name)
                elif verdict.action is Action.COPY_AGAIN:
                    log.warning("%s is copied again: %s", table.source_name, verdict.reason)
                    moved.append(replace(table, status=TableStatus.NEW, position=None))
                elif verdict.action is Action.FOLLOW and table.layout is not None:
                    layout = now[table.number].layout
                    altered |= reshape(tx, str(table.lake_table), table.layout, layout)
                    moved.append(replace(table, layout=layout))
            if altered:
                self._describe(tx, source, str(uuid4()), "columns")
                tx.join(self.store.advance(source, moved))
            else:
                tx.rollback()
        if not altered:
            self.store.move(source, moved)
        progress.snapshot_id = tx.snapshot_id or progress.snapshot_id

    def _apply(
        self, source: Source, tables: Sequence[SourceTable], batch: Batch, progress: Progress
    ) -> list[SourceTable]:
        counts, moved = Counts(), []
        with self.lake.transaction() as tx:
            for table in tables:
                after = replace(table, position=batch.after(table.number))
                changes = batch.tables.get(table.number)
                if changes is not None and table.layout is not None:
                    try:
                        with tx.savepoint(), garbage_left():
                            numbers = apply(self.lake, tx, table, table.layout, changes)
                        counts.add(str(table.lake_table), *numbers)
                    except ConflictError:
                        raise
                    except HeadwaterError as error:
                        if error.retryable:
                            raise
                        after = stopped(table, error)
                        progress.stopped.append(table.source_name)
                moved.append(after)
            record = CaptureRecord(
                source=source.name,
                batch_id=str(uuid4()),
                kind="changes",
                position_before=tables[0].position,
                position_after=batch.position,
                lsn=batch.lsn,
                transactions=batch.transactions,
                xids=batch.xids,
                changes=batch.changes,
                rows_inserted=counts.inserted,
                rows_updated=counts.updated,
                rows_deleted=counts.deleted,
                tables=counts.tables,
            )
            self._commit(tx, source, moved, record, counts.total > 0)
        progress.snapshot_id = tx.snapshot_id or progress.snapshot_id
        progress.transactions += batch.transactions
        progress.changes += batch.changes
        for name, numbers_of in counts.tables.items():
            progress.counts.add(name, **numbers_of)
        return moved

    def _commit(
        self,
        tx: Transaction,
        source: Source,
        moved: Sequence[SourceTable],
        record: CaptureRecord,
        anything: bool,
    ) -> None:
        """Commit with the positions; what comes to nothing moves the positions alone."""
        if not anything:
            tx.rollback()
            self.store.move(source, moved)
            return
        self._describe(tx, source, record.batch_id, record.kind, record)
        tx.join(self.store.advance(source, moved, record))
        tx.commit()

    def _describe(
        self, tx: Transaction, source: Source, batch_id: str, what: str, record: CaptureRecord | None = None
    ) -> None:
        info: dict[str, Any] = {"source": source.name, "kind": what}
        message = f"{what} of source {source.name}"
        if record is not None:
            message = f"{message}: {record.changes} changes of {record.transactions} transactions"
            info |= {
                "position_before": record.position_before,
                "position_after": record.position_after,
                "lsn": record.lsn,
                "transactions": record.transactions,
                "xids": list(record.xids[:100]),
                "changes": record.changes,
                "tables": record.tables,
            }
        author = f"headwater/{__version__}/source/{source.name}/{batch_id}"
        tx.describe(author=author, message=message, extra_info=json.dumps(info, default=str))

    def _consumed(
        self, source: Source, db: SourceDatabase, moved: Sequence[SourceTable], batch: Batch
    ) -> None:
        left = [
            replace(table, position=batch.position)
            for table in source.tables
            if table.status is TableStatus.STOPPED
        ]
        kept = {table.number for table in left}
        known = [table for table in moved if table.number not in kept]
        try:
            self.method.consumed(db, source, [*known, *left])
        except HeadwaterError as error:
            # They are in the lake, and the next capture that finds something removes them.
            log.warning("source %s: captured changes could not be removed: %s", source.name, error.message)


def _of(source: Source, status: TableStatus) -> list[SourceTable]:
    return [table for table in source.tables if table.status is status]
