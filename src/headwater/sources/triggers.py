"""Capture by triggers: what is installed in the source, and how it is read.

Schema `headwater_capture` of the source has a table of changes for each source, and a function for each
table. A row trigger writes the old and the new image of every changed row, with the id of its transaction.
Row triggers also see what is written straight into a partition, what cascades, and what a subscription
applies.

**Which changes are new** is a question of transactions, not of time or numbers: a position is a PostgreSQL
snapshot, and the next batch is every change whose transaction is in the new snapshot and was not in the old
one. A transaction that takes long comes later, as a whole.

**Their order does not matter.** With both images, a batch is a sum: new images count +1, old ones -1. Images
in between cancel out, whatever the order in which triggers ran; only TRUNCATE, which waits for everybody,
cuts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from headwater.errors import HeadwaterError
from headwater.lake.connection import Connection
from headwater.sources.backlog import end_with, with_taken
from headwater.sources.batches import MOST_XIDS, Batch, Net
from headwater.sources.connecting import SCHEMA, Moment, SourceDatabase
from headwater.sources.describing import Described, describe
from headwater.sources.model import Source, SourceTable
from headwater.sources.types import PRINTING

#: Any number, the same in every process: who changes the schema does so alone.
_LOCK = 0x68776361
#: What an image has instead of columns where there is none.
TROUBLE = "headwater error"
#: `json_build_object` takes no more arguments; of wider choices the whole row is written.
_MOST_CHOSEN = 50


@dataclass(frozen=True)
class Names:
    """What the objects of a source are called in its database."""

    source_id: str

    @property
    def changes(self) -> sql.Identifier:
        """The table of changes."""
        return sql.Identifier(SCHEMA, self.table)

    @property
    def table(self) -> str:
        """Its name."""
        return f"change_{self._short}"

    @property
    def index(self) -> str:
        """Its index."""
        return f"change_{self._short}_xid"

    def function(self, number: int) -> sql.Identifier:
        """The function that writes a table's changes."""
        return sql.Identifier(SCHEMA, f"capture_{self._short}_{number}")

    @property
    def rows_trigger(self) -> str:
        """The trigger for changed rows."""
        return f"headwater_capture_{self._short}"

    @property
    def truncate_trigger(self) -> str:
        """The trigger for TRUNCATE."""
        return f"headwater_truncate_{self._short}"

    @property
    def triggers(self) -> tuple[str, str]:
        """Both."""
        return self.rows_trigger, self.truncate_trigger

    @property
    def _short(self) -> str:
        return self.source_id.replace("-", "")[:12]


class Triggers:
    """Capture by triggers, for `Capturer`."""

    parts = 2

    def trigger_names(self, source: Source) -> tuple[str, ...]:
        """Triggers without which changes are missed."""
        return Names(source.id).triggers

    def install(self, db: SourceDatabase, source: Source, tables: Mapping[int, Described]) -> None:
        """Install what captures these tables."""
        db.change(lambda connection: install(connection, source, tables))

    def copied_at(self, moment: Moment) -> str:
        """The position of what was copied at a moment."""
        return moment.snapshot

    def read(
        self,
        db: SourceDatabase,
        source: Source,
        tables: Sequence[SourceTable],
        problems: dict[int, HeadwaterError],
    ) -> tuple[dict[int, Described], Batch]:
        """The tables as they are, and what committed since their positions: both of one moment."""

        def work(connection: Connection, moment: Moment) -> tuple[dict[int, Described], Batch]:
            now = describe(connection, tables, self.trigger_names(source), problems)
            if any(described.installed < self.parts for described in now.values()):
                return now, Batch(moment.snapshot, moment.lsn)  # what was missed is found by a copy
            return now, read(connection, moment, source, tables)

        return db.read(work)

    def pending(self, db: SourceDatabase, source: Source, tables: Sequence[SourceTable]) -> bool:
        """Whether anything committed since the positions of the tables."""
        return db.ask(lambda connection: pending(connection, source, tables))

    def consumed(self, db: SourceDatabase, source: Source, tables: Sequence[SourceTable]) -> None:
        """Remove what is in the lake."""
        db.change(lambda connection: prune(connection, source, tables))

    def remove(self, db: SourceDatabase, source: Source) -> None:
        """Remove all that was installed."""
        db.change(lambda connection: remove(connection, source))


