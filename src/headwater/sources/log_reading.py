"""What a replication slot says, transaction by transaction, as changes of the tables that are followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import ConflictError
from headwater.sources.batches import UNCHANGED, Latest, NetRows, Row
from headwater.sources.describing import Described
from headwater.sources.model import Form, Layout, SourceTable
from headwater.sources.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
    array_json,
    lsn_number,
)


@dataclass
class Followed:
    """A table, how far it is, and what is new."""

    table: SourceTable
    layout: Layout
    lsn: int
    copied: str
    """Of a copy: the place behind all that is in it, and its snapshot."""
    changes: Latest | NetRows
    passed: int = 0
    snapshot: LogSnapshot | None = None

    @classmethod
    def of(cls, table: SourceTable) -> Followed:
        """Read the position of a table."""
        lsn, _, copied = (table.position or "0/0").partition(" ")
        layout = table.layout or Layout(0, ())
        followed = cls(table, layout, lsn_number(lsn), copied, Latest() if layout.key else NetRows())
        if copied:
            passed, snapshot = copied.split(" ")
            followed.passed, followed.snapshot = lsn_number(passed), LogSnapshot.of(snapshot)
        elif isinstance(followed.changes, Latest):
            followed.changes.only_came = True  # until something else is said
        return followed

    def has(self, xid: int, end: int) -> bool:
        """Whether the lake has a transaction already."""
        return end <= self.lsn or (self.snapshot is not None and self.snapshot.has(xid))

    def insert(self, new: Row) -> None:
        """A row came."""
        self.changes.changes += 1
        if isinstance(self.changes, NetRows):
            self.changes.rows.append((new, 1))
        else:
            self._put(self._key(new), new, None)

    def delete(self, old: Row) -> None:
        """A row went."""
        self.changes.changes += 1
        if isinstance(self.changes, NetRows):
            self.changes.rows.append((old, -1))
        else:
            key = self._key(old)
            self.changes.only_came = False
            self.changes.rows[key] = None
            self.changes.bases.pop(key, None)

    def update(self, old: Row | None, whole: bool, new: Row) -> None:
        """A row changed."""
        self.changes.changes += 1
        if old is not None and whole:
            new = {name: old.get(name) if value is UNCHANGED else value for name, value in new.items()}
        if isinstance(self.changes, NetRows):
            self.changes.rows += [(old or {}, -1), (new, 1)]
            return
        self.changes.only_came = False
        key = self._key(new)
        before = key if old is None else self._key(old)
        self._put(key, new, before)

    def truncate(self) -> None:
        """All rows went."""
        fresh: Latest | NetRows = Latest() if self.layout.key else NetRows()
        fresh.changes, fresh.truncated = self.changes.changes + 1, True
        self.changes = fresh

    def _put(self, key: tuple[str, ...], new: Row, before: tuple[str, ...] | None) -> None:
        changes = self.changes
        assert isinstance(changes, Latest)  # noqa: S101 - the only caller knows
        known = None if before is None else changes.rows.get(before)
        base = None if before is None else changes.bases.get(before, before)
        if known is not None:
            new = {name: known.get(name) if value is UNCHANGED else value for name, value in new.items()}
        if before is not None and before != key:
            changes.rows[before] = None
            changes.bases.pop(before, None)
        changes.rows[key] = new
        changes.bases.pop(key, None)
        if base is not None and base != key and any(value is UNCHANGED for value in new.values()):
            changes.bases[key] = base

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.layout.key)


@dataclass(frozen=True)
class LogSnapshot:
    """A PostgreSQL snapshot, and which transactions are in it."""

    least: int
    after: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> LogSnapshot:
        """Read what `pg_current_snapshot()` prints."""
        least, after, running = text.split(":")
        return cls(int(least), int(after), frozenset(int(each) for each in running.split(",") if each))

    def has(self, short: int) -> bool:
        """Whether a transaction is in it, by the lower half of its id."""
        xid = self.after & ~0xFFFFFFFF | short
        # The nearest id with that lower half.
        if xid - self.after > 1 << 31:
            xid -= 1 << 32
        elif self.after - xid > 1 << 31:
            xid += 1 << 32
        return xid < self.least or (xid < self.after and xid not in self.running)


class LogReading:
    """Transactions, one after the other."""

    def __init__(self, tables: dict[int, Followed], now: Mapping[int, Described]):
        self.tables = tables
        self.end = 0
        self.xids: list[int] = []
        self._by_oid = {one.layout.oid: one for one in tables.values()}
        self._arrays = {
            one.layout.oid: [column.name for column in one.layout.columns if column.form is Form.LIST]
            for one in tables.values()
        }
        self._columns = {
            one.layout.oid: frozenset(column.name for column in one.layout.columns) for one in tables.values()
        }
        #: Tables whose rows are sent as they are wanted; and those that look newer than what was read.
        self._as_sent: set[int] = set()
        self._newer: set[int] = set()
        self._now = {described.layout.oid: described for described in now.values()}
        self._xid = 0
        self._waiting: list[Message] = []

    def take(self, message: Message) -> None:
        """One message; a transaction counts when its end is known."""
        if isinstance(message, Begin):
            self._xid, self._waiting = message.xid, []
        elif isinstance(message, Commit):
            self.end = message.end
            self._commit(message.end)
        elif isinstance(message, Relation):
            self._look(message)
        else:
            self._waiting.append(message)

    def _commit(self, end: int) -> None:
        counted = False
        for message in self._waiting:
            oids = message.oids if isinstance(message, Truncate) else (getattr(message, "oid", 0),)
            for oid in oids:
                followed = self._by_oid.get(oid)
                if followed is not None and not followed.has(self._xid, end):
                    self._change(followed, oid, message)
                    counted = True
        if counted:
            self.xids.append(self._xid)
        self._waiting = []

    def _change(self, followed: Followed, oid: int, message: Message) -> None:
        if oid in self._newer:
            raise ConflictError(
                f"Table {followed.table.source_name} is being altered.", table=followed.table.source_name
            )
        if isinstance(message, Insert):
            followed.insert(self._row(oid, message.new))
        elif isinstance(message, Update):
            old = None if message.old is None else self._row(oid, message.old)
            followed.update(old, message.whole, self._row(oid, message.new))
        elif isinstance(message, Delete):
            followed.delete(self._row(oid, message.old))
        else:
            followed.truncate()

    def _row(self, oid: int, values: Row) -> Row:
        if oid in self._as_sent:
            return values
        wanted = self._columns[oid]
        row = {name: value for name, value in values.items() if name in wanted}
        for name in self._arrays[oid]:
            value = row.get(name)
            if isinstance(value, str):
                row[name] = array_json(value)
        return row

    def _look(self, relation: Relation) -> None:
        """How the rows of a table look from here on."""
        oid, sent = relation.oid, set(relation.columns)
        followed, now = self._by_oid.get(oid), self._now.get(oid)
        if followed is None:
            return
        self._as_sent.discard(oid)
        self._newer.discard(oid)
        if sent <= self._columns[oid] and not self._arrays[oid]:
            self._as_sent.add(oid)
        elif now is not None and followed.table.chosen is None:
            # Columns that neither the mirror has nor the source had a moment ago.
            known = {column.name for column in now.layout.columns}
            if not sent <= known | self._columns[oid]:
                self._newer.add(oid)
