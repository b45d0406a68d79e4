"""Capture by logical replication: a publication and a slot, read through plain SQL.

The slot keeps the write-ahead log until it is read. A batch is what it says up to a position of the log, by
transactions in the order of their commits; the position is committed with the lake's snapshot, and only then
is the slot moved on. A batch that is read again is recognised by the position.

A copy is made at a snapshot, not at a position of the log: what the slot says of transactions that are in the
snapshot is left out, until everything that can be in it has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import psycopg
from psycopg import sql

from headwater.errors import HeadwaterError, SourceError, SourceUnavailableError
from headwater.lake.connection import Connection
from headwater.sources.batches import MOST_XIDS, Batch
from headwater.sources.connecting import Moment, SourceDatabase
from headwater.sources.describing import Described, describe
from headwater.sources.log_reading import Followed, LogReading
from headwater.sources.model import Form, Source, SourceTable
from headwater.sources.pgoutput import Decoder, lsn_number, lsn_text

#: Messages that are read at once, and then up to the end of the transaction.
MOST_MESSAGES = 500_000
#: A slot begins when every transaction that was running then has ended.
_SLOT_SECONDS = 30


def slot_name(source: Source) -> str:
    """What slot and publication of a source are called."""
    return f"headwater_{source.id.replace('-', '')[:12]}"


class Replication:
    """Capture by logical replication, for `Capturer`."""

    parts = 2  # the slot, and the table in the publication

    def trigger_names(self, source: Source) -> tuple[str, ...]:
        """None."""
        return ()

    def install(self, db: SourceDatabase, source: Source, tables: Mapping[int, Described]) -> None:
        """Publish these tables, and begin to keep what is said of them."""
        name = slot_name(source)
        by_number = {table.number: table for table in source.tables}
        for number, described in tables.items():
            problem = cannot_replicate(by_number[number], described)
            if problem is not None:
                raise SourceError(problem, hint="Use capture='triggers'.")
        # What a slot kept while there was no publication cannot be read: before version 18 that is an error.
        db.ask(
            lambda connection: connection.execute(
                _DROP_SLOT + " AND NOT EXISTS (SELECT FROM pg_publication WHERE pubname = slot_name)", (name,)
            )
        )
        db.change(lambda connection: _publish(connection, name, [by_number[number] for number in tables]))
        db.ask(lambda connection: _create_slot(connection, name))

    def copied_at(self, moment: Moment) -> str:
        """The position of what was copied at a moment."""
        return f"0/0 {moment.lsn} {moment.snapshot}"

    def read(
        self,
        db: SourceDatabase,
        source: Source,
        tables: Sequence[SourceTable],
        problems: dict[int, HeadwaterError],
    ) -> tuple[dict[int, Described], Batch]:
        """The tables as they are, and what committed since their positions."""

        def work(connection: Connection, moment: Moment) -> tuple[dict[int, Described], Batch]:
            now = _with_parts(connection, source, tables, describe(connection, tables, (), problems))
            if any(described.installed < self.parts for described in now.values()):
                return now, Batch("0/0")  # what was missed is found by a copy
            # What committed by now is in the log before this place.
            end = str(connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()[0][0])
            return now, self._batch(connection, source, tables, now, end)

        return db.read(work)

    def _batch(
        self,
        connection: Connection,
        source: Source,
        tables: Sequence[SourceTable],
        now: Mapping[int, Described],
        end: str,
    ) -> Batch:
        reading = LogReading({table.number: Followed.of(table) for table in tables}, now)
        cursor = connection.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, 'proto_version', '1', "
            "'publication_names', %s)",
            (slot_name(source), end, MOST_MESSAGES, sql.Identifier(slot_name(source)).as_string()),
            binary=True,
        )
        decoder, count = Decoder(), 0
        for (data,) in cursor:
            count += 1
            message = decoder.decode(bytes(data))
            if message is not None:
                reading.take(message)
        cut = count >= MOST_MESSAGES
        last = reading.end if cut else max(lsn_number(end), reading.end)
        batch = Batch(lsn_text(last), lsn_text(last))
        batch.tables = {number: one.changes for number, one in reading.tables.items() if one.changes.changes}
        batch.transactions = len(reading.xids)
        batch.xids = tuple(reading.xids[:MOST_XIDS])
        first = min((one.lsn for one in reading.tables.values()), default=0)
        # The log of others would be kept for ever if only our own changes moved the slot on.
        batch.idle = reading.end <= first and last - first < _WORTH_MOVING
        batch.positions = {
            number: f"{lsn_text(last)} {one.copied}"
            for number, one in reading.tables.items()
            if one.snapshot is not None and last < one.passed
        }
        return batch

    def pending(self, db: SourceDatabase, source: Source, tables: Sequence[SourceTable]) -> bool:
        """Whether anything of ours was said since the positions of the tables, or much of others."""
        followed = [Followed.of(table) for table in tables]
        reached = min(one.lsn for one in followed)
        since = min(one.lsn or one.passed for one in followed)

        def work(connection: Connection) -> bool:
            row = connection.execute(
                "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), %(since)s::pg_lsn) > %(worth)s OR "
                "pg_current_wal_flush_lsn() > %(at)s::pg_lsn AND EXISTS (SELECT 1 FROM "
                "pg_logical_slot_peek_binary_changes(%(slot)s, NULL, NULL, 'proto_version', '1', "
                "'publication_names', %(names)s) WHERE get_byte(data, 0) = 67 AND lsn > %(at)s::pg_lsn)",
                {
                    "at": lsn_text(reached),
                    "since": lsn_text(since),
                    "worth": _WORTH_MOVING,
                    "slot": slot_name(source),
                    "names": sql.Identifier(slot_name(source)).as_string(),
                },
            ).fetchone()
            return row is not None and bool(row[0])

        return db.ask(work)

    def consumed(self, db: SourceDatabase, source: Source, tables: Sequence[SourceTable]) -> None:
        """Let the source forget the log up to where all tables are."""
        reached = min((Followed.of(table).lsn for table in tables if table.position), default=0)
        if reached:
            db.ask(
                lambda connection: connection.execute(
                    "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots "
                    "WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn",
                    (lsn_text(reached), slot_name(source), lsn_text(reached)),
                )
            )

    def remove(self, db: SourceDatabase, source: Source) -> None:
        """Drop slot and publication."""
        name = slot_name(source)
        db.ask(lambda connection: connection.execute(_DROP_SLOT, (name,)))
        db.change(
            lambda connection: connection.execute(
                sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name))
            )
        )


#: Bytes of the log that are worth moving on for, though nothing in them is ours: they are kept, and read
#: again with every question whether there is more.
_WORTH_MOVING = 1 << 20


def cannot_replicate(table: SourceTable, described: Described) -> str | None:
    """Why a table cannot be captured by replication; None if it can."""
    name = table.source_name
    if described.partitioned:
        return f"{name} is partitioned"
    if not described.logged:
        return f"{name} is unlogged"
    if table.where is not None:
        return f"{name} has a condition"
    if described.generated:
        return f"{name} has generated columns, which are not sent"
    for column in described.layout.columns:
        if column.form is Form.ANY or (column.form is Form.DOCUMENT and column.type not in ("json", "jsonb")):
            return f"column {column.name!r} of {name} is {column.type}, which is not sent as JSON"
    identity = described.replica_identity
    if identity == "f" or (identity == "d" and described.primary and described.layout.key):
        return None
    return f"{name} has no primary key among its mirrored columns, and no REPLICA IDENTITY FULL"


def cannot_publish(connection: Connection, tables: Mapping[int, Described]) -> str | None:
    """Why nothing can be captured by replication here; None if it can."""
    found = connection.execute(
        "SELECT current_setting('wal_level'), pg_is_in_recovery(), "
        "(SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user), "
        "has_database_privilege(current_database(), 'CREATE'), "
        "(SELECT count(*) FROM pg_replication_slots) < current_setting('max_replication_slots')::int"
    ).fetchall()[0]
    level, standby, role, create, slots = found
    if level != "logical":
        return f"wal_level is {level}, not logical"
    if standby:
        return "the source is a standby"
    if not role:
        return "the source's user may not replicate"
    if not create or not all(described.owned for described in tables.values()):
        return "the source's user may not publish the tables"
    return None if slots else "all replication slots are in use"


def _publish(connection: Connection, name: str, tables: Sequence[SourceTable]) -> None:
    published = sql.Identifier(name)
    there = set(connection.execute(_PUBLISHED, (name,)).fetchall())
    if connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)).fetchone() is None:
        connection.execute(sql.SQL("CREATE PUBLICATION {}").format(published))
    for table in tables:
        if (table.schema, table.name) not in there:
            connection.execute(
                sql.SQL("ALTER PUBLICATION {} ADD TABLE ONLY {}").format(
                    published, sql.Identifier(table.schema, table.name)
                )
            )


def _with_parts(
    connection: Connection, source: Source, tables: Sequence[SourceTable], now: dict[int, Described]
) -> dict[int, Described]:
    """Tables with what of the parts that capture them is there."""
    name = slot_name(source)
    slot = connection.execute(_GOOD_SLOT, (name,)).fetchone() is not None
    published = set(connection.execute(_PUBLISHED, (name,)).fetchall())
    return {
        table.number: replace(
            now[table.number], installed=int(slot) + ((table.schema, table.name) in published)
        )
        for table in tables
        if table.number in now
    }


_GOOD_SLOT = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND wal_status <> 'lost'"
_DROP_SLOT = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
_PUBLISHED = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"


def _create_slot(connection: Connection, name: str) -> None:
    if connection.execute(_GOOD_SLOT, (name,)).fetchone() is not None:
        return
    # One that lost its log is of no use any more.
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
    )
    connection.execute(f"SET statement_timeout = '{_SLOT_SECONDS}s'")
    try:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    except psycopg.errors.QueryCanceled:
        raise SourceUnavailableError(
            "The replication slot could not be made: a transaction has been writing for too long.",
            hint="Try again when it has ended, or use capture='triggers'.",
        ) from None
    finally:
        if not connection.closed:
            connection.execute("RESET statement_timeout")