# -- installing -------------------------------------------------------------------------------------------


def install(connection: Connection, source: Source, tables: Mapping[int, Described]) -> None:
    """Install what captures these tables; what is there already is brought up to date."""
    names = Names(source.id)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    if connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchall()[0][0] is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
    connection.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (seq bigint GENERATED ALWAYS AS IDENTITY, "
            "xid xid8 NOT NULL DEFAULT pg_current_xact_id(), tbl int NOT NULL, old json, new json, "
            "emptied bigint) "
            # Rows come and go all the time; what is gone must not be read over and over.
            "WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)"
        ).format(names.changes)
    )
    connection.execute(
        sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (xid)").format(
            sql.Identifier(names.index), names.changes
        )
    )
    by_number = {table.number: table for table in source.tables}
    for number, described in tables.items():
        table = by_number[number]
        complete = described.installed == len(names.triggers)
        if not complete:
            connection.execute(_dropped(names, table))
        connection.execute(_function(names, table))
        if not complete:
            _create_triggers(connection, names, table, described)


def _dropped(names: Names, table: SourceTable) -> sql.Composed:
    # Only its owner may drop a trigger of a table; but a function takes its triggers along.
    return sql.SQL("DROP FUNCTION IF EXISTS {}() CASCADE").format(names.function(table.number))


def _create_triggers(connection: Connection, names: Names, table: SourceTable, described: Described) -> None:
    target = sql.Identifier(table.schema, table.name)
    for name, events in (
        (names.rows_trigger, "AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW"),
        (names.truncate_trigger, "AFTER TRUNCATE ON {} FOR EACH STATEMENT"),
    ):
        trigger = sql.Identifier(name)
        connection.execute(
            sql.SQL("CREATE TRIGGER {} {} EXECUTE FUNCTION {}()").format(
                trigger, sql.SQL(events).format(target), names.function(table.number)
            )
        )
        if described.owned:
            # Also what a subscription applies, or a session with session_replication_role = replica writes.
            connection.execute(sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(target, trigger))


_GUARD = """EXCEPTION WHEN OTHERS THEN
        becomes := json_build_object('headwater error', SQLERRM);"""  # TROUBLE


def _function(names: Names, table: SourceTable) -> sql.Composed:
    """The function of a table. It runs with our rights, so what it calls is looked up in pg_catalog alone.

    It must never make a writer fail: where columns or condition do not fit the table any more, it writes that
    instead of an image, and the capture stops the table.
    """
    old, new = _image(table, "OLD"), _image(table, "NEW")
    guard = "" if table.chosen is None and table.where is None else _GUARD
    body = sql.SQL(
        """
#variable_conflict use_column
DECLARE
    was json;
    becomes json;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        INSERT INTO {changes} (tbl, emptied) VALUES ({number}, coalesce(pg_relation_filenode(TG_RELID), 0));
        RETURN NULL;
    END IF;
    BEGIN
        IF TG_OP <> 'INSERT' THEN
            was := {old};
        END IF;
        IF TG_OP <> 'DELETE' THEN
            becomes := {new};
        END IF;
    {guard}
    END;
    IF was::text IS DISTINCT FROM becomes::text THEN
        INSERT INTO {changes} (tbl, old, new) VALUES ({number}, was, becomes);
    END IF;
    RETURN NULL;
END"""
    ).format(changes=names.changes, number=sql.Literal(table.number), old=old, new=new, guard=sql.SQL(guard))
    settings = sql.SQL(" ").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in PRINTING.items()
    )
    return sql.SQL(
        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        "SET search_path = pg_catalog, pg_temp {} AS {}"
    ).format(names.function(table.number), settings, sql.Literal(body.as_string()))


def _image(table: SourceTable, row: str) -> sql.Composable:
    """The image of a row, NULL if the table's condition leaves it out."""
    image: sql.Composable = sql.SQL(f"row_to_json({row})")
    if table.chosen is not None and len(table.chosen) <= _MOST_CHOSEN:
        # Names, not the whole row: what is not mirrored does not leave the table.
        members = sql.SQL(", ").join(
            sql.SQL("{}, {}.{}").format(sql.Literal(name), sql.SQL(row), sql.Identifier(name))
            for name in table.chosen
        )
        image = sql.SQL("json_build_object({})").format(members)
    if table.where is None:
        return image
    return sql.SQL("(SELECT {} FROM (SELECT {}.*) AS {} WHERE ({}\n))").format(
        image, sql.SQL(row), sql.Identifier(table.name), sql.SQL(table.where)
    )


def remove(connection: Connection, source: Source) -> None:
    """Remove everything that was installed for a source, and the schema with the last of them."""
    names = Names(source.id)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    for table in source.tables:
        connection.execute(_dropped(names, table))
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(names.changes))
    left = connection.execute(
        "SELECT 1 FROM pg_namespace n WHERE n.nspname = %s AND pg_has_role(n.nspowner, 'USAGE') "
        "AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid) AND NOT EXISTS "
        "(SELECT FROM pg_proc p WHERE p.pronamespace = n.oid)",
        (SCHEMA,),
    ).fetchone()
    if left is not None:
        connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(SCHEMA)))


# -- reading ----------------------------------------------------------------------------------------------

#: Changes of each table that are not in the snapshot the table is at.
_NEW = """
    FROM {changes} c
    JOIN jsonb_to_recordset(%(at)s::jsonb) AS t(number int, position pg_snapshot) ON t.number = c.tbl
    WHERE c.xid >= %(least)s::xid8 AND NOT pg_visible_in_snapshot(c.xid, t.position)"""
#: Those of them that a batch takes.
_TAKEN = _NEW + " AND pg_visible_in_snapshot(c.xid, %(until)s::pg_snapshot)"
#: More changes than this are not taken at once, unless one transaction made them.
MOST_CHANGES = 500_000


def _at(tables: Sequence[SourceTable]) -> dict[str, str]:
    positions = [table.position for table in tables if table.position is not None]
    # A snapshot begins with the oldest transaction that was still running.
    least = min((int(position.split(":")[0]) for position in positions), default=0)
    at = [{"number": table.number, "position": table.position} for table in tables]
    return {"at": json.dumps(at), "least": str(least)}


def pending(connection: Connection, source: Source, tables: Sequence[SourceTable]) -> bool:
    """Whether anything committed since the positions of the tables."""
    text = sql.SQL("SELECT EXISTS (SELECT 1 " + _NEW + ")").format(changes=Names(source.id).changes)
    row = connection.execute(text, _at(tables)).fetchone()
    return row is not None and bool(row[0])


def read(connection: Connection, moment: Moment, source: Source, tables: Sequence[SourceTable]) -> Batch:
    """What committed between the positions of the tables and the moment that the connection reads."""
    batch = Batch(moment.snapshot, moment.lsn)
    if not tables:
        return batch
    names, given = Names(source.id), {**_at(tables), "until": moment.snapshot}
    counted = _counted(connection, names, given)
    if not counted:
        return batch
    before = {table.position for table in tables}
    emptied = any(cut is not None for _, _, cut, _ in counted)
    # Tables that are not all at one place, or that were emptied, are brought to the moment whole.
    if len(before) == 1 and not emptied and sum(count for _, count, _, _ in counted) > MOST_CHANGES:
        batch.position = given["until"] = _cut(connection, names, given, before.pop() or "", moment)
        batch.more = True
        counted = _counted(connection, names, given)
    cuts = {}
    for number, count, cut, storage in counted:
        batch.tables[number] = Net(count, truncated=cut is not None, storage=storage)
        cuts[number] = cut or 0
    xids = connection.execute(
        sql.SQL("SELECT DISTINCT c.xid::text::bigint " + _TAKEN + " ORDER BY 1").format(
            changes=names.changes
        ),
        given,
    ).fetchall()
    batch.transactions = len(xids)
    batch.xids = tuple(row[0] for row in xids[:MOST_XIDS])
    for number, image, amount in _net(connection, names, given, cuts):
        batch.tables[number].images.append((image, amount))
    return batch


def _counted(
    connection: Connection, names: Names, given: Mapping[str, str]
) -> list[tuple[int, int, int | None, str | None]]:
    """For each table its changes, the number of its last TRUNCATE, and which file it had after that."""
    return connection.execute(
        sql.SQL(
            "SELECT c.tbl, count(*), max(c.seq) FILTER (WHERE c.emptied IS NOT NULL), "
            "(array_agg(c.emptied ORDER BY c.seq DESC) FILTER (WHERE c.emptied IS NOT NULL))[1]::text "
            + _TAKEN
            + " GROUP BY c.tbl"
        ).format(changes=names.changes),
        given,
    ).fetchall()


def _cut(connection: Connection, names: Names, given: Mapping[str, str], before: str, moment: Moment) -> str:
    """How far a batch goes that takes a part of the transactions."""
    # The first one is taken however much it changed.
    chosen = connection.execute(
        sql.SQL(
            "SELECT xid FROM (SELECT xid, n, sum(n) OVER (ORDER BY last) AS total FROM ("
            "SELECT c.xid::text::bigint AS xid, count(*) AS n, max(c.seq) AS last "
            + _NEW
            + " GROUP BY c.xid) AS each) AS summed WHERE total <= greatest(%(most)s, n)"
        ).format(changes=names.changes),
        {**given, "most": MOST_CHANGES},
    )
    taken = {xid for (xid,) in chosen}
    waiting = connection.execute(
        sql.SQL("SELECT DISTINCT c.xid::text::bigint " + _NEW + " AND c.xid < %(end)s::text::xid8").format(
            changes=names.changes
        ),
        {**given, "end": str(end_with(before, taken))},
    )
    return with_taken(before, moment.snapshot, taken, (xid for (xid,) in waiting))


def _net(
    connection: Connection, names: Names, given: Mapping[str, str], cuts: Mapping[int, int]
) -> Iterator[tuple[int, str, int]]:
    text = sql.SQL(
        "SELECT tbl, image, sum(n)::int FROM (SELECT c.tbl, i.image, i.n "
        + _TAKEN.replace(
            "WHERE",
            "JOIN jsonb_to_recordset(%(cuts)s::jsonb) AS k(number int, seq bigint) ON k.number = c.tbl "
            "CROSS JOIN LATERAL (VALUES (c.old::text, -1), (c.new::text, 1)) AS i(image, n) "
            "WHERE c.seq > k.seq AND i.image IS NOT NULL AND",
        )
        + ") AS changed GROUP BY tbl, image HAVING sum(n) <> 0"
    ).format(changes=names.changes)
    listed = json.dumps([{"number": number, "seq": seq} for number, seq in cuts.items()])
    cursor = connection.execute(text, {**given, "cuts": listed})
    while rows := cursor.fetchmany(10_000):
        yield from rows


def prune(connection: Connection, source: Source, tables: Sequence[SourceTable]) -> int:
    """Remove changes that are in the positions of the tables. Returns how many.

    For a table that is not followed, the position is a moment at which that was known: a copy that began
    later has those changes, and may need the ones after it.
    """
    text = sql.SQL(
        "DELETE FROM {changes} c USING jsonb_to_recordset(%(at)s::jsonb) "
        "AS t(number int, position pg_snapshot) "
        "WHERE t.number = c.tbl AND pg_visible_in_snapshot(c.xid, t.position)"
    ).format(changes=Names(source.id).changes)
    return connection.execute(text, _at([table for table in tables if table.position is not None])).rowcount
